# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""A tight lower bound that takes the kind of mechanism for granted (after Nasr et al. 2023)."""

from fdrl_ros.privacy.accountant import Charge, epsilon_pld
from scipy.stats import beta

_STEP = 1.25  # between two noise multipliers that are tried, until the limit is between them
_NEAR = 1.01  # of the limit in the end
_LEAST_NOISE = 64.0  # times what is claimed: with that much, nothing is proven
_MOST_EPSILON = 4.0  # times what is claimed: more need not be proven


def gaussian_lower_bound(
    claimed: Charge,
    *,
    members: int,
    found: int,
    others: int,
    mistaken: int,
    delta: float,
    failure: float,
) -> float:
    """
    Return epsilon of the claimed mechanism with the most noise that canaries do not refute.

    It takes for granted that canaries' scores do not hang together, as isotropic noise leaves
    them, and that the mechanism is the claimed one but for its noise multiplier. The share of
    members above any threshold less that of others is at most the total variation distance, the
    least delta at which epsilon is 0.

    :param claimed: all steps.
    :param members: canaries that took part.
    :param found: of those, whose score was above a threshold that was fixed before.
    :param others: canaries that took no part.
    :param mistaken: of those, whose score was above it.
    :param failure: one minus the confidence.
    """
    distance = 1.0 - _most(members - found, members, failure) - _most(mistaken, others, failure)
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


def _most(count: int, of: int, failure: float) -> float:
    """Return the upper limit of a probability (Clopper & Pearson 1934), at half the failure."""
    return 1.0 if count == of else float(beta.ppf(1.0 - failure / 2.0, count + 1, of - count))
