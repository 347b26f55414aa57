# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
An oracle with the true values: in every state it rolls out every candidate to the end.

It works on the kinematic arm, whose operations can be copied, and sees what no robot sees: the
patient's tissue and all that is still to happen.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from fdrl_ros.surgery.gym.rollout import Chooser
from fdrl_ros.surgery.gym.vector_operation import VectorOperation
from fdrl_ros.surgery.patient.patient import Patient
from fdrl_ros.surgery.settings import WorldSettings
import numpy as np
from numpy.typing import NDArray


def true_returns(
    batch: VectorOperation,
    candidates: Sequence[Chooser],
    discount: float,
    states: NDArray[np.float32],
) -> NDArray[np.float64]:
    """
    Return what each operation would earn from here on under each candidate.

    :param batch: stays as it is.
    :param candidates: none of them may look at rows or tick.
    :param states: present ones, shape (n, STATE_SIZE).
    :returns: discounted, shape (candidates, n).
    :raises StateError: if the force sensor is noisy.
    """
    trial = batch.copies(len(candidates))
    states = np.tile(states, (len(candidates), 1))
    rows = np.arange(len(states))
    whose = np.repeat(np.arange(len(candidates)), len(batch.over))
    returns, factor = np.zeros(len(states)), 1.0
    while True:
        states, rewards, *_ = trial.step(_asked(candidates, whose[rows], states))
        returns[rows] += factor * rewards
        factor *= discount
        going = np.flatnonzero(~trial.over)
        if not len(going):
            return returns.reshape(len(candidates), -1)
        if len(going) < len(rows):
            trial.select(going)
            states, rows = states[going], rows[going]


def _asked(
    candidates: Sequence[Chooser], whose: NDArray[np.int64], states: NDArray[np.float32]
) -> NDArray[np.int64]:
    """Return the action of each operation by the candidate that it belongs to."""
    actions = np.zeros(len(states), np.int64)
    for number, each in enumerate(candidates):
        own = np.flatnonzero(whose == number)
        if len(own):
            actions[own] = each(states[own], own, 0)
    return actions


def oracle_returns(
    patients: Sequence[Patient],
    candidates: Sequence[Chooser],
    discount: float,
    settings: WorldSettings,
    tick: Callable[[int], None] = lambda left: None,
) -> NDArray[np.float64]:
    """
    Operate as the oracle: in every state the candidate of the greatest true return acts.

    :param candidates: none of them may look at rows or tick.
    :param tick: told before each tick how many operations go on; what it raises ends all.
    :returns: discounted return of each patient, shape (n,).
    """
    batch = VectorOperation(list(patients), replace(settings, mode='kinematic', force_noise=0.0))
    states, rows = batch.reset(), np.arange(len(patients))
    returns, factor = np.zeros(len(rows)), 1.0
    while True:
        tick(len(rows))
        worth = true_returns(batch, candidates, discount, states)
        actions = np.stack([each(states, rows, 0) for each in candidates])
        chosen = actions[worth.argmax(axis=0), np.arange(len(rows))]
        states, rewards, *_ = batch.step(chosen)
        returns[rows] += factor * rewards
        factor *= discount
        going = np.flatnonzero(~batch.over)
        if not len(going):
            batch.close()
            return returns
        if len(going) < len(rows):
            batch.select(going)
            states, rows = states[going], rows[going]
