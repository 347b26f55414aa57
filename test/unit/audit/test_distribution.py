# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Tests of distributions: rarely low where all is as it should be, and low for each fault."""

from fdrl_ros.audit.distribution import (
    clipping_tests,
    FAULTS,
    inclusion_tests,
    joins_of,
    least_p,
    noise_tests,
)
import numpy as np
import pytest
from support.sample_size import sampled

STEPS, UNITS, WEIGHTS, SIGMA = 30, 200, 700, 1.5
COUNT = sampled(2000, 60)


def flawless(rng, probabilities=0.2):
    """Return coins, noise, and projections of canaries, who are half of the units."""
    joins = rng.random((STEPS, UNITS)) < probabilities
    joined = [np.flatnonzero(row) for row in joins]
    noise = rng.standard_normal((STEPS, WEIGHTS))
    members = joins & (np.arange(UNITS) % 2 == 0)
    along = members / SIGMA + rng.standard_normal(members.shape)
    return joined, noise, members, along


def all_tests(joined, noise, members, along, probabilities=0.2, others=()):
    sizes = np.array([len(each) for each in joined])
    return {
        **{f'coins: {k}': p for k, p in inclusion_tests(joined, probabilities, UNITS).items()},
        **{f'noise: {k}': p for k, p in noise_tests(noise, sizes, others).items()},
        **{f'clipping: {k}': p for k, p in clipping_tests(along, members, 1.0 / SIGMA).items()},
    }


@pytest.mark.parametrize('own', [False, True], ids=['one probability', 'one for each unit'])
def test_flawless_histories_seldom_have_a_low_p_value(own):
    """Below 0.05 in all tests together in at most 5 %; many more would come once in 1000."""
    rng, least = np.random.default_rng(8), []
    for _ in range(COUNT):
        probabilities = rng.uniform(0.02, 0.6, (STEPS, UNITS)) if own else 0.2
        other = rng.standard_normal((STEPS, WEIGHTS))
        found = all_tests(*flawless(rng, probabilities), probabilities, [other])
        assert found.keys() == FAULTS.keys()
        least.append(least_p(found))
    low = 0.05 * COUNT
    assert sum(each < 0.05 for each in least) <= low + 3.1 * low**0.5
    assert min(least) > 1e-3 / COUNT


def test_coins_that_are_sure_are_held_to_it():
    everyone = [np.arange(5)] * 3
    assert inclusion_tests(everyone, 1.0, 5) == {'once': 1.0, 'certain': 1.0}
    assert inclusion_tests([*everyone, np.arange(4)], 1.0, 5)['certain'] == 0.0
    assert inclusion_tests([np.array([0, 0, 1])], 0.5, 5)['once'] == 0.0
    mixed = np.tile([1.0, 0.0, 0.5], (2, 1))
    assert inclusion_tests([np.array([0]), np.array([0, 2])], mixed, 3)['certain'] == 1.0
    assert inclusion_tests([np.array([0]), np.array([0, 1])], mixed, 3)['certain'] == 0.0


def without(noise, fault):
    """Return noise that has a fault."""
    made = noise.copy()
    if fault == 'one step':
        made[7] *= 0.7
    elif fault == 'fresh':
        made[20] = -made[3]
    elif fault == 'common':
        made += 0.2 * noise[0]
    elif fault == 'lags':
        made[:, 350:] = made[:, :350]
    elif fault == 'weights':
        made[:, :60] *= 0.3
    elif fault == 'tails':
        made = np.clip(made, -2.5, 2.5)
    elif fault == 'shape':
        made = np.random.default_rng(3).uniform(-(3**0.5), 3**0.5, noise.shape)
    elif fault == 'size':
        made *= 1.05
    return made


@pytest.mark.parametrize(
    'fault', ['one step', 'fresh', 'common', 'lags', 'weights', 'tails', 'shape', 'size']
)
def test_each_fault_of_noise_has_a_low_p_value(fault):
    joined, noise, *_ = flawless(np.random.default_rng(9))
    sizes = np.array([len(each) for each in joined])
    assert noise_tests(without(noise, fault), sizes)[fault] < 1e-7


def test_noise_of_another_hospital_is_found_in_any_step():
    rng = np.random.default_rng(10)
    noise, other = rng.standard_normal((2, STEPS, WEIGHTS))
    sizes = np.arange(STEPS)
    assert noise_tests(noise, sizes, [other])['hospitals'] > 0.01
    other[4] = noise[17]
    assert noise_tests(noise, sizes, [other, other])['hospitals'] < 1e-9


@pytest.mark.parametrize('fault', ['shift', 'one step', 'canaries', 'absent'])
def test_each_fault_of_clipping_has_a_low_p_value(fault):
    *_, members, along = flawless(np.random.default_rng(11))
    excess = {
        'shift': 0.3 * members,
        'one step': 2.0 * members * (np.arange(STEPS) == 5)[:, None],
        'canaries': 1.5 * members * (np.arange(UNITS) < 40),
        'absent': 1.0 * ~members * (np.arange(UNITS) < 40),
    }[fault]
    assert clipping_tests(along + excess, members, 1.0 / SIGMA)[fault] < 1e-7


def test_joins_are_a_table_of_steps_and_units():
    found = joins_of([np.array([1, 3]), np.array([], np.int64)], 4)
    np.testing.assert_array_equal(found, [[0, 1, 0, 1], [0, 0, 0, 0]])
