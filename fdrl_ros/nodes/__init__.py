# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The ROS 2 nodes: thin drivers of the parties, one process each, and all that imports rclpy."""

from fdrl_ros.runtime.environment_variables import take_one_thread

take_one_thread()
