# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The arm's ROS interface: CRTK topics, readings, markers, pictures."""
