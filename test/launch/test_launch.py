# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The launch files start the graph of bringup.py, take parameters, and end with exit code 0."""

from pathlib import Path
import runpy
import signal
import subprocess
import sys
import time

import pytest

for _module in ('launch_ros',):
    pytest.importorskip(_module, reason=f'{_module} is not installed: ROS 2 without ros2 launch')

from fdrl_ros.deployment.bringup import (  # noqa: E402, I100
    BringupSettings,
    FederationArguments,
    hospital_graph,
    robot_graph,
    RobotArguments,
    RoomArguments,
    server_graph,
)
from fdrl_ros.errors import SettingError  # noqa: E402
from fdrl_ros.nodes.common.launching import chosen  # noqa: E402
from fdrl_ros.resources import resource  # noqa: E402
from launch import LaunchContext, LaunchDescription, LaunchService  # noqa: E402
from launch.actions import (  # noqa: E402
    DeclareLaunchArgument,
    EmitEvent,
    IncludeLaunchDescription,
    RegisterEventHandler,
    TimerAction,
)
from launch.event_handlers import OnProcessExit, OnProcessIO, OnProcessStart  # noqa: E402
from launch.events import Shutdown  # noqa: E402
from launch.launch_description_sources import PythonLaunchDescriptionSource  # noqa: E402
from support.orphans import descendants, ended, watched  # noqa: E402

FILES = ('federation', 'server', 'hospital', 'robot')


def description(name: str) -> LaunchDescription:
    path = resource(f'launch/{name}.launch.py')
    source = PythonLaunchDescriptionSource(str(path))
    return source.get_launch_description(LaunchContext())


class Launched:
    """One run of a launch file, and what it started."""

    def __init__(self, name: str, **arguments: object) -> None:
        self.started: list[str] = []
        self.codes: dict[str, int] = {}
        self.said = ''
        self.service = LaunchService()
        path = resource(f'launch/{name}.launch.py')
        self.service.include_launch_description(
            LaunchDescription(
                [
                    RegisterEventHandler(OnProcessStart(on_start=self._start)),
                    RegisterEventHandler(OnProcessExit(on_exit=self._exit)),
                    RegisterEventHandler(OnProcessIO(on_stdout=self._io, on_stderr=self._io)),
                    IncludeLaunchDescription(
                        PythonLaunchDescriptionSource(str(path)),
                        launch_arguments=[(key, str(each)) for key, each in arguments.items()],
                    ),
                ]
            )
        )
        self._until = ''
        self._count = 0

    def run(self, until: str, count: int, seconds: float) -> int:
        """
        Run until a text was said so many times, then shut down; give up after a time.

        :returns: exit code of `ros2 launch`.
        """
        self._until, self._count = until, count
        limit = TimerAction(period=seconds, actions=[EmitEvent(event=Shutdown(reason='late'))])
        self.service.include_launch_description(LaunchDescription([limit]))
        code: int = self.service.run()
        return code

    def _start(self, event, context):
        self.started.append(event.process_name)

    def _exit(self, event, context):
        self.codes[event.process_name] = event.returncode

    def _io(self, event):
        before = self.said.count(self._until)
        self.said += event.text.decode('utf-8', 'replace')
        if before < self._count <= self.said.count(self._until):
            return EmitEvent(event=Shutdown(reason='seen'))
        return None


@pytest.mark.parametrize('name', FILES)
def test_every_argument_has_a_default_and_a_sentence(name):
    declared = [
        each for each in description(name).entities if isinstance(each, DeclareLaunchArgument)
    ]
    assert {each.name for each in BringupSettings.describe()} <= {each.name for each in declared}
    for each in declared:
        assert each.default_value is not None and len(each.description) > 8
    rooms = {each.name for each in RoomArguments.describe()}
    assert rooms <= {each.name for each in declared} or name not in ('federation', 'robot')


def launch_context(**arguments: str) -> LaunchContext:
    """Return the context of robot.launch.py with these arguments."""
    context = LaunchContext()
    context.launch_configurations.update(arguments)
    for each in description('robot').entities:
        if isinstance(each, DeclareLaunchArgument):
            each.execute(context)
    return context


def test_frames_are_told_unless_told_not_to_and_rviz_is_shown_when_asked_for():
    show = runpy.run_path(str(resource('launch/robot.launch.py')))['show']
    for arguments, wanted in (
        ({}, ['robot_state_publisher']),
        ({'rviz': 'true'}, ['robot_state_publisher', 'rviz2']),
        ({'description': 'false'}, []),
    ):
        shown = show(launch_context(**arguments))
        assert [each.node_executable for each in shown] == wanted


def test_argument_that_is_none_is_refused_by_its_name():
    for name, value in (('operations', 'abc'), ('rviz', 'perhaps'), ('armed', 'ture')):
        with pytest.raises(SettingError, match=f'{name}.*{value}'):
            chosen(launch_context(**{name: value}), RobotArguments)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Return a small prepared federation, made by the command that launch calls."""
    path = tmp_path / 'federation'
    subprocess.run(
        [sys.executable, '-m', 'fdrl_ros', 'prepare', str(path), '--rounds', '1', *OPTIONS],
        check=True,
        timeout=60,
    )
    return path


OPTIONS = [
    '--noise', 'seeded', '--learner-hidden', '8', '--learner-epochs', '1',
    '--privacy-batch', '10', '--privacy-delta', '0.001', '--collection-patients', '30',
    '--pretraining-patients', '10', '--pretraining-steps', '20', '--validation-patients', '3',
    '--validation-margin', '1.0', '--world-mode', 'kinematic',
]  # fmt: skip


def test_server_starts_what_the_graph_says_and_ends_cleanly(
    directory, federation_domain, robot_domain
):
    launched = Launched(
        'server',
        directory=directory,
        federation_domain=federation_domain,
        robot_domain=robot_domain,
    )
    launched.run('a new round', 1, 30.0)
    assert 'a new round' in launched.said
    assert executables(launched) == sorted(
        each.executable for each in server_graph(BringupSettings())
    )
    assert set(launched.codes.values()) == {0}


def test_federation_prepares_runs_all_rounds_and_ends_cleanly(
    tmp_path, federation_domain, robot_domain
):
    settings = BringupSettings(
        directory=str(tmp_path / 'federation'),
        federation_domain=federation_domain,
        robot_domain=robot_domain,
    )
    launched = Launched(
        'federation',
        directory=settings.directory,
        federation_domain=federation_domain,
        robot_domain=robot_domain,
        hospitals=3,
        rounds=1,
        robots=1,
        description=False,  # robot_state_publisher is no part of this test, nor of every machine
        options=' '.join(OPTIONS),
    )
    launched.run('all rounds are done', 1, 90.0)
    assert 'all rounds are done' in launched.said
    arguments = FederationArguments()
    graph = [
        *server_graph(settings),
        *(spec for name in arguments.hospital_names for spec in hospital_graph(settings, name)),
        *robot_graph(settings, 'robot_1'),
    ]
    assert executables(launched) == sorted(['fdrl', *(each.executable for each in graph)])
    assert set(launched.codes.values()) == {0}


def test_plan_that_the_budget_does_not_pay_for_ends_the_launch_with_exit_code_1(
    tmp_path, federation_domain, robot_domain
):
    launched = Launched(
        'federation',
        directory=tmp_path / 'federation',
        federation_domain=federation_domain,
        robot_domain=robot_domain,
        rounds=900,
    )
    assert launched.run('never', 1, 30.0) == 1
    assert executables(launched) == ['fdrl'] and 'set rounds to at most' in launched.said
    assert not (tmp_path / 'federation').exists()


def test_setting_that_cannot_be_ends_the_launch(directory, federation_domain):
    began = time.monotonic()
    launched = Launched(
        'server',
        directory=directory,
        federation_domain=federation_domain,
        robot_domain=federation_domain,
    )
    launched.run('never', 1, 30.0)
    assert launched.started == [] and time.monotonic() - began < 20.0


# As `ros2 launch` does it.
LAUNCH = """
import sys
from launch import LaunchDescription, LaunchService
from launch.actions import IncludeLaunchDescription
from launch.launch_description_sources import PythonLaunchDescriptionSource
file, *words = sys.argv[1:]
source = PythonLaunchDescriptionSource(file)
arguments = [word.split(':=') for word in words]
service = LaunchService(argv=words)
service.include_launch_description(
    LaunchDescription([IncludeLaunchDescription(source, launch_arguments=arguments)])
)
sys.exit(service.run())
"""
INCLUDES = """
from launch import LaunchDescription
from launch.actions import IncludeLaunchDescription
from launch.launch_description_sources import PythonLaunchDescriptionSource
def generate_launch_description():
    source = PythonLaunchDescriptionSource({file!r})
    return LaunchDescription([IncludeLaunchDescription(source)])
"""


def refusal(file: Path, *words: str) -> str:
    """Return the one line by which a launch ends with exit code 1 and starts nothing."""
    command = [sys.executable, '-c', LAUNCH, str(file), *words]
    out = {'stdout': subprocess.PIPE, 'stderr': subprocess.STDOUT}
    done = subprocess.run(command, **out, text=True, timeout=30)
    assert done.returncode == 1 and 'process started' not in done.stdout
    (line,) = (each for each in done.stdout.splitlines() if each.startswith('[ERROR]'))
    return line


@pytest.mark.parametrize('name', FILES)
def test_typing_error_ends_the_launch_before_any_node_starts(name, tmp_path):
    file = resource(f'launch/{name}.launch.py')
    missing = tmp_path / 'site.yaml'
    assert f"parameters = '{missing}'" in refusal(file, f'parameters:={missing}')
    assert "autostrat = 'false'" in refusal(file, 'autostrat:=false')
    if name in ('federation', 'robot'):
        assert 'did you mean env?' in refusal(file, 'evn:=false')
        assert "armed = 'ture'" in refusal(file, 'armed:=ture')
    if name != 'federation':
        assert f"directory = '{missing}'" in refusal(file, f'directory:={missing}')
    misspelt = tmp_path / 'misspelt.yaml'
    misspelt.write_text('/robot_1/selectr: {ros__parameters: {armed: false}}')
    assert 'did you mean selector?' in refusal(file, f'parameters:={misspelt}')


def test_file_that_includes_ours_may_have_other_arguments(tmp_path):
    mine, missing = tmp_path / 'mine.launch.py', tmp_path / 'site.yaml'
    mine.write_text(INCLUDES.format(file=str(resource('launch/robot.launch.py'))))
    assert 'parameters = ' in refusal(mine, 'camera:=true', f'parameters:={missing}')


def test_selector_is_armed_as_said_and_alone_where_a_real_arm_answers():
    room = runpy.run_path(str(resource('launch/robot.launch.py')))['room']
    for arguments, wanted in (
        ({}, {'env': None, 'selector': True}),
        ({'armed': 'false'}, {'env': None, 'selector': False}),
        ({'env': 'false'}, {'selector': False}),
        ({'env': 'false', 'armed': 'true'}, {'selector': True}),
    ):
        context = launch_context(**arguments)
        specs = room(context, chosen(context, BringupSettings))
        assert {each.name: each.parameters.get('armed') for each in specs} == wanted


@pytest.mark.parametrize('number', [signal.SIGTERM, signal.SIGKILL])
def test_nodes_end_with_the_launch_however_that_ends(
    directory, federation_domain, robot_domain, number
):
    command = [sys.executable, '-c', LAUNCH, str(resource('launch/robot.launch.py'))]
    command += [f'directory:={directory}', f'federation_domain:={federation_domain}']
    command += [f'robot_domain:={robot_domain}', 'description:=false']
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        said = ''
        while said.count('is in DDS domain') < 2:
            line = process.stdout.readline()
            assert line, said
            said += line
        with watched(descendants(process.pid)) as orphans:
            assert len(orphans) == 2
            process.send_signal(number)
            assert ended(orphans)


def executables(launched: Launched) -> list[str]:
    """Return what was started, without launch's numbers."""
    return sorted(each.rpartition('-')[0] for each in launched.started)
