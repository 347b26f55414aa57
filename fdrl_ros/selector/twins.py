# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What a value model cannot express, measured on nearly equal states of different cases."""

import math

import numpy as np

NEIGHBOURS = 800
"""States of one group of cases among which twins are sought."""


class Twins:
    """
    Sums up over groups of cases that a member has not seen.

    Two cases that pass through nearly the same state share the error of the estimate but not the
    noise of their returns: the mean product of their residuals is its squared error. Neighbours
    are not twins, so the product is divided by how much the members' deviations agree between
    them. What is left of it beyond the sampling variance is the misfit.
    """

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        self._groups = 0
        self._product = self._variance = self._shared = 0.0

    def add(
        self, states: np.ndarray, cases: np.ndarray, errors: np.ndarray, deviations: np.ndarray
    ) -> None:
        """
        Take in one group.

        :param states: in spreads, shape (n, S).
        :param cases: whose states they are, shape (n,).
        :param errors: return - estimate of a member that saw none of them, shape (n,).
        :param deviations: of the members there, shape (n, K); their squares add up to a variance.
        """
        chosen = self._rng.permutation(len(states))[:NEIGHBOURS]
        if len(np.unique(cases[chosen])) < 2:
            return
        nearest = chosen[_nearest(states[chosen], cases[chosen])]
        own = deviations[chosen]
        self._groups += 1
        self._product += float(np.mean(errors[chosen] * errors[nearest]))
        self._variance += float(np.mean(np.square(own).sum(axis=1)))
        self._shared += float(np.mean((own * deviations[nearest]).sum(axis=1)))

    def misfit(self) -> float:
        """Return the root of the mean squared misfit, at least 0."""
        if not self._groups:
            return 0.0
        variance = self._variance
        agreement = min(max(self._shared / variance, 0.2), 1.0) if variance > 0 else 1.0
        return math.sqrt(max(self._product / agreement - variance, 0.0) / self._groups)


def _nearest(points: np.ndarray, names: np.ndarray) -> np.ndarray:
    """Find for each point the nearest one of another name, shape (M,)."""
    squares = np.square(points).sum(axis=1)
    distances = squares[:, None] + squares[None, :] - 2.0 * (points @ points.T)
    distances[names[:, None] == names[None, :]] = np.inf
    nearest: np.ndarray = distances.argmin(axis=1)
    return nearest
