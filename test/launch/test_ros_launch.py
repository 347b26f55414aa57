# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What only `ros2 launch` has: declared arguments and actions, scopes, and lifecycle events."""

from pathlib import Path
import subprocess
import sys

import pytest

pytest.importorskip('launch_ros', reason='launch_ros is not installed')

from fdrl_ros.deployment.launch_files import FILES, full_graph, names  # noqa: E402, I100
from fdrl_ros.resources import resource  # noqa: E402
from launch import (  # noqa: E402
    LaunchContext,
    LaunchDescription,
    LaunchIntrospector,
    LaunchService,
)
from launch.actions import (  # noqa: E402
    DeclareLaunchArgument,
    EmitEvent,
    GroupAction,
    IncludeLaunchDescription,
    OpaqueFunction,
    RegisterEventHandler,
    TimerAction,
)
from launch.event_handlers import OnProcessStart  # noqa: E402
from launch.events import Shutdown  # noqa: E402
from launch.launch_description_sources import PythonLaunchDescriptionSource  # noqa: E402
from launch_ros.actions import LifecycleNode, Node, PushRosNamespace  # noqa: E402
from launch_ros.event_handlers import OnStateTransition  # noqa: E402
from launch_ros.events.lifecycle import ChangeState, matches_node_name  # noqa: E402
from lifecycle_msgs.msg import Transition  # noqa: E402

INCLUDES = """
from launch import LaunchDescription
from launch.actions import IncludeLaunchDescription
from launch.launch_description_sources import PythonLaunchDescriptionSource
def generate_launch_description():
    source = PythonLaunchDescriptionSource({file!r})
    return LaunchDescription([IncludeLaunchDescription(source)])
"""


def source(file: str) -> PythonLaunchDescriptionSource:
    return PythonLaunchDescriptionSource(str(resource(f'launch/{file}.launch.py')))


def description(file: str) -> LaunchDescription:
    return source(file).get_launch_description(LaunchContext())


@pytest.mark.parametrize('file', FILES)
def test_every_argument_has_a_default_and_a_sentence(file):
    declared = [
        each for each in description(file).entities if isinstance(each, DeclareLaunchArgument)
    ]
    assert [each.name for each in declared] == names(file)
    for each in declared:
        assert each.default_value is not None and len(each.description) > 8


@pytest.mark.parametrize('file', [each for each in FILES if each != 'federation'])
def test_every_node_of_the_graph_is_a_declared_action(file):
    actions = [each for each in description(file).entities if isinstance(each, Node)]
    graph = full_graph(file)
    assert [each.node_executable for each in actions] == [each.executable for each in graph]
    for action, spec in zip(actions, graph, strict=True):
        assert isinstance(action, LifecycleNode) == (spec.package == 'fdrl_ros')
        assert action.condition is not None


def test_the_description_of_a_federation_names_what_it_includes():
    shown = LaunchIntrospector().format_launch_description(description('federation'))
    for each in ("exec='fdrl'", 'server.launch.py', 'hospital.launch.py', 'robot.launch.py'):
        assert each in shown


def test_file_that_includes_ours_may_have_other_arguments(tmp_path: Path):
    mine, missing = tmp_path / 'mine.launch.py', tmp_path / 'site.yaml'
    mine.write_text(INCLUDES.format(file=str(resource('launch/robot.launch.py'))))
    command = ['ros2', 'launch', str(mine), 'camera:=true', f'parameters:={missing}']
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and 'parameters = ' in done.stderr + done.stdout


def test_lifecycle_events_bind_in_the_domain_of_the_robots_and_in_any_namespace(
    tmp_path, robot_domain
):
    directory = tmp_path / 'federation'
    command = [sys.executable, '-m', 'fdrl_ros', 'prepare', str(directory), '--rounds', '1']
    small = ['--collection-patients', '30', '--pretraining-patients', '10', '--noise', 'seeded']
    small += ['--privacy-batch', '10', '--privacy-delta', '0.001', '--pretraining-steps', '20']
    subprocess.run([*command, *small], check=True, timeout=60)
    env = '/ward/wing/robot_1/env'
    states: list[str] = []

    def change(transition: int) -> EmitEvent:
        return EmitEvent(
            event=ChangeState(
                lifecycle_node_matcher=matches_node_name(env), transition_id=transition
            )
        )

    def note(context: LaunchContext) -> None:
        event = context.locals.event
        if event.action.node_name == env and event.goal_state in ('inactive', 'active'):
            states.append(event.goal_state)

    arguments = {
        'directory': directory,
        'robot_domain': robot_domain,
        'namespace': 'wing',
        'autostart': False,
        'description': False,
    }
    seen = [EmitEvent(event=Shutdown(reason='seen'))]
    inactive = [change(Transition.TRANSITION_ACTIVATE)]
    configure = [change(Transition.TRANSITION_CONFIGURE)]
    started = OnProcessStart(on_start=configure, handle_once=True)
    service = LaunchService()
    service.include_launch_description(
        LaunchDescription(
            [
                RegisterEventHandler(started),
                RegisterEventHandler(OnStateTransition(goal_state='inactive', entities=inactive)),
                RegisterEventHandler(OnStateTransition(goal_state='active', entities=seen)),
                RegisterEventHandler(OnStateTransition(entities=[OpaqueFunction(function=note)])),
                TimerAction(period=60.0, actions=[EmitEvent(event=Shutdown(reason='late'))]),
                GroupAction(
                    [
                        PushRosNamespace('ward'),
                        IncludeLaunchDescription(
                            source('robot'),
                            launch_arguments=[(key, str(each)) for key, each in arguments.items()],
                        ),
                    ]
                ),
            ]
        )
    )
    assert service.run() == 0
    assert states == ['inactive', 'active']
