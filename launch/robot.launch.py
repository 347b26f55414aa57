# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""One operating room: selector, simulated arm and patient, frames; RViz, a page if asked for."""

from fdrl_ros.nodes.common.launching import arguments, nodes, page
from launch import LaunchDescription


def generate_launch_description() -> LaunchDescription:
    return LaunchDescription([*arguments('robot'), *nodes('robot'), page('robot')])
