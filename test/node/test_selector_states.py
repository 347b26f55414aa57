# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The selector beside a robot that is not ours: other names are all that it takes."""

from contextlib import contextmanager
import math
import os
import subprocess
import sys

from fdrl_ros.deployment.bringup import environment
import fdrl_ros.msg as ros
from fdrl_ros.nodes.arm.robot_messages import OperatingState
from fdrl_ros.nodes.common import qos
import numpy as np
from rclpy.duration import Duration
from support.foreign_robot import ForeignRobot, moving, reason, released

NAMES = {
    'setpoint_cp': '/PSM1/setpoint_cp',
    'servo_cp': '/PSM1/servo_cp',
    'operating_state': '/PSM1/operating_state',
    'state_command': '/PSM1/state_command',
    'patient_state': '/monitor/vitals',
    'operation_state': '/bridge/operation',
}


@contextmanager
def selector(settings, directory, **names):
    """Run an armed selector whose topics have other names."""
    remapped = [word for pair in names.items() for word in ('-r', ':='.join(pair))]
    command = [
        *(sys.executable, '-m', 'fdrl_ros.nodes', 'selector', '--ros-args'),
        *('-r', '__ns:=/robot_1', '-p', f'directory:={directory}', '-p', 'armed:=true'),
    ]
    variables = os.environ | environment(settings, settings.robot_domain)
    process = subprocess.Popen([*command, *remapped], env=variables)
    try:
        yield
    finally:
        process.terminate()
        assert process.wait(15.0) == 0


def test_another_arm_needs_other_names_alone(room, settings, directory):
    arm = ForeignRobot(room, names=NAMES.__getitem__, pair=False)
    policy = room.node.create_publisher(ros.GlobalPolicy, '/federation/policy', qos.LATCHED)
    policy.publish(released(directory))
    with selector(settings, directory, **NAMES):
        arm.say_until(moving(room))
        begun = arm.tip.copy()
        arm.say_until(lambda: np.linalg.norm(arm.tip - begun) > 0.002)
        # Nothing on the names of ours; the end of an earlier node may be announced late.
        room.wait(lambda: not room.node.count_publishers('servo_cp'))
        arm.bad = {'heart_rate': math.nan}
        arm.say_until(lambda: reason(room) == 'not_finite')
        arm.bad = {}
        arm.say_until(moving(room))


def test_the_newest_word_of_the_arm_counts_though_it_came_once_before_the_selector(
    room, settings, directory
):
    arm = ForeignRobot(room)
    arm.silent, arm.state = ('operating_state',), 'DISABLED'
    often = arm.topics['operating_state']
    once = room.node.create_publisher(OperatingState, 'operating_state', qos.OPERATING)
    policy = room.node.create_publisher(ros.GlobalPolicy, '/federation/policy', qos.LATCHED)
    policy.publish(released(directory))

    def tell(publisher, state: str, late: int = 0) -> None:
        word = OperatingState(state=state, is_homed=True)
        word.header.stamp = arm.clock()
        word.header.stamp.sec -= late
        publisher.publish(word)

    tell(once, 'DISABLED')
    with selector(settings, directory):
        arm.say_until(lambda: reason(room) == 'paused')
        assert not room.heard[arm.servo], 'an arm that is disabled is not commanded'
        tell(once, 'ENABLED')
        arm.state = 'ENABLED'
        arm.say_until(moving(room))
        arm.state = 'PAUSED'  # it waits for no set-point before the next state
        tell(often, 'PAUSED')
        arm.say_until(lambda: reason(room) == 'paused')
        tell(once, 'ENABLED', late=2)
        assert once.wait_for_all_acked(Duration(seconds=10.0))
        stamp = arm.say()
        arm.say_until(lambda: len(arm.since(stamp)) >= 10)
        assert {each.policy for each in arm.since(stamp)} == {'hold'}
        assert reason(room) == 'paused'
        tell(once, 'ENABLED')
        arm.say_until(moving(room))
