# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Statistics over seeds agree with tables, with numbers by hand, and stay within bounds."""

import math

from fdrl_ros.experiments.intervals import (
    holm,
    interval,
    over_clips_and_seeds,
    over_seeds,
    paired,
    quartiles,
    RATIO,
    SHARE,
    share_words,
    sign_of,
)
import numpy as np
import pytest


def test_an_interval_over_seeds_is_students():
    found = interval([1.0, 2.0, 3.0, 4.0, 5.0])
    # t(0.975, 4) = 2.776445; s = 1.581139.
    assert found['mean'] == 3.0
    assert found['high'] - 3.0 == pytest.approx(2.776445 * 1.581139 / math.sqrt(5), rel=1e-6)
    assert interval([2.0])['low'] is None
    assert interval([None, None])['mean'] is None
    assert paired([3.0, 5.0], [1.0, 2.0])['values'] == [2.0, 3.0]


def test_rows_of_seeds_become_intervals_of_every_number():
    rows = [{'one': {'gain': 0.1, 'rate': None}}, {'one': {'gain': 0.3, 'rate': 0.5}}]
    found = over_seeds(rows, SHARE)['one']
    assert found['gain'] == interval([0.1, 0.3], SHARE)
    assert found['rate']['mean'] == 0.5 and found['rate']['values'] == [None, 0.5]


def test_an_interval_is_cut_to_its_bounds_and_told_only_if_it_tells_something():
    few = interval([0.4, 0.02], RATIO)
    assert few['low'] == 0.0 and few['mean'] == pytest.approx(0.21)
    assert share_words(few) == '21.0 (2 seeds are too few for an interval)'
    assert share_words(interval([0.0, 1.0], SHARE)).startswith('50.0 (2 seeds are too few')
    high = interval([0.97, 0.99, 1.0], SHARE)
    assert high['high'] == 1.0 and share_words(high) == '98.7 [94.9, 100.0]'
    kept = interval([1.02, 1.06, 0.98, 1.0], RATIO)  # privacy may help by chance
    assert share_words(kept) == '101.5 [96.1, 106.9]'
    assert share_words(interval([0.5], RATIO)) == '50.0 (one seed)'
    assert share_words(interval([None, None], RATIO)) == 'nothing to compare with'


def test_a_sign_is_told_only_where_the_whole_interval_has_it():
    assert sign_of(interval([1.0, 1.1])) == 1 and sign_of(interval([-1.0, -1.1])) == -1
    assert sign_of(interval([-1.0, 2.0])) == sign_of(interval([5.0])) == 0


def test_quartiles_bear_infinity():
    assert quartiles([3.0, 1.0, 2.0, math.inf, math.inf]) == (2.0, 3.0, math.inf)
    assert quartiles([1.0, 2.0, 3.0, 5.0])[1] == 2.5
    assert quartiles([1.0]) == (1.0, 1.0, 1.0)


def test_holm_by_hand():
    # Sorted 0.01, 0.02, 0.03, 0.5 times 4, 3, 2, 1, never falling.
    assert holm([0.03, 0.01, 0.5, 0.02]) == pytest.approx([0.06, 0.04, 0.5, 0.06])
    assert holm([0.9, 0.8]) == [1.0, 1.0]


def test_an_interval_over_clips_and_seeds_covers_the_mean_as_often_as_it_says():
    # 10 seeds of 20 clips; sd of seeds 1, of clips 2. With the seed, a rate below 85 % would come
    # up by chance once in a thousand runs.
    rng, held = np.random.default_rng(7), 0
    for _ in range(100):
        clips = rng.normal(rng.normal(5.0, 1.0, (10, 1)), 2.0, (10, 20))
        found = over_clips_and_seeds(clips.tolist(), rng, resamples=200)
        held += found['low'] < 5.0 < found['high']
    assert held >= 85


def test_undefined_clips_are_left_out_and_seeds_count_alike():
    found = over_clips_and_seeds(
        [[1.0, math.nan, 3.0], [5.0], [math.nan]], np.random.default_rng(0), resamples=50
    )
    assert found['values'] == [2.0, 5.0, None] and found['mean'] == 3.5
    assert 1.0 <= found['low'] <= found['high'] <= 5.0
    again = over_clips_and_seeds([[1.0, 3.0], [5.0]], np.random.default_rng(0), resamples=50)
    assert (again['low'], again['high']) == (found['low'], found['high'])
    alone = over_clips_and_seeds([[2.0]], np.random.default_rng(0))
    assert alone['mean'] == 2.0 and alone['low'] is alone['high'] is None
    assert over_clips_and_seeds([[math.nan]], np.random.default_rng(0))['mean'] is None
