# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Estimate which share of intervals holds an expectation that is itself known with an error.

The share of intervals that hold it is estimated although the expectation is known with an error
only: the distribution of the model's error in its own standard deviations is fitted by maximum
likelihood to what was seen through the errors of the Monte-Carlo expectations (Kiefer and
Wolfowitz 1956; solved by expectation maximisation). No shape of it is assumed.
"""

from collections.abc import Sequence
from statistics import NormalDist

from fdrl_ros.experiments.intervals import resampled_units
from fdrl_ros.runtime.random_streams import Stream
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

CONFIDENCES = (0.5, 0.8, 0.9, 0.95)
"""Nominal coverages."""

RESAMPLES = 200
"""Of patients, for the intervals."""

_STEP, _MOST = 0.1, 8.0
_PLACES: Array = np.arange(0.5 * _STEP, _MOST, _STEP)
"""Sizes that an error may have, in standard deviations; the last stands for all beyond."""

_ROUNDS, _FURTHER = 300, 40


def shares_held(scores: Array, errors: Array, confidences: Sequence[float]) -> Array:
    """
    Estimate which share of intervals hold the truth.

    :param scores: (Monte-Carlo expectation - estimate) / its standard deviation, shape (N,).
    :param errors: standard error of the Monte-Carlo expectation, in the same unit, shape (N,).
    :param confidences: of the intervals, below 1.
    :returns: shape of `confidences`.
    """
    likelihood = _likelihood(scores, errors)
    return _within(_fitted(likelihood, np.ones(len(scores)), _ROUNDS), confidences)


def widening(scores: Array, errors: Array, confidence: float) -> float:
    """
    Return what standard deviations are to be multiplied with for intervals to hold their share.

    :param scores: as :func:`shares_held` takes them, like `errors`.
    :param confidence: of the intervals, below 1.
    """
    masses = _fitted(_likelihood(scores, errors), np.ones(len(scores)), _ROUNDS)
    reached = np.concatenate([[0.0], np.cumsum(masses)])
    ends = np.arange(len(reached)) * _STEP
    size = float(np.interp(confidence, reached / reached[-1], ends))
    return size / NormalDist().inv_cdf(0.5 + confidence / 2)


def _likelihood(scores: Array, errors: Array) -> Array:
    """Return how likely each score's size is for each size of the error, shape (N, places)."""
    width = np.maximum(np.asarray(errors, np.float64), 0.5 * _STEP)[:, None]
    size = np.minimum(np.abs(scores), _MOST)[:, None]
    near, far = (size - _PLACES) / width, (size + _PLACES) / width
    density: Array = (np.exp(-0.5 * near**2) + np.exp(-0.5 * far**2)) / width
    return density + 1e-300


def _fitted(likelihood: Array, weights: Array, rounds: int, masses: Array | None = None) -> Array:
    """Return the mass of each place, of maximum likelihood."""
    if masses is None:
        masses = np.full(len(_PLACES), 1.0 / len(_PLACES))
    total = weights.sum()
    for _ in range(rounds):
        joint = likelihood * masses
        masses = (weights / joint.sum(axis=1)) @ joint / total
    return masses


def _within(masses: Array, confidences: Sequence[float]) -> Array:
    """Return the mass within each interval; of the place at its end, the part inside."""
    factors = [NormalDist().inv_cdf(0.5 + each / 2) for each in confidences]
    inside = np.clip((np.array(factors)[:, None] - _PLACES) / _STEP + 0.5, 0.0, 1.0)
    held: Array = inside @ masses
    return held


def coverage_of(
    scores: Array, errors: Array, patients: NDArray[np.generic], confidences: Sequence[float]
) -> list[dict[str, float]]:
    """
    Estimate coverages with 95 % intervals over patients; states of a patient are correlated.

    :param patients: whose state each is, shape (N,).
    :returns: for each confidence itself, ``coverage``, ``low`` and ``high``.
    """
    scores, errors = np.asarray(scores, np.float64), np.asarray(errors, np.float64)
    likelihood = _likelihood(scores, errors)
    masses = _fitted(likelihood, np.ones(len(scores)), _ROUNDS)
    rng = np.random.default_rng([Stream.COVERAGE_RESAMPLES, len(np.unique(patients))])
    drawn = []
    for times in resampled_units(patients, RESAMPLES, rng):
        some = times > 0
        again = _fitted(likelihood[some], times[some].astype(np.float64), _FURTHER, masses)
        drawn.append(_within(again, confidences))
    low, high = np.quantile(drawn, (0.025, 0.975), axis=0)
    columns = (confidences, _within(masses, confidences), low, high)
    names = ('confidence', 'coverage', 'low', 'high')
    return [dict(zip(names, map(float, row), strict=True)) for row in zip(*columns, strict=True)]
