# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Bounds on epsilon from dp-accounting, on a fine grid: what our accountant is compared with.

Its optimistic discretisation of a mixture of Gaussians is wrong (version 0.6: the mean of
exp(-loss) is not 1), so that of a group is rounded downwards here, from distribution functions.
"""

import logging
import math

from dp_accounting.pld import privacy_loss_distribution as pld
import numpy as np
from scipy import special, stats

logging.getLogger().addFilter(lambda record: 'Connect-the-Dots' not in record.getMessage())


def upper_and_lower(history, delta, interval, *, lower=True):
    """Return the pessimistic and the optimistic epsilon of (sigma, q, steps, group)s."""
    return tuple(
        _composed(history, interval, pessimistic).get_epsilon_for_delta(delta)
        for pessimistic in ((True, False) if lower else (True,))
    )


def _composed(history, interval, pessimistic):
    total = None
    for sigma, q, steps, group in history:
        part = _one_step(sigma, q, group, interval, pessimistic).self_compose(steps)
        total = part if total is None else total.compose(part)
    return total


def _one_step(sigma, q, group, interval, pessimistic):
    options = {
        'value_discretization_interval': interval,
        'pessimistic_estimate': pessimistic,
    }
    if q == 1.0 or group == 1:
        return pld.from_gaussian_mechanism(sigma / group, sampling_prob=q, **options)
    chances = stats.binom.pmf(range(group + 1), group, q)
    if pessimistic:
        return pld.from_mixture_gaussian_mechanism(sigma, range(group + 1), chances, **options)
    removed, added = _rounded_down(sigma, chances, interval)
    return pld.PrivacyLossDistribution.create_from_rounded_probability(
        removed, 0.0, interval, False, added, 0.0, symmetric=False
    )


def _rounded_down(sigma, chances, interval):
    """Return probabilities by index on the grid, each loss at the point below it."""
    numbers = np.arange(len(chances))

    def loss(z):
        exponents = np.outer(z, numbers) / sigma**2 + np.log(chances) - (numbers / sigma) ** 2 / 2
        return special.logsumexp(exponents, axis=1)

    ends = np.array([-9.0 * sigma, numbers[-1] + 9.0 * sigma])
    first, last = math.ceil(loss(ends)[0] / interval), math.floor(loss(ends)[1] / interval)
    points = np.arange(first, last + 1)
    low, high = np.full(len(points), ends[0] - 1.0), np.full(len(points), ends[1] + 1.0)
    for _ in range(60):
        middle = 0.5 * (low + high)
        under = loss(middle) < points * interval
        low, high = np.where(under, middle, low), np.where(under, high, middle)
    # Of N(j, sigma^2) above each point, and from it to the next.
    above = stats.norm.sf(high[:, None], numbers, sigma)
    removed = -np.diff(above @ chances, append=0.0)
    added = -np.diff(above[:, 0], append=0.0)
    removed = dict(zip(points, removed, strict=True))
    added = dict(zip(-points - 1, added, strict=True))
    # Below the first point: the least losses of removal, the largest of adding.
    removed[first - 1] = stats.norm.cdf(high[0], numbers, sigma) @ chances
    added[-first] = stats.norm.cdf(high[0], 0.0, sigma)
    return removed, added


def random_history(rng):
    """Draw up to four phases of (sigma, q, steps, group), and a delta."""
    history = []
    for _ in range(rng.integers(1, 5)):
        group = int(rng.choice([1, 1, 1, 2, 5, 20]))
        sigma = math.sqrt(group) * math.exp(rng.uniform(math.log(0.6), math.log(10.0)))
        q = 1.0 if rng.random() < 0.1 else math.exp(rng.uniform(math.log(1e-3), 0.0))
        steps = int(math.exp(rng.uniform(0.0, math.log(3000.0))))
        history.append((sigma, q, steps, group))
    return history, 10.0 ** rng.uniform(-8.0, -3.0)
