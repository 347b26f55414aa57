# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Combine the average updates of buckets so that a few poisoned buckets decide little.

Median and trimmed mean of each number are those of Yin et al. 2018, Byzantine-Robust Distributed
Learning; the geometric median is that of Pillutla et al. 2022, Robust Aggregation for Federated
Learning, by their smoothed Weiszfeld steps. All arithmetic is of single float64 numbers by basic
operations, so that every machine makes the same bits.
"""

from collections.abc import Sequence

from fdrl_ros.errors import SettingError
import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

RULES = ('mean', 'median', 'trimmed_mean', 'geometric_median')

STEPS = 200
"""Most steps of Weiszfeld."""

SMOOTHING = 1e-6
"""Shortest distance that counts in a step, in parts of the spread of the rows."""

_SETTLED = 1e-12  # of the spread: a shorter step is the last one


def check_rule(rule: str) -> None:
    """
    Refuse an unknown rule.

    :raises SettingError: if it is none of :data:`RULES`.
    """
    if rule not in RULES:
        raise SettingError('server.combine', rule, f'one of {", ".join(RULES)}')


def combine(rule: str, averages: Matrix, weights: Vector) -> Vector:
    """
    Combine averages of buckets.

    :param rule: one of :data:`RULES`.
    :param averages: shape (buckets, n), finite.
    :param weights: sum of n_i of each bucket, > 0, shape (buckets,).
    :returns: shape (n,).
    :raises SettingError: if the rule is unknown, or a row or weight is missing or not finite.
    """
    check_rule(rule)
    count = len(weights)
    if averages.ndim != 2 or averages.shape[0] != count or not count:
        raise SettingError('averages', averages.shape, f'a row for each of {count} buckets')
    if not (np.isfinite(averages).all() and np.isfinite(weights).all() and (weights > 0).all()):
        raise SettingError('averages', 'a number', 'finite numbers, and weights above 0')
    if count == 1:
        return averages[0].copy()
    if rule == 'mean':
        return weighted_mean(averages, weights)
    if rule == 'median':
        return median(averages, weights)
    if rule == 'trimmed_mean':
        return trimmed_mean(averages, weights)
    return geometric_median(averages, weights)


def combine_some(
    rule: str, averages: Sequence[Vector | None], sizes: Sequence[Sequence[int]]
) -> Vector | None:
    """
    Combine the averages that are not left out.

    Of several, one alone is not released: two hospitals of its bucket would know the third's.

    :param averages: of each bucket, None if it is left out.
    :param sizes: n_i of each hospital, by bucket.
    :returns: shape (n,); None if too few are left.
    """
    some = [(each, own) for each, own in zip(averages, sizes, strict=True) if each is not None]
    if len(some) < min(2, len(averages)):
        return None
    weights = np.array([float(sum(own)) for _, own in some])
    return combine(rule, np.stack([each for each, _ in some]), weights)


def weighted_mean(averages: Matrix, weights: Vector) -> Vector:
    """Return the mean, which is FedAvg (FDRL Eq. 2)."""
    total: Vector = (averages * (weights / weights.sum())[:, None]).sum(axis=0)
    return total


def median(averages: Matrix, weights: Vector) -> Vector:
    """
    Return of each number the middle one, by weight.

    Where the lower half of the weight ends between two buckets, it is the middle between them.
    """
    order = np.argsort(averages, axis=0, kind='stable')
    ordered = np.take_along_axis(averages, order, axis=0)
    passed = np.cumsum(weights[order], axis=0)
    half = passed[-1] / 2.0
    last = len(weights) - 1
    low = np.minimum((passed < half).sum(axis=0), last)
    high = np.minimum((passed <= half).sum(axis=0), last)
    columns = np.arange(averages.shape[1])
    middle: Vector = ordered[low, columns] / 2.0 + ordered[high, columns] / 2.0
    return middle


def trimmed_mean(averages: Matrix, weights: Vector) -> Vector:
    """Return of each number the mean of its middle third, by weight."""
    order = np.argsort(averages, axis=0, kind='stable')
    passed = np.cumsum(weights[order], axis=0)
    before, total = passed - weights[order], weights.sum()
    kept = np.minimum(passed, total * 2.0 / 3.0) - np.maximum(before, total / 3.0)
    kept = np.maximum(kept, 0.0)
    found: Vector = (np.take_along_axis(averages, order, axis=0) * kept).sum(axis=0)
    return found / kept.sum(axis=0)


def geometric_median(averages: Matrix, weights: Vector) -> Vector:
    """
    Return the point whose weighted sum of distances to the rows is least.

    It begins with the median of each number, which no few rows can carry away.
    """
    point = median(averages, weights)
    spread = float(median(_distances(averages, point)[:, None], weights)[0])
    if not spread:
        return point  # more than half of the weight is here: nowhere is the sum less
    for _ in range(STEPS):
        inverse = weights / np.maximum(_distances(averages, point), SMOOTHING * spread)
        following = (averages * (inverse / inverse.sum())[:, None]).sum(axis=0)
        moved = float(np.sqrt(((following - point) ** 2).sum()))
        point = following
        if moved <= _SETTLED * spread:
            break
    return point


def _distances(averages: Matrix, point: Vector) -> Vector:
    """Return how far each row is from a point, shape (rows,)."""
    distances: Vector = np.sqrt(((averages - point) ** 2).sum(axis=1))
    return distances
