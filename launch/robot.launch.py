# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""One operating room: simulated arm and patient, selector, and RViz if asked for."""

from fdrl_ros.bringup import BringupSettings, environment, robot_graph
from fdrl_ros.nodes.launching import chosen, declare, graph
from fdrl_ros.resources import resource
from launch import LaunchContext, LaunchDescription
from launch.actions import DeclareLaunchArgument, OpaqueFunction
from launch.conditions import IfCondition
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node

ROBOT, OPERATIONS = LaunchConfiguration('robot'), LaunchConfiguration('operations')
# Every robot keeps its own tree of frames.
FRAMES = [('/tf', 'tf'), ('/tf_static', 'tf_static')]


def show(context: LaunchContext) -> list[Node]:
    settings = chosen(context, BringupSettings)
    common = {
        'namespace': ROBOT,
        'remappings': FRAMES,
        'additional_env': environment(settings, settings.robot_domain),
    }
    description = resource('urdf/psm.urdf').read_text('utf-8')
    return [
        Node(
            package='robot_state_publisher',
            executable='robot_state_publisher',
            parameters=[{'robot_description': description}],
            **common,
        ),
        Node(
            package='rviz2',
            executable='rviz2',
            arguments=['-d', str(resource('config/robot.rviz'))],
            **common,
        ),
    ]


def generate_launch_description() -> LaunchDescription:
    return LaunchDescription(
        [
            DeclareLaunchArgument(
                'robot',
                default_value='robot_1',
                description='name of the robot: the namespace of its topics',
            ),
            DeclareLaunchArgument(
                'operations',
                default_value='-1',
                description='patients operated on by itself, one after the other; -1: no end',
            ),
            DeclareLaunchArgument(
                'rviz',
                default_value='false',
                description='show arm, patient and force in RViz (simulated): true or false',
            ),
            *declare(BringupSettings),
            graph(
                lambda context, settings: robot_graph(
                    settings, ROBOT.perform(context), int(OPERATIONS.perform(context))
                )
            ),
            OpaqueFunction(function=show, condition=IfCondition(LaunchConfiguration('rviz'))),
        ]
    )
