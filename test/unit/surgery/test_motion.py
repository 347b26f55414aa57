# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Moves: from rest to rest, no faster than is safe, on a line or with all joints arriving."""

import math

from fdrl_ros.surgery.arm.kinematics import (
    forward_kinematics,
    HOME,
    inverse_kinematics,
    JAW_LIMITS,
    LOWER,
    UnreachableError,
    UPPER,
)
from fdrl_ros.surgery.arm.motion import (
    follow_joints,
    JAW_SPEED,
    JawMove,
    JOINT_SPEEDS,
    JointMove,
    LineMove,
    Trapezoid,
    TURN_SPEED,
)
from fdrl_ros.surgery.arm.rotations import (
    angle_between,
    from_quaternion,
    from_rotation_vector,
    rotation_vector,
    to_quaternion,
)
from fdrl_ros.surgery.gym.actions import MAXIMUM_SPEED
from hypothesis import given, settings, strategies
import numpy as np
import pytest

PERIOD = 0.01
JOINT_SETS = strategies.tuples(
    *(
        strategies.floats(float(low), float(high))
        for low, high in zip(np.maximum(LOWER, -2.0), np.minimum(UPPER, 2.0), strict=True)
    )
).map(np.array)
VECTORS = strategies.tuples(*[strategies.floats(-3.0, 3.0)] * 3).map(np.array)
NEAR = strategies.tuples(*[strategies.floats(-0.02, 0.02)] * 3).map(np.array)
TURNS = strategies.tuples(*[strategies.floats(-0.3, 0.3)] * 3).map(np.array)


def sampled(move) -> np.ndarray:
    """Return the joints at 100 Hz, from the start to past the end."""
    return np.array(
        [move.joints(k * PERIOD) for k in range(math.ceil(move.duration / PERIOD) + 2)]
    )


def tips(joints: np.ndarray) -> np.ndarray:
    return np.array([forward_kinematics(each)[0] for each in joints])


# Rotations.


@given(VECTORS)
def test_rotation_vector_and_quaternion_go_there_and_back(vector):
    rotation = from_rotation_vector(vector)
    assert np.allclose(rotation @ rotation.T, np.eye(3), atol=1e-12)
    assert np.allclose(from_quaternion(to_quaternion(rotation)), rotation, atol=1e-12)
    assert np.allclose(from_rotation_vector(rotation_vector(rotation)), rotation, atol=1e-9)
    if np.linalg.norm(vector) < 3.1:
        assert np.allclose(rotation_vector(rotation), vector, atol=1e-7)


def test_rotation_vector_of_nothing_and_of_a_small_turn():
    assert not rotation_vector(np.eye(3)).any()
    small = np.array([1e-9, 0.0, 0.0])
    assert np.allclose(rotation_vector(from_rotation_vector(small)), small, atol=1e-15)


# The profile.


@given(strategies.floats(0.01, 100.0), strategies.floats(0.01, 1000.0))
def test_profile_is_a_trapezoid(speed, acceleration):
    profile = Trapezoid([1.0], [speed], [acceleration])
    if speed * speed < acceleration:  # reaches its speed: 1 / v + v / a
        assert profile.duration == pytest.approx(1 / speed + speed / acceleration)
    else:  # a triangle: 2 / sqrt(a)
        assert profile.duration == pytest.approx(2 / math.sqrt(acceleration))
    times = np.linspace(0.0, profile.duration, 400)
    ways = np.array([profile.share(each) for each in times])
    assert profile.share(-1.0) == 0.0 and profile.share(profile.duration + 1.0) == 1.0
    step = times[1]
    speeds = np.diff(ways) / step
    assert speeds.min() >= 0.0 and speeds.max() <= speed * (1 + 1e-9)
    assert np.abs(np.diff(speeds)).max() <= acceleration * step * (1 + 1e-6)
    assert np.allclose(ways + ways[::-1], 1.0, atol=1e-9), 'as slow at the end as at the start'


def test_profile_of_no_way_takes_no_time():
    profile = Trapezoid([0.0], [1.0], [1.0])
    assert profile.duration == 0.0 and profile.share(0.0) == 1.0


# Moves of joints.


@settings(max_examples=40, deadline=None)
@given(JOINT_SETS, JOINT_SETS)
def test_joints_arrive_together_within_limits_and_no_faster_than_is_safe(start, goal):
    move = JointMove(start, goal)
    joints = sampled(move)
    assert np.array_equal(joints[0], start) or move.duration == 0.0
    assert np.array_equal(joints[-1], goal)
    assert (joints >= LOWER - 1e-9).all() and (joints <= UPPER + 1e-9).all()
    steps = np.abs(np.diff(joints, axis=0))
    assert (steps <= np.array(JOINT_SPEEDS) * PERIOD * (1 + 1e-9)).all()
    travelled = np.linalg.norm(np.diff(tips(joints), axis=0), axis=1)
    assert travelled.max() <= MAXIMUM_SPEED * PERIOD * (1 + 1e-9)
    way = goal - start
    share = (joints - start) @ way / max(float(way @ way), 1e-30)
    assert np.allclose(joints, start + share[:, None] * way, atol=1e-9)
    assert (np.diff(share) >= -1e-12).all()


def test_move_to_where_it_is_ends_at_once():
    assert JointMove(HOME, HOME).duration == 0.0
    assert np.array_equal(JointMove(HOME, HOME).joints(0.0), HOME)


# Moves on a line.


@settings(max_examples=40, deadline=None)
@given(NEAR, TURNS)
def test_line_is_straight_even_and_turns_about_one_axis(offset, turn):
    start = np.array([0.1, -0.1, 0.13, 0.2, 0.1, -0.1])
    position, rotation = forward_kinematics(start)
    move = LineMove(start, position + offset, rotation @ from_rotation_vector(turn))
    joints = sampled(move)
    points = tips(joints)
    assert np.allclose(joints[0], start, atol=1e-9)
    assert np.allclose(points[-1], position + offset, atol=1e-9)
    wanted = rotation @ from_rotation_vector(turn)
    assert angle_between(forward_kinematics(joints[-1])[1], wanted) < 1e-7
    length = float(np.linalg.norm(offset))
    if length > 1e-6:
        beside = np.cross(points - position, offset / length)
        assert np.abs(beside).max() < 1e-9
    steps = np.linalg.norm(np.diff(points, axis=0), axis=1)
    assert steps.max() <= MAXIMUM_SPEED * PERIOD * (1 + 1e-6)
    turned = [forward_kinematics(each)[1] for each in joints]
    turns = [angle_between(a, b) for a, b in zip(turned, turned[1:], strict=False)]
    assert max(turns) <= TURN_SPEED * PERIOD * (1 + 1e-6)
    axis = np.cross([rotation_vector(rotation.T @ each) for each in turned], turn)
    assert np.abs(axis).max() < 1e-6


def test_line_that_leaves_the_workspace_is_refused_before_it_begins():
    position, rotation = forward_kinematics(HOME)
    with pytest.raises(UnreachableError):
        LineMove(HOME, position + [0.0, 0.0, -0.5], rotation)
    # Both ends can be reached; the way between them passes too near to the remote centre.
    start, goal = (np.array([yaw, 0.0, 0.06, 0.0, 0.0, 0.0]) for yaw in (1.55, -1.55))
    position, rotation = forward_kinematics(goal)
    assert np.allclose(inverse_kinematics(position, rotation), goal)
    with pytest.raises(UnreachableError, match='needs'):
        LineMove(start, position, rotation)


# The jaw.


@given(strategies.floats(*JAW_LIMITS), strategies.floats(*JAW_LIMITS))
def test_jaw_moves_evenly_between_its_ends(start, goal):
    move = JawMove(start, goal)
    angles = np.array(
        [move.angle(k * PERIOD) for k in range(math.ceil(move.duration / PERIOD) + 2)]
    )
    assert angles[-1] == pytest.approx(goal, abs=1e-12)
    assert np.abs(np.diff(angles)).max(initial=0.0) <= JAW_SPEED * PERIOD * (1 + 1e-9)
    assert min(start, goal) - 1e-12 <= angles.min() and angles.max() <= max(start, goal) + 1e-12


# Servo commands.


@settings(max_examples=15, deadline=None)
@given(JOINT_SETS, JOINT_SETS)
def test_servo_follows_no_faster_than_is_safe_and_gets_there(start, goal):
    joints = start
    for _ in range(4000):
        after = follow_joints(joints, goal, PERIOD)
        assert (np.abs(after - joints) <= np.array(JOINT_SPEEDS) * PERIOD * (1 + 1e-9)).all()
        moved = np.linalg.norm(forward_kinematics(after)[0] - forward_kinematics(joints)[0])
        assert moved <= MAXIMUM_SPEED * PERIOD * (1 + 1e-9)
        joints = after
        if np.array_equal(joints, goal):
            return
    raise AssertionError('it never arrives')
