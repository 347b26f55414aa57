# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The simulated arm is a CRTK device with nobody on the table, before and between operations."""

import math

from builtin_interfaces.msg import Time
from fdrl_ros.nodes.arm.commands import REFUSED
from fdrl_ros.nodes.arm.robot_messages import (
    pose,
    quaternion,
    QueryForwardKinematics,
    QueryInverseKinematics,
)
from fdrl_ros.surgery.arm.kinematics import HOME
from geometry_msgs.msg import Pose, Twist, TwistStamped, Vector3
import numpy as np
from std_srvs.srv import Trigger
from support.surgeon import LABEL


def test_arm_obeys_without_a_patient_as_crtk_examples_ask(surgeon, room, runner):
    surgeon.watch()
    start, rotation = surgeon.tip()
    assert np.allclose(surgeon.settle(), HOME, atol=1e-6)
    # crtk_move_cp_example: there, across and back, each time until it is no longer busy.
    for shift in (0.02, -0.02, 0.0):
        surgeon.pose('move_cp', start + [shift, shift, 0.0], rotation)
        surgeon.wait(lambda: room.last('operating_state').is_busy)
        surgeon.wait(lambda: not room.last('operating_state').is_busy)
    surgeon.wait(lambda: np.allclose(surgeon.tip()[0], start, atol=1e-9))
    # crtk_servo_cp_example and crtk_servo_jp_example: small steps about the set-point.
    goal = start + [0.004, 0.004, 0.0]
    surgeon.say_until(
        lambda: surgeon.pose('servo_cp', goal, rotation),
        lambda: np.allclose(surgeon.tip()[0], goal, atol=1e-6),
    )
    turned = HOME + [math.radians(2.0), math.radians(2.0), 0.0, 0.0, 0.0, 0.0]
    surgeon.say_until(
        lambda: surgeon.joints('servo_jp', turned),
        lambda: np.allclose(room.last('setpoint_js').position, turned, atol=1e-9),
    )
    surgeon.joints('servo_jr', HOME - turned)
    surgeon.wait(lambda: np.allclose(room.last('setpoint_js').position, HOME, atol=1e-9))
    # crtk_servo_cv_example says its velocity once: the arm stops after 0.1 s.
    slow = TwistStamped(twist=Twist(linear=Vector3(x=0.001)))
    surgeon.say_until(
        lambda: surgeon.send('servo_cv', slow), lambda: surgeon.tip()[0][0] > start[0] + 5e-4
    )
    surgeon.wait(lambda: room.last('measured_cv').twist.linear.x > 0.0)
    held = surgeon.settle()
    assert not room.last('operating_state').is_busy
    surgeon.joints('move_jr', HOME - held)
    surgeon.wait(lambda: np.allclose(room.last('setpoint_js').position, HOME, atol=1e-9))

    # An operation begins where it always does; after it the arm is free again.
    surgeon.begin()
    begun = surgeon.tip()[0]
    assert not np.allclose(begun, start, atol=1e-3)
    before = surgeon.now
    surgeon.pose('move_cp', begun + [0.0, 0.0, 0.004], rotation)
    surgeon.wait(lambda: surgeon.tip()[0][2] > begun[2] + 0.001)
    room.ask(Trigger, 'env/reset', Trigger.Request())
    surgeon.wait(lambda: room.heard['outcome'])
    left = forward(room, surgeon.settle())
    for stamp, height in ((before, 0.02), (Time(), 0.005)):
        goal = left + [0.0, 0.0, height]
        surgeon.send('move_cp', pose(stamp, goal, quaternion(rotation)))
    surgeon.wait(lambda: np.allclose(surgeon.tip()[0], goal, atol=1e-9))
    assert 'dropped: move_cp stamped' in runner.log_file(LABEL).read_text()


def forward(room, joints) -> np.ndarray:
    """Ask where the tip is for some joints, m."""
    request = QueryForwardKinematics.Request(jp=list(joints))
    answer = room.ask(QueryForwardKinematics, 'forward_kinematics', request)
    assert answer.result, answer.message
    return np.array([answer.cp.position.x, answer.cp.position.y, answer.cp.position.z])


def test_what_the_arm_cannot_do_is_refused_with_the_reason_and_it_holds(surgeon, room, runner):
    surgeon.watch()
    start, rotation = surgeon.tip()
    log = runner.log_file(LABEL)
    for topic, (kind, reason) in REFUSED.items():
        surgeon.pose('move_cp', start + [0.02, 0.0, 0.0], rotation)
        surgeon.wait(lambda: room.last('operating_state').is_busy)
        surgeon.say_until(
            lambda topic=topic, kind=kind: surgeon.send(topic, kind()),
            lambda: not room.last('operating_state').is_busy,
        )
        held = surgeon.tip()[0]
        assert held[0] < start[0] + 0.0199
        assert f'refused: {topic}: {reason}' in log.read_text()
        surgeon.pose('move_cp', start, rotation)
        surgeon.wait(lambda: np.allclose(surgeon.tip()[0], start, atol=1e-9))


def test_kinematics_are_answered_both_ways_or_refused_with_the_reason(surgeon, room):
    joints = HOME + [0.2, -0.1, 0.02, 0.3, 0.2, -0.4]
    forth = room.ask(
        QueryForwardKinematics,
        'forward_kinematics',
        QueryForwardKinematics.Request(jp=joints.tolist()),
    )
    assert forth.result and not forth.message
    request = QueryInverseKinematics.Request(cp=forth.cp, jp=joints.tolist())
    back = room.ask(QueryInverseKinematics, 'inverse_kinematics', request)
    assert back.result and np.allclose(back.jp, joints, atol=1e-9)
    beyond = room.ask(
        QueryForwardKinematics, 'forward_kinematics', QueryForwardKinematics.Request(jp=[0.0] * 5)
    )
    assert not beyond.result and 'six finite numbers' in beyond.message
    nowhere = Pose()
    nowhere.position.z = -0.9
    refused = room.ask(
        QueryInverseKinematics, 'inverse_kinematics', QueryInverseKinematics.Request(cp=nowhere)
    )
    assert not refused.result and refused.message
