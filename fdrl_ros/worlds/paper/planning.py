# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Planning by certainty equivalence: count how levels move, take the shares for true, solve exactly.

A rival of learned policies that is told more than they are: the structure of the world (which
level depends on which, and that a level moves by at most one) and what hospitals are rewarded for.
"""

from dataclasses import dataclass, field
from functools import cached_property
import math

from fdrl_ros.worlds.paper.env import PaperHospital
from fdrl_ros.worlds.paper.law import ACTION_COUNT, Array, Law, LEVELS, PARENTS, SIZE
import numpy as np
from numpy.typing import NDArray

SENSITIVITY = math.sqrt(SIZE)
"""How far one record moves the counts, in L2: by one for each field."""

_MOVES = 3  # a fall, none, a rise


@dataclass(frozen=True, eq=False)
class EstimatedLaw(Law):
    """
    A law whose chances of moves are estimates; patients and rewards follow from ``leans``.

    :param chances: of a fall, no move and a rise, as :func:`estimate` returns them.
    """

    chances: Array = field(default_factory=lambda: np.zeros(0))

    @cached_property
    def moves(self) -> Array:
        """Return the chances of the next level: [field, action, parent's level, level, next]."""
        moves = np.zeros((*self.chances.shape[:-1], LEVELS))
        for level in range(LEVELS):
            for change in range(_MOVES):
                if 0 <= level + change - 1 < LEVELS:
                    moves[..., level, level + change - 1] = self.chances[..., level, change]
        return moves


def count_moves(
    levels: NDArray[np.int64], actions: NDArray[np.int64], after: NDArray[np.int64]
) -> Array:
    """
    Count how levels moved.

    :param levels: shape (n, 5), before; ``after`` likewise.
    :param actions: shape (n,).
    :returns: shape (5, 3, 4, 4, 3): [field, action, parent's level, level, fall or stay or rise];
        a field without a parent counts at parent's level 0.
    """
    counts = np.zeros((SIZE, ACTION_COUNT, LEVELS, LEVELS, _MOVES))
    for each, parent in enumerate(PARENTS):
        above = np.zeros_like(actions) if parent is None else levels[:, parent]
        change = after[:, each] - levels[:, each] + 1
        np.add.at(counts[each], (actions, above, levels[:, each], change), 1.0)
    return counts


def estimate(counts: Array) -> Array:
    """
    Return the chances of moves: shares of the counts with one more of each move that can be.

    :param counts: as :func:`count_moves` returns them, or with noise; below 0 they count as 0.
    :returns: same shape, the last axis sums to 1.
    """
    counts = np.maximum(counts, 0.0)
    for each, parent in enumerate(PARENTS):
        if parent is None:
            counts[each] = counts[each].sum(axis=1, keepdims=True)
    possible = np.ones((LEVELS, _MOVES))
    possible[0, 0] = possible[-1, -1] = 0.0
    chances = (counts + 1.0) * possible
    return np.asarray(chances / chances.sum(axis=-1, keepdims=True))


def plan(counts: Array, home: PaperHospital) -> NDArray[np.int64]:
    """
    Return the policy that is best under the law that counts suggest, shape (1024,).

    :param counts: as :func:`estimate` takes them.
    :param home: whose rewards count.
    """
    return np.argmin(EstimatedLaw(home.law.leans, estimate(counts)).costs, axis=1)
