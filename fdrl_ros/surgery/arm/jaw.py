# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The jaw of the instrument: follows its target at a limited speed, the same in both modes."""

from fdrl_ros.errors import StateError
from fdrl_ros.surgery.arm.kinematics import JAW_LIMITS
from fdrl_ros.surgery.constants import constant
from fdrl_ros.surgery.ranges import is_within

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
