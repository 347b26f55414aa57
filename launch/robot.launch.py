# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""One operating room: simulated arm and patient, selector, and RViz if asked for."""

from dataclasses import replace

from fdrl_ros.bringup import BringupSettings, environment, NodeSpec, robot_graph
from fdrl_ros.nodes.launching import chosen, declare, graph
from fdrl_ros.resources import resource
from launch import LaunchContext, LaunchDescription
from launch.actions import DeclareLaunchArgument, OpaqueFunction
from launch.conditions import IfCondition
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node

ROBOT, OPERATIONS = LaunchConfiguration('robot'), LaunchConfiguration('operations')
# Switches of the env that are worth an argument of their own.
SWITCHES = {
    'endoscope': "draw and publish the endoscope's pictures: true or false",
    'publish_clock': 'publish /clock for nodes that use_sim_time: true or false',
}
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


def room(context: LaunchContext, settings: BringupSettings) -> tuple[NodeSpec, ...]:
    env, *others = robot_graph(settings, ROBOT.perform(context), int(OPERATIONS.perform(context)))
    on = {
        each: True for each in SWITCHES if IfCondition(LaunchConfiguration(each)).evaluate(context)
    }
    return (replace(env, parameters={**env.parameters, **on}), *others)


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
            *(
                DeclareLaunchArgument(name, default_value='false', description=text)
                for name, text in SWITCHES.items()
            ),
            *declare(BringupSettings),
            graph(room),
            OpaqueFunction(function=show, condition=IfCondition(LaunchConfiguration('rviz'))),
        ]
    )
