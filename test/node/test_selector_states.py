# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The selector beside a robot that is not ours: other names are all that it takes."""

import math
import os
import subprocess
import sys
import time

from fdrl_ros.deployment.bringup import environment
import fdrl_ros.msg as ros
from fdrl_ros.nodes.arm.robot_messages import OperatingState, set_point, StringStamped
from fdrl_ros.nodes.common import qos
from fdrl_ros.selector.control.observation import nanoseconds
from fdrl_ros.surgery.gym.state import OPERATION_FIELDS, PATIENT_FIELDS
from geometry_msgs.msg import PoseStamped
from node.test_operating_room import position, released
import numpy as np
from rclpy.duration import Duration
from support.operating_room import Room


class Foreign:
    """An arm and its patient, spoken by the test: it follows set-points, and obeys a pause."""

    def __init__(self, room: Room, names=lambda name: name, pair: bool = True) -> None:
        self.room = room
        publish = room.node.create_publisher
        self.topics = {
            each: publish(kind, names(each), qos.STATE)
            for each, kind in (
                ('setpoint_cp', PoseStamped),
                ('patient_state', ros.PatientState),
                ('operation_state', ros.OperationState),
                ('operating_state', OperatingState),
            )
        }
        self.servo, self.command = names('servo_cp'), names('state_command')
        for topic, kind in ((self.servo, PoseStamped), (self.command, StringStamped)):
            room.hear(kind, topic, qos.EVENT)
        for topic, kind in (('action', ros.SelectedAction), ('risk', ros.Risk)):
            room.hear(kind, topic, qos.EVENT)
        self.commanded = publish(StringStamped, self.command, qos.EVENT)
        self.tip = np.array([0.0, 0.0, -0.12])
        self.goal, self.rng = self.tip, np.random.default_rng(4)
        self.state, self.beat, self.pair = 'ENABLED', 0, pair
        self.bad, self.force = {}, 0.5
        self.frozen, self.obeys = False, True
        self.silent = ()  # topics that say nothing
        self.procedure, self.shift = 'palpation', 0  # s that stamps are off
        self.clock = lambda: room.node.get_clock().now().to_msg()
        self.spoken_at = {}  # stamp: second of the steady clock

    def values(self) -> dict[str, float]:
        error = self.tip - self.goal
        force = self.force + 0.2 * np.sin(0.3 * self.beat)
        return {each.name: 0.0 for each in OPERATION_FIELDS} | {
            'palpation': 1.0,
            **dict(zip(('goal_error_x', 'goal_error_y', 'goal_error_z'), error, strict=True)),
            'force': force,
            'contact': 1.0,
            'force_limit': 6.5,
            'time_left': 1.0 - 1e-5 * self.beat,
            'mean_arterial_pressure': 80.0 + 0.01 * self.beat,
            'heart_rate': 70.0,
            'oxygen_saturation': 98.0,
            'respiratory_rate': 14.0,
            **self.bad,
        }

    def say(self) -> int:
        """Follow the newest set-point and say the state; return its stamp."""
        commands = self.room.heard[self.servo]
        orders = self.room.heard[self.command]
        if orders and self.obeys:
            self.state = {'pause': 'PAUSED', 'resume': 'ENABLED'}[orders[-1][1].string]
        if commands and self.state == 'ENABLED':
            self.tip = np.array(position(commands[-1][1]))
        self.beat += not self.frozen
        if self.beat % 25 == 1:
            self.goal = self.tip + self.rng.uniform(-0.02, 0.02, 3)
        stamp = self.clock()
        stamp.sec += self.shift
        vitals, operation = self.halves(stamp)
        messages = {
            'operating_state': OperatingState(state=self.state, is_homed=True),
            'setpoint_cp': set_point(stamp, self.tip.tolist()),
            'patient_state': vitals,
            'operation_state': operation,
        }
        for topic, message in messages.items():
            if topic in self.silent:
                continue
            message.header.stamp = stamp
            if topic == 'patient_state' and not self.pair:
                message.header.stamp = self.clock()
            self.topics[topic].publish(message)
        self.spoken_at[nanoseconds(stamp)] = time.monotonic()
        return nanoseconds(stamp)

    def halves(self, stamp=None):
        """Return the two halves of the state."""
        values = self.values()
        made = tuple(
            kind(
                patient='somebody',
                names=[each.name for each in fields],
                values=[values[each.name] for each in fields],
                scales=[each.scale for each in fields],
                **more,
            )
            for kind, fields, more in (
                (ros.PatientState, PATIENT_FIELDS, {}),
                (ros.OperationState, OPERATION_FIELDS, {'procedure': self.procedure}),
            )
        )
        for each in made:
            each.header.stamp = stamp or self.clock()
        return made

    def say_until(self, condition, seconds: float) -> None:
        """Say a state each 10 ms, none before the last was answered, until a condition holds."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, f'not within {seconds} s: {reason(self.room)}'
            self.answered(self.say())

    def answered(self, stamp: int, patience: float = 0.1) -> None:
        """Wait for the set-point of a state, and for the next beat."""
        count, said = len(self.room.heard[self.servo]), self.spoken_at[stamp]
        while time.monotonic() - said < patience:
            self.room.executor.spin_once(timeout_sec=0.001)
            new = len(self.room.heard[self.servo]) > count or self.state != 'ENABLED'
            if new and time.monotonic() - said >= 0.01:
                return

    @property
    def actions(self) -> list:
        return [each for _, each in self.room.heard['action']]

    def since(self, stamp: int) -> list:
        return [each for each in self.actions if nanoseconds(each.header.stamp) > stamp]


def reason(room: Room) -> str:
    return room.last('action').reason if room.last('action') else ''


def moving(room: Room):
    return lambda: room.last('action') is not None and room.last('action').policy == 'global'


NAMES = {
    'setpoint_cp': '/PSM1/setpoint_cp',
    'servo_cp': '/PSM1/servo_cp',
    'operating_state': '/PSM1/operating_state',
    'state_command': '/PSM1/state_command',
    'patient_state': '/monitor/vitals',
    'operation_state': '/bridge/operation',
}


def test_another_arm_needs_other_names_alone(room, settings, directory):
    arm = Foreign(room, names=NAMES.__getitem__, pair=False)
    policy = room.node.create_publisher(ros.GlobalPolicy, '/federation/policy', qos.LATCHED)
    policy.publish(released(directory))
    names = [each for pair in NAMES.items() for each in ('-r', ':='.join(pair))]
    command = [
        *(sys.executable, '-m', 'fdrl_ros.nodes', 'selector', '--ros-args'),
        *('-r', '__ns:=/robot_1', '-p', f'directory:={directory}', '-p', 'armed:=true', *names),
    ]
    variables = os.environ | environment(settings, settings.robot_domain)
    process = subprocess.Popen(command, env=variables)
    try:
        arm.say_until(moving(room), 40.0)
        begun = arm.tip.copy()
        arm.say_until(lambda: np.linalg.norm(arm.tip - begun) > 0.002, 10.0)
        assert not room.node.count_publishers('servo_cp'), 'nothing on the names of ours'
        arm.bad = {'heart_rate': math.nan}
        arm.say_until(lambda: reason(room) == 'not_finite', 2.0)
        arm.bad = {}
        arm.say_until(moving(room), 2.0)
    finally:
        process.terminate()
        assert process.wait(15.0) == 0


def test_an_arm_that_told_its_state_once_before_the_selector_came_is_believed(
    room, settings, directory
):
    arm = Foreign(room)
    arm.silent, arm.state = ('operating_state',), 'DISABLED'
    state = room.node.create_publisher(OperatingState, 'told_once', qos.OPERATING)
    released_on = room.node.create_publisher(ros.GlobalPolicy, '/federation/policy', qos.LATCHED)
    released_on.publish(released(directory))
    state.publish(OperatingState(state=arm.state, is_homed=True))
    command = [
        *(sys.executable, '-m', 'fdrl_ros.nodes', 'selector', '--ros-args'),
        *('-r', '__ns:=/robot_1', '-p', f'directory:={directory}', '-p', 'armed:=true'),
        *('-r', 'operating_state:=told_once'),
    ]
    variables = os.environ | environment(settings, settings.robot_domain)
    process = subprocess.Popen(command, env=variables)
    try:
        arm.say_until(lambda: reason(room) == 'paused', 40.0)
        assert not room.heard[arm.servo], 'an arm that is disabled is not commanded'
        arm.state = 'ENABLED'
        state.publish(OperatingState(state=arm.state, is_homed=True))
        arm.say_until(moving(room), 40.0)
    finally:
        process.terminate()
        assert process.wait(15.0) == 0


def test_an_older_word_of_the_arm_undoes_no_newer_one(room, settings, directory):
    arm = Foreign(room)
    arm.silent = ('operating_state',)
    arm.state = 'PAUSED'  # it waits for no set-point before the next state
    often = arm.topics['operating_state']
    once = room.node.create_publisher(OperatingState, 'operating_state', qos.OPERATING)

    def word(state: str, late: int = 0) -> OperatingState:
        made = OperatingState(state=state, is_homed=True)
        made.header.stamp = arm.clock()
        made.header.stamp.sec -= late
        return made

    command = [
        *(sys.executable, '-m', 'fdrl_ros.nodes', 'selector', '--ros-args'),
        *('-r', '__ns:=/robot_1', '-p', f'directory:={directory}', '-p', 'armed:=true'),
    ]
    variables = os.environ | environment(settings, settings.robot_domain)
    process = subprocess.Popen(command, env=variables)
    try:
        arm.say_until(lambda: reason(room) == 'no_policy', 40.0)
        often.publish(word('PAUSED'))
        arm.say_until(lambda: reason(room) == 'paused', 10.0)
        once.publish(word('ENABLED', late=2))
        assert once.wait_for_all_acked(Duration(seconds=10.0))
        stamp = arm.say()
        arm.say_until(lambda: len(arm.since(stamp)) >= 10, 10.0)
        assert 'no_policy' not in {each.reason for each in arm.since(stamp)}
        assert reason(room) == 'paused'
        once.publish(word('ENABLED'))
        arm.say_until(lambda: reason(room) == 'no_policy', 10.0)
    finally:
        process.terminate()
        assert process.wait(15.0) == 0
