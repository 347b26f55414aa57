# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What the robot sees, as it arrives on the two state topics, and whether it may be acted on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
import math
from operator import le
from reprlib import Repr
from types import MappingProxyType
from typing import NamedTuple, Protocol

from fdrl_ros.errors import StateError
from fdrl_ros.surgery.gym.state import (
    Field,
    layout_of,
    OPERATION_FIELDS,
    OPERATION_LAYOUT,
    PATIENT_FIELDS,
    PATIENT_LAYOUT,
    PROCEDURE_NAMES,
    scale,
    STATE_BOUND,
)
import numpy as np

PHYSICAL_RANGES = {
    'N': (-20.0, 100.0),
    'mmHg': (-0.1, 300.0),
    '1/min': (-0.1, 400.0),
    '%': (-0.1, 100.1),
}
"""Values that a working sensor can show, by unit; other units are bounded in scales."""


MOST_FIELDS = 256
"""Most fields of one half of a state, as StateFields.msg has it."""

_NAMED = 3
"""Values out of order that are named; the others are counted."""

_SHORT = Repr()
_SHORT.maxstring = 60  # what others send is told in the log, but not at any length

_FIELDS = OPERATION_FIELDS + PATIENT_FIELDS
_OPERATION_NAMES = tuple(each.name for each in OPERATION_FIELDS)
_PROCEDURES = frozenset(PROCEDURE_NAMES)
_FORCE, _FORCE_LIMIT, _TIME_LEFT = (
    _OPERATION_NAMES.index(each) for each in ('force', 'force_limit', 'time_left')
)


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
    NO_VISIBILITY = 'no_visibility'
    LOCKED = 'locked'
    SURGEON = 'surgeon'


@dataclass(frozen=True)
class Observation:
    """
    One message of a state topic: the operation or the patient.

    :param patient: pseudonym of the case; another one begins a new case.
    :param layout: hash of the fields that the values are of, see
        :func:`fdrl_ros.surgery.gym.state.layout_of`.
    :param values: in the units of the fields, shape (n,).
    :param received: when it arrived, seconds of the steady clock.
    :param procedure: name of the procedure; only the operation has one.
    :param stamp: when it was measured, nanoseconds of the clock that stamps states: what is
        decided depends on this time alone. Without one, the time of arrival counts.
    :param time: the same in seconds, or the time of arrival.
    :param time_left: of the time allowed, a fraction; NaN where the operation does not tell it.
    """

    patient: str
    layout: str
    values: Sequence[float] | np.ndarray
    received: float
    procedure: str = ''
    stamp: int | None = None
    time: float = field(init=False, repr=False, compare=False)
    time_left: float = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Work out the times, which are asked for often."""
        time = self.received if self.stamp is None else 1e-9 * self.stamp
        object.__setattr__(self, 'time', time)
        object.__setattr__(
            self, 'time_left', _time_left(self.values) if self.procedure else math.nan
        )


def _time_left(values: Sequence[float] | np.ndarray) -> float:
    try:
        left = float(values[_TIME_LEFT])
    except (IndexError, TypeError, ValueError):
        return math.nan
    return left if 0.0 <= left <= 1.0 else math.nan


def operation_values(operation: Observation) -> np.ndarray | None:
    """Return the values of a state of the operation that is whole by itself, else None."""
    if operation.layout != OPERATION_LAYOUT or operation.procedure not in PROCEDURE_NAMES:
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


class Stamp(Protocol):
    """A time stamp of ROS, whichever library made it, as all messages here."""

    sec: int
    nanosec: int


class Header(Protocol):
    """Header of a message."""

    stamp: Stamp


class StateMessage(Protocol):
    """OperationState or PatientState."""

    header: Header
    patient: str
    layout: str
    values: Sequence[float]


class FieldsMessage(Protocol):
    """StateFields."""

    layout: str
    names: Sequence[str]
    units: Sequence[str]
    scales: Sequence[float]


def nanoseconds(stamp: Stamp) -> int:
    """Turn the stamp of a message into nanoseconds."""
    return int(stamp.sec) * 1_000_000_000 + int(stamp.nanosec)


def observation(source: StateMessage, received: float) -> Observation:
    """
    Read one half of the state.

    :param received: when it arrived, second of the steady clock.
    """
    return Observation(
        patient=source.patient,
        layout=source.layout,
        values=np.array(source.values),
        received=received,
        procedure=getattr(source, 'procedure', ''),
        stamp=nanoseconds(source.header.stamp),
    )


class UsableState(NamedTuple):
    """
    A state that may be acted on; its arrays are read-only.

    :param values: in units, shape (STATE_SIZE,), float64.
    :param scaled: as the policies see it, float32.
    :param wide: the same numbers as scaled, float64.
    """

    values: np.ndarray
    scaled: np.ndarray
    wide: np.ndarray


class StateReader:
    """Puts the two parts together and refuses what cannot be the state of this robot."""

    def __init__(self, bound: float) -> None:
        """
        Prepare the checks.

        :param bound: largest magnitude of a value without a physical range, in scales.
        """
        scales = np.array([each.scale for each in _FIELDS])
        self._factors = 1.0 / scales
        limits = [self.limits(each, bound) for each in _FIELDS]
        self._low, self._high = zip(*limits, strict=True)
        farthest = np.abs(limits).max(axis=1) * self._factors
        self._cut = bool(farthest.max() > STATE_BOUND)

    @staticmethod
    def limits(field: Field, bound: float) -> tuple[float, float]:
        """Return the least and the greatest value of a field, in its unit."""
        return PHYSICAL_RANGES.get(field.unit, (-bound * field.scale, bound * field.scale))

    def read(self, operation: Observation, patient: Observation) -> UsableState | Reason:
        """Return the state, or why there is none."""
        if (
            operation.patient != patient.patient
            or operation.procedure not in _PROCEDURES
            or operation.layout != OPERATION_LAYOUT
            or patient.layout != PATIENT_LAYOUT
        ):
            return Reason.MISMATCH
        try:
            values = np.concatenate((operation.values, patient.values), dtype=np.float64)
        except (TypeError, ValueError):
            return Reason.MISMATCH
        if values.shape != self._factors.shape:
            return Reason.MISMATCH
        read = values.tolist()
        if not (all(map(le, self._low, read)) and all(map(le, read, self._high))):  # no NaN is
            finite = all(map(math.isfinite, read))
            return Reason.OUT_OF_RANGE if finite else Reason.NOT_FINITE
        if read[_FORCE_LIMIT] <= 0.0:
            return Reason.OUT_OF_RANGE
        scaled = scale(values) if self._cut else (values * self._factors).astype(np.float32)
        state = UsableState(values, scaled, scaled.astype(np.float64))
        for array in state:
            array.setflags(write=False)
        return state


Layouts = Mapping[str, Sequence[Field]]
"""Fields by the hash that states name them by."""


def told_fields(source: FieldsMessage) -> tuple[Field, ...]:
    """
    Read the fields that a publisher of states told.

    :raises StateError: if they are too many, or not those of the hash that is told with them.
    """
    if len(source.names) > MOST_FIELDS:
        raise StateError(f'{len(source.names)} fields in state_fields: at most {MOST_FIELDS}')
    try:
        layout = layout_of(source.names, source.units, source.scales)
    except ValueError:
        counts = len(source.names), len(source.units), len(source.scales)
        raise StateError(
            'state_fields has {} names, {} units, {} scales: expected as many of each'.format(
                *counts
            )
        ) from None
    if layout != source.layout:
        told = _SHORT.repr(source.layout)
        raise StateError(f'state_fields says layout {told} of fields that are {layout!r}')
    fields = zip(source.names, source.units, source.scales, strict=True)
    return tuple(Field(name, unit, float(divisor), '') for name, unit, divisor in fields)


def fault_in_words(
    operation: Observation,
    patient: Observation,
    bound: float,
    layouts: Layouts = MappingProxyType({}),
) -> str:
    """
    Tell what keeps two halves from being a state, in words; empty if nothing does.

    It finds what :meth:`StateReader.read` refuses, and is far slower: for logs and diagnostics.

    :param bound: as of the reader.
    :param layouts: fields that were told, to name the one that differs.
    """
    if operation.patient != patient.patient:
        ours, theirs = _SHORT.repr(operation.patient), _SHORT.repr(patient.patient)
        return f'patient {ours} in the operation, {theirs} in the vital signs'
    if operation.procedure not in PROCEDURE_NAMES:
        expected = ', '.join(PROCEDURE_NAMES)
        return f'procedure {_SHORT.repr(operation.procedure)}: expected one of {expected}'
    halves = (
        ('operation', operation, OPERATION_FIELDS, OPERATION_LAYOUT),
        ('vital signs', patient, PATIENT_FIELDS, PATIENT_LAYOUT),
    )
    for half, seen, fields, layout in halves:
        if seen.layout != layout:
            told = _SHORT.repr(seen.layout)
            why = _other_fields(layouts.get(seen.layout), fields)
            return f'{half} has layout {told}, expected {layout!r}: {why}'
        try:
            shape = np.asarray(seen.values, np.float64).shape
        except (TypeError, ValueError):
            return f'{half} has values that are no numbers'
        if shape != (len(fields),):
            return f'{half} has {" x ".join(map(str, shape))} values, expected {len(fields)}'
    broken, outside = [], []
    for _, seen, fields, _ in halves:
        for each, value in zip(fields, np.asarray(seen.values, np.float64).tolist(), strict=True):
            low, high = StateReader.limits(each, bound)
            unit = '' if each.unit == '1' else f' {each.unit}'
            if not math.isfinite(value):
                broken.append(f'{each.name} is {value}')
            elif not low <= value <= high:
                span = f'{low:g} to {high:g}'
                outside.append(f'{each.name} is {value:g}{unit}, out of range ({span})')
            elif each.name == 'force_limit' and value <= 0.0:
                outside.append(f'{each.name} is {value:g}{unit}, expected more than 0')
    faults = broken or outside
    more = [f'and {len(faults) - _NAMED} more'] if len(faults) > _NAMED else []
    return '; '.join(faults[:_NAMED] + more)


def _other_fields(told: Sequence[Field] | None, expected: Sequence[Field]) -> str:
    """Tell the first field that differs from what is expected."""
    if told is None:
        return 'no state_fields told what it is of'
    for number, (found, wanted) in enumerate(zip(told, expected, strict=False)):
        if found.name != wanted.name:
            return f'field {number} is {_SHORT.repr(found.name)}, expected {wanted.name!r}'
        for what in ('unit', 'scale'):
            if getattr(found, what) != getattr(wanted, what):
                is_, ought = (_SHORT.repr(getattr(each, what)) for each in (found, wanted))
                return f'{what} of {wanted.name} is {is_}, expected {ought}'
    return f'{len(told)} fields, expected {len(expected)}'
