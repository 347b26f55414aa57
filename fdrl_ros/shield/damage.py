# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Damage of a case: force above the procedure's warning force, over time."""

from fdrl_ros.surgery.gym.actions import TICK
from fdrl_ros.surgery.scalar_or_array import excess, Number, Rows
from fdrl_ros.surgery.tasks.procedures import procedure_named

LONGEST_STEP = 4 * TICK
"""A gap between two states counts as this long at most, seconds: its force is unknown."""


def elapsed(last: float | None, now: float) -> float:
    """Return for how long a state counts: since the last one, or a tick where there is none."""
    return TICK if last is None else min(max(now - last, 0.0), LONGEST_STEP)


class DamageMeter:
    """
    Damage of one case, or of many at once.

    :param like: 0.0 for one robot, zeros of shape (n,) for n of them.
    """

    def __init__(self, like: Number = 0.0) -> None:
        self.total: Number = like
        """Of the case so far, N s."""
        self._last: float | None = None

    def add(self, force: Number, procedure: str, now: float) -> None:
        """
        Add the excess force of a state.

        :param force: measured load, N.
        :param now: seconds of the clock that stamps states.
        """
        harm = excess(force, procedure_named(procedure).warn_force)
        self.total = self.total + harm * elapsed(self._last, now)
        self._last = now

    def restart(self) -> None:
        """Continue in another time, to which the stamps so far do not belong."""
        self._last = None

    def select(self, rows: Rows) -> None:
        """Keep only some of many robots, in the order given."""
        self.total = self.total[rows]
