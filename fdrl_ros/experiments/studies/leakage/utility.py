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
from fdrl_ros.worlds.paper.law import ended, GRID
import numpy as np
from numpy.typing import NDArray

_TIE = 1e-9  # of V* - Q*, up to which an action is as good as the best


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


def utility(homes: Sequence[PaperHospital], actions: NDArray[np.int64]) -> Utility:
    """
    Return how good a policy is, exactly.

    :param actions: of the policy in each state, shape (1024,), see
        :data:`fdrl_ros.worlds.paper.env.STATES`.
    """
    going = np.flatnonzero(~ended(GRID))
    right = np.mean([each.law.costs[going] < _TIE for each in homes], axis=0)
    values = [(each.admitted_value(actions), each.admitted_value(each.best)) for each in homes]
    value, expert = np.mean(values, axis=0)
    return Utility(
        float(right[np.arange(len(going)), actions[going]].mean()),
        float(right.max(axis=1).mean()),
        float(value),
        float(expert),
    )
