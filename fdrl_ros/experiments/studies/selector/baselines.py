# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Whom the selector is compared with: rules that choose one policy for an operation, and an oracle.

Such a rule earns on a patient just what its choice earns there alone, so a table of all policies
on all patients is enough; but a rule sees of it only what it chose itself. The oracle rolls out
every candidate to the end in every state, on the kinematic arm, whose operations can be copied,
and sees what no robot sees: the tissue and all that is still to happen.
"""

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from fdrl_ros.surgery.gym.vector_operation import VectorOperation
from fdrl_ros.surgery.patient.patient import Patient
from fdrl_ros.surgery.settings import WorldSettings
from fdrl_ros.tasks.task import Chooser
import numpy as np
from numpy.typing import NDArray

EXPLORATION = 1.0
"""Width of LinUCB's confidence bound (Li et al. 2010), standard deviations."""


@dataclass(frozen=True, eq=False)
class CandidateReturns:
    """
    What every candidate earned on every patient.

    :param names: of the C candidates.
    :param states: of the n patients at the start, scaled, shape (n, S).
    :param procedures: number of what was done, shape (n,).
    :param returns: shape (C, n).
    """

    names: tuple[str, ...]
    states: NDArray[np.float64]
    procedures: NDArray[np.int64]
    returns: NDArray[np.float64]


def best_single(public: CandidateReturns, unseen: CandidateReturns) -> NDArray[np.int64]:
    """Choose for every patient the policy with the best mean return on public patients."""
    best = int(public.returns.mean(axis=1).argmax())
    return np.full(unseen.returns.shape[1], best)


def best_cumulative(public: CandidateReturns, unseen: CandidateReturns) -> NDArray[np.int64]:
    """
    Choose the policy of the best cumulative reward in this procedure (FDRL section III-C).

    Rewards of public patients are known of all policies; of each unseen patient that of its own
    choice comes to them. Cumulative reward is taken per operation, or who was chosen more often
    would be ahead by that alone.
    """
    chosen = np.zeros(unseen.returns.shape[1], np.int64)
    kinds = np.unique(np.concatenate([public.procedures, unseen.procedures]))
    sums = {k: public.returns[:, public.procedures == k].sum(axis=1) for k in kinds}
    counts = {k: np.full(len(public.names), np.sum(public.procedures == k)) for k in kinds}
    for case, kind in enumerate(unseen.procedures):
        best = int((sums[kind] / np.maximum(counts[kind], 1)).argmax())
        chosen[case] = best
        sums[kind][best] += unseen.returns[best, case]
        counts[kind][best] += 1
    return chosen


def bandit(public: CandidateReturns, unseen: CandidateReturns) -> NDArray[np.int64]:
    """
    Choose by a contextual bandit: LinUCB on the state at the start (Li et al. 2010).

    It learns from public patients first and from unseen ones as they come; of each it hears only
    what its own choice earned.
    """
    size, count = 1 + public.states.shape[1], len(public.names)
    inverse = np.stack([np.eye(size)] * count)
    moments = np.zeros((count, size))
    for states, returns in ((public.states, public.returns), (unseen.states, unseen.returns)):
        chosen = np.zeros(len(states), np.int64)
        for case, state in enumerate(states):
            context = np.r_[1.0, state]
            spread = inverse @ context
            width = np.sqrt(spread @ context)
            means = np.einsum('cs,cs->c', moments, spread)
            best = int((means + EXPLORATION * width).argmax())
            chosen[case] = best
            # Sherman and Morrison: the inverse with one more row.
            inverse[best] -= np.outer(spread[best], spread[best]) / (1.0 + width[best] ** 2)
            moments[best] += returns[best, case] * context
    return chosen


def hindsight(unseen: CandidateReturns) -> NDArray[np.int64]:
    """Choose what turns out best on each patient: an oracle for whole operations."""
    return unseen.returns.argmax(axis=0)


BASELINES = {'best_single': best_single, 'best_cumulative': best_cumulative, 'bandit': bandit}
"""Rules that could be used in earnest, by the name of their row."""


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
