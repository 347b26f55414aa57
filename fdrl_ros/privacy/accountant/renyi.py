# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Renyi-DP of the Poisson-sampled Gaussian mechanism (Mironov, Talwar and Zhang 2019), for groups.

The divergence of order alpha is log(A) / (alpha - 1) with A = E over z from N(0, sigma^2) of
r(z)^alpha, r(z) = sum over j of P(j records join) exp((2 j z - j^2) / (2 sigma^2)); for one record
r(z) = 1 - q + q exp((2 z - 1) / (2 sigma^2)). That is for a unit that is removed; for one that is
added the power is 1 - alpha. The larger of both is taken.
"""

from functools import lru_cache
import math

from fdrl_ros.privacy.accountant.one_step import Array, inclusions
import numpy as np

# The best order is near 1 for long or weakly sampled histories, far above for short private ones.
ORDERS: Array = 1.0 + np.geomspace(1e-3, 16384.0, 105)
_LOG_ORDERS, _LOG_RATIOS = np.log(ORDERS), np.log1p(-1.0 / ORDERS)
_TOGETHER = 16  # orders on one grid of z
_USELESS = 25.0  # nats, above log(1 / delta) of the least delta


@lru_cache(maxsize=2048)
def renyi_curve(noise_multiplier: float, sampling_probability: float, group: int = 1) -> Array:
    """
    Return the Renyi divergence of one step at each of the ORDERS, in nats.

    Fractional orders are integrated like whole ones: the series of other libraries diverges for
    them when q is large, and without them the bound is loose by half. Orders that are best for no
    history with such a step, at any delta from 1e-10, are infinite: log(A) is convex, and
    (alpha - 1) d/d(alpha) log(A) - log(A), at most log(1 / delta) at the best order, only grows.

    Exact for one record. For a group the divergence holds on condition that no more records join
    than :func:`fdrl_ros.privacy.accountant.one_step.inclusions` lists; the caller subtracts the
    remaining chance from delta.

    :param noise_multiplier: sigma, at least 1 / 400 of the most records that join.
    :param sampling_probability: q, in (0, 1].
    :param group: k, the most records that a unit owns.
    :returns: divergences, shape (orders,), read-only.
    """
    sigma, q = noise_multiplier, sampling_probability
    if q == 1.0:
        curve = ORDERS * (0.5 * (group / sigma) ** 2)
    else:
        curve = np.full_like(ORDERS, math.inf)
        last = 0.0, 0.0
        for start in range(0, len(ORDERS), _TOGETHER):
            chunk = slice(start, start + _TOGETHER)
            t = ORDERS[chunk] - 1.0
            moments = integrated_log_moments(sigma, q, ORDERS[chunk], group)
            curve[chunk] = moments / t
            slope = (moments[-1] - last[1]) / (t[-1] - last[0])
            last = float(t[-1]), float(moments[-1])
            if last[0] * slope - last[1] > _USELESS:
                break
    curve.flags.writeable = False
    return curve


def integrated_log_moments(sigma: float, q: float, orders: Array, group: int = 1) -> Array:
    """
    Return log(A) for any orders above 1, of the worse direction, by the trapezoid rule.

    The roots of r lie pi sigma^2 off the real line, and the integrand falls as a Gaussian around 0
    and around each j alpha, so the rule converges exponentially: these grids reach 1e-13. For one
    record removal is the worse direction (Mironov et al., Section 3.1).
    """
    joining = inclusions(group, q)
    numbers, log_chances = joining.numbers, joining.log_chances
    reach = float(orders.max() * numbers[-1]) + 12.0 * sigma
    # The power 1 - alpha moves the integrand down, that of one record by less than its width.
    down = 12.0 * sigma if group == 1 else reach
    spacing = min(sigma / 8.0, sigma**2 / 2.0)
    z = np.arange(-down, reach, spacing)
    log_density = -0.5 * (z / sigma) ** 2 - math.log(sigma * math.sqrt(2.0 * math.pi) / spacing)
    exponents = (np.outer(numbers, z) - 0.5 * numbers[:, None] ** 2) / sigma**2
    log_ratio = _log_sum(log_chances[:, None] + exponents, 0)
    # r - 1, with all its digits
    surplus = np.exp(log_chances) @ np.expm1(np.minimum(exponents, 300.0))
    near = (np.abs(surplus) < 0.5) & (exponents.max(axis=0) < 300.0)
    log_ratio[near] = np.log1p(surplus[near])
    surplus[~near] = np.expm1(np.minimum(log_ratio[~near], 600.0))
    moments = _log_moments(orders, log_density, log_ratio, surplus)
    if group == 1:
        return moments
    return np.maximum(moments, _log_moments(1.0 - orders, log_density, log_ratio, surplus))


def _log_moments(
    powers: Array,
    log_density: Array,
    log_ratio: Array,
    surplus: Array,
) -> Array:
    """Return log E r^power for each power, where r = 1 + surplus."""
    logs = powers[:, None] * log_ratio
    moments = _log_sum(log_density + logs, 1)
    # E r = 1, so the excess over 1 is E (r^power - 1 - power (r - 1)), a sum without negative
    # terms in which the divergence of rarely sampled steps keeps its digits.
    little = moments < 0.1
    power = powers[little, None]
    with np.errstate(over='ignore', invalid='ignore'):
        series = np.ones_like(logs[little])
        for i in (6, 5, 4, 3):
            series = 1.0 + (power - i + 1) / i * surplus * series
        series *= 0.5 * power * (power - 1.0) * surplus**2
        raised = np.expm1(logs[little]) - power * surplus
        small = np.abs(surplus) * np.maximum(1.0, np.abs(power)) < 1e-2
        parts = np.where(small, series, raised)
        # The product underflows where the density does.
        parts = np.where(log_density > -700.0, np.exp(log_density) * parts, 0.0)
    moments[little] = np.log1p(parts.sum(axis=1))
    return moments


def _log_sum(logs: Array, axis: int) -> Array:
    """Return the logarithm of the sum of exponentials, without SciPy's checks."""
    most = logs.max(axis=axis, keepdims=True)
    return np.squeeze(most, axis) + np.log(np.exp(logs - most).sum(axis=axis))


def renyi_epsilon(curve: Array, delta: float) -> float:
    """
    Turn Renyi divergences at the ORDERS into epsilon (Canonne, Kamath and Steinke 2020, Prop. 12).

    :param curve: divergences of the whole history, shape (orders,).
    :param delta: in (0, 1).
    """
    conversion = _LOG_RATIOS - (math.log(delta) + _LOG_ORDERS) / (ORDERS - 1.0)
    return max(0.0, float(np.min(curve + conversion)))
