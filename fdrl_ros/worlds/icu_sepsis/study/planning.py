# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""How much a data set can tell at all: the best plan on a model that is estimated from it."""

from dataclasses import replace

from fdrl_ros.worlds.icu_sepsis.assets import icu_sepsis
from fdrl_ros.worlds.icu_sepsis.episodes import SepsisStays
from fdrl_ros.worlds.icu_sepsis.model import ACTION_COUNT, DEATH, IcuSepsis, SURVIVAL
from fdrl_ros.worlds.icu_sepsis.perturbed import perturbed
from fdrl_ros.worlds.icu_sepsis.study.settings import Start
from fdrl_ros.worlds.icu_sepsis.values import optimum
import numpy as np
from numpy.typing import NDArray

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
