# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""A running sum that does not drift (Neumaier 1974), so that running means equal batch means."""


class RunningSum:
    """Sum of floats added one by one, with the rounding error carried along."""

    __slots__ = ('_lost', '_sum')

    def __init__(self) -> None:
        self._sum = 0.0
        self._lost = 0.0

    def add(self, value: float) -> None:
        """Add one finite value."""
        total = self._sum + value
        if abs(self._sum) >= abs(value):
            self._lost += (self._sum - total) + value
        else:
            self._lost += (value - total) + self._sum
        self._sum = total

    @property
    def value(self) -> float:
        """The sum so far."""
        return self._sum + self._lost
