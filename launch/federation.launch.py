# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
A whole federation on this host: prepare its directory, then servers, hospitals and robots.

Simulated, for research: not a medical device.
"""

from fdrl_ros.nodes.common.launching import arguments, federation
from launch import LaunchDescription


def generate_launch_description() -> LaunchDescription:
    return LaunchDescription([*arguments('federation'), *federation()])
