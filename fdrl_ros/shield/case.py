# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Which case a state is of: where one operation ends and the next begins, on one patient too."""

import math

from fdrl_ros.shield.observation import Observation
from fdrl_ros.surgery.gym.state import PROCEDURE_NAMES

GAIN = 0.01
"""Rise of `time_left`, a fraction, that no inexact clock of one operation makes."""

_KNOWN = frozenset(PROCEDURE_NAMES)


class Case:
    """
    The case under way.

    Another one begins with another pseudonym or procedure, or when `time_left`, which only falls
    within a case, has risen above what two states in a row said: one reading that is too low ends
    none. One that is too high does: the first state of an operation has to be judged as such. What
    must not be lost by it, waits for a second one: see :class:`CaseDamage`.
    Only a pseudonym is believed in a state that came out of order, or of a procedure that there
    is not.
    """

    def __init__(self) -> None:
        self.patient: str | None = None
        """Pseudonym; None before the first state."""
        self.procedure = ''
        """Its name; empty before a state told one."""
        self._left = math.inf
        """Least `time_left` that two states in a row were not above."""
        self._last = math.nan
        """What the newest state says of it."""
        self._time = -math.inf

    def is_of(self, operation: Observation) -> bool:
        """Tell whether a state of the operation is of this case; the first one always is."""
        if self.patient is None:
            return True
        return self.is_named(operation) and not self._rise(operation) > GAIN

    def is_named(self, operation: Observation) -> bool:
        """Tell whether a state is of this patient and procedure, whatever its `time_left`."""
        if operation.patient != self.patient:
            return False
        return self.procedure in ('', operation.procedure) or not self._telling(operation)

    def tells(self, operation: Observation) -> bool:
        """Tell whether a state says at all how far its case has come."""
        return not math.isnan(self._rise(operation))

    def take(self, operation: Observation) -> None:
        """Take in a state of this case."""
        self.patient = operation.patient
        if self._telling(operation):
            self.procedure, self._time = operation.procedure, operation.time
            left = operation.time_left
            if not math.isnan(left):
                before = left if math.isnan(self._last) else self._last
                self._left = min(self._left, max(before, left))
                self._last = left

    def restart(self) -> None:
        """Go on in another time, of which the stamps so far tell nothing."""
        self._time = -math.inf

    def _telling(self, operation: Observation) -> bool:
        return operation.time > self._time and operation.procedure in _KNOWN

    def _rise(self, operation: Observation) -> float:
        """Return how far `time_left` is above that of this case; NaN if a state does not tell."""
        return operation.time_left - self._left if self._telling(operation) else math.nan
