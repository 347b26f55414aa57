# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Renyi-DP of the Poisson-sampled Gaussian mechanism (Mironov, Talwar and Zhang 2019).

The divergence of order alpha is log(A) / (alpha - 1) with
A = E over z from N(0, sigma^2) of (1 - q + q exp((2 z - 1) / (2 sigma^2)))^alpha.
"""

from functools import lru_cache
import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, logsumexp

# Long or weakly sampled histories have their best order near 1, short private ones far above it.
_FRACTIONAL = 1.0 + np.geomspace(1e-3, 9.0, 100)
_WHOLE = np.unique(np.concatenate((np.arange(11, 64), np.geomspace(64, 16384, 40).astype(int))))
ORDERS: NDArray[np.float64] = np.concatenate((_FRACTIONAL, _WHOLE.astype(np.float64)))


@lru_cache(maxsize=256)
def renyi_curve(noise_multiplier: float, sampling_probability: float) -> NDArray[np.float64]:
    """
    Return the Renyi divergence of one step at each of the ORDERS, in nats.

    Fractional orders are integrated numerically; the series that libraries use diverges for them
    when q is large, and an accountant without them is loose by half.

    :param noise_multiplier: sigma, >= 0.05 where q < 1 (a smaller one needs a finer grid).
    :param sampling_probability: q, in (0, 1].
    :returns: divergences, shape (orders,), read-only.
    """
    sigma, q = noise_multiplier, sampling_probability
    if q == 1.0:
        curve = ORDERS / (2.0 * sigma**2)
    else:
        moments = np.concatenate(
            (
                _integrated_log_moments(sigma, q, _FRACTIONAL),
                [binomial_log_moment(sigma, q, int(order)) for order in _WHOLE],
            )
        )
        curve = np.maximum(moments, 0.0) / (ORDERS - 1.0)
    curve.flags.writeable = False
    return curve


def binomial_log_moment(sigma: float, q: float, order: int) -> float:
    """Return log(A) for a whole order, as a binomial sum: exact."""
    i = np.arange(order + 1)
    log_choose = gammaln(order + 1) - gammaln(i + 1) - gammaln(order - i + 1)
    terms = log_choose + i * math.log(q) + (order - i) * math.log1p(-q)
    return float(logsumexp(terms + (i * i - i) / (2.0 * sigma**2)))


def _integrated_log_moments(
    sigma: float, q: float, orders: NDArray[np.float64]
) -> NDArray[np.float64]:
    """
    Return log(A) for any orders, by the trapezoid rule.

    The integrand is analytic up to pi sigma^2 off the real line and falls as a Gaussian around 0
    and around each order, so the rule converges exponentially: these grids reach 1e-13.
    """
    spacing = min(sigma / 8.0, sigma**2 / 2.0)
    z = np.arange(-12.0 * sigma, float(orders.max()) + 12.0 * sigma, spacing)
    log_density = -0.5 * (z / sigma) ** 2 - math.log(sigma * math.sqrt(2.0 * math.pi))
    log_ratio = np.logaddexp(math.log1p(-q), math.log(q) + (2.0 * z - 1.0) / (2.0 * sigma**2))
    return np.array(
        [logsumexp(log_density + order * log_ratio) + math.log(spacing) for order in orders]
    )


def renyi_epsilon(curve: NDArray[np.float64], delta: float) -> float:
    """
    Turn Renyi divergences at the ORDERS into epsilon (Canonne, Kamath and Steinke 2020, Prop. 12).

    :param curve: divergences of the whole history, shape (orders,).
    :param delta: in (0, 1).
    """
    conversion = np.log1p(-1.0 / ORDERS) - np.log(delta * ORDERS) / (ORDERS - 1.0)
    return max(0.0, float(np.min(curve + conversion)))
