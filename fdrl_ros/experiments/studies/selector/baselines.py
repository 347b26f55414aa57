# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Baselines of the selector: rules that choose one policy for a whole operation.

Such a rule earns on a patient just what its choice earns there alone, so a table of all policies
on all patients is enough; but a rule sees of it only what it chose itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

EXPLORATION = 1.0
"""Width of LinUCB's confidence bound (Li et al. 2010), standard deviations."""


@dataclass(frozen=True, eq=False)
class Outcomes:
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


def best_single(public: Outcomes, unseen: Outcomes) -> NDArray[np.int64]:
    """Choose for every patient the policy with the best mean return on public patients."""
    best = int(public.returns.mean(axis=1).argmax())
    return np.full(unseen.returns.shape[1], best)


def best_cumulative(public: Outcomes, unseen: Outcomes) -> NDArray[np.int64]:
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


def bandit(public: Outcomes, unseen: Outcomes) -> NDArray[np.int64]:
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


def hindsight(unseen: Outcomes) -> NDArray[np.int64]:
    """Choose what turns out best on each patient: an oracle for whole operations."""
    return unseen.returns.argmax(axis=0)


BASELINES = {'best_single': best_single, 'best_cumulative': best_cumulative, 'bandit': bandit}
"""Rules that could be used in earnest, by the name of their row."""


def switches_of(chosen: Sequence[str]) -> NDArray[np.int64]:
    """Return at which ticks another was chosen than the tick before."""
    return np.array([k for k in range(1, len(chosen)) if chosen[k] != chosen[k - 1]], np.int64)


def dwells_of(chosen: Sequence[str]) -> NDArray[np.int64]:
    """Return for how many ticks each choice stood that gave way to another."""
    at = switches_of(chosen)
    return np.diff(np.r_[0, at]) if len(at) else np.zeros(0, np.int64)
