# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Which case a state belongs to, and the damage of that case.

The control loop decides once for each state, at once: the first state of an operation must be
judged as such. Damage is reset only after two states in a row of a new case, so that one wrong
reading does not erase it (:class:`CaseDamage`).
"""

import math

from fdrl_ros.selector.control.observation import Observation
from fdrl_ros.shield.damage import DamageMeter
from fdrl_ros.surgery.gym.state import PROCEDURE_NAMES

GAIN = 0.01
"""Rise of `time_left`, a fraction, that no inexact clock of one operation makes."""

_KNOWN = frozenset(PROCEDURE_NAMES)


class CurrentCase:
    """
    The case under way.

    Another case begins with another pseudonym or procedure, or when `time_left`, which only falls
    within a case, rises above the value that two states in a row have shown: one reading that is
    too low ends no case, one that is too high does. Of a state that came out of order, or of an
    unknown procedure, only the pseudonym counts.
    """

    def __init__(self) -> None:
        self.patient: str | None = None
        """Pseudonym; None before the first state."""
        self.procedure = ''
        """Its name; empty before a state with a known one."""
        self._left = math.inf
        """Least `time_left` that two states in a row were not above."""
        self._last = math.nan
        """`time_left` of the newest state."""
        self._time = -math.inf

    def is_of(self, operation: Observation) -> bool:
        """Tell whether a state of the operation is of this case; the first one always is."""
        if self.patient is None:
            return True
        return self.is_named(operation) and not self._time_left_rise(operation) > GAIN

    def is_named(self, operation: Observation) -> bool:
        """Tell whether a state is of this patient and procedure, whatever its `time_left`."""
        if operation.patient != self.patient:
            return False
        return self.procedure in ('', operation.procedure) or not self._is_in_order(operation)

    def has_time_left(self, operation: Observation) -> bool:
        """Tell whether a state shows at all how far its case has come."""
        return not math.isnan(self._time_left_rise(operation))

    def include(self, operation: Observation) -> None:
        """Take in a state of this case."""
        self.patient = operation.patient
        if self._is_in_order(operation):
            self.procedure, self._time = operation.procedure, operation.time
            left = operation.time_left
            if not math.isnan(left):
                before = left if math.isnan(self._last) else self._last
                self._left = min(self._left, max(before, left))
                self._last = left

    def restart(self) -> None:
        """Continue in another time, to which the stamps so far do not belong."""
        self._time = -math.inf

    def _is_in_order(self, operation: Observation) -> bool:
        return operation.time > self._time and operation.procedure in _KNOWN

    def _time_left_rise(self, operation: Observation) -> float:
        """Return `time_left` above that of this case; NaN if the state does not show it."""
        return operation.time_left - self._left if self._is_in_order(operation) else math.nan


class CaseDamage:
    """
    Damage of the case under way, over every state whose force counts, N s.

    It survives a clock that is set, and a single state that wrongly shows another case of the same
    patient: another procedure, or a `time_left` that has risen. The damage of both cases is then
    integrated until a second state in a row decides.
    """

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._confirmed, self._meter = CurrentCase(), DamageMeter()
        self._older: DamageMeter | None = None
        self._doubted = -math.inf
        self._new = False

    @property
    def case(self) -> float:
        """Damage of the case of the newest state."""
        return self._meter.total

    @property
    def total(self) -> float:
        """The same, or that of the case before as long as that one may be going on."""
        return (self._older or self._meter).total

    def case_confirmed(self) -> bool:
        """Tell, once, whether another case has been confirmed since the last call."""
        new, self._new = self._new, False
        return new

    def matches(self, operation: Observation) -> bool:
        """Tell whether a state is of this patient and procedure, whatever its `time_left`."""
        return self._confirmed.is_named(operation)

    def add(self, operation: Observation, force: float) -> None:
        """
        Add the force of a state.

        :param force: measured load, N.
        """
        if operation.patient != self._confirmed.patient:
            self._begin()
            self._new = True
        elif self._confirmed.is_of(operation):
            if self._confirmed.has_time_left(operation):
                self._drop_doubt()
        elif self._older is None:
            self._older, self._meter = self._meter, DamageMeter()
            self._doubted = operation.time
        elif operation.time > self._doubted:
            self._confirmed, self._older = CurrentCase(), None
            self._new = True
        if self._older is None:
            self._confirmed.include(operation)
        else:
            self._older.add(force, self._confirmed.procedure, operation.time)
        self._meter.add(force, operation.procedure, operation.time)

    def restart(self) -> None:
        """Continue in another time, to which the stamps so far do not belong."""
        self._drop_doubt()
        self._confirmed.restart()
        self._meter.restart()

    def _drop_doubt(self) -> None:
        """Return to the case before the doubt."""
        if self._older is not None:
            self._meter, self._older = self._older, None
