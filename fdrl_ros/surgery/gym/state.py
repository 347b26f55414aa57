# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The state that a policy sees: names, units and scales, in two parts as the two topics.

The patient's stiffness is not among them: it shows only in force against depth.
"""

from collections.abc import Sequence
from dataclasses import dataclass
import hashlib
from typing import Any, NamedTuple

from fdrl_ros.errors import StateError
from fdrl_ros.surgery.scalar_or_array import excess, Number, Point
from fdrl_ros.surgery.tasks.outcome import Rules
from fdrl_ros.surgery.tasks.procedures import PROCEDURE_NAMES as PROCEDURE_NAMES
import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Field:
    """One number of the state; a policy sees the value divided by the scale."""

    name: str
    unit: str
    scale: float
    description: str


OPERATION_FIELDS: tuple[Field, ...] = (
    *(Field(name, '1', 1.0, f'1 if the procedure is {name}') for name in PROCEDURE_NAMES),
    Field('goal_error_x', 'm', 0.002, 'set-point of the tip minus the planned waypoint, x'),
    Field('goal_error_y', 'm', 0.002, 'set-point of the tip minus the planned waypoint, y'),
    Field('goal_error_z', 'm', 0.002, 'set-point of the tip minus the planned waypoint, z up'),
    Field('lag', 'm', 0.001, 'height of the measured tip above its set-point'),
    Field('lag_x', 'm', 0.001, 'measured tip minus its set-point, x'),
    Field('lag_y', 'm', 0.001, 'measured tip minus its set-point, y'),
    Field('surface', 'm', 0.002, 'how far the camera sees the surface above the planned one'),
    Field('surface_speed', 'm/s', 0.005, 'speed of the surface, up'),
    Field('depth', 'm', 0.002, 'how far the set-point is below where contact was first felt'),
    Field('felt_stiffness', '1', 1.0, 'logarithm of the stiffness felt so far, from 1000 N/m^1.5'),
    Field('contact', '1', 1.0, '1 if force is felt'),
    Field('force', 'N', 2.5, 'normal force on the tip and pull of rigid things, no friction'),
    Field('force_error', '1', 0.25, '(target - force) / target; 0 without a target force'),
    Field('force_limit', 'N', 10.0, 'force that the procedure must never pass'),
    Field('force_rate', 'N/s', 5.0, 'change of force over the last tick'),
    Field('time_left', '1', 1.0, 'fraction of the time allowed'),
    Field('done', '1', 1.0, 'fraction of the procedure that is done'),
    Field('jaw', '1', 1.0, 'opening of the jaw, 1 is open'),
    Field('jaw_target', '1', 1.0, 'what the jaw was last told, 1 is open'),
    Field('grasped', '1', 1.0, '1 if the jaw holds the object'),
)
PATIENT_FIELDS: tuple[Field, ...] = (
    Field('mean_arterial_pressure', 'mmHg', 100.0, 'mean arterial pressure'),
    Field('heart_rate', '1/min', 100.0, 'heart rate'),
    Field('oxygen_saturation', '%', 100.0, 'oxygen saturation SpO2'),
    Field('respiratory_rate', '1/min', 20.0, 'breaths a minute'),
)
STATE_FIELDS: tuple[Field, ...] = OPERATION_FIELDS + PATIENT_FIELDS


def layout_of(
    names: Sequence[str], units: Sequence[str], scales: Sequence[float] | NDArray[np.float64]
) -> str:
    """
    Return the hash by which a state names its fields; other fields have another one.

    :returns: the first 16 hexadecimal digits of the SHA-256 of one line for each field: name, unit
        and scale (%.17g), separated by a space, each ended by a newline.
    :raises ValueError: if there are not as many of each.
    """
    lines = [
        f'{name} {unit} {float(scale):.17g}\n'
        for name, unit, scale in zip(names, units, scales, strict=True)
    ]
    return hashlib.sha256(''.join(lines).encode()).hexdigest()[:16]


def _layout(fields: Sequence[Field]) -> str:
    return layout_of(*zip(*((each.name, each.unit, each.scale) for each in fields), strict=True))


OPERATION_LAYOUT, PATIENT_LAYOUT = _layout(OPERATION_FIELDS), _layout(PATIENT_FIELDS)
"""Hash of each half's fields; OperationState.msg and PatientState.msg have them as constants."""

OPERATION_SIZE = len(OPERATION_FIELDS)
STATE_SIZE = len(STATE_FIELDS)
INDEX: dict[str, int] = {field.name: index for index, field in enumerate(STATE_FIELDS)}
"""Column of a field in the state."""

SCALES: NDArray[np.float64] = np.array([field.scale for field in STATE_FIELDS])
SCALES.setflags(write=False)
_FACTORS = 1.0 / SCALES
STATE_BOUND = 200.0
"""No scaled number of a state is beyond this; patients of cohorts stay below 10."""


TICK_INFO = {
    'force': 'load at the end of the tick, N',
    'peak_force': 'greatest load within it, N',
    'mean_force': 'mean load over it, N',
    'greatest_force': 'greatest load since the start, N',
    'damage': 'since the start, N s',
    'tip': 'where it is, m',
    'jaw': 'angle of the jaw, rad',
    'news2': 'National Early Warning Score 2',
    'sofa': 'Sequential Organ Failure Assessment',
    'mean_arterial_pressure': 'mmHg',
    'critical': 'C_t of FDRL Eq. 10',
    'success': 'all that was to be done is done',
    'failure': 'name of the failure, or empty; of many, codes',
}
"""What Gymnasium's `info` has that the state leaves out."""

Info = dict[str, Any]


class Seen(NamedTuple):
    """
    What the robot's encoders and camera see, before the patient's calibration error.

    :param target: the commanded set-point of the tip, m.
    :param waypoint: where the plan has the tip go next, m.
    :param tip: measured, m.
    :param touched: height at which contact was first felt, m, not a number before.
    :param surface: height of the surface above the planned one, m.
    :param surface_speed: its upward speed, m/s.
    :param stiffness: what was felt of it, see :class:`fdrl_ros.surgery.tissue.contact.Felt`.
    """

    target: Point
    waypoint: Point
    tip: Point
    touched: Number
    surface: Number
    surface_speed: Number
    stiffness: Number


def operation_values(
    rules: Rules,
    progress: tuple[Number, Number],
    ticks: Number,
    seen: Seen,
    sensed: tuple[Number, Number, Number],
    jaw: tuple[Number, Number],
) -> tuple[Number, ...]:
    """
    Return the numbers of OPERATION_FIELDS that follow the procedures', in their units.

    :param progress: fraction of the procedure that is done, and whether the object is grasped.
    :param ticks: since the start.
    :param sensed: the measured force (N), its change over the last tick (N/s), and whether
        contact is felt.
    :param jaw: its opening and what it was last told, 1 is open.
    """
    target, waypoint, tip, touched, surface, surface_speed, stiffness = seen
    force, rate, felt = sensed
    done, grasped = progress
    off = rules.calibration
    return (
        target[0] - waypoint[0] - off[0],
        target[1] - waypoint[1] - off[1],
        target[2] - waypoint[2] - off[2],
        tip[2] - target[2],
        tip[0] - target[0],
        tip[1] - target[1],
        surface,
        surface_speed,
        excess(touched, target[2]),
        stiffness,
        felt * 1.0,
        force,
        # Adding nothing turns the -0 of an infinite scale into 0.
        (rules.target_force - force) / rules.error_scale + 0.0,
        rules.force_limit,
        rate,
        1.0 - ticks / rules.horizon,
        done,
        *jaw,
        grasped * 1.0,
    )


def scale(values: Sequence[float] | NDArray[np.float64]) -> NDArray[np.float32]:
    """
    Turn values in their units into what a policy sees.

    :param values: shape (..., STATE_SIZE), in the order and units of STATE_FIELDS.
    :returns: values / scales, cut at STATE_BOUND, float32, same shape.
    :raises StateError: if the last dimension is not STATE_SIZE.
    """
    array = np.asarray(values, np.float64)
    if array.shape[-1:] != (STATE_SIZE,):
        raise StateError(f'state of shape {array.shape}: expected (..., {STATE_SIZE})')
    scaled = array * _FACTORS
    # The norm is quick to get, and no number is beyond it: there is hardly ever one to cut.
    flat = scaled.ravel('K')
    if not flat.dot(flat) < STATE_BOUND * STATE_BOUND:
        scaled = np.minimum(np.maximum(scaled, -STATE_BOUND), STATE_BOUND)
    return scaled.astype(np.float32)


def unscale(state: NDArray[np.float32]) -> NDArray[np.float64]:
    """
    Turn what a policy sees back into values in their units.

    :param state: shape (..., STATE_SIZE).
    :returns: values, float64, same shape.
    :raises StateError: if they are no numbers, the last dimension is not STATE_SIZE, or one is not
        finite.
    """
    try:
        array = np.asarray(state, np.float64)
    except (TypeError, ValueError, OverflowError):
        raise StateError(f'state {state!r}: expected {STATE_SIZE} numbers') from None
    if array.shape[-1:] != (STATE_SIZE,):
        raise StateError(f'state of shape {array.shape}: expected (..., {STATE_SIZE})')
    if not np.isfinite(array).all():
        raise StateError('state holds a number that is not finite')
    return array * SCALES
