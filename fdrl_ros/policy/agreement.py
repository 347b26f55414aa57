# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""How often two forms of a policy agree, and the loss where they do not."""

from dataclasses import dataclass
import math

from fdrl_ros.errors import PolicyError
import numpy as np

EDGES = (0.0, 0.001, 0.01, 0.03, 0.1, 0.3, math.inf)
"""Bounds of the margins of a histogram, in spreads of Q over the actions."""


@dataclass(frozen=True)
class Agreement:
    """
    Result of comparing two forms of a policy state by state.

    The margin of a state is the lead of the best action over the next, in standard deviations of Q
    over the actions, by the first form.

    :param states: how many were compared.
    :param same: fraction of them in which both take the same action.
    :param loss: mean loss of Q by the second form's action, in the unit of the return.
    :param largest_error: largest difference between two values of Q.
    :param margins: how many states have a margin between two :data:`EDGES`.
    :param differing: how many of those have different actions.
    """

    states: int
    same: float
    loss: float
    largest_error: float
    margins: tuple[int, ...]
    differing: tuple[int, ...]


def agreement(first: np.ndarray, second: np.ndarray) -> Agreement:
    """
    Compare two forms of a policy.

    :param first: Q of the reference form, shape (N, actions), of at least two actions.
    :param second: Q of the other in the same states, same shape.
    :raises PolicyError: if the shapes differ, or there is no state.
    """
    if first.shape != second.shape or first.ndim != 2 or not len(first) or first.shape[1] < 2:
        raise PolicyError(f'values of shapes {first.shape} and {second.shape}: expected as many')
    rows = np.arange(len(first))
    chosen, other = first.argmax(axis=1), second.argmax(axis=1)
    ranked = np.sort(first.astype(np.float64), axis=1)
    spread = np.maximum(ranked.std(axis=1), np.finfo(np.float32).tiny)
    margins = (ranked[:, -1] - ranked[:, -2]) / spread
    differs = chosen != other
    return Agreement(
        states=len(first),
        same=float(1.0 - differs.mean()),
        loss=float(np.mean(ranked[:, -1] - first[rows, other])),
        largest_error=float(np.abs(first - second).max()),
        margins=tuple(np.histogram(margins, EDGES)[0].tolist()),
        differing=tuple(np.histogram(margins[differs], EDGES)[0].tolist()),
    )
