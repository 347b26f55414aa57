# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Kinematics: against the DH chain, against themselves, against PyBullet, and refusals."""

import math

from fdrl_ros.errors import ResourceError, StateError
from fdrl_ros.resources import resource
from fdrl_ros.surgery.arm.kinematic_arm import KinematicArm, WRIST_SPEED
from fdrl_ros.surgery.arm.kinematics import (
    bent_joints,
    forward_kinematics,
    HOME,
    INSERTION_TO_WRIST,
    inverse_kinematics,
    LOWER,
    straight_joints,
    UnreachableError,
    UPPER,
    WRIST_LINK,
)
from fdrl_ros.surgery.arm.simulated_arm import Chain, DynamicArm
from fdrl_ros.surgery.gym.actions import SUBSTEP
from hypothesis import assume, given, settings, strategies
import numpy as np
import pybullet
import pytest
from support.sample_size import sampled

JOINT_SETS = strategies.tuples(
    *(strategies.floats(low, high) for low, high in zip(LOWER, UPPER, strict=True))
)

START = (0.01, 0.005, -0.12)
STILL = (0.0, 0.0, 0.0)
LATERAL = (8.0, 6.0, 0.0)
"""Ten newtons across the shaft."""


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
    """Return many sets of joints anywhere within the limits, and their poses."""
    joints = np.random.default_rng(0).uniform(LOWER, UPPER, (sampled(100_000, 3_000), 6))
    positions, rotations = zip(*map(forward_kinematics, joints), strict=True)
    return joints, np.array(positions), np.array(rotations)


def test_forward_kinematics_is_the_published_dvrk_chain(many):
    joints, positions, rotations = many
    poses = dvrk_chain(joints)
    assert np.abs(poses[:, :3, 3] - positions).max() < 1e-12
    assert np.abs(poses[:, :3, :3] - rotations).max() < 1e-12


@given(JOINT_SETS)
@settings(max_examples=sampled(200, 20), deadline=None)
def test_the_checked_inverse_undoes_forward_at_the_limits_too(joints):
    wrist = joints[2] + INSERTION_TO_WRIST
    assume(abs(wrist) > 1e-4)  # the wrist in the remote centre itself has no direction
    assume(abs(wrist * math.cos(joints[4]) + WRIST_LINK) > 1e-4)
    position, rotation = forward_kinematics(joints)
    back = inverse_kinematics(position, rotation, near_roll=joints[3])
    assert np.abs(back - joints).max() < 1e-9


@given(JOINT_SETS)
@settings(max_examples=sampled(200, 20), deadline=None)
def test_a_bent_wrist_reaches_the_point_asked_for(joints):
    assume(joints[2] > 0.03)
    position, _rotation = forward_kinematics(joints)
    found = bent_joints(position.tolist(), joints[3:])
    assert np.abs(np.subtract(found, joints)).max() < 1e-9
    found = np.array(bent_joints((0.1, 0.3, -0.5), joints[3:]))
    assert (found >= LOWER).all() and (found <= UPPER).all()


def test_a_straight_wrist_reaches_the_point_asked_for():
    for point in [(0.0, 0.0, -0.12), (0.03, -0.02, -0.15), (-0.05, 0.04, -0.10)]:
        joints = [*straight_joints(*point), 0.0, 0.0, 0.0]
        assert np.allclose(forward_kinematics(joints)[0], point, atol=1e-15)
        assert (joints >= LOWER).all() and (joints <= UPPER).all()


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
    for wrong in ([0.0] * 5, 'abc', None, [[0.0] * 6], ['a'] * 6):
        with pytest.raises(StateError, match='six'):
            forward_kinematics(wrong)
        with pytest.raises(StateError, match='finite'):
            inverse_kinematics(wrong, rotation)
        with pytest.raises(StateError, match='rotation matrix'):
            inverse_kinematics(position, wrong)
    for wrong in ('a', None, math.inf):
        with pytest.raises(StateError, match='near_roll'):
            inverse_kinematics(position, rotation, wrong)


def test_joints_beyond_their_limits_have_no_pose_but_overshoot_is_measured():
    for inside in (UPPER + 0.009, LOWER - 0.009):
        forward_kinematics(inside)
    for index in range(6):
        for beyond in (UPPER[index] + 0.011, LOWER[index] - 0.011, 9.0):
            joints = HOME.copy()
            joints[index] = beyond
            with pytest.raises(UnreachableError, match='at most'):
                forward_kinematics(joints)


def test_pybullet_moves_the_chain_to_the_same_tip(many):
    chain = Chain(resource('urdf/psm.urdf'), False, SUBSTEP)
    for joints, position, rotation in zip(*(each[:200] for each in many), strict=True):
        chain.set(joints.tolist(), [0.0] * 6)
        link = pybullet.getLinkState(chain.body, chain.tip, 0, 1, chain.client)
        matrix = np.array(pybullet.getMatrixFromQuaternion(link[5])).reshape(3, 3)
        assert np.abs(position - link[4]).max() < 1e-6
        assert np.abs(rotation - matrix).max() < 1e-6
    chain.close()


@pytest.fixture(params=[DynamicArm, KinematicArm])
def arm(request):
    made = request.param()
    made.place(START, 0.02)
    yield made
    made.close()


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


def led(arm, target, steps, force=STILL):
    """Lead all six joints somewhere evenly, wait there, and return the greatest move of one."""
    start, greatest, last = arm.joints(), 0.0, np.array(arm.position)
    for step in range(steps + 120):
        share = min(1.0, (step + 1) / steps)
        arm.step_joints((start + (target - start) * share).tolist(), force)
        greatest = max(greatest, float(np.abs(arm.position - last).max()))
        last = np.array(arm.position)
    return greatest


BENT = np.array([0.05, 0.10, 0.130, 0.5, 0.6, -0.4])


def test_all_six_joints_follow_their_own_targets(arm):
    assert led(arm, BENT, 120) < 1e-3
    assert np.abs(arm.joints() - BENT).max() < 1e-6
    position, _rotation = forward_kinematics(BENT)
    assert np.abs(position - arm.position).max() < 1e-6
    assert np.abs(arm.velocity).max() < 1e-6


def test_the_velocity_is_that_of_the_tip(arm):
    start = arm.joints()
    for step in range(60):
        before = np.array(arm.position)
        arm.step_joints((start + (BENT - start) * step / 240).tolist(), STILL)
        assert np.abs((arm.position - before) / SUBSTEP - arm.velocity).max() < 2e-3
    assert np.linalg.norm(arm.velocity) > 0.01


def test_a_bent_wrist_goes_back_to_straight_without_a_leap(arm):
    led(arm, BENT, 120)
    goal, joints = arm.position, arm.joints()
    for _ in range(400):
        arm.step(goal, STILL)
        assert np.abs((arm.joints() - joints)[3:]).max() <= WRIST_SPEED * SUBSTEP * 1.001
        assert np.abs(np.subtract(arm.position, goal)).max() < 1.5e-3
        joints = arm.joints()
    assert np.abs(joints[3:]).max() < 1e-6
    assert np.abs(np.subtract(arm.position, goal)).max() < 1e-6


def test_a_tip_under_way_keeps_its_velocity_when_its_wrist_has_become_straight():
    """Six joints become three once the wrist is still, as it is while the tip creeps."""
    arm, speed = DynamicArm(), 2e-4
    arm.place(START, 0.02)
    led(arm, np.array([*straight_joints(*START), 0.0, 0.02, -0.02]), 30)
    x, y, z = arm.position
    velocities, moved, bent = [], [], []
    for step in range(1, 200):
        before = np.array(arm.position)
        arm.step((x + speed * SUBSTEP * step, y, z), STILL)
        velocities.append(arm.velocity)
        moved.append((arm.position - before) / SUBSTEP)
        bent.append(arm.bent)
    switch = bent.index(False)
    assert 60 < switch < 190 and not any(bent[switch:])
    near = slice(switch - 2, switch + 10)
    for found in (velocities[near], moved[near]):
        assert np.abs(np.subtract(found, (speed, 0.0, 0.0))).max() < 0.02 * speed
    arm.close()


def test_three_joints_move_a_straight_wrist_as_six_do():
    quick, whole = DynamicArm(), DynamicArm()
    for each in (quick, whole):
        each.place(START, 0.02)
    for step in range(240):
        force = (3 * math.sin(step / 9), 2 * math.cos(step / 7), 4 + math.sin(step / 5))
        wave = 0.004 * math.sin(step / 30)
        setpoint = (START[0] + wave, START[1] - wave / 2, START[2] - wave)
        quick.step(setpoint, force)
        whole.step_joints([*straight_joints(*setpoint), 0.0, 0.0, 0.0], force)
        assert np.abs(np.subtract(quick.position, whole.position)).max() < 1e-6
        assert np.abs(np.subtract(quick.velocity, whole.velocity)).max() < 1e-4
    quick.close()
    whole.close()


def test_an_arm_forgets_a_bent_wrist_when_it_is_placed(arm):
    def walk():
        arm.place(START, 0.02)
        for step in range(30):
            arm.step((START[0], START[1], START[2] - 1e-4 * step), (0.1, 0.0, 1.0))
        return np.array(arm.position).tobytes() + arm.joints().tobytes()

    first = walk()
    led(arm, BENT, 60, (1.0, 0.0, 2.0))
    assert walk() == first


@pytest.mark.parametrize(
    'joints',
    [
        [0.0] * 7,
        [0.0, math.nan, 0.1, 0, 0, 0],
        [0, 0, 0.1, 0, 2, 0],
        None,
        '000000',
        [False] * 6,
        [0, 0, 10**400, 0, 0, 0],
    ],
)
def test_joints_that_are_none_are_refused_and_the_arm_holds(arm, joints):
    before, position = arm.joints(), arm.position
    with pytest.raises(StateError, match='six finite|expected'):
        arm.step_joints(joints, STILL)
    assert np.array_equal(arm.joints(), before)
    assert arm.position == position


def test_ten_newtons_across_leave_the_shaft_in_the_remote_centre():
    chain = Chain(resource('urdf/psm.urdf'), False, SUBSTEP)
    for target in (BENT, np.array([-0.4, 0.3, 0.2, -2.0, -0.5, 0.9])):
        chain.set(target.tolist(), [0.0] * 6)
        for _ in range(240):
            tip = pybullet.getLinkState(chain.body, chain.tip, 0, 1, chain.client)[4]
            chain.drive(target.tolist())
            chain.step(LATERAL, tip)
            link = pybullet.getLinkState(chain.body, 3, 0, 1, chain.client)
            centre = np.array(link[4])
            shaft = np.array(pybullet.getMatrixFromQuaternion(link[5])).reshape(3, 3)[:, 2]
            assert np.linalg.norm(centre - shaft * (shaft @ centre)) < 1e-5
        assert np.linalg.norm(tip - forward_kinematics(target)[0]) < 5e-4
    chain.close()


@pytest.mark.parametrize('force', [(2.0, 2.0, 9.3), LATERAL])
@pytest.mark.parametrize('substep', [SUBSTEP, SUBSTEP / 10])
def test_ten_newtons_at_the_tip_move_the_arm_less_than_half_a_millimetre(force, substep):
    arm = DynamicArm(substep)
    start = (0.02, -0.01, -0.14)
    arm.place(start, 0.02)
    for _ in range(round(1.0 / substep)):
        arm.step(start, force)
    assert np.linalg.norm(np.subtract(arm.position, start)) < 5e-4
    arm.close()


def test_a_missing_or_broken_urdf_is_refused_by_name(tmp_path):
    whole = resource('urdf/psm.urdf').read_text()
    cases = {
        'missing': (None, 'expected the URDF'),
        'broken': (whole[: len(whole) // 2], 'expected the URDF'),
        'other': ('<robot name="r"><link name="a"/></robot>', 'yaw, pitch'),
        'jointless': (whole.replace('"wrist_yaw"', '"elbow"'), 'wrist_yaw'),
        'unloadable': (whole.replace('<mass value="0.2"/>', '<mass value="much"/>'), 'masses'),
        'linkless': (whole.replace('<child link="roll_link"/>', ''), 'masses'),
    }
    for name, (text, expected) in cases.items():
        path = tmp_path / f'{name}.urdf'
        if text is not None:
            path.write_text(text)
        with pytest.raises(ResourceError, match=expected) as raised:
            DynamicArm(urdf=path)
        assert str(path) in str(raised.value)
