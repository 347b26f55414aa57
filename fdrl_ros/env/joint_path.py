# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""A straight way in the space of the joints, as slow as its fastest joint and the tip need it."""

from fdrl_ros.env.actions import MAXIMUM_SPEED, SUBSTEP
from fdrl_ros.env.arm import forward_kinematics, JOINTS, LOWER, UPPER, Vector, within_limits
from fdrl_ros.errors import StateError
import numpy as np
from numpy.typing import ArrayLike

RATES: Vector = np.array([1.0, 1.0, MAXIMUM_SPEED, 2.0, 2.0, 2.0])
"""Fastest that each joint is moved, rad/s and m/s."""
RATES.setflags(write=False)

_SAMPLES = 9
_MARGIN = 1.1
"""Over the length of the tip's way between samples."""

Point = tuple[float, float, float]


class JointPath:
    """
    From some joints to others, one sub-step at a time; it stays at its end.

    :param start: where it begins, shape (6,), rad and m.
    :param target: where it ends, shape (6,).
    :raises StateError: if the target is not six finite numbers within the limits.
    """

    def __init__(self, start: Vector, target: ArrayLike) -> None:
        goal = np.array(target, np.float64)
        if goal.shape != (6,) or not np.isfinite(goal).all():
            raise StateError(f'joints {target!r}: expected six finite numbers')
        if not within_limits(goal):
            ranges = zip(JOINTS, LOWER.tolist(), UPPER.tolist(), strict=True)
            expected = ', '.join(f'{name} {low:g} to {high:g}' for name, low, high in ranges)
            raise StateError(f'joints {goal.tolist()}: expected {expected}')
        self.joints = np.array(start, np.float64)
        way = goal - self.joints
        tips = [
            forward_kinematics(self.joints + share * way)[0]
            for share in np.linspace(0.0, 1.0, _SAMPLES)
        ]
        length = sum(float(np.linalg.norm(b - a)) for a, b in zip(tips, tips[1:], strict=False))
        duration = max(_MARGIN * length / MAXIMUM_SPEED, float(np.max(np.abs(way) / RATES)))
        self._left = max(1, int(np.ceil(duration / SUBSTEP)))
        self._stride = way / self._left
        self._goal = goal
        x, y, z = tips[-1].tolist()
        self.end: Point = (x, y, z)
        """Tip at the end, m."""

    @property
    def tip(self) -> Point:
        """Return the tip where the path is now, m."""
        x, y, z = forward_kinematics(self.joints)[0].tolist()
        return x, y, z

    def step(self) -> list[float]:
        """Go on by one sub-step; return the joints."""
        if self._left > 0:
            self._left -= 1
            self.joints = self.joints + self._stride if self._left else self._goal.copy()
        joints: list[float] = self.joints.tolist()
        return joints

    def halt(self) -> None:
        """Stay here."""
        self._left, self._goal, self.end = 0, self.joints.copy(), self.tip
