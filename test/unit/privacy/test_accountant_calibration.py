# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Give epsilon, get sigma: the target is kept, little is wasted, and nonsense is refused."""

import math

from fdrl_ros.errors import PrivacyError
from fdrl_ros.privacy.accountant.accountant import Charge, epsilon_pld
from fdrl_ros.privacy.accountant.calibration import noise_multiplier_for
from hypothesis import given, settings, strategies
import pytest

DELTA = 1e-5
GROWING = [(64.0 / (1000 + 100 * i), 20) for i in range(10)]


@pytest.mark.parametrize(
    'epsilon, q, steps',
    [(8.0, 0.128, 300), (0.5, 0.01, 1), (1.0, 1.0, 50), (40.0, 0.64, 20), (300.0, 1.0, 1)],
)
def test_calibrated_noise_keeps_the_target_and_wastes_little(epsilon, q, steps):
    sigma = noise_multiplier_for(epsilon=epsilon, delta=DELTA, phases=[(q, steps)])
    assert 0.999 * epsilon <= epsilon_pld([Charge(sigma, q, steps)], DELTA) <= epsilon
    assert epsilon_pld([Charge(sigma * 0.995, q, steps)], DELTA) > epsilon


@settings(max_examples=3, deadline=None)
@given(
    strategies.floats(0.2, 30.0),
    strategies.sampled_from([0.01, 0.128, 0.64, 1.0]),
    strategies.integers(1, 2000),
    strategies.sampled_from([1, 3, 40]),
)
def test_a_smaller_epsilon_and_a_larger_group_need_more_noise(epsilon, q, steps, group):
    plan = {'delta': DELTA, 'phases': [(q, steps)]}
    sigma = noise_multiplier_for(epsilon=epsilon, group=group, **plan)
    assert epsilon_pld([Charge(sigma, q, steps, group)], DELTA) <= epsilon
    assert noise_multiplier_for(epsilon=0.95 * epsilon, group=group, **plan) > sigma
    assert noise_multiplier_for(epsilon=epsilon, group=group + 2, **plan) > sigma


def test_noise_is_calibrated_to_data_that_grow():
    sigma = noise_multiplier_for(epsilon=2.0, delta=DELTA, phases=GROWING)
    spent = epsilon_pld([Charge(sigma, q, steps) for q, steps in GROWING], DELTA)
    assert 0.999 * 2.0 <= spent <= 2.0
    steps = sum(count for _, count in GROWING)
    for (q, _), needs_more in ((GROWING[0], True), (GROWING[-1], False)):
        alone = noise_multiplier_for(epsilon=2.0, delta=DELTA, phases=[(q, steps)])
        assert (alone > sigma) == needs_more


def test_an_infinite_target_or_no_steps_need_no_noise():
    assert noise_multiplier_for(epsilon=math.inf, delta=DELTA, phases=[(0.1, 10)]) == 0.0
    assert noise_multiplier_for(epsilon=1.0, delta=DELTA, phases=[(0.1, 0)]) == 0.0


@pytest.mark.parametrize(
    'plan',
    [
        {'phases': []},
        {'phases': [(0.1, 5), (1.5, 5)]},
        {'group': 0},
        {'delta': 0.0},
        {'epsilon': 0.0},
        {'epsilon': math.nan},
        {'epsilon': '8'},
    ],
)
def test_a_plan_that_is_missing_or_cannot_be_is_refused(plan):
    with pytest.raises(PrivacyError):
        noise_multiplier_for(**({'epsilon': 1.0, 'delta': DELTA, 'phases': [(0.1, 5)]} | plan))


def test_a_target_out_of_reach_is_refused():
    with pytest.raises(PrivacyError, match='1e\\+06'):
        noise_multiplier_for(epsilon=1e-9, delta=1e-10, phases=[(1.0, 10**9)])
