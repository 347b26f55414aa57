# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Tests that batches and noise are distributed as the accountant takes them to be.

Some faults hardly move what canaries prove: batches of fixed size, or noise that follows the size
of the batch. Each test returns p-values by name; where all is as it should be, the least of them,
times their number, is below p with probability p at most.
"""

from collections.abc import Mapping, Sequence
import math

from fdrl_ros.audit.privacy_audit import Release
from fdrl_ros.errors import SettingError
import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest, chi2, kstest, norm, spearmanr


def least_p(found: Mapping[str, float]) -> float:
    """Return the least p-value, corrected for their number (Bonferroni)."""
    return min(1.0, len(found) * min(found.values()))


def inclusion_tests(
    joined: Sequence[NDArray[np.int64]], n_units: int, q: float
) -> dict[str, float]:
    """
    Test that every unit joins every step by a coin of its own of probability q.

    :param joined: units of each step, (joined,) each; two steps at least.
    :returns: p of 'once' (nobody joins twice), 'rate' (as many join as should), 'sizes' (batches
        vary as binomials do: those of fixed size do not), 'units' (so does how often a unit
        joins: it does not where data are shuffled), 'repeats' (who joined joins again as often
        as others).
    """
    steps = len(joined)
    if steps < 2 or not 0.0 < q < 1.0:
        raise SettingError('steps', steps, 'two at least, of a q above 0 and below 1')
    joins = np.zeros((steps, n_units), np.bool_)
    for row, units in zip(joins, joined, strict=True):
        row[units] = True
    sizes = np.array([len(each) for each in joined])
    variance = q * (1.0 - q)
    repeats = int((joins[1:] & joins[:-1]).sum())
    # Neighbouring products share a coin; the others are independent.
    spread = (steps - 1) * (q**2 - q**4) + 2 * (steps - 2) * (q**3 - q**4)
    excess = repeats - n_units * (steps - 1) * q**2
    return {
        'once': 1.0 if sizes.sum() == joins.sum() else 0.0,
        'rate': float(binomtest(int(sizes.sum()), n_units * steps, q).pvalue),
        'sizes': _scatter(((sizes - n_units * q) ** 2).sum() / (n_units * variance), steps),
        'units': _scatter(
            ((joins.sum(axis=0) - steps * q) ** 2).sum() / (steps * variance), n_units
        ),
        'repeats': float(2.0 * norm.sf(abs(excess) / math.sqrt(n_units * spread))),
    }


def noise_tests(
    releases: Sequence[Release],
    *,
    noise_multiplier: float,
    clip_norm: float,
    expected_batch: float,
) -> dict[str, float]:
    """
    Test that each step's release is its clipped sum plus fresh N(0, (sigma C)^2 I), over L.

    :param releases: two steps at least.
    :returns: p of 'size' (of the noise in all), 'steps' (in each), 'batches' (larger where more
        join, or smaller), 'shape' (Gaussian), 'fresh' (not that of the step before).
    """
    steps = len(releases)
    if steps < 2 or noise_multiplier <= 0.0:
        raise SettingError('steps', steps, 'two at least, with noise')
    sums = np.array([each.gradient * expected_batch - each.clipped for each in releases])
    noise = sums / (noise_multiplier * clip_norm)
    count = noise.shape[1]
    energies = np.einsum('sp,sp->s', noise, noise)
    sizes = np.array([len(each.units) for each in releases])
    products = np.einsum('sp,sp->s', noise[1:], noise[:-1]) / math.sqrt(count)
    together = 1.0 if len(set(sizes.tolist())) == 1 else float(spearmanr(energies, sizes).pvalue)
    return {
        'size': _scatter(float(energies.sum()), steps * count),
        'steps': float(kstest(energies, chi2(count).cdf).pvalue),
        'batches': together,
        'shape': float(kstest(noise.ravel(), norm.cdf).pvalue),
        'fresh': _scatter(float((products**2).sum()), steps - 1),
    }


def _scatter(statistic: float, freedom: int) -> float:
    """Return the p-value of a sum of squares that is too large or too small for chi-square."""
    law = chi2(freedom)
    return float(min(1.0, 2.0 * min(law.cdf(statistic), law.sf(statistic))))
