# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
What is publicly known before the first private patient, and the best plan on recorded data.

Public knowledge as weights of a network (DP-DQN Eq. 8); a planner that knows more than any learner
here shows how much a data set can tell at all.
"""

from dataclasses import replace

from fdrl_ros.policy import NetworkShape, Policy
from fdrl_ros.worlds.icu_sepsis.assets import icu_sepsis
from fdrl_ros.worlds.icu_sepsis.episodes import SepsisStays
from fdrl_ros.worlds.icu_sepsis.model import (
    ACTION_COUNT,
    DEATH,
    IcuSepsis,
    PATIENT_STATES,
    REWARD,
    STATE_COUNT,
    SURVIVAL,
)
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


POOLED = 20.0
"""Transitions that the mean over a state's treatments counts for, where nothing is known."""
_FLOOR = 1e-3


def planned(stays: SepsisStays | None, start: Start, seed: int) -> NDArray[np.int64]:
    """
    Return the optimal actions on the posterior mean of the dynamics, (713,).

    A planner that knows more than any learner here: which treatments of a state are alike, the
    number of the state, and exact dynamic programming. With a public guess the prior is
    Dirichlet(c (1 - b) p'), else each treatment is shrunk to the mean of its state.

    :param stays: what was recorded; None for the guess alone.
    :param seed: of the public guess.
    """
    model = icu_sepsis()
    counts = np.zeros_like(model.rows)
    if stays is not None:
        taken = model.row_of[stays.states, stays.actions]
        np.add.at(counts, (taken, stays.next_states), 1.0)
    if start.concentration is None:
        prior = POOLED * _by_state(model, counts)
    else:
        guess = perturbed(model, start.concentration, seed, start.blend)
        prior = max(1.0, start.concentration * (1.0 - start.blend)) * guess.rows
    rows = counts + prior
    rows /= rows.sum(axis=1, keepdims=True)
    # What a state's unusual treatments lead to was seen too seldom to be preferred.
    found = optimum(replace(model, rows=_pessimistic(model, rows)))
    return found.actions


def _by_state(model: IcuSepsis, counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the mean over all that was done in a state, for each row; never quite without end."""
    state_of = np.zeros(len(counts), np.int64)
    state_of[model.row_of] = np.arange(len(model.row_of))[:, None]
    pooled = np.zeros((len(model.row_of), counts.shape[1]))
    np.add.at(pooled, state_of, counts)
    pooled[:, DEATH] += 0.2 * _FLOOR
    pooled[:, SURVIVAL] += 0.8 * _FLOOR
    return (pooled / pooled.sum(axis=1, keepdims=True))[state_of]


def _pessimistic(model: IcuSepsis, rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Let unusual treatments lead to death: the plan avoids them."""
    changed = rows.copy()
    for state in np.flatnonzero(model.admissible.sum(axis=1) < ACTION_COUNT):
        row = model.row_of[state, ~model.admissible[state]][0]
        changed[row] = 0.0
        changed[row, DEATH] = 1.0
    return changed
