# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Nothing is commanded 0.5 s after launcher or env are lost, and no node outlives its launcher."""

from collections.abc import Callable, Iterator
import os
from pathlib import Path
import signal
import subprocess
import sys
import time

from fdrl_ros.deployment.bringup import BringupSettings, robot_graph
import fdrl_ros.msg as ros
from fdrl_ros.nodes.arm.robot_messages import seconds
from fdrl_ros.nodes.common import qos
from geometry_msgs.msg import PoseStamped
import pytest
from support.foreign_robot import ForeignRobot, moving, released
from support.operating_room import Room
from support.orphans import descendants, ended, watched

SOON = 0.5
"""Time after a loss in which the last command leaves, second."""

# As `ros2 launch` does: it gives nodes their variables, and says nothing to them when it ends.
LAUNCHER = """
import os, signal, subprocess
from fdrl_ros.deployment.bringup import *
from fdrl_ros.deployment.runner import command
settings = {settings}
for spec in {graph}:
    variables = os.environ | environment(settings, spec.domain)
    subprocess.Popen(command(spec), env=variables)
signal.pause()
"""


@pytest.fixture
def launch(settings: BringupSettings) -> Iterator[Callable[[str], subprocess.Popen[bytes]]]:
    """Return what starts a launcher of a graph."""
    launchers = []

    def start(graph: str) -> subprocess.Popen[bytes]:
        program = LAUNCHER.format(settings=settings, graph=graph)
        launchers.append(subprocess.Popen([sys.executable, '-c', program]))
        return launchers[-1]

    yield start
    for each in launchers:
        each.kill()
        each.wait()


def lose(launcher: subprocess.Popen[bytes], number: signal.Signals, room: Room) -> float:
    """End a launcher, wait for the end of all that it started, and return when that began."""
    with watched(descendants(launcher.pid)) as orphans:
        assert len(orphans) > 1
        lost = time.time()
        launcher.send_signal(number)
        room.wait(lambda: ended(orphans, 0.0))
    return lost


@pytest.fixture
def commands(room: Room, directory: Path) -> list:
    """Release a policy, and return the commands that come."""
    room.hear(PoseStamped, 'servo_cp', qos.EVENT)
    publish = room.node.create_publisher
    publish(ros.GlobalPolicy, '/federation/policy', qos.LATCHED).publish(released(directory))
    return room.heard['servo_cp']


def last(commands: list, lost: float, room: Room) -> float:
    """Listen for long enough, and return how long after a loss the last command left, second."""
    room.wait(lambda: time.time() > lost + 4.0 * SOON)
    return seconds(commands[-1][1].header.stamp) - lost


@pytest.mark.parametrize('number', [signal.SIGTERM, signal.SIGKILL])
def test_robot_does_not_outlive_its_launcher(launch, room, commands, number):
    launcher = launch("robot_graph(settings, 'robot_1', operations=-1)")
    room.wait(lambda: len(commands) > 40, 90.0)
    lost = lose(launcher, number, room)
    assert last(commands, lost, room) < SOON


def test_federation_does_not_outlive_its_launcher(launch, settings):
    room = Room(settings.federation_domain, '/federation')
    room.hear(ros.RoundStatus, 'round', qos.LATCHED)
    launcher = launch('federation_graph(settings, FederationArguments().hospital_names)')
    try:
        room.wait(lambda: room.last('round') and room.last('round').members)
        lose(launcher, signal.SIGKILL, room)
    finally:
        room.close()


def test_env_that_is_killed_is_commanded_no_more(runner, room, commands, settings):
    runner.start(robot_graph(settings, 'robot_1', operations=-1))
    room.wait(lambda: len(commands) > 40, 90.0)
    lost = time.time()
    os.kill(runner.process_id('robot_1.env'), signal.SIGKILL)
    assert last(commands, lost, room) < SOON
    assert runner.running == ('robot_1.selector',)


def test_vital_signs_alone_are_no_reason_to_command(runner, room, commands, settings):
    arm = ForeignRobot(room)
    runner.start(robot_graph(settings, 'robot_1')[1:])
    arm.say_until(moving(room), 90.0)
    arm.silent = ('operation_state', 'setpoint_cp')
    lost = time.time()
    arm.say_until(lambda: time.time() > lost + 4.0 * SOON)
    assert last(commands, lost, room) < SOON
    arm.silent = ()
    arm.say_until(moving(room))
