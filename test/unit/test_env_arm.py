# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Kinematics: against the DH chain, against themselves, against PyBullet, and refusals."""

import math

from fdrl_ros.env.arm import (
    forward_kinematics,
    HOME,
    inverse_kinematics,
    LOWER,
    straight_joints,
    UnreachableError,
    UPPER,
    within_limits,
)
from fdrl_ros.env.placement import KinematicArm
from fdrl_ros.env.simulation import DynamicArm
from fdrl_ros.errors import StateError
from hypothesis import given, settings, strategies
import numpy as np
import pybullet
import pytest

JOINT_SETS = strategies.tuples(
    *(
        strategies.floats(max(low, 0.03) if index == 2 else low, high)
        for index, (low, high) in enumerate(zip(LOWER, UPPER, strict=True))
    )
)


def modified_dh(alpha, a, theta, d):
    """Return one link of a modified DH chain, the slow obvious way."""
    ca, sa, ct, st = math.cos(alpha), math.sin(alpha), math.cos(theta), math.sin(theta)
    return np.array(
        [
            [ct, -st, 0, a],
            [st * ca, ct * ca, -sa, -d * sa],
            [st * sa, ct * sa, ca, d * ca],
            [0, 0, 0, 1],
        ]
    )


def dvrk_chain(q):
    """Evaluate the published dVRK parameters, joint by joint, with the needle driver's tip."""
    right = math.pi / 2
    chain = [
        (right, 0, q[0] + right, 0),
        (-right, 0, q[1] - right, 0),
        (right, 0, 0, q[2] - 0.4318),
        (0, 0, q[3], 0.4162),
        (-right, 0, q[4] - right, 0),
        (-right, 0.0091, q[5] - right, 0),
    ]
    pose = np.eye(4)
    for link in chain:
        pose = pose @ modified_dh(*link)
    return pose @ [[0, -1, 0, 0], [0, 0, 1, 0.0102], [-1, 0, 0, 0], [0, 0, 0, 1]]


@given(JOINT_SETS)
@settings(max_examples=100, deadline=None)
def test_forward_kinematics_is_the_dvrk_chain(joints):
    position, rotation = forward_kinematics(joints)
    pose = dvrk_chain(joints)
    assert np.abs(pose[:3, 3] - position).max() < 1e-12
    assert np.abs(pose[:3, :3] - rotation).max() < 1e-12


@given(JOINT_SETS)
@settings(max_examples=200, deadline=None)
def test_inverse_undoes_forward_to_a_nanometre(joints):
    position, rotation = forward_kinematics(joints)
    back = inverse_kinematics(position, rotation, near_roll=joints[3])
    assert np.abs(back - joints).max() < 1e-9


@given(JOINT_SETS)
@settings(max_examples=100, deadline=None)
def test_the_shaft_passes_through_the_remote_centre(joints):
    straight = np.array([*joints[:4], 0.0, 0.0])
    tip, rotation = forward_kinematics(straight)
    away = tip - rotation[:, 2] * (rotation[:, 2] @ tip)
    assert np.linalg.norm(away) < 1e-12


def test_a_straight_wrist_reaches_the_point_asked_for():
    for point in [(0.0, 0.0, -0.12), (0.03, -0.02, -0.15), (-0.05, 0.04, -0.10)]:
        joints = [*straight_joints(*point), 0.0, 0.0, 0.0]
        assert np.allclose(forward_kinematics(joints)[0], point, atol=1e-15)
        assert within_limits(joints)


@pytest.mark.parametrize(
    'point', [(0.0, 0.0, -0.30), (0.0, 0.2, -0.1), (0.0, 0.0, 0.0), (math.nan, 0, -0.1)]
)
def test_points_out_of_reach_are_refused(point):
    with pytest.raises(UnreachableError):
        straight_joints(*point)


def test_poses_that_break_a_limit_or_are_none_are_refused():
    position, rotation = forward_kinematics(HOME)
    with pytest.raises(UnreachableError, match='insertion'):
        inverse_kinematics(position * 4, rotation)
    with pytest.raises(UnreachableError):
        inverse_kinematics(position, rotation @ np.diag([1.0, -1.0, -1.0]))
    with pytest.raises(StateError, match='rotation matrix'):
        inverse_kinematics(position, 2 * rotation)
    with pytest.raises(StateError, match='finite'):
        inverse_kinematics([math.nan, 0, 0], rotation)
    with pytest.raises(StateError, match='six'):
        forward_kinematics([0.0] * 5)


def test_the_urdf_has_the_same_kinematics():
    arm = DynamicArm()
    rng = np.random.default_rng(1)
    for _ in range(50):
        joints = rng.uniform(LOWER, UPPER)
        for index, value in zip(arm._all, joints, strict=True):
            pybullet.resetJointState(arm._body, index, value, 0.0, arm._client)
        link = pybullet.getLinkState(arm._body, arm._tip, 0, 1, arm._client)
        position, rotation = forward_kinematics(joints)
        matrix = np.array(pybullet.getMatrixFromQuaternion(link[5])).reshape(3, 3)
        assert np.abs(position - link[4]).max() < 1e-6
        assert np.abs(rotation - matrix).max() < 1e-6
    arm.close()


def test_both_arms_lag_alike_behind_their_setpoint():
    arms = DynamicArm(), KinematicArm()
    start, goal = (0.01, 0.005, -0.12), (0.01, 0.005, -0.1225)
    for arm in arms:
        arm.place(start, 0.02)
    for _ in range(24):
        for arm in arms:
            arm.step(goal, (0.0, 0.0, 0.0))
        assert np.abs(np.subtract(arms[0].position, arms[1].position)).max() < 2e-6
    assert np.abs(arms[0].joints() - arms[1].joints()).max() < 1e-4
    arms[0].close()


def test_ten_newtons_at_the_tip_move_the_arm_less_than_half_a_millimetre():
    arm = DynamicArm()
    start = (0.02, -0.01, -0.14)
    arm.place(start, 0.02)
    for _ in range(240):
        arm.step(start, (2.0, 2.0, 9.3))
    assert np.linalg.norm(np.subtract(arm.position, start)) < 5e-4
    arm.close()
