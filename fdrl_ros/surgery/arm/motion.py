# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Moves of the arm and the jaw: straight lines with slerp, and joints that arrive together.

All but :class:`JointPath` run from rest to rest along a trapezoid of speed. The tip stays below
50 mm/s, the fastest that is safe near tissue, whatever the joints could do.
"""

from collections.abc import Iterable, Sequence
import math

from fdrl_ros.errors import StateError
from fdrl_ros.surgery.arm.kinematics import (
    checked_joints,
    forward_kinematics,
    inverse_kinematics,
    Point,
    Vector,
)
from fdrl_ros.surgery.arm.rotations import from_rotation_vector, rotation_vector
from fdrl_ros.surgery.constants import Group
from fdrl_ros.surgery.gym.actions import MAXIMUM_SPEED
import numpy as np

LIMITS = Group('motion')
TURN_SPEED = LIMITS.turn_speed
JAW_SPEED, JAW_ACCELERATION = LIMITS.jaw_speed, LIMITS.jaw_acceleration
TIP_SPEED = LIMITS.share * MAXIMUM_SPEED
"""Fastest that a move has the tip go, m/s: what is left lets the arm catch up."""
JOINT_SPEEDS = (TURN_SPEED, TURN_SPEED, TIP_SPEED, TURN_SPEED, TURN_SPEED, TURN_SPEED)
"""Fastest that a move turns or inserts each joint, rad/s and m/s."""
JOINT_ACCELERATIONS = (
    *[LIMITS.turn_acceleration] * 2,
    LIMITS.tip_acceleration,
    *[LIMITS.turn_acceleration] * 3,
)

_CHECKS = 64
"""Places along a path that are checked before it is taken."""

_MARGIN = 0.98
"""What is left of the speed limit for places in between those."""


def _greatest_rate(lengths: Iterable[float], limits: Iterable[float]) -> float:
    """Return the greatest speed (or acceleration) of a path at which no part passes its limit."""
    rates = zip(lengths, limits, strict=True)
    return min((limit / length for length, limit in rates if length > 0.0), default=math.inf)


class Trapezoid:
    """
    From 0 to 1, from rest to rest: speed up evenly, go on, slow down evenly.

    :param lengths: ways of the parts that move together, such as joints; 0 for one that rests.
    :param speeds: greatest speed of each part.
    :param accelerations: greatest acceleration of each part.
    """

    def __init__(
        self, lengths: Sequence[float], speeds: Sequence[float], accelerations: Sequence[float]
    ) -> None:
        self._acceleration = _greatest_rate(lengths, accelerations)
        peak = min(_greatest_rate(lengths, speeds), math.sqrt(self._acceleration))
        self._ramp = 0.0 if math.isinf(peak) else peak / self._acceleration
        self.duration = 0.0 if math.isinf(peak) else 1.0 / peak + self._ramp
        """s."""

    def share(self, time: float) -> float:
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


class JointMove(Trapezoid):
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
        tips = np.array([forward_kinematics(self._at(share))[0] for share in shares])
        steps = np.linalg.norm(np.diff(tips, axis=0), axis=1) * (_CHECKS - 1)
        super().__init__(
            [*way, float(steps.max()) / _MARGIN],
            [*JOINT_SPEEDS, TIP_SPEED],
            [*JOINT_ACCELERATIONS, LIMITS.tip_acceleration],
        )

    def joints(self, time: float) -> Vector:
        """Return the joints after a time in seconds, shape (6,)."""
        return self._at(self.share(time))

    def _at(self, share: float) -> Vector:
        return self._goal if share >= 1.0 else self._start + share * (self._goal - self._start)


class LineMove(Trapezoid):
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
        super().__init__(
            [float(np.linalg.norm(self._way)), float(np.linalg.norm(self._turn))],
            [TIP_SPEED, TURN_SPEED],
            [LIMITS.tip_acceleration, LIMITS.turn_acceleration],
        )
        for share in np.linspace(0.0, 1.0, _CHECKS).tolist():
            self._at(share)
        self._roll = float(start[3])

    def joints(self, time: float) -> Vector:
        """
        Return the joints after a time in seconds, shape (6,); ask in the order of time.

        :raises UnreachableError: if the place is outside the joint limits after all.
        """
        return self._at(self.share(time))

    def _at(self, share: float) -> Vector:
        rotation = self._rotation @ from_rotation_vector(share * self._turn)
        joints = inverse_kinematics(self._position + share * self._way, rotation, self._roll)
        self._roll = float(joints[3])
        return joints


class JawMove(Trapezoid):
    """
    The jaw from one opening to another.

    :param start: rad.
    :param goal: rad.
    """

    def __init__(self, start: float, goal: float) -> None:
        self._start, self._way = start, goal - start
        super().__init__([abs(self._way)], [JAW_SPEED], [JAW_ACCELERATION])

    def angle(self, time: float) -> float:
        """Return the opening after a time in seconds."""
        return self._start + self.share(time) * self._way


def follow_joints(joints: Vector, goal: Vector, period: float) -> Vector:
    """
    Return the joints one period on towards a goal, within the speed limits.

    :param joints: shape (6,), rad and m.
    :param goal: shape (6,).
    :param period: s.
    :returns: shape (6,); the goal itself once it is near enough.
    """
    way = goal - joints
    share = min(1.0, _greatest_rate(np.abs(way).tolist(), JOINT_SPEEDS) * period)
    tip, _ = forward_kinematics(joints)
    longest = TIP_SPEED * period
    for _ in range(4):
        after = goal if share >= 1.0 else joints + share * way
        step = float(np.linalg.norm(forward_kinematics(after)[0] - tip))
        if step <= longest * (1.0 + 1e-9):
            return np.array(after)
        share *= _MARGIN * longest / step
    return np.array(joints + share * way)


class JointPath:
    """
    From some joints to others evenly, one sub-step at a time; it stays at its end.

    :param start: where it begins, shape (6,), rad and m.
    :param target: where it ends, shape (6,); who asks for it limits its speed.
    :param substeps: after how many of them it is there, at least 1.
    :raises StateError: if the target is not six finite numbers within the limits, or there is no
        whole number of sub-steps.
    """

    def __init__(self, start: Vector, target: Sequence[float], substeps: int) -> None:
        if type(substeps) is not int or substeps < 1:
            raise StateError(f'{substeps!r} sub-steps: expected a whole number of at least 1')
        self.joints = np.array(start, np.float64)
        self._goal = np.array(checked_joints(target))
        self._left = substeps
        self._stride = (self._goal - self.joints) / substeps
        self.end = _tip(self._goal)
        """Tip at the end, m."""

    @property
    def tip(self) -> Point:
        """Return the tip where the path is now, m."""
        return _tip(self.joints)

    def step(self) -> list[float]:
        """Go on by one sub-step; return the joints."""
        if self._left > 0:
            self._left -= 1
            self.joints = self.joints + self._stride if self._left else self._goal.copy()
        joints: list[float] = self.joints.tolist()
        return joints

    def halt(self) -> None:
        """Stay here."""
        self._left, self.end = 0, self.tip


def _tip(joints: Vector) -> Point:
    x, y, z = forward_kinematics(joints)[0].tolist()
    return x, y, z
