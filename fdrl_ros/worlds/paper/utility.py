# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Exact A_task (FDRL Eq. 8) and exact return of policies in the paper's world, with their ceilings.

A_task is the share of all states that go on in which a policy's action is one of the expert's, the
mean over hospitals. Hospitals have laws of their own, so no single policy reaches 1: the ceiling
takes in each state the action that is right for most of them.
"""

from collections.abc import Sequence
from typing import NamedTuple

from fdrl_ros.worlds.paper.env import PaperHospital
from fdrl_ros.worlds.paper.law import ACTION_COUNT, ended, GRID, STATE_COUNT
import numpy as np
from numpy.typing import NDArray

_TIE = 1e-9  # of V* - Q*, up to which an action is as good as the best

UNIFORM = np.full((STATE_COUNT, ACTION_COUNT), 1.0 / ACTION_COUNT)
"""Chances of actions that are drawn at random in every state, shape (1024, 3); read-only."""
UNIFORM.setflags(write=False)

Acting = NDArray[np.int64] | NDArray[np.float64] | Sequence[NDArray[np.int64]]
"""
Who acts: an action in each of :data:`fdrl_ros.worlds.paper.env.STATES`, shape (1024,); one policy
for each hospital, shape (hospitals, 1024); or the chance of each action, shape (1024, 3).
"""


class Agreement(NamedTuple):
    """
    How often a policy does what the experts of all hospitals do.

    ``a_task``, ``ceiling`` of any single policy, and ``chance``: of actions drawn at random.
    """

    a_task: float
    ceiling: float
    chance: float


class Utility(NamedTuple):
    """
    How good a policy is for all hospitals.

    ``a_task``, and ``ceiling`` of any single policy; ``value``: mean discounted return over the
    hospitals' patients, and ``expert`` of each hospital's own best policy.
    """

    a_task: float
    ceiling: float
    value: float
    expert: float


def as_expert(
    home: PaperHospital, states: NDArray[np.int64], tolerance: float = 0.0
) -> NDArray[np.bool_]:
    """
    Return which actions count as those of a hospital's expert: V* - Q* is at most the tolerance.

    :param states: rows of :data:`fdrl_ros.worlds.paper.env.STATES`, shape (n,).
    :returns: shape (n, 3).
    """
    near: NDArray[np.bool_] = home.law.costs[states] <= max(tolerance, _TIE)
    return near


def agreement(
    homes: Sequence[PaperHospital], actions: Acting, tolerance: float = 0.0
) -> Agreement:
    """
    Return A_task of a policy exactly, over all states in which an operation goes on.

    :param tolerance: V* - Q* up to which an action counts as the expert's.
    """
    going = np.flatnonzero(~ended(GRID))
    right = np.array([as_expert(each, going, tolerance) for each in homes])
    taken = _chances(homes, actions)[:, going]
    return Agreement(
        float((right * taken).sum(axis=-1).mean()),
        float(right.mean(axis=0).max(axis=1).mean()),
        float(right.mean()),
    )


def exact_return(homes: Sequence[PaperHospital], actions: Acting) -> float:
    """Return the mean over hospitals of the exact discounted return of their patients."""
    chances = _chances(homes, actions)
    found = [
        each.law.start_chances() @ each.law.value(own)
        for each, own in zip(homes, chances, strict=True)
    ]
    return float(np.mean(found))


def utility(homes: Sequence[PaperHospital], actions: Acting) -> Utility:
    """Return how good a policy is, exactly; only the best actions count as the expert's."""
    found = agreement(homes, actions)
    best = [each.best for each in homes]
    values = exact_return(homes, actions), exact_return(homes, best)
    return Utility(found.a_task, found.ceiling, *values)


def _chances(homes: Sequence[PaperHospital], actions: Acting) -> NDArray[np.float64]:
    """Return the chance of each action at each hospital in each state, (hospitals, 1024, 3)."""
    given = np.asarray(actions)
    if given.shape == (STATE_COUNT, ACTION_COUNT):
        chances = given
    else:
        chances = np.eye(ACTION_COUNT)[given]
    shape = len(homes), STATE_COUNT, ACTION_COUNT
    whole: NDArray[np.float64] = np.broadcast_to(chances, shape).astype(np.float64)
    return whole
