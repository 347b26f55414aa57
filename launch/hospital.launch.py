# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""One hospital: its trainer, which takes part in the rounds and hands policies to the robots."""

from fdrl_ros.deployment.bringup import BringupSettings, hospital_graph
from fdrl_ros.nodes.common.launching import declare, graph
from launch import LaunchDescription
from launch.actions import DeclareLaunchArgument
from launch.substitutions import LaunchConfiguration


def generate_launch_description() -> LaunchDescription:
    name = LaunchConfiguration('hospital')
    return LaunchDescription(
        [
            DeclareLaunchArgument(
                'hospital', default_value='hospital_1', description='name in the roster'
            ),
            *declare(BringupSettings),
            graph(lambda context, settings: hospital_graph(settings, name.perform(context))),
        ]
    )
