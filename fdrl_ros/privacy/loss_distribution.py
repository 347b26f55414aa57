# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Epsilon from the privacy loss distribution (PLD), composed numerically or in closed form.

The distribution of log(P(o) / Q(o)) over the outputs o of a mechanism adds up over steps, and its
tail gives delta for every epsilon. The library rounds it to a grid so that epsilon can only grow.
"""

from functools import lru_cache
import math

from dp_accounting.pld import privacy_loss_distribution
from scipy.special import log_ndtr

INTERVAL = 1e-3  # nats; a grid ten times finer changes epsilon by 0.013 at most
_POINTS = 2**18  # of a composed grid: bounds memory and time for absurdly large epsilons


def gaussian_delta(epsilon: float, mu: float) -> float:
    """
    Return delta of Gaussian releases with total sensitivity-to-noise ratio mu, exactly.

    delta = Phi(mu / 2 - epsilon / mu) - e^epsilon Phi(-mu / 2 - epsilon / mu) (Balle and Wang
    2018, Theorem 8), in logarithms so that large epsilons do not overflow.
    """
    upper = float(log_ndtr(mu / 2.0 - epsilon / mu))
    lower = epsilon + float(log_ndtr(-mu / 2.0 - epsilon / mu))
    return math.exp(upper) * -math.expm1(lower - upper) if lower < upper else 0.0


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Invert :func:`gaussian_delta` by bisection and return the upper, safe end."""
    if gaussian_delta(0.0, mu) <= delta:
        return 0.0
    low, high = 0.0, 1.0
    while gaussian_delta(high, mu) > delta:
        low, high = high, 2.0 * high
        if math.isinf(high):
            return math.inf
    while high - low > 1e-12 * high:
        middle = 0.5 * (low + high)
        if gaussian_delta(middle, mu) > delta:
            low = middle
        else:
            high = middle
    return high


def sampled_epsilon(
    blocks: tuple[tuple[float, float, int], ...], mu: float, delta: float, *, span: float
) -> float:
    """
    Return epsilon of Poisson-sampled Gaussian steps composed with unsampled ones.

    :param blocks: (noise_multiplier, sampling_probability < 1, steps), at least one.
    :param mu: sqrt(sum of steps / sigma^2) of the unsampled releases, 0 for none.
    :param delta: in (0, 1).
    :param span: width of losses to cover, nats, for choosing the grid.
    """
    interval = _interval(blocks, mu, span)
    total = None
    for sigma, q, steps in blocks:
        part = _composed(sigma, q, steps, interval)
        total = part if total is None else total.compose(part)
    assert total is not None
    if mu > 0.0:
        total = total.compose(_composed(1.0 / mu, 1.0, 1, interval))
    return float(total.get_epsilon_for_delta(delta))


def _interval(blocks: tuple[tuple[float, float, int], ...], mu: float, span: float) -> float:
    """
    Choose the grid: INTERVAL times a power of two.

    Finer where a single step's loss (about q / sigma) is small beside it, since rounding would
    then dominate; coarser where epsilon is so large that the grid would not fit in memory.
    """
    finest = min(q / (4.0 * sigma) for sigma, q, _ in blocks)
    widths = [10.0 / sigma + 0.5 / sigma**2 for sigma, _, _ in blocks]
    if mu > 0.0:
        widths.append(10.0 * mu + 0.5 * mu**2)
    coarsest = max(span, *widths) / _POINTS
    exponent = math.floor(math.log2(min(1.0, finest / INTERVAL)))
    return INTERVAL * 2.0 ** max(exponent, -7, math.ceil(math.log2(coarsest / INTERVAL)))


@lru_cache(maxsize=64)
def _one_step(
    sigma: float, q: float, interval: float
) -> privacy_loss_distribution.PrivacyLossDistribution:
    return privacy_loss_distribution.from_gaussian_mechanism(
        standard_deviation=sigma, sampling_prob=q, value_discretization_interval=interval
    )


@lru_cache(maxsize=16)
def _composed(
    sigma: float, q: float, steps: int, interval: float
) -> privacy_loss_distribution.PrivacyLossDistribution:
    return _one_step(sigma, q, interval).self_compose(steps)
