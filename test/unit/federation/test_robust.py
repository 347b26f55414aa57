# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Combining averages of buckets: what a few of them may do, and what they may not."""

from fdrl_ros.errors import SettingError
from fdrl_ros.federation.key_authority.robust import (
    combine,
    geometric_median,
    median,
    RULES,
    trimmed_mean,
)
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
import numpy as np
import pytest
from scipy import optimize

ROBUST = tuple(rule for rule in RULES if rule != 'mean')
NUMBERS = st.floats(-100.0, 100.0, width=32)


@st.composite
def buckets(draw, least=1):
    """Draw averages of some buckets, and their weights."""
    count, size = draw(st.integers(least, 9)), draw(st.integers(1, 4))
    averages = draw(arrays(np.float64, (count, size), elements=NUMBERS))
    weights = draw(arrays(np.float64, count, elements=st.integers(1, 900).map(float)))
    return averages, weights


@pytest.mark.parametrize('rule', RULES)
@given(given_=buckets(), seed=st.integers(0, 2**32 - 1))
def test_the_order_of_buckets_does_not_matter(rule, given_, seed):
    averages, weights = given_
    order = np.random.default_rng(seed).permutation(len(weights))
    one, other = combine(rule, averages, weights), combine(rule, averages[order], weights[order])
    assert one == pytest.approx(other, rel=1e-6, abs=1e-5)


@pytest.mark.parametrize('rule', RULES)
@given(given_=buckets())
def test_buckets_that_agree_give_fed_avg(rule, given_):
    averages, weights = given_
    same = np.repeat(averages[:1], len(weights), axis=0)
    shares = weights / weights.sum()
    expected = sum(share * row for share, row in zip(shares, same, strict=True))
    assert combine(rule, same, weights) == pytest.approx(expected, rel=1e-12, abs=1e-12)


@given(given_=buckets())
def test_the_mean_is_fed_avg_bucket_by_bucket(given_):
    averages, weights = given_
    expected = sum(w * row for w, row in zip(weights, averages, strict=True)) / weights.sum()
    assert combine('mean', averages, weights) == pytest.approx(expected, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize('rule', RULES)
@given(given_=buckets(), shift=NUMBERS)
def test_what_moves_all_buckets_moves_the_result(rule, given_, shift):
    averages, weights = given_
    moved = combine(rule, averages + shift, weights)
    assert moved == pytest.approx(combine(rule, averages, weights) + shift, rel=1e-6, abs=1e-5)


@given(given_=buckets())
def test_the_median_is_that_of_so_many_copies(given_):
    averages, weights = given_
    copies = np.repeat(averages, weights.astype(int), axis=0)
    assert median(averages, weights) == pytest.approx(np.median(copies, axis=0), abs=1e-9)


@given(given_=buckets())
def test_the_trimmed_mean_is_that_of_the_middle_third_of_so_many_copies(given_):
    averages, weights = given_
    copies = np.repeat(averages, 3 * weights.astype(int), axis=0)
    count = len(copies) // 3
    expected = np.sort(copies, axis=0)[count : 2 * count].mean(axis=0)
    assert trimmed_mean(averages, weights) == pytest.approx(expected, rel=1e-9, abs=1e-9)


@given(given_=buckets(3))
def test_no_point_is_nearer_to_all_than_the_geometric_median(given_):
    averages, weights = given_

    def cost(point):
        return float((weights * np.linalg.norm(averages - point, axis=1)).sum())

    found = cost(geometric_median(averages, weights))
    others = [cost(row) for row in averages]
    best = optimize.minimize(
        cost, averages.mean(axis=0), method='Nelder-Mead', options={'xatol': 1e-9, 'fatol': 1e-9}
    )
    scale = max(1.0, float(weights.sum()) * float(np.abs(averages).max()))
    assert found <= min(*others, float(best.fun)) + 1e-4 * scale


def test_rows_at_one_point_count_by_their_weight():
    """Three of five are at 0, with 3 of 23 in weight; the least sum is elsewhere."""
    averages = np.array([[0.0, 0.0]] * 3 + [[1.0, 0.0], [0.0, 1.0]])
    found = geometric_median(averages, np.array([1.0, 1.0, 1.0, 10.0, 10.0]))
    assert found == pytest.approx([0.42414, 0.42414], abs=1e-4)


@pytest.mark.parametrize('rule', ROBUST)
@given(data=st.data())
def test_fewer_than_half_cannot_carry_it_away(rule, data):
    """Honest averages lie in a ball; the rest says anything, together or not."""
    honest = data.draw(arrays(np.float64, (5, 3), elements=st.floats(-1.0, 1.0, width=32)))
    count = data.draw(st.integers(0, 2 if rule == 'trimmed_mean' else 4))
    bad = data.draw(arrays(np.float64, (count, 3), elements=st.floats(-1e9, 1e9)))
    averages = np.concatenate([honest, bad])
    found = combine(rule, averages, np.ones(len(averages)))
    if rule == 'geometric_median':
        # |m - c| <= r 2 (1 - a) / (1 - 2 a) with all honest ones within r of c (Minsker 2015)
        share = count / len(averages)
        radius = np.linalg.norm(honest, axis=1).max()
        assert np.linalg.norm(found) <= 2.0 * (1 - share) / (1 - 2 * share) * radius * 1.01 + 1e-9
    else:
        assert (found >= honest.min(axis=0) - 1e-12).all()
        assert (found <= honest.max(axis=0) + 1e-12).all()


@pytest.mark.parametrize('rule', ROBUST)
def test_half_of_them_can(rule):
    averages = np.concatenate([np.zeros((4, 2)), np.full((6, 2), 1e9)])
    assert np.abs(combine(rule, averages, np.ones(10))).max() > 1e6


def test_one_bucket_carries_the_mean_away():
    averages = np.concatenate([np.zeros((9, 2)), np.full((1, 2), 1e9)])
    assert combine('mean', averages, np.ones(10)) == pytest.approx(1e8)


@pytest.mark.parametrize(
    'averages, weights',
    [
        (np.zeros((0, 2)), np.zeros(0)),
        (np.zeros((2, 2)), np.ones(3)),
        (np.zeros(2), np.ones(2)),
        (np.array([[np.nan], [0.0]]), np.ones(2)),
        (np.zeros((2, 2)), np.array([1.0, 0.0])),
        (np.zeros((2, 2)), np.array([1.0, np.inf])),
    ],
)
def test_what_cannot_be_combined_is_refused(averages, weights):
    with pytest.raises(SettingError):
        combine('median', averages, weights)


def test_an_unknown_rule_is_refused():
    with pytest.raises(SettingError, match='combine'):
        combine('krum', np.zeros((3, 2)), np.ones(3))
