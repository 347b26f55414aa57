# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Tests that coins, noise and clipping are distributed as the accountant takes them to be.

Some faults hardly move what canaries prove: the same noise in every round, batches of fixed size.
Each test returns p-values by name; where all is as it should be, the least of them, times their
number, is below p with probability p at most (Bonferroni). Laws are exact, or of sums of so many
terms that they are normal to within what matters, or bounds.
"""

from collections.abc import Mapping, Sequence
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest, chi2, kstest, norm

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

FAULTS = {
    'coins: once': 'a unit joins a step twice',
    'coins: certain': 'units whose coin is sure join, or stay away, against it',
    'coins: rate': 'more or fewer units join than are charged',
    'coins: sizes': 'the sizes of batches do not vary as those of independent coins',
    'coins: units': 'some units join more often than others, or all equally often',
    'coins: repeats': 'who joined a step joins the next one more often than others, or less',
    'coins: again': 'two steps have the same coins, or coins that hang together',
    'coins: lags': 'units share coins, or coins that hang together',
    'noise: size': 'the noise has another standard deviation than is charged',
    'noise: steps': 'the size of the noise differs from step to step',
    'noise: one step': 'the noise of one step is too large or too small',
    'noise: batches': 'the size of the noise goes with how many join',
    'noise: weights': 'the noise of some weights is larger than that of others',
    'noise: shape': 'the noise is not Gaussian',
    'noise: tails': 'the tails of the noise are cut, or too long',
    'noise: fresh': 'two steps have the same noise, or noise that hangs together',
    'noise: common': 'all steps share some noise',
    'noise: lags': 'the noise of some weights is that of others',
    'noise: hospitals': 'two hospitals have the same noise',
    'clipping: shift': 'clipping leaves another length of a canary than it should',
    'clipping: steps': 'what is left of canaries differs from step to step',
    'clipping: one step': 'in one step more or less is left of canaries',
    'clipping: canaries': 'more is left of some canaries than of others',
    'clipping: absent': 'canaries show that did not join',
}
"""What a low p-value of each test means."""

_LEAST_FOR_LAGS = 20000  # numbers of noise
_MOST_PRODUCTS = 2e9  # of noise of two steps: of more steps, fewer weights are compared


def least_p(found: Mapping[str, float]) -> float:
    """Return the least p-value, corrected for their number (Bonferroni)."""
    return min(1.0, len(found) * min(found.values()))


def inclusion_tests(
    joined: Sequence[NDArray[np.int64]], probabilities: Floats | float, n_units: int
) -> dict[str, float]:
    """
    Test that every unit joins every step by a coin of its own.

    :param joined: units of each step, (joined,) each.
    :param probabilities: of the coins: one number, or shape (steps, units).
    :returns: p of 'once' (nobody joins twice), 'certain' (nor against a probability of 0 or 1),
        'rate' (as many join as should), 'sizes' (batches vary as independent coins do: those of
        fixed size do not), 'units' (so does how often a unit joins: it does not where data are
        shuffled), 'repeats' (who joined joins the next step as often as others), 'again' (so it
        is of any two steps), 'lags' (and of units at any distance).
    """
    joins = joins_of(joined, n_units)
    sizes = np.array([len(each) for each in joined])
    p = np.broadcast_to(np.asarray(probabilities, np.float64), joins.shape)
    variance = p * (1.0 - p)
    excess = joins - p
    found = {
        'once': float(sizes.sum() == joins.sum()),
        'certain': float(not excess[variance == 0.0].any()),
    }
    if not variance.any():
        return found
    if np.ndim(probabilities) == 0:
        rate = float(binomtest(int(sizes.sum()), joins.size, float(probabilities)).pvalue)
    else:
        rate = _normal(excess.sum() / math.sqrt(variance.sum()))
    found |= {
        'rate': rate,
        'sizes': _spread(excess, p, 1),
        'units': _spread(excess, p, 0),
        'again': _pairs(excess, variance),
        'lags': _lags(excess, variance),
    }
    after = math.sqrt((variance[1:] * variance[:-1]).sum())
    if after:
        found['repeats'] = _normal((excess[1:] * excess[:-1]).sum() / after)
    return found


def noise_tests(
    noise: Floats, sizes: NDArray[np.int64], others: Sequence[Floats] = ()
) -> dict[str, float]:
    """
    Test that each step's noise is N(0, I), and fresh.

    :param noise: what a release has beside its clipped sum, in units of sigma C, shape (steps,
        weights).
    :param sizes: how many joined each step, shape (steps,).
    :param others: noise of other hospitals in some steps, shape (steps, weights) each.
    :returns: p of 'size' (in all), 'steps' (in each), 'one step' (in any), 'batches' (larger
        where more join, or smaller), 'weights' (in each), 'shape' (Gaussian), 'tails', 'fresh'
        (any two steps), 'common' (all steps), 'lags' (other weights' noise), 'hospitals'.
    """
    steps, count = noise.shape
    energies = np.einsum('sp,sp->s', noise, noise)
    law = chi2(count)
    by_weight, law_of_weights = np.square(noise).sum(axis=0), chi2(steps)
    of_weights = min(
        float(kstest(by_weight, law_of_weights.cdf).pvalue),
        2.0 * count * _farthest(by_weight, law_of_weights),
    )
    leverage = sizes - sizes.mean()
    batches = 1.0
    if leverage.any():
        together = leverage @ (energies - count) / np.linalg.norm(leverage)
        batches = _normal(together / math.sqrt(2.0 * count))
    outside = min(2.0 * float(norm.sf(np.abs(noise).max())), 1.0 - 1e-12)
    log_inside = noise.size * math.log1p(-outside)
    found = {
        'size': _scatter(float(energies.sum()), noise.size),
        'steps': float(kstest(energies, law.cdf).pvalue),
        'one step': min(1.0, 2.0 * steps * _farthest(energies, law)),
        'batches': batches,
        'weights': min(1.0, 2.0 * of_weights),
        'shape': float(kstest(noise.ravel(), norm.cdf).pvalue),
        'tails': min(1.0, 2.0 * math.exp(log_inside), -2.0 * math.expm1(log_inside)),
        'common': _scatter(float(np.square(noise.sum(axis=0)).sum() / steps), count),
    }
    if steps > 1:
        found['fresh'] = _alike(noise, noise)
    if noise.size >= _LEAST_FOR_LAGS:
        powers = np.square(np.abs(np.fft.rfft(noise, axis=1))).sum(axis=0)
        lags = np.fft.irfft(powers, count)[1 : count // 2 + 1]
        if count % 2 == 0:
            lags[-1] /= math.sqrt(2.0)  # each of its products is there twice
        highest = float(np.abs(lags).max()) / math.sqrt(noise.size)
        found['lags'] = min(1.0, len(lags) * _normal(highest))
    if others:
        least = min(_alike(noise, each, one=False) for each in others)
        found['hospitals'] = min(1.0, len(others) * least)
    return found


def clipping_tests(along: Floats, joined: Flags, expected: float) -> dict[str, float]:
    """
    Test that exactly what clipping leaves of canaries is in the sums.

    :param along: projections of releases on canaries, less what patients added, in units of
        sigma C, shape (steps, canaries).
    :param joined: which canary joined as a member, same shape.
    :param expected: what is left of each, in the same unit.
    :returns: p of 'shift' (in all), 'steps' (in each), 'one step' (in any), 'canaries' (of each),
        'absent' (nothing of those who did not join).
    """
    excess = along - expected * joined
    absent = ~joined
    found = {}
    counts = joined.sum(axis=1)
    if counts.any():
        by_step = (excess * joined).sum(axis=1)[counts > 0] / np.sqrt(counts[counts > 0])
        of_canary = joined.sum(axis=0)
        by_canary = (excess * joined).sum(axis=0)[of_canary > 0]
        by_canary /= np.sqrt(of_canary[of_canary > 0])
        found = {
            'shift': _normal(excess[joined].sum() / math.sqrt(counts.sum())),
            'steps': _scatter(float(by_step @ by_step), len(by_step)),
            'one step': min(1.0, len(by_step) * _normal(float(np.abs(by_step).max()))),
            'canaries': _scatter(float(by_canary @ by_canary), len(by_canary)),
        }
    if absent.any():
        of_canary = absent.sum(axis=0)
        by_canary = (excess * absent).sum(axis=0)[of_canary > 0]
        by_canary /= np.sqrt(of_canary[of_canary > 0])
        found['absent'] = _scatter(float(by_canary @ by_canary), len(by_canary))
    return found


def joins_of(joined: Sequence[NDArray[np.int64]], n_units: int) -> Flags:
    """Return who joined which step, shape (steps, units)."""
    joins = np.zeros((len(joined), n_units), np.bool_)
    for row, units in zip(joins, joined, strict=True):
        row[units] = True
    return joins


def _normal(z: float) -> float:
    """Return the two-sided p-value of a standard normal number."""
    return min(1.0, 2.0 * float(norm.sf(abs(z))))


def _scatter(statistic: float, freedom: float) -> float:
    """Return the p-value of a sum of squares that is too large or too small for chi-square."""
    law = chi2(freedom)
    return float(min(1.0, 2.0 * min(law.cdf(statistic), law.sf(statistic))))


def _farthest(values: Floats, law: Any) -> float:
    """Return the smaller tail beyond the largest value, or below the least."""
    return float(min(law.sf(values.max()), law.cdf(values.min())))


def _spread(excess: Floats, p: Floats, axis: int) -> float:
    """
    Test the squares of sums along an axis against those of independent coins.

    Mean and variance of their total are exact; its law is that of a chi-square with these.
    """
    variance = p * (1.0 - p)
    own = variance.sum(axis=axis)
    fourth = (variance * (1.0 - 6.0 * variance)).sum(axis=axis)
    mean, scatter = own.sum(), (2.0 * own**2 + fourth).sum()
    if scatter <= 0.0:  # the square of a lone fair coin is always the same
        return 1.0
    total = np.square(excess.sum(axis=axis)).sum()
    freedom = 2.0 * mean**2 / scatter
    return _scatter(float(total * freedom / mean), float(freedom))


def _pairs(excess: Floats, variance: Floats) -> float:
    """
    Bound the p-value of the coins of any two steps that are most alike, or least.

    Given a step's coins, the products with another step's are independent, of mean 0 and at most
    1, and their variances add up.
    """
    steps = np.triu_indices(len(excess), 1)
    return _bennett((excess @ excess.T)[steps], (np.square(excess) @ variance.T)[steps])


def _lags(excess: Floats, variance: Floats) -> float:
    """Bound the p-value of the coins of units at a distance that are most alike, or least."""
    count = excess.shape[1]
    kept = slice(1, (count + 1) // 2)

    def lagged(one: Floats, other: Floats) -> Floats:
        both = np.fft.rfft(one, axis=1).conj() * np.fft.rfft(other, axis=1)
        return np.asarray(np.fft.irfft(both.sum(axis=0), count)[kept])

    return _bennett(lagged(excess, excess), lagged(np.square(excess), variance))


def _bennett(sums: Floats, variances: Floats) -> float:
    """
    Bound the p-value of the farthest of some sums, of terms of mean 0 and at most 1.

    Bennett (1962), and Freedman (1975) where terms are drawn one after the other.
    """
    kept = variances > 1e-9
    if not kept.any():
        return 1.0
    of = variances[kept]
    ratio = np.abs(sums[kept]) / of
    exponent = of * ((1.0 + ratio) * np.log1p(ratio) - ratio)
    return min(1.0, 2.0 * len(sums) * math.exp(-float(exponent.max())))


def _alike(noise: Floats, other: Floats, *, one: bool = True) -> float:
    """
    Return the p-value of the most alike noise of any two steps.

    Given the noise of one, its product with another's is normal.

    :param one: whether both are the same steps, of which only different ones are compared.
    """
    width = min(noise.shape[1], max(64, int(_MOST_PRODUCTS / (len(noise) * len(other)))))
    noise, other = noise[:, :width], other[:, :width]
    lengths = np.linalg.norm(other, axis=1)
    products = np.abs(noise @ (other / np.where(lengths > 0.0, lengths, 1.0)[:, None]).T)
    if one:
        products = products[np.triu_indices(len(noise), 1)]
    return min(1.0, products.size * _normal(float(products.max())))
