# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""A tight lower bound that takes the kind of mechanism for granted (after Nasr et al. 2023)."""

import math

from fdrl_ros.privacy.accountant.accountant import Charge, epsilon_pld
import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta

_STEP = 1.25  # between two noise multipliers that are tried, until the limit is between them
_NEAR = 1.01  # of the limit in the end
_LEAST_NOISE = 64.0  # times what is claimed: with that much, nothing is proven
_MOST_EPSILON = 4.0  # times what is claimed: more need not be proven


def gaussian_lower_bound(
    claimed: Charge,
    scores: NDArray[np.float64],
    members: NDArray[np.bool_],
    *,
    delta: float,
    failure: float,
) -> float:
    """
    Return epsilon of the claimed mechanism with the most noise that canaries do not refute.

    It takes for granted that canaries' scores do not hang together, as isotropic noise leaves
    them, and that the mechanism is the claimed one but for its noise multiplier.

    :param claimed: all steps.
    :param scores: of canaries, shape (canaries,); above 0 where a member is likelier.
    :param members: who took part, shape (canaries,).
    :param failure: one minus the confidence.
    """
    distance = least_distance(scores[members], scores[~members], failure)
    if distance <= 0.0:
        return 0.0

    def epsilon(scale: float, at: float) -> float:
        sigma = scale * claimed.noise_multiplier
        return epsilon_pld([claimed._replace(noise_multiplier=sigma)], at)

    def refuted(scale: float) -> bool:
        return epsilon(scale, distance) <= 0.0

    high = 1.0
    while not refuted(high):
        high *= _STEP
        if high > _LEAST_NOISE:
            return 0.0
    enough = _MOST_EPSILON * epsilon(1.0, delta)
    low = high / _STEP
    while refuted(low):
        high, low = low, low / _STEP
        if epsilon(high, delta) > enough:
            return epsilon(high, delta)
    while high > low * _NEAR:
        middle = (low * high) ** 0.5
        low, high = (low, middle) if refuted(middle) else (middle, high)
    return epsilon(high, delta)


def least_distance(
    ours: NDArray[np.float64], theirs: NDArray[np.float64], failure: float
) -> float:
    """
    Return a lower confidence limit of the total variation distance: the least delta of epsilon 0.

    It is at least what shares above a threshold differ by. Half the failure goes to the threshold
    0, where a flawless mechanism differs most (Clopper and Pearson 1934), half to all thresholds
    at once (Dvoretzky, Kiefer and Wolfowitz 1956, with the constant of Massart 1990).

    :param ours: scores that tend to be higher, shape (ours,).
    :param theirs: shape (theirs,).
    """
    if not len(ours) or not len(theirs):
        return 0.0
    part = failure / 4.0  # two ways, two shares each
    missed, alarms = int((ours <= 0.0).sum()), int((theirs > 0.0).sum())
    at_zero = 1.0 - _most(missed, len(ours), part) - _most(alarms, len(theirs), part)
    thresholds = np.sort(theirs)
    below = np.searchsorted(np.sort(ours), thresholds, side='right') / len(ours)
    gap = float((np.arange(1, len(theirs) + 1) / len(theirs) - below).max())
    margin = sum(math.sqrt(-math.log(part) / (2.0 * len(each))) for each in (ours, theirs))
    return max(at_zero, gap - margin)


def _most(count: int, of: int, failure: float) -> float:
    """Return the upper confidence limit of a probability."""
    return 1.0 if count == of else float(beta.ppf(1.0 - failure, count + 1, of - count))
