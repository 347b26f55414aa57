# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
What carries the tip, and the simplest that does: exact placement with a first-order lag.

PyBullet's arm is in :mod:`fdrl_ros.env.simulation`; both follow a set-point alike.
"""

import math
from typing import Protocol

from fdrl_ros.env.actions import SUBSTEP
from fdrl_ros.env.arm import straight_joints, Vector
import numpy as np

Point = tuple[float, float, float]


class Arm(Protocol):
    """What carries the tip: positions in the base frame, metres."""

    position: Point
    velocity: Point

    def place(self, position: Point, lag: float) -> None:
        """Put the tip at rest, and set the time constant of its lag in seconds."""

    def step(self, setpoint: Point, force: Point) -> None:
        """Move for one sub-step towards a set-point, with a force (N) on the tip."""

    def joints(self) -> Vector:
        """Return the six joints, rad and m."""

    def close(self) -> None:
        """Give back what the arm holds; it cannot be used afterwards."""


def response(lag: float) -> float:
    """Return which share of its error a first-order lag (s) removes in one sub-step."""
    return 1.0 - math.exp(-SUBSTEP / lag)


class KinematicArm:
    """Exact placement: the tip follows its set-point with the lag and feels no force."""

    def __init__(self) -> None:
        self.position: Point = (0.0, 0.0, -0.1)
        self.velocity: Point = (0.0, 0.0, 0.0)
        self._share = 1.0

    def place(self, position: Point, lag: float) -> None:
        """Put the tip at rest, and set its lag."""
        straight_joints(*position)
        self.position = position
        self.velocity = (0.0, 0.0, 0.0)
        self._share = response(lag)

    def step(self, setpoint: Point, force: Point) -> None:
        """Move for one sub-step towards a set-point."""
        x, y, z = self.position
        share = self._share
        dx, dy, dz = (
            (setpoint[0] - x) * share,
            (setpoint[1] - y) * share,
            (setpoint[2] - z) * share,
        )
        self.position = (x + dx, y + dy, z + dz)
        self.velocity = (dx / SUBSTEP, dy / SUBSTEP, dz / SUBSTEP)

    def joints(self) -> Vector:
        """Return the joints of a straight wrist at the tip."""
        return np.array([*straight_joints(*self.position), 0.0, 0.0, 0.0])

    def close(self) -> None:
        """Do nothing: this arm holds nothing."""
