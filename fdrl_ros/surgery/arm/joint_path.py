# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""A straight way in the space of the joints, even: who asks for it limits its speed."""

from collections.abc import Sequence

from fdrl_ros.errors import StateError
from fdrl_ros.surgery.arm.kinematics import checked_joints, forward_kinematics, Point, Vector
import numpy as np


class JointPath:
    """
    From some joints to others, one sub-step at a time; it stays at its end.

    :param start: where it begins, shape (6,), rad and m.
    :param target: where it ends, shape (6,).
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
