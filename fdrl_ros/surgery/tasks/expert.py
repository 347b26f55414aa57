# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The expert: a pure function from a state and its patient to the cost of every action.

It knows what no policy sees (stiffness, the true surface, the phase of breathing, the arm's lag),
keeps nothing between calls, and so can be asked about any state in any order (FDRL Eq. 8 needs
that).
"""

from typing import NamedTuple

from fdrl_ros.errors import StateError
from fdrl_ros.surgery.gym.actions import ACTION_COUNT, ACTIONS, DISPLACEMENTS, TICK
from fdrl_ros.surgery.gym.state import INDEX, unscale
from fdrl_ros.surgery.gym.vector_operation import VectorOperation
from fdrl_ros.surgery.patient.patient import Patient
from fdrl_ros.surgery.scalar_or_array import Array, excess, Number, Point
from fdrl_ros.surgery.settings import checked_world, horizon_of, WorldSettings
from fdrl_ros.surgery.tasks.registry import task_of
from fdrl_ros.surgery.tasks.task import Prospect, Task
from fdrl_ros.surgery.tissue.contact import Tissue, tissue_of
import numpy as np
from numpy.typing import NDArray

FORCE_MARGIN = 0.9
"""Share of the force limit above which a predicted force is penalised."""

FORCE_PENALTY = 0.02
"""What a predicted newton above the margin costs, metres."""

RESOLUTION = 7
"""Decimals of a metre that costs are rounded to: a state is float32, and ties must stay ties."""

_DEFAULT = WorldSettings()

_TOLD: Array = np.array(
    [[np.nan if action.jaw is None else float(action.jaw)] for action in ACTIONS]
)
_MOVES: Array = DISPLACEMENTS.T[:, :, None]
_SINKING: Array = -_MOVES[2] / TICK
_ERROR = INDEX['goal_error_x']


class _Ahead(NamedTuple):
    """Times of n states, s, and how far breathing has the surface above rest then, m."""

    now: Array
    reached: Array
    """When the arm, which lags, will have got to a set-point of the next tick."""
    breath_now: Array
    breath_next: Array
    """One tick ahead."""
    breath_reached: Array


class _Limits(NamedTuple):
    """What the state does not say: the force limit, N, and the calibration error, m."""

    force: Number
    calibration: Point


def _action_costs(
    task: Task, tissue: Tissue, limits: _Limits, values: Array, ahead: _Ahead
) -> Array:
    """
    Predict the remaining cost one tick after each action, with a penalty on force.

    :param task: of one patient with n states, or of n patients with one each, as the tissue.
    :param values: states in their units, shape (STATE_SIZE, n).
    :returns: costs, shape (15, n), metres.
    """
    done, grasped, jaw = (values[INDEX[name]] for name in ('done', 'grasped', 'jaw'))
    planned = task.waypoint(grasped, done, ahead.now, ahead.breath_now)
    x, y, z = (
        values[_ERROR + axis] + planned[axis] + limits.calibration[axis] + _MOVES[axis]
        for axis in range(3)
    )
    told = np.where(np.isnan(_TOLD), values[INDEX['jaw_target']], _TOLD)
    # Where the arm will be late, the expert aims at what will be there then.
    at = Prospect(x, y, z, ahead.breath_reached, ahead.reached, jaw, told, grasped, done)
    force = tissue.normal_force(tissue.rest + ahead.breath_next - z, _SINKING)
    if task.resists:
        force = force + np.hypot(*task.resistance(grasped, x, y, z))
    over = excess(force, FORCE_MARGIN * limits.force)
    return np.asarray(task.remaining(at) + FORCE_PENALTY * over)


def expert_costs(
    states: NDArray[np.float32], patient: Patient, settings: WorldSettings = _DEFAULT
) -> NDArray[np.float64]:
    """
    Predict the remaining cost one tick after each action, with a penalty on force.

    :param states: states of this patient as a policy sees them, shape (n, STATE_SIZE).
    :param patient: whose states they are.
    :param settings: of the world that they come from.
    :returns: costs, shape (n, 15), metres.
    :raises StateError: if a state is of the wrong size or not finite, or the patient is none.
    :raises SettingError: if the settings are none.
    """
    if not isinstance(patient, Patient):
        raise StateError(f'patient {patient!r}: expected a Patient')
    checked_world(settings)
    values = np.atleast_2d(unscale(states)).T
    tissue = tissue_of(patient)
    elapsed = (1.0 - values[INDEX['time_left']]) * horizon_of(patient, settings)
    now = np.round(elapsed) * TICK
    reached = now + (1 + patient.latency) * TICK + patient.servo_lag
    breaths = (tissue.breath(time)[0] for time in (now, now + TICK, reached))
    costs = _action_costs(
        task_of(patient, tissue),
        tissue,
        _Limits(patient.procedure.force_limit, patient.calibration),
        values,
        _Ahead(now, reached, *breaths),
    )
    total = np.broadcast_to(costs.T, (len(now), ACTION_COUNT))
    return np.round(total, RESOLUTION)


def vector_expert_costs(operations: VectorOperation) -> Array:
    """
    Predict the remaining cost one tick after each action, with a penalty on force.

    :returns: costs, shape (n, 15), metres; as one expert after the other says, but for rounding.
    """
    values = unscale(operations.states()).T
    breaths, _rises, _factors = operations.motion()
    now = operations.ticks * TICK
    reached = now + operations.breathing.ahead[-1]
    costs: Array = np.empty((ACTION_COUNT, len(now)))
    for group in operations.tasks.groups():
        task, rows = group
        breath = breaths.take(rows, axis=1)
        ahead = _Ahead(now[rows], reached[rows], breath[0], breath[-2], breath[-1])
        rules = operations.rules
        off_x, off_y, off_z = (off[rows] for off in rules.calibration)
        limits = _Limits(rules.force_limit[rows], (off_x, off_y, off_z))
        seen = values.take(rows, axis=1)
        costs[:, rows] = _action_costs(task, operations.tissue.record(rows), limits, seen, ahead)
    return np.round(costs.T, RESOLUTION)


def expert(
    state: NDArray[np.float32], patient: Patient, settings: WorldSettings = _DEFAULT
) -> tuple[int, NDArray[np.float64]]:
    """
    Return the best action in a state and the cost of every action; ties go to the lowest index.

    :param state: as a policy sees it, shape (STATE_SIZE,).
    :param patient: whose state it is.
    :param settings: of the world that it comes from.
    :returns: action, and costs of shape (15,) in metres.
    :raises StateError: if the state is of the wrong size or not finite, or the patient is none.
    :raises SettingError: if the settings are none.
    """
    costs = expert_costs(state, patient, settings)[0]
    return int(np.argmin(costs)), costs
