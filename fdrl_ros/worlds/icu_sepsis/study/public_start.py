# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What sepsis learning begins with: public knowledge as weights of a network (DP-DQN Eq. 8)."""

from fdrl_ros.policy import NetworkShape, Policy
from fdrl_ros.worlds.icu_sepsis.assets import icu_sepsis
from fdrl_ros.worlds.icu_sepsis.model import ACTION_COUNT, PATIENT_STATES, REWARD, STATE_COUNT
from fdrl_ros.worlds.icu_sepsis.perturbed import perturbed
from fdrl_ros.worlds.icu_sepsis.study.settings import Start
from fdrl_ros.worlds.icu_sepsis.values import optimum
import numpy as np
from numpy.typing import NDArray

SHAPE = NetworkShape(STATE_COUNT, ACTION_COUNT, ())
"""A dueling network without hidden layers on one-hot states: V and A are tables."""

MOST_SURVIVE = 0.6
"""Value of a usual treatment where nothing is known: four of five survive, from -1 to 1."""

UNUSUAL = 0.5
"""How much less than the least usual one an unusual treatment is valued at first."""


def inputs_of(scale: float) -> NDArray[np.float32]:
    """Return what the network takes for the number of each state, (716, 716)."""
    return np.diag(np.full(STATE_COUNT, scale, np.float32))


def public_values(start: Start, seed: int) -> NDArray[np.float64]:
    """
    Return what is publicly believed of each state and action, (713, 25), from -1 to 1.

    Unusual treatments get less than all usual ones: nobody tries what hardly anyone ever gave.

    :param seed: of the guess at the dynamics.
    """
    model = icu_sepsis()
    if start.concentration is None:
        values = np.full((PATIENT_STATES, ACTION_COUNT), MOST_SURVIVE)
    else:
        guess = perturbed(model, start.concentration, seed, start.blend)
        values = optimum(guess).action_values / REWARD
    least = np.where(model.admissible, values, np.inf).min(axis=1, keepdims=True)
    return np.where(model.admissible, values, least - UNUSUAL)


def public_weights(values: NDArray[np.float64], scale: float) -> NDArray[np.float32]:
    """
    Return the weights whose Q values are the given ones: V the mean, A what is above it.

    :param values: shape (713, 25); elsewhere Q is 0.
    :param scale: the one in a one-hot state.
    """
    table = np.zeros((STATE_COUNT, ACTION_COUNT))
    table[:PATIENT_STATES] = values / scale
    mean = table.mean(axis=1)
    parts = (mean, np.zeros(1), (table - mean[:, None]).T.reshape(-1), np.zeros(ACTION_COUNT))
    return np.concatenate(parts).astype(np.float32)


def actions_of(weights: NDArray[np.floating], inputs: NDArray[np.float32]) -> NDArray[np.int64]:
    """Return the greedy action of each state of a patient, (713,)."""
    values = Policy(np.asarray(weights, np.float32), SHAPE).q_values(inputs[:PATIENT_STATES])
    return values.argmax(axis=-1)
