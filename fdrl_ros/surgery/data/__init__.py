# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Recorded operations: datasets, bags (rosbag2) and logs of an arm."""
