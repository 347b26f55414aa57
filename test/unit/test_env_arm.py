# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Kinematics: against the DH chain, against themselves, against PyBullet, and refusals."""

import math

from fdrl_ros.env.actions import SUBSTEP
from fdrl_ros.env.arm import (
    bent_joints,
    forward_kinematics,
    forward_kinematics_batch,
    HOME,
    INSERTION_TO_WRIST,
    inverse,
    inverse_kinematics,
    LOWER,
    straight_joints,
    UnreachableError,
    UPPER,
    within_limits,
    WRIST_LINK,
)
from fdrl_ros.env.chain import Chain
from fdrl_ros.env.placement import KinematicArm
from fdrl_ros.env.simulation import DynamicArm
from fdrl_ros.errors import StateError
from fdrl_ros.resources import resource
from hypothesis import assume, given, settings, strategies
import numpy as np
import pybullet
import pytest

JOINT_SETS = strategies.tuples(
    *(strategies.floats(low, high) for low, high in zip(LOWER, UPPER, strict=True))
)


def modified_dh(alpha, a, theta, d):
    """Return one link of a modified DH chain for many angles, the slow obvious way."""
    theta, d = np.broadcast_arrays(theta, d)
    ca, sa, ct, st = math.cos(alpha), math.sin(alpha), np.cos(theta), np.sin(theta)
    link = np.zeros((len(theta), 4, 4))
    link[:, 0, 0], link[:, 0, 1], link[:, 0, 3] = ct, -st, a
    link[:, 1] = np.stack([st * ca, ct * ca, np.full_like(ct, -sa), -d * sa], axis=-1)
    link[:, 2] = np.stack([st * sa, ct * sa, np.full_like(ct, ca), d * ca], axis=-1)
    link[:, 3, 3] = 1.0
    return link


def dvrk_chain(q):
    """Evaluate the published dVRK parameters, joint by joint, with the needle driver's tip."""
    right, q = math.pi / 2, np.atleast_2d(q).T
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


@pytest.fixture(scope='module')
def many():
    """Return 100,000 sets of joints anywhere within the limits, and their poses."""
    joints = np.random.default_rng(0).uniform(LOWER, UPPER, (100_000, 6))
    return joints, *forward_kinematics_batch(joints)


def test_forward_kinematics_is_the_published_dvrk_chain(many):
    joints, positions, rotations = many
    poses = dvrk_chain(joints)
    assert np.abs(poses[:, :3, 3] - positions).max() < 1e-12
    assert np.abs(poses[:, :3, :3] - rotations).max() < 1e-12


def test_one_pose_is_the_same_as_that_of_many(many):
    joints, positions, rotations = many
    for index in range(200):
        position, rotation = forward_kinematics(joints[index])
        assert np.abs(position - positions[index]).max() < 1e-15
        assert np.abs(rotation - rotations[index]).max() < 1e-15


def test_inverse_undoes_forward_a_hundred_thousand_times(many):
    joints, positions, rotations = many
    axes = rotations.transpose(0, 2, 1).tolist()
    rolls = joints[:, 3].tolist()
    found = [
        inverse(*each, near_roll=roll)
        for *each, roll in zip(positions.tolist(), axes, rolls, strict=True)
    ]
    assert np.abs(np.array(found) - joints).max() < 1e-9


@given(JOINT_SETS)
@settings(max_examples=200, deadline=None)
def test_the_checked_inverse_undoes_forward_at_the_limits_too(joints):
    wrist = joints[2] + INSERTION_TO_WRIST
    assume(abs(wrist) > 1e-4)  # the wrist in the remote centre itself has no direction
    assume(abs(wrist * math.cos(joints[4]) + WRIST_LINK) > 1e-4)
    position, rotation = forward_kinematics(joints)
    back = inverse_kinematics(position, rotation, near_roll=joints[3])
    assert np.abs(back - joints).max() < 1e-9


def test_the_shaft_passes_through_the_remote_centre(many):
    straight = many[0].copy()
    straight[:, 4:] = 0.0  # what lies before the wrist does not depend on it
    tips, rotations = forward_kinematics_batch(straight)
    shaft = rotations[:, :, 2]
    away = tips - shaft * np.sum(shaft * tips, axis=1, keepdims=True)
    assert np.linalg.norm(away, axis=1).max() < 1e-5


@given(JOINT_SETS)
@settings(max_examples=200, deadline=None)
def test_a_bent_wrist_reaches_the_point_asked_for(joints):
    assume(joints[2] > 0.03)
    position, _rotation = forward_kinematics(joints)
    found = bent_joints(position.tolist(), joints[3:])
    assert np.abs(np.subtract(found, joints)).max() < 1e-9
    assert within_limits(bent_joints((0.1, 0.3, -0.5), joints[3:]))


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


def test_pybullet_moves_the_chain_to_the_same_tip(many):
    chain = Chain(resource('urdf/psm.urdf'), False, SUBSTEP)
    for joints, position, rotation in zip(*(each[:200] for each in many), strict=True):
        chain.set(joints.tolist(), [0.0] * 6)
        link = pybullet.getLinkState(chain.body, chain.tip, 0, 1, chain.client)
        matrix = np.array(pybullet.getMatrixFromQuaternion(link[5])).reshape(3, 3)
        assert np.abs(position - link[4]).max() < 1e-6
        assert np.abs(rotation - matrix).max() < 1e-6
    chain.close()


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
