# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Motion at a commanded velocity, of the tip or of the joints, within the speeds of a move."""

from collections.abc import Sequence
import math

from fdrl_ros.surgery.arm.kinematics import (
    checked_joints,
    forward_kinematics,
    inverse_kinematics,
    Vector,
)
from fdrl_ros.surgery.arm.motion import follow_joints, TIP_SPEED, TURN_SPEED
from fdrl_ros.surgery.arm.operating_state import CommandError
from fdrl_ros.surgery.arm.rotations import from_rotation_vector
import numpy as np

TIMEOUT = 0.1
"""For how long a commanded velocity counts, s: the arm stops unless another one comes."""


class TipVelocity:
    """
    The tip moves and the tool turns evenly; too fast a twist is slowed down as a whole.

    :param linear: of the tip in the base frame, shape (3,), m/s.
    :param angular: of the tool in the base frame, shape (3,), rad/s.
    :raises CommandError: if one is not three finite numbers.
    """

    def __init__(self, linear: Sequence[float], angular: Sequence[float]) -> None:
        self._linear, self._angular = _finite(linear, 3, 'm/s'), _finite(angular, 3, 'rad/s')
        share = 1.0
        for part, limit in ((self._linear, TIP_SPEED), (self._angular, TURN_SPEED)):
            share = min(share, limit / max(float(np.linalg.norm(part)), limit))
        self._linear, self._angular = share * self._linear, share * self._angular

    def joints(self, joints: Vector, period: float) -> Vector:
        """
        Return the joints one period on.

        :param joints: shape (6,), rad and m.
        :param period: s.
        :raises UnreachableError: if that is outside the joint limits.
        """
        if not (self._linear.any() or self._angular.any()):
            return joints
        position, rotation = forward_kinematics(joints)
        turned = from_rotation_vector(period * self._angular) @ rotation
        goal = inverse_kinematics(position + period * self._linear, turned, float(joints[3]))
        return follow_joints(joints, goal, period)


class JointVelocity:
    """
    Each joint moves evenly; too fast ones are slowed down together.

    :param speeds: shape (6,), rad/s and m/s.
    :raises CommandError: if they are not six finite numbers.
    """

    def __init__(self, speeds: Sequence[float]) -> None:
        self._speeds = _finite(speeds, 6, 'rad/s and m/s')

    def joints(self, joints: Vector, period: float) -> Vector:
        """
        Return the joints one period on.

        :param joints: shape (6,), rad and m.
        :param period: s.
        :raises UnreachableError: if that is outside the joint limits.
        """
        after = follow_joints(joints, joints + period * self._speeds, period)
        return np.array(checked_joints(after))


def _finite(values: Sequence[float], count: int, unit: str) -> Vector:
    if len(values) != count or not all(map(math.isfinite, values)):
        raise CommandError(f'velocity {list(values)!r}: expected {count} finite numbers, {unit}')
    return np.array(values, np.float64)
