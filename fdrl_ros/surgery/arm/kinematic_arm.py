# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
What carries the tip, and the simplest that does: exact placement with a first-order lag.

PyBullet's arm is in :mod:`fdrl_ros.surgery.arm.simulated_arm`; both follow a set-point alike.
"""

from collections.abc import Sequence
import math

from fdrl_ros.errors import SettingError, StateError
from fdrl_ros.runtime.ranges import is_within
from fdrl_ros.surgery.arm.kinematics import (
    bent_joints,
    checked_joints,
    forward,
    JAW_LIMITS,
    Joints,
    Point,
    straight_joints,
    Vector,
)
from fdrl_ros.surgery.constants import constant
from fdrl_ros.surgery.gym.actions import SUBSTEP
import numpy as np

WRIST_SPEED = 2.0
"""How fast each wrist joint goes back to straight for a set-point of the tip alone, rad/s."""

STRAIGHT_WRIST: Point = (0.0, 0.0, 0.0)
_AT_REST: Point = (0.0, 0.0, 0.0)


def response(lag: float, substep: float = SUBSTEP) -> float:
    """Return which share of its error a first-order lag (s) removes in one sub-step (s)."""
    return 1.0 - math.exp(-substep / lag)


def checked_substep(substep: float) -> float:
    """
    Return the length of a sub-step, s.

    :raises SettingError: if it is not above zero and at most that of the policy's physics.
    """
    if not 0.0 < substep <= SUBSTEP:
        raise SettingError('substep', substep, f'above 0 and at most {SUBSTEP:.6f} s')
    return float(substep)


def straighter(wrist: Point, stride: float) -> Point:
    """Return roll, wrist pitch and wrist yaw nearer to zero by a stride each, rad."""
    roll, pitch, yaw = (
        0.0 if abs(angle) <= stride else angle - math.copysign(stride, angle) for angle in wrist
    )
    return roll, pitch, yaw


class KinematicArm:
    """
    Exact placement: the tip follows its set-point with the lag and feels no force.

    :class:`fdrl_ros.surgery.arm.simulated_arm.DynamicArm` has the same methods.

    :param substep: length of a sub-step, s.
    """

    feels_force = False

    def __init__(self, substep: float = SUBSTEP) -> None:
        self.position: Point = (0.0, 0.0, -0.1)
        self.velocity: Point = _AT_REST
        self._substep = checked_substep(substep)
        self._share = 1.0
        self._wrist = STRAIGHT_WRIST

    def place(self, position: Point, lag: float) -> None:
        """Put the tip at rest, the wrist straight, and set its lag."""
        straight_joints(*position)
        self.position = position
        self.velocity = _AT_REST
        self._share = response(lag, self._substep)
        self._wrist = STRAIGHT_WRIST

    def step(self, setpoint: Point, force: Point) -> None:
        """
        Move for one sub-step towards a set-point of the tip, with a force (N) on the tip.

        A wrist that is not straight becomes so meanwhile, each joint at WRIST_SPEED at most.
        """
        x, y, z = self.position
        share = self._share
        dx, dy, dz = (
            (setpoint[0] - x) * share,
            (setpoint[1] - y) * share,
            (setpoint[2] - z) * share,
        )
        self.position = (x + dx, y + dy, z + dz)
        substep = self._substep
        self.velocity = (dx / substep, dy / substep, dz / substep)
        if self._wrist is not STRAIGHT_WRIST:
            wrist = straighter(self._wrist, WRIST_SPEED * substep)
            self._wrist = wrist if any(wrist) else STRAIGHT_WRIST

    def step_joints(self, joints: Sequence[float], force: Point) -> None:
        """
        Move all six joints for one sub-step towards these, each with the lag.

        :raises StateError: if they are not six finite numbers within limits; nothing moves.
        """
        wanted, share = checked_joints(joints), self._share
        yaw, pitch, insertion, *wrist = (
            now + (goal - now) * share for now, goal in zip(self._joints(), wanted, strict=True)
        )
        x, y, z = self.position
        self._wrist = (wrist[0], wrist[1], wrist[2])
        self.position, _axes = forward((yaw, pitch, insertion, *wrist))
        substep = self._substep
        self.velocity = (
            (self.position[0] - x) / substep,
            (self.position[1] - y) / substep,
            (self.position[2] - z) / substep,
        )

    def joints(self) -> Vector:
        """Return the joints that put the tip where it is."""
        return np.array(self._joints())

    def _joints(self) -> Joints:
        if self._wrist is STRAIGHT_WRIST:
            return (*straight_joints(*self.position), 0.0, 0.0, 0.0)
        return bent_joints(self.position, self._wrist)

    def close(self) -> None:
        """Do nothing: this arm holds nothing."""


JAW_OPEN = constant('jaw.open')
"""Opening that the action `open jaw` asks for, rad."""

JAW_SPEED = constant('jaw.speed')


class Jaw:
    """One jaw; closed at the start. Angles in rad."""

    __slots__ = ('angle', 'target')

    def __init__(self) -> None:
        self.angle = 0.0
        self.target = 0.0

    def aim(self, angle: float) -> None:
        """
        Ask the jaw to open to an angle.

        :raises StateError: if that is no number or outside the limits; the old target stays.
        """
        low, high = JAW_LIMITS
        if not is_within(angle, low, high):
            raise StateError(f'jaw {angle!r}: expected {low} to {high} rad')
        self.target = float(angle)

    def halt(self) -> None:
        """Stay as it is."""
        self.target = self.angle

    def advance(self, period: float) -> None:
        """Let time pass, s."""
        stride = JAW_SPEED * period
        self.angle += min(max(self.target - self.angle, -stride), stride)

    @property
    def opening(self) -> float:
        """Return how far it is open, as a fraction of what `open jaw` asks for."""
        return self.angle / JAW_OPEN

    @property
    def told(self) -> float:
        """Return 1 if it was told to open, else 0."""
        return 1.0 if self.target > 0.5 * JAW_OPEN else 0.0
