# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The expert: a pure function from a state and its patient to the cost of every action.

It knows what no policy sees (stiffness, the true surface, the phase of breathing), keeps nothing
between calls, and so can be asked about any state in any order (FDRL Eq. 8 needs that).
"""

from fdrl_ros.env.actions import DISPLACEMENTS, TICK
from fdrl_ros.env.patient import Patient
from fdrl_ros.env.settings import WorldSettings
from fdrl_ros.env.state import INDEX, unscale
from fdrl_ros.env.tissue import Tissue
import numpy as np
from numpy.typing import NDArray

FORCE_MARGIN = 0.9
"""Share of the force limit above which a predicted force is penalised."""

FORCE_PENALTY = 0.02
"""What a predicted newton above the margin costs, metres."""

_RESOLUTION = 7
"""Decimals of a metre that costs are rounded to: a state is float32, and ties must stay ties."""

_DEFAULT = WorldSettings()


def remaining_distance(
    tissue: Tissue, patient: Patient, error: tuple[float, float, float], time: float
) -> float:
    """
    Return how far a set-point is from pressing with the target force on the goal, metres.

    :param tissue: of the patient.
    :param error: set-point minus planned goal, m.
    :param time: since the start, s: the surface breathes.
    """
    x, y, z = error
    depth = tissue.surface(time)[0] - (patient.goal[2] + z)
    wanted = tissue.depth_for(patient.procedure.target_force)
    return abs(x) + abs(y) + abs(depth - wanted)


def expert_costs(
    states: NDArray[np.float32], patient: Patient, settings: WorldSettings = _DEFAULT
) -> NDArray[np.float64]:
    """
    Predict the remaining distance one tick after each action, with a penalty on force.

    :param states: states of this patient as a policy sees them, shape (n, STATE_SIZE).
    :param patient: whose states they are.
    :param settings: of the world that they come from.
    :returns: costs, shape (n, 13), metres.
    :raises StateError: if a state is of the wrong size or not finite.
    """
    values = np.atleast_2d(unscale(states))
    tissue = Tissue(patient)
    first = INDEX['goal_error_x']
    error = values[:, None, first : first + 3] + DISPLACEMENTS
    elapsed = np.round((1.0 - values[:, INDEX['time_left']]) * settings.horizon) * TICK
    surface = np.array([tissue.surface(each)[0] for each in (elapsed + TICK).tolist()])
    depth = surface[:, None] - (patient.goal[2] + error[:, :, 2])
    wanted = tissue.depth_for(patient.procedure.target_force)
    cost = np.abs(error[:, :, :2]).sum(axis=2) + np.abs(depth - wanted)
    pressed = np.maximum(depth, 0.0)
    speed = -DISPLACEMENTS[:, 2] / TICK
    force = tissue.stiffness * pressed * np.sqrt(pressed) * (1.0 + tissue.damping * speed)
    excess = np.maximum(force - FORCE_MARGIN * patient.procedure.force_limit, 0.0)
    return np.round(cost + FORCE_PENALTY * excess, _RESOLUTION)


def expert(
    state: NDArray[np.float32], patient: Patient, settings: WorldSettings = _DEFAULT
) -> tuple[int, NDArray[np.float64]]:
    """
    Return the best action in a state and the cost of every action; ties go to the lowest index.

    :param state: as a policy sees it, shape (STATE_SIZE,).
    :param patient: whose state it is.
    :param settings: of the world that it comes from.
    :returns: action, and costs of shape (13,) in metres.
    :raises StateError: if the state is of the wrong size or not finite.
    """
    costs = expert_costs(state, patient, settings)[0]
    return int(np.argmin(costs)), costs
