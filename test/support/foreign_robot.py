# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Robots and patients of other makes, whose topics a test publishes."""

from pathlib import Path
import time

import fdrl_ros.msg as ros
from fdrl_ros.nodes.arm.robot_messages import OperatingState, set_point, StringStamped
from fdrl_ros.nodes.common import qos
from fdrl_ros.nodes.parties.conversion import to_ros
from fdrl_ros.selector.control.observation import nanoseconds
from fdrl_ros.surgery.gym.state import OPERATION_FIELDS, PATIENT_FIELDS
from geometry_msgs.msg import PoseStamped, Quaternion
import numpy as np
from support.operating_room import Room
from support.signed_policies import global_policy


def released(directory: Path) -> ros.GlobalPolicy:
    """Return the public starting policy as the key authority signs it."""
    return to_ros(global_policy(directory), ros.GlobalPolicy())


def half(kind, fields, values: dict[str, float], **more):
    """Return a half of the state: a message of a kind."""
    values = [values[each.name] for each in fields]
    return kind(patient='somebody', layout=kind.LAYOUT, values=values, **more)


def position(command: PoseStamped) -> tuple[float, float, float]:
    point = command.pose.position
    return point.x, point.y, point.z


class ForeignRobot:
    """An arm and its patient, published by the test: it follows set-points, and obeys a pause."""

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
        self.state, self.homed, self.beat, self.pair = 'ENABLED', True, 0, pair
        self.bad, self.force = {}, 0.5
        self.frozen, self.obeys = False, True
        self.bent = False  # whether the wrist is
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
        self.follow()
        self.beat += not self.frozen
        if self.beat % 25 == 1:
            self.goal = self.tip + self.rng.uniform(-0.02, 0.02, 3)
        stamp = self.clock()
        stamp.sec += self.shift
        vitals, operation = self.halves(stamp)
        messages = {
            'operating_state': OperatingState(state=self.state, is_homed=self.homed),
            'setpoint_cp': self.set_point(stamp),
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

    def set_point(self, stamp) -> PoseStamped:
        """Say where the tip was told to be, and how the tool is turned."""
        told = set_point(stamp, self.tip.tolist())
        if self.bent:
            told.pose.orientation = Quaternion(w=1.0)
        return told

    def follow(self) -> None:
        commands = self.room.heard[self.servo]
        orders = self.room.heard[self.command]
        if orders and self.obeys:
            self.state = {'pause': 'PAUSED', 'resume': 'ENABLED'}[orders[-1][1].string]
        if commands and self.state == 'ENABLED':
            self.tip = np.array(position(commands[-1][1]))

    def halves(self, stamp=None):
        """Return the two halves of the state."""
        values = self.values()
        made = (
            half(ros.PatientState, PATIENT_FIELDS, values),
            half(ros.OperationState, OPERATION_FIELDS, values, procedure=self.procedure),
        )
        for each in made:
            each.header.stamp = stamp or self.clock()
        return made

    def say_until(self, condition, seconds: float = 60.0) -> None:
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


class PromptRobot(ForeignRobot):
    """An arm that tells its state at 100 Hz, whoever answers."""

    def answered(self, stamp: int, patience: float = 0.01) -> None:
        super().answered(stamp, patience)


class StillRobot(PromptRobot):
    """The same arm, which follows nothing."""

    def follow(self) -> None:
        pass


def reason(room: Room) -> str:
    return room.last('action').reason if room.last('action') else ''


def moving(room: Room):
    return lambda: room.last('action') is not None and room.last('action').policy == 'global'
