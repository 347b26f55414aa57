# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Readers of public surgical videos, as their owners lay them out."""
