# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Damage of a case as the states tell it: force above the procedure's warning force, over time."""

from typing import Any

from fdrl_ros.env.actions import TICK
from fdrl_ros.env.procedures import procedure_named
from fdrl_ros.selector.either import most, Number

LONGEST_STEP = 4 * TICK
"""A gap between two states counts as this long at most, seconds: nobody knows what was in it."""


class DamageMeter:
    """
    Integrates one case, or many.

    :param like: 0.0 for one robot, zeros of shape (n,) for n of them.
    """

    def __init__(self, like: Number = 0.0) -> None:
        self.total: Number = like
        """Of the case so far, N s."""
        self._zero = like
        self._last: float | None = None

    def add(self, force: Number, procedure: str, now: float) -> float:
        """
        Take in a state; return the time since the last one, seconds.

        :param force: measured load, N.
        :param now: seconds of the clock that stamps states.
        """
        elapsed = TICK if self._last is None else min(max(now - self._last, 0.0), LONGEST_STEP)
        self._last = now
        excess = most(force - procedure_named(procedure).warn_force, self._zero)
        self.total = self.total + excess * elapsed
        return elapsed

    def restart(self) -> None:
        """Count on from here in another time."""
        self._last = None

    def keep(self, rows: Any) -> None:
        """Keep only some of many robots, in the order given."""
        self.total, self._zero = self.total[rows], self._zero[rows]
