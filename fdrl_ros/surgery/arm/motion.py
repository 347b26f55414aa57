# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Moves of the arm and the jaw: straight lines with slerp, and joints that arrive together.

All run from rest to rest along a trapezoid of speed. The tip stays below 50 mm/s, the fastest
that is safe near tissue, whatever the joints could do.
"""

import math

from fdrl_ros.surgery.arm.kinematics import forward_kinematics, inverse_kinematics, Vector
from fdrl_ros.surgery.arm.rotations import from_rotation_vector, rotation_vector
from fdrl_ros.surgery.constants import constant
from fdrl_ros.surgery.gym.actions import MAXIMUM_SPEED
import numpy as np

TIP_SPEED = constant('motion.share') * MAXIMUM_SPEED
"""Fastest that a move has the tip go, m/s: what is left lets the arm catch up."""
TIP_ACCELERATION = constant('motion.tip_acceleration')
TURN_SPEED = constant('motion.turn_speed')
TURN_ACCELERATION = constant('motion.turn_acceleration')
JAW_SPEED = constant('motion.jaw_speed')
JAW_ACCELERATION = constant('motion.jaw_acceleration')
JOINT_SPEEDS: Vector = np.array(
    [TURN_SPEED, TURN_SPEED, TIP_SPEED, TURN_SPEED, TURN_SPEED, TURN_SPEED]
)
"""Fastest that a move turns or inserts each joint, rad/s and m/s."""
JOINT_SPEEDS.setflags(write=False)
JOINT_ACCELERATIONS: Vector = np.array(
    [TURN_ACCELERATION] * 2 + [TIP_ACCELERATION] + [TURN_ACCELERATION] * 3
)
JOINT_ACCELERATIONS.setflags(write=False)

_CHECKS = 64
"""Places along a path that are looked at before it is taken."""

_MARGIN = 0.98
"""What is left of the speed limit for places in between those."""


class Trapezoid:
    """
    From 0 to 1, from rest to rest: speed up evenly, go on, slow down evenly.

    :param speed: greatest speed, 1/s.
    :param acceleration: 1/s^2; both may be infinite, for a way of no length.
    """

    def __init__(self, speed: float, acceleration: float) -> None:
        peak = min(speed, math.sqrt(acceleration))
        self._acceleration = acceleration
        self._ramp = 0.0 if math.isinf(peak) else peak / acceleration
        self.duration = 0.0 if math.isinf(peak) else 1.0 / peak + self._ramp

    def at(self, time: float) -> float:
        """Return how far it is after a time in seconds: 0 before the start, 1 after the end."""
        if time >= self.duration:
            return 1.0
        if time <= 0.0:
            return 0.0
        left = self.duration - time
        if time < self._ramp:
            return 0.5 * self._acceleration * time * time
        if left < self._ramp:
            return 1.0 - 0.5 * self._acceleration * left * left
        return self._acceleration * self._ramp * (time - 0.5 * self._ramp)


def _slowest(rates: list[tuple[float, float]]) -> float:
    """Return the greatest speed of the path at which no part passes its limit, 1/s."""
    return min((limit / length for length, limit in rates if length > 0.0), default=math.inf)


class JointMove:
    """
    All joints from one place to another, arriving together.

    A way between two places within the limits stays within them.

    :param start: shape (6,), rad and m.
    :param goal: shape (6,), rad and m.
    """

    def __init__(self, start: Vector, goal: Vector) -> None:
        self._start, self._goal = np.array(start), np.array(goal)
        way = np.abs(self._goal - self._start).tolist()
        shares = np.linspace(0.0, 1.0, _CHECKS)
        tips = np.array([forward_kinematics(self._at(each))[0] for each in shares])
        steps = np.linalg.norm(np.diff(tips, axis=0), axis=1) * (_CHECKS - 1)
        tip = float(steps.max()) / _MARGIN
        speeds = [*zip(way, JOINT_SPEEDS.tolist(), strict=True), (tip, TIP_SPEED)]
        pulls = [*zip(way, JOINT_ACCELERATIONS.tolist(), strict=True), (tip, TIP_ACCELERATION)]
        self._profile = Trapezoid(_slowest(speeds), _slowest(pulls))
        self.duration = self._profile.duration

    def joints(self, time: float) -> Vector:
        """Return the joints after a time in seconds, shape (6,)."""
        return self._at(self._profile.at(time))

    def _at(self, share: float) -> Vector:
        return self._goal if share >= 1.0 else self._start + share * (self._goal - self._start)


class LineMove:
    """
    The tip along a straight line while the tool turns about one axis (slerp).

    :param start: shape (6,), joints to start from.
    :param position: goal of the tip, shape (3,), m.
    :param rotation: goal of the tool, shape (3, 3).
    :raises UnreachableError: if the goal, or a place on the way, is outside the joint limits.
    """

    def __init__(self, start: Vector, position: Vector, rotation: Vector) -> None:
        self._position, self._rotation = forward_kinematics(start)
        self._roll = float(start[3])
        inverse_kinematics(position, rotation, self._roll)  # refuses it if out of reach
        self._way = np.asarray(position, np.float64) - self._position
        self._turn = rotation_vector(self._rotation.T @ rotation)
        length, angle = float(np.linalg.norm(self._way)), float(np.linalg.norm(self._turn))
        self._profile = Trapezoid(
            _slowest([(length, TIP_SPEED), (angle, TURN_SPEED)]),
            _slowest([(length, TIP_ACCELERATION), (angle, TURN_ACCELERATION)]),
        )
        self.duration = self._profile.duration
        for each in np.linspace(0.0, 1.0, _CHECKS).tolist():
            self._joints(each)
        self._roll = float(start[3])

    def joints(self, time: float) -> Vector:
        """
        Return the joints after a time in seconds, shape (6,); ask in the order of time.

        :raises UnreachableError: if the place is outside the joint limits after all.
        """
        return self._joints(self._profile.at(time))

    def _joints(self, share: float) -> Vector:
        rotation = self._rotation @ from_rotation_vector(share * self._turn)
        joints = inverse_kinematics(self._position + share * self._way, rotation, self._roll)
        self._roll = float(joints[3])
        return joints


class JawMove:
    """
    The jaw from one opening to another.

    :param start: rad.
    :param goal: rad.
    """

    def __init__(self, start: float, goal: float) -> None:
        self._start, self._way = start, goal - start
        length = abs(self._way)
        self._profile = Trapezoid(
            _slowest([(length, JAW_SPEED)]), _slowest([(length, JAW_ACCELERATION)])
        )
        self.duration = self._profile.duration

    def angle(self, time: float) -> float:
        """Return the opening after a time in seconds."""
        return self._start + self._profile.at(time) * self._way


def follow_joints(joints: Vector, goal: Vector, period: float) -> Vector:
    """
    Return the joints one period on towards a goal, within the speed limits.

    :param joints: shape (6,), rad and m.
    :param goal: shape (6,).
    :param period: s.
    :returns: shape (6,); the goal itself once it is near enough.
    """
    way = goal - joints
    rates = list(zip(np.abs(way).tolist(), JOINT_SPEEDS.tolist(), strict=True))
    share = min(1.0, _slowest(rates) * period)
    tip, _ = forward_kinematics(joints)
    longest = TIP_SPEED * period
    for _ in range(4):
        after = goal if share >= 1.0 else joints + share * way
        step = float(np.linalg.norm(forward_kinematics(after)[0] - tip))
        if step <= longest * (1.0 + 1e-9):
            return np.array(after)
        share *= _MARGIN * longest / step
    return np.array(joints + share * way)
