# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What the robot sees, as it arrives on the two state topics, and whether it may be acted on."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from fdrl_ros.env.procedures import PROCEDURES
from fdrl_ros.env.state import (
    Field,
    OPERATION_FIELDS,
    PATIENT_FIELDS,
    PROCEDURE_NAMES,
    scale,
)
import numpy as np

PHYSICAL_RANGES = {
    'N': (-20.0, 100.0),
    'mmHg': (-0.1, 300.0),
    '1/min': (-0.1, 400.0),
    '%': (-0.1, 100.1),
}
"""Values that a working sensor can show, by unit; other units are bounded in scales."""


_OPERATION_NAMES = tuple(each.name for each in OPERATION_FIELDS)
_FORCE, _FORCE_LIMIT = (_OPERATION_NAMES.index(each) for each in ('force', 'force_limit'))


class Reason(StrEnum):
    """Why a selection came out as it did: a fixed vocabulary for logs and diagnostics."""

    BEST = 'best'
    KEPT = 'kept'
    UNVALUED = 'unvalued'
    CAUTION = 'caution'
    PROCEDURE = 'procedure'
    SHIELD_FAILED = 'shield_failed'
    MISSING = 'missing'
    STALE = 'stale'
    CLOCK = 'clock'
    MISMATCH = 'mismatch'
    NOT_FINITE = 'not_finite'
    OUT_OF_RANGE = 'out_of_range'
    NO_POLICY = 'no_policy'
    POLICY_FAILED = 'policy_failed'
    LATE = 'late'
    FROZEN = 'frozen'
    RISK_GATE = 'risk_gate'
    PAUSED = 'paused'
    LOCKED = 'locked'
    SURGEON = 'surgeon'


@dataclass(frozen=True)
class Observation:
    """
    One message of a state topic: the operation or the patient.

    :param patient: pseudonym of the case; another one begins a new case.
    :param names: of the values.
    :param values: in the units of the fields, shape (n,).
    :param scales: what a policy sees is values / scales, shape (n,).
    :param received: when it arrived, seconds of the steady clock.
    :param procedure: name of the procedure; only the operation has one.
    :param stamp: when it was measured, nanoseconds of the clock that stamps states: what is
        decided depends on this time alone. Without one, the time of arrival counts.
    """

    patient: str
    names: tuple[str, ...]
    values: Sequence[float] | np.ndarray
    scales: Sequence[float] | np.ndarray
    received: float
    procedure: str = ''
    stamp: int | None = None

    @property
    def time(self) -> float:
        """When it was measured, seconds."""
        return self.received if self.stamp is None else 1e-9 * self.stamp


def readable(operation: Observation) -> np.ndarray | None:
    """Return the values of a state of the operation that is whole by itself, else None."""
    if tuple(operation.names) != _OPERATION_NAMES or operation.procedure not in PROCEDURE_NAMES:
        return None
    try:
        values = np.array(operation.values, np.float64)
    except (TypeError, ValueError):
        return None
    if values.shape != (len(_OPERATION_NAMES),) or not np.isfinite(values).all():
        return None
    least, greatest = PHYSICAL_RANGES['N']
    plausible = least <= values[_FORCE] <= greatest and values[_FORCE_LIMIT] > 0.0
    return values if plausible else None


def nanoseconds(stamp: Any) -> int:
    """Turn the stamp of a message into nanoseconds."""
    return int(stamp.sec) * 1_000_000_000 + int(stamp.nanosec)


def observation(source: Any, received: float) -> Observation:
    """
    Read one half of the state.

    :param source: OperationState or PatientState, whichever library made it.
    :param received: when it arrived, second of the steady clock.
    """
    return Observation(
        patient=source.patient,
        names=tuple(source.names),
        values=np.array(source.values),
        scales=np.array(source.scales),
        received=received,
        procedure=getattr(source, 'procedure', ''),
        stamp=nanoseconds(source.header.stamp),
    )


@dataclass(frozen=True)
class State:
    """
    A state that may be acted on.

    :param values: in units, shape (STATE_SIZE,), float64, read-only.
    :param scaled: as the policies see it, float32, read-only.
    """

    values: np.ndarray
    scaled: np.ndarray


class StateReader:
    """Puts the two parts together and refuses what cannot be the state of this robot."""

    def __init__(self, bound: float) -> None:
        """
        Prepare the checks.

        :param bound: largest magnitude of a value without a physical range, in scales.
        """
        fields = OPERATION_FIELDS + PATIENT_FIELDS
        self._names = tuple(
            tuple(each.name for each in part) for part in (OPERATION_FIELDS, PATIENT_FIELDS)
        )
        self._scales = np.array([each.scale for each in fields])
        self._scale_bytes = self._scales.tobytes()
        limits = [self._limits(each, bound) for each in fields]
        self._low = np.array([low for low, _ in limits])
        self._high = np.array([high for _, high in limits])
        self._force_limit = [each.name for each in fields].index('force_limit')
        self._procedures = frozenset(each.name for each in PROCEDURES)

    @staticmethod
    def _limits(field: Field, bound: float) -> tuple[float, float]:
        return PHYSICAL_RANGES.get(field.unit, (-bound * field.scale, bound * field.scale))

    def read(self, operation: Observation, patient: Observation) -> State | Reason:
        """Return the state, or why there is none."""
        if (
            operation.patient != patient.patient
            or operation.procedure not in self._procedures
            or tuple(operation.names) != self._names[0]
            or tuple(patient.names) != self._names[1]
        ):
            return Reason.MISMATCH
        try:
            values = np.concatenate((operation.values, patient.values), dtype=np.float64)
            scales = np.concatenate((operation.scales, patient.scales), dtype=np.float64)
        except (TypeError, ValueError):
            return Reason.MISMATCH
        size = len(self._scales)
        if values.shape != (size,) or scales.tobytes() != self._scale_bytes:
            return Reason.MISMATCH
        in_range = values >= self._low  # which no NaN is
        in_range &= values <= self._high
        if np.count_nonzero(in_range) < size:
            finite = np.isfinite(values).all()
            return Reason.OUT_OF_RANGE if finite else Reason.NOT_FINITE
        if values[self._force_limit] <= 0:
            return Reason.OUT_OF_RANGE
        scaled = scale(values)
        values.flags.writeable = False
        scaled.flags.writeable = False
        return State(values, scaled)
