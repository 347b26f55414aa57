# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Processes, files and compiled kernels: what every room uses of the system."""
