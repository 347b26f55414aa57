# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""One operating room: selector, simulated arm and patient, frames, and RViz if asked for."""

from fdrl_ros.deployment.bringup import (
    BringupSettings,
    environment,
    NodeSpec,
    robot_graph,
    RobotArguments,
)
from fdrl_ros.nodes.common.launching import chosen, declare, graph
from fdrl_ros.resources import resource
from launch import LaunchContext, LaunchDescription
from launch.actions import OpaqueFunction
from launch_ros.actions import Node

# Every robot keeps its own tree of frames.
FRAMES = [('/tf', 'tf'), ('/tf_static', 'tf_static')]


def show(context: LaunchContext) -> list[Node]:
    settings, arguments = chosen(context, BringupSettings), chosen(context, RobotArguments)
    common = {
        'namespace': arguments.robot,
        'remappings': FRAMES,
        'additional_env': environment(settings, settings.robot_domain),
        # They too end with the launcher, however it ends.
        'prefix': 'setpriv --pdeathsig TERM',
    }
    time = {'use_sim_time': arguments.use_sim_time}
    shown = []
    if arguments.description:
        text = resource('urdf/psm.urdf').read_text('utf-8')
        shown.append(
            Node(
                package='robot_state_publisher',
                executable='robot_state_publisher',
                parameters=[{'robot_description': text, 'publish_frequency': 50.0, **time}],
                **common,
            )
        )
    if arguments.rviz:
        shown.append(
            Node(
                package='rviz2',
                executable='rviz2',
                arguments=['-d', str(resource('config/robot.rviz'))],
                parameters=[time],
                **common,
            )
        )
    return shown


def room(context: LaunchContext, settings: BringupSettings) -> tuple[NodeSpec, ...]:
    arguments = chosen(context, RobotArguments)
    return robot_graph(settings, arguments.robot, arguments.operations, arguments)


def generate_launch_description() -> LaunchDescription:
    return LaunchDescription(
        [*declare(RobotArguments, BringupSettings), graph(room), OpaqueFunction(function=show)]
    )
