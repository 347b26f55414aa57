# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The ROS drivers of the parties: messages, topics, orders."""
