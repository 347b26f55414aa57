# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What follows from a state in the middle of an operation: patients who came by nearly there."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

SAME = 1e-4
"""Scaled states no further apart than this in any number are the same one."""

NEAREST = 100
"""Patients that an expectation is averaged over, where not enough are in the very same state."""

_LEAST_WEIGHT = 0.1
"""Least weight of a number of the state in the distance, in that of an average one."""

_RIDGE = 0.01


@dataclass(frozen=True)
class Reference:
    """
    A Monte-Carlo expectation.

    :param mean: of the return.
    :param error: standard error of it.
    :param count: patients that it is of.
    :param exact: whether all of them were in the very same state.
    """

    mean: float
    error: float
    count: int
    exact: bool


def reference(
    state: Array, states: Array, returns: Array, nearest: int = NEAREST
) -> Reference | None:
    """
    Estimate the expectation of what follows from one state.

    Where enough patients came through the very same state, it is their average. Else it is the
    average over the nearest ones after a linear trend was taken off, in a distance in which a
    number of the state counts as much as returns change with it.

    :param state: scaled, shape (S,).
    :param states: of independent patients at the same tick, shape (N, S).
    :param returns: of each from there on, shape (N,).
    :param nearest: patients to average over; fewer are surer of being alike, but noisier.
    :returns: None where fewer than twice as many patients are there, or none near.
    """
    if len(states) < 2 * nearest:
        return None
    apart = np.asarray(states, np.float64) - state
    same = np.abs(apart).max(axis=1) <= SAME
    if same.sum() >= nearest:
        own = returns[same]
        return Reference(float(own.mean()), _error(own), len(own), True)
    spread = apart.std(axis=0)
    moving = spread > SAME
    if not moving.any():  # all others are in one state, which is another
        return None
    scaled = apart[:, moving] / spread[moving]
    centred = scaled - scaled.mean(axis=0)
    matrix = centred.T @ centred + _RIDGE * len(centred) * np.eye(centred.shape[1])
    slope = np.linalg.solve(matrix, centred.T @ (returns - returns.mean()))
    weight = np.abs(slope)
    weight = np.maximum(weight, _LEAST_WEIGHT * max(float(weight.mean()), 1e-12))
    distance = np.square(scaled * weight).sum(axis=1)
    near = np.argpartition(distance, nearest - 1)[:nearest]
    own = returns[near] - scaled[near] @ slope
    return Reference(float(own.mean()), _error(own), nearest, False)


def _error(values: Array) -> float:
    return float(values.std(ddof=1) / len(values) ** 0.5)
