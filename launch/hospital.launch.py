# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""One hospital: its trainer, which takes part in the rounds and hands policies to the robots."""

from fdrl_ros.nodes.common.launching import arguments, nodes
from launch import LaunchDescription


def generate_launch_description() -> LaunchDescription:
    return LaunchDescription([*arguments('hospital'), *nodes('hospital')])
