# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
An oracle with the true values: in every state it rolls out every candidate to the end.

It works on the kinematic arm, whose operations can be copied, and sees what no robot sees: the
patient's tissue and all that is still to happen.
"""

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace

from fdrl_ros.surgery.gym.episode import Chooser
from fdrl_ros.surgery.gym.vector_operation import VectorOperation
from fdrl_ros.surgery.patient.patient import Patient
from fdrl_ros.surgery.settings import WorldSettings
import numpy as np
from numpy.typing import NDArray

Act = Callable[[NDArray[np.float32], NDArray[np.int64]], NDArray[np.int64]]
"""Chooses an action for each state, given the numbers of its operations."""


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
    whose = np.repeat(np.arange(len(candidates)), len(batch.over))

    def act(states: NDArray[np.float32], rows: NDArray[np.int64]) -> NDArray[np.int64]:
        actions = np.zeros(len(states), np.int64)
        for number, candidate in enumerate(candidates):
            own = np.flatnonzero(whose[rows] == number)
            if len(own):
                actions[own] = candidate(states[own], own, 0)
        return actions

    return _returns_of(trial, states, act, discount).reshape(len(candidates), -1)


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

    def act(states: NDArray[np.float32], rows: NDArray[np.int64]) -> NDArray[np.int64]:
        tick(len(rows))
        worth = true_returns(batch, candidates, discount, states)
        actions = np.stack([each(states, rows, 0) for each in candidates])
        return np.asarray(actions[worth.argmax(axis=0), np.arange(len(rows))])

    with closing(batch):
        return _returns_of(batch, batch.reset(), act, discount)


def _returns_of(
    batch: VectorOperation, states: NDArray[np.float32], act: Act, discount: float
) -> NDArray[np.float64]:
    """Operate to the end, and return the discounted return of each operation."""
    rows, returns, factor = np.arange(len(states)), np.zeros(len(states)), 1.0
    while True:
        states, rewards, *_ = batch.step(act(states, rows))
        returns[rows] += factor * rewards
        factor *= discount
        going = np.flatnonzero(~batch.over)
        if not len(going):
            return returns
        if len(going) < len(rows):
            batch.select(going)
            states, rows = states[going], rows[going]
