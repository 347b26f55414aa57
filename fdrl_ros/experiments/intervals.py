# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Statistics over seeds: means, 95 % intervals, paired differences, quartiles, corrected tests.

One seed is one unit. Intervals are Student's t. Over two or three seeds they reach far beyond what
a share can be; cut to its bounds they cover the true mean as often. Over clips within seeds they
are bootstrap intervals.
"""

from collections.abc import Mapping, Sequence
import math
from typing import TypedDict

from fdrl_ros.experiments.json_file import Json
import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

CONFIDENCE = 0.95
UNBOUNDED = (-math.inf, math.inf)
SHARE = (0.0, 1.0)
"""Bounds of a share."""
RATIO = (0.0, math.inf)
"""Bounds of one share over another."""


class Interval(TypedDict):
    """
    Mean and ends of an interval, None where undefined, and the values behind it, one a seed.

    A single value has a mean but no ends.
    """

    mean: float | None
    low: float | None
    high: float | None
    values: list[float | None]


def interval(values: Sequence[float | None], bounds: tuple[float, float] = UNBOUNDED) -> Interval:
    """
    Return mean and 95 % interval over seeds by Student's t.

    :param values: one for each seed; None and NaN are undefined and left out.
    :param bounds: least and greatest value that the mean can have; the interval is cut to them.
    """
    values = [None if each is None or math.isnan(each) else each for each in values]
    known = np.array([each for each in values if each is not None], dtype=np.float64)
    mean = float(known.mean()) if len(known) else None
    low = high = None
    if mean is not None and len(known) > 1:
        error = float(known.std(ddof=1)) / math.sqrt(len(known))
        half = float(special.stdtrit(len(known) - 1, 0.5 + CONFIDENCE / 2)) * error
        low, high = max(mean - half, bounds[0]), min(mean + half, bounds[1])
    return {'mean': mean, 'low': low, 'high': high, 'values': values}


def over_seeds(rows: Sequence[Json], bounds: tuple[float, float] = UNBOUNDED) -> Json:
    """
    Sum up the rows of a study, one for each seed: every number becomes its interval over seeds.

    Rows are nested alike: groups by name, then metrics by name, then numbers or None. A difference
    from a baseline is a metric too; computed in each row, it is paired by seed.
    """
    found: Json = {}
    for name, first in rows[0].items():
        column = [row[name] for row in rows]
        nested = isinstance(first, Mapping)
        found[name] = over_seeds(column, bounds) if nested else interval(column, bounds)
    return found


def paired(one: Sequence[float], other: Sequence[float]) -> Interval:
    """Return mean and interval of one minus other, seed by seed."""
    return interval([a - b for a, b in zip(one, other, strict=True)])


def percent_change(one: Sequence[float], other: Sequence[float]) -> Interval | None:
    """
    Return by how many percent the mean of one differs from that of `other`, paired by seed.

    The interval is that of the ratio of both means by the delta method, so the chance of the
    denominator counts too. Its values are each seed's share in it, not ratios of single seeds.

    :returns: None where the interval of `other` does not lie above 0: such a ratio means nothing.
    """
    if sign_of(interval(other)) <= 0:
        return None
    base = math.fsum(other) / len(other)
    ratio = math.fsum(one) / len(one) / base
    shares = [
        100.0 * (ratio - 1.0 + (a - ratio * b) / base) for a, b in zip(one, other, strict=True)
    ]
    return interval(shares, (-100.0 if min(one) >= 0.0 else -math.inf, math.inf))


def p_value(found: Interval) -> float:
    """Return the chance of a mean at least as far from 0 by Student's t; 1 for a single seed."""
    known = np.array([each for each in found['values'] if each is not None], np.float64)
    if len(known) < 2:
        return 1.0
    error = float(known.std(ddof=1)) / math.sqrt(len(known))
    if error == 0.0:
        return float(known.mean() == 0.0)
    return 2.0 * float(special.stdtr(len(known) - 1, -abs(float(known.mean())) / error))


def sign_of(found: Interval) -> int:
    """Return 1 or -1 where a whole interval lies above or below 0, else 0: not beyond chance."""
    if found['low'] is None or found['high'] is None:
        return 0
    return int(found['low'] > 0.0) - int(found['high'] < 0.0)


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """Return quartiles and median of values of which some may be infinite: order statistics."""
    ordered = sorted(values)
    last = len(ordered) - 1

    def at(share: float) -> float:
        low, high = ordered[math.floor(share * last)], ordered[math.ceil(share * last)]
        return low if low == high else (low + high) / 2.0

    return at(0.25), at(0.5), at(0.75)


def resampled_units(
    units: ArrayLike, resamples: int, rng: np.random.Generator
) -> list[NDArray[np.int64]]:
    """
    Draw bootstrap resamples of whole units, whose observations belong together.

    :param units: unit of each observation, shape (N,).
    :returns: how often each observation counts in each resample, shape (N,).
    """
    _, place = np.unique(units, return_inverse=True)
    count = int(place.max()) + 1
    return [
        np.bincount(rng.integers(count, size=count), minlength=count)[place]
        for _ in range(resamples)
    ]


def over_clips_and_seeds(
    values: Sequence[Sequence[float]], rng: np.random.Generator, *, resamples: int = 2000
) -> Interval:
    """
    Return mean and 95 % bootstrap interval of a measure of clips, over clips and seeds.

    Each resample draws seeds, then clips within each drawn seed, as often as there are. Over few
    seeds it is narrower than it should be: a bootstrap over three units covers too little.

    :param values: for each seed those of its clips; NaN is undefined and left out.
    :returns: the mean over seeds of the means over clips; its values are those means.
    """
    defined = [[each for each in clips if not math.isnan(each)] for clips in values]
    known = [np.array(clips, np.float64) for clips in defined if clips]
    means = [float(np.mean(clips)) if clips else None for clips in defined]
    found = interval(means)
    found['low'] = found['high'] = None
    if sum(map(len, known)) > 1:
        seeds = rng.integers(len(known), size=(resamples, len(known)))
        drawn = np.zeros(resamples)
        for number, clips in enumerate(known):
            rows, _ = np.nonzero(seeds == number)
            means_drawn = clips[rng.integers(len(clips), size=(len(rows), len(clips)))].mean(1)
            np.add.at(drawn, rows, means_drawn / len(known))
        tail = (1.0 - CONFIDENCE) / 2.0
        low, high = np.quantile(drawn, [tail, 1.0 - tail])
        found['low'], found['high'] = float(low), float(high)
    return found


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p values corrected for their number by Holm's step-down, in the same order."""
    order = np.argsort(p_values, kind='stable')
    scaled = (len(p_values) - np.arange(len(p_values))) * np.asarray(p_values)[order]
    corrected = np.empty(len(p_values))
    corrected[order] = np.minimum(np.maximum.accumulate(scaled), 1.0)
    return [float(each) for each in corrected]


def interval_words(found: Interval, form: str = '.1f', factor: float = 1.0) -> str:
    """Write a mean with its interval, if there is one."""
    if found['mean'] is None:
        return 'undefined'
    mean = format(factor * found['mean'], form)
    if found['low'] is None or found['high'] is None:
        return mean
    low, high = (format(factor * each, form) for each in (found['low'], found['high']))
    return f'{mean} [{low}, {high}]'


def share_words(found: Interval) -> str:
    """Write a share in percent with its interval, or why the interval is not informative."""
    if found['mean'] is None:
        return 'nothing to compare with'
    seeds = sum(each is not None for each in found['values'])
    mean = f'{100 * found["mean"]:.1f}'
    if found['low'] is None or found['high'] is None:
        return f'{mean} (one seed)'
    if found['high'] - found['low'] >= 1.0:  # as wide as a share can be
        return f'{mean} ({seeds} seeds are too few for an interval)'
    return interval_words(found, factor=100.0)
