# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The servers of a federation: aggregator and key authority."""

from fdrl_ros.nodes.common.launching import arguments, nodes
from launch import LaunchDescription


def generate_launch_description() -> LaunchDescription:
    return LaunchDescription([*arguments('server'), *nodes('server')])
