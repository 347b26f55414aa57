# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Damage of a case as the states tell it: force above the procedure's warning force, over time."""

import math
from typing import Any

from fdrl_ros.shield.case import Case
from fdrl_ros.shield.observation import Observation
from fdrl_ros.shield.scalar_or_array import most, Number
from fdrl_ros.surgery.gym.actions import TICK
from fdrl_ros.surgery.tasks.procedures import procedure_named

LONGEST_STEP = 4 * TICK
"""A gap between two states counts as this long at most, seconds: nobody knows what was in it."""


def elapsed(last: float | None, now: float) -> float:
    """Return for how long a state counts: since the last one, or a tick where there is none."""
    return TICK if last is None else min(max(now - last, 0.0), LONGEST_STEP)


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

    def add(self, force: Number, procedure: str, now: float) -> None:
        """
        Take in a state.

        :param force: measured load, N.
        :param now: seconds of the clock that stamps states.
        """
        excess = most(force - procedure_named(procedure).warn_force, self._zero)
        self.total = self.total + excess * elapsed(self._last, now)
        self._last = now

    def restart(self) -> None:
        """Count on from here in another time."""
        self._last = None

    def keep(self, rows: Any) -> None:
        """Keep only some of many robots, in the order given."""
        self.total, self._zero = self.total[rows], self._zero[rows]


class CaseDamage:
    """
    Damage of the case under way, over every state whose force counts, N s.

    It outlives a clock that is set, and one state that wrongly tells of another case of the same
    patient: its procedure, or a `time_left` that has risen. Both cases are then counted, till a
    second state in a row decides.
    """

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._known, self._meter = Case(), DamageMeter()
        self._older: DamageMeter | None = None
        self._doubted = -math.inf
        self._began = False

    @property
    def case(self) -> float:
        """Of the case as the newest state has it."""
        return self._meter.total

    @property
    def total(self) -> float:
        """The same, or that of the case before as long as it may be going on."""
        return (self._older or self._meter).total

    def begins(self) -> bool:
        """Tell, once, whether a state has made sure that another case is under way."""
        began, self._began = self._began, False
        return began

    def knows(self, operation: Observation) -> bool:
        """Tell whether a state is of this patient and procedure, whatever its `time_left`."""
        return self._known.is_named(operation)

    def add(self, operation: Observation, force: float) -> None:
        """
        Take in a state.

        :param force: measured load, N.
        """
        if operation.patient != self._known.patient:
            self._begin()
            self._began = True
        elif self._known.is_of(operation):
            if self._known.tells(operation):
                self._go_on()
        elif self._older is None:
            self._older, self._meter = self._meter, DamageMeter()
            self._doubted = operation.time
        elif operation.time > self._doubted:
            self._known, self._older = Case(), None
            self._began = True
        if self._older is None:
            self._known.take(operation)
        else:
            self._older.add(force, self._known.procedure, operation.time)
        self._meter.add(force, operation.procedure, operation.time)

    def restart(self) -> None:
        """Count on from here in another time."""
        self._go_on()
        self._known.restart()
        self._meter.restart()

    def _go_on(self) -> None:
        """Take the case to be the one before."""
        if self._older is not None:
            self._meter, self._older = self._older, None
