# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Certificates and signed documents of DDS Security, in the files that ROS 2 reads."""
