# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The contract of arming: who may arm the selector, and what keeps it from commanding an arm."""

import math

from builtin_interfaces.msg import Time
from diagnostic_msgs.msg import DiagnosticArray
from fdrl_ros.deployment.bringup import robot_graph, RoomArguments
import fdrl_ros.msg as ros
from fdrl_ros.nodes.arm.robot_messages import bent_by, quaternion, set_point
from fdrl_ros.nodes.common import qos
from fdrl_ros.surgery.arm.rotations import from_quaternion, from_rotation_vector
from geometry_msgs.msg import Quaternion
import numpy as np
import pytest
from std_msgs.msg import String
from support.foreign_robot import moving, PromptRobot, reason, released

STATES = 10
"""States without an answer after which the selector is taken to be silent."""


@pytest.fixture
def arm(room, directory) -> PromptRobot:
    """Return a made-up arm, to which a policy was released."""
    made = PromptRobot(room)
    publish = room.node.create_publisher
    publish(ros.GlobalPolicy, '/federation/policy', qos.LATCHED).publish(released(directory))
    return made


def answered(room, arm, stamp):
    """Say when the selector has answered many states since a stamp."""
    return lambda: len(arm.since(stamp)) >= STATES


def test_an_arm_is_commanded_only_while_it_is_enabled_and_homed_and_nobody_else_drives(
    room, runner, settings, arm
):

    (selector,) = robot_graph(settings, 'robot_1', room=RoomArguments(env=False, armed='true'))
    arm.silent = ('operating_state',)
    runner.start([selector])

    def told(words: str) -> bool:
        status = [each for _, array in room.heard['/diagnostics'][-10:] for each in array.status]
        return any(words in each.message for each in status)

    room.hear(DiagnosticArray, '/diagnostics', qos.DIAGNOSTICS)
    arm.say_until(lambda: reason(room) == 'paused', 90.0)
    assert not room.heard[arm.servo], 'nobody knows whether the arm is enabled'
    arm.silent, arm.bent = (), True
    arm.say_until(lambda: told('from a straight tool'))
    assert not room.heard[arm.servo], 'a straight tool would be a jump'
    arm.bent = False
    arm.say_until(moving(room))
    arm.say_until(lambda: room.heard[arm.servo])

    def silent_for(why: str) -> None:
        """Wait until the selector says why, then look whether it commands."""
        arm.say_until(lambda: reason(room) == why)
        arm.say_until(answered(room, arm, arm.say()))  # what was on its way is here
        before = len(room.heard[arm.servo])
        arm.say_until(answered(room, arm, arm.say()))
        assert len(room.heard[arm.servo]) == before, f'commanded while {why}'

    for state in ('DISABLED', 'PAUSED', 'FAULT'):
        arm.state = state
        silent_for('paused')
        arm.state = 'ENABLED'
        arm.say_until(moving(room))
    arm.homed = False
    silent_for('paused')
    arm.homed = True
    arm.say_until(moving(room))
    pedal = room.node.create_publisher(String, 'supervise', qos.EVENT)
    arm.say_until(lambda: pedal.get_subscription_count() == 1)
    pedal.publish(String(data='take_over'))
    silent_for('surgeon')
    words = {each.string for _, each in room.heard[arm.command]}
    assert not words, 'it never enables, homes or resumes an arm that others stopped'


def test_an_unarmed_selector_chooses_and_commands_nothing(room, runner, settings, arm):
    runner.start(robot_graph(settings, 'robot_1', room=RoomArguments(env=False)))
    arm.say_until(lambda: reason(room) == 'best', 90.0)
    arm.say_until(answered(room, arm, arm.say()))
    assert not room.heard[arm.servo] and not room.heard[arm.command]


def test_a_tool_is_bent_by_the_angle_from_a_straight_one_and_by_no_number_without_a_rotation():
    at = (0.02, -0.01, -0.12)
    straight = set_point(Time(), at).pose.orientation
    assert bent_by(at, straight) == pytest.approx(0.0, abs=1e-6)
    matrix = from_quaternion((straight.x, straight.y, straight.z, straight.w))
    for angle in (0.05, 1.0, 3.0):
        turned = quaternion(matrix @ from_rotation_vector(np.array([0.0, 0.0, angle])))
        assert bent_by(at, turned) == pytest.approx(angle, abs=1e-6)
    for none in (Quaternion(w=0.0), Quaternion(w=math.nan), Quaternion(w=2.0)):
        assert bent_by(at, none) == math.inf
