# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The expert: a pure function from a state and its patient to the cost of every action.

It knows what no policy sees (stiffness, the true surface, the phase of breathing, the arm's lag),
keeps nothing between calls, and so can be asked about any state in any order (FDRL Eq. 8 needs
that).
"""

from fdrl_ros.errors import StateError
from fdrl_ros.surgery.gym.actions import ACTION_COUNT, ACTIONS, DISPLACEMENTS, TICK
from fdrl_ros.surgery.gym.state import INDEX, unscale
from fdrl_ros.surgery.patient.patient import Patient
from fdrl_ros.surgery.settings import checked_world, horizon_of, WorldSettings
from fdrl_ros.surgery.tasks.registry import task_of
from fdrl_ros.surgery.tasks.task import excess, Prospect
from fdrl_ros.surgery.tissue.contact import contact_force, Tissue
import numpy as np
from numpy.typing import NDArray

FORCE_MARGIN = 0.9
"""Share of the force limit above which a predicted force is penalised."""

FORCE_PENALTY = 0.02
"""What a predicted newton above the margin costs, metres."""

RESOLUTION = 7
"""Decimals of a metre that costs are rounded to: a state is float32, and ties must stay ties."""

_DEFAULT = WorldSettings()

TOLD = np.array([np.nan if each.jaw is None else float(each.jaw) for each in ACTIONS])
FIRST = INDEX['goal_error_x']


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
    values = np.atleast_2d(unscale(states))
    tissue = Tissue(patient)
    task = task_of(patient, tissue)
    elapsed = (1.0 - values[:, INDEX['time_left']]) * horizon_of(patient, settings)
    now = np.round(elapsed) * TICK
    done, grasped, jaw = (values[:, None, INDEX[each]] for each in ('done', 'grasped', 'jaw'))
    planned = task.waypoint(grasped[:, 0], done[:, 0], now)
    x, y, z = (
        (values[:, FIRST + axis] + planned[axis])[:, None] + DISPLACEMENTS[:, axis]
        for axis in range(3)
    )
    told = np.where(np.isnan(TOLD), values[:, None, INDEX['jaw_target']], TOLD)
    # Where the arm will be late, the expert aims at what will be there then.
    reached = now + TICK + task.lead
    aimed = np.array([tissue.surface(each)[0] for each in reached.tolist()])[:, None]
    cost = task.remaining(Prospect(x, y, z, aimed, reached[:, None], jaw, told, grasped, done))
    heights = np.array([tissue.surface(each)[0] for each in (now + TICK).tolist()])
    sinking = -DISPLACEMENTS[:, 2] / TICK
    force = contact_force(tissue.stiffness, tissue.damping, heights[:, None] - z, sinking)
    if task.rigid:
        force = force + np.hypot(*task.resistance(grasped, x, y, z))
    over = excess(force, FORCE_MARGIN * patient.procedure.force_limit)
    total = np.broadcast_to(cost + FORCE_PENALTY * over, (len(values), ACTION_COUNT))
    return np.round(total, RESOLUTION)


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
