# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""D_KL and OPE of the FDRL paper (Eq. 18 to 20, 24), against closed forms."""

import math

from fdrl_ros.errors import SettingError
from fdrl_ros.metrics.divergence import (
    federated_divergence,
    log_policy,
    overall_effectiveness,
    policy_divergence,
)
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
import numpy as np
import pytest

VALUES = arrays(np.float64, (4, 3), elements=st.floats(-50.0, 50.0))


@pytest.mark.parametrize('temperature', [0.01, 0.1, 1.0, 10.0])
def test_two_actions_have_the_divergence_of_two_coins(temperature: float) -> None:
    gap, other = 0.03, -0.02
    one = np.array([[gap, 0.0]])
    p, q = (1.0 / (1.0 + math.exp(-each / temperature)) for each in (gap, other))
    exact = p * math.log(p / q) + (1.0 - p) * math.log((1.0 - p) / (1.0 - q))
    assert policy_divergence(one, np.array([[other, 0.0]]), temperature) == pytest.approx(exact)


@given(VALUES, VALUES, st.floats(0.05, 20.0))
def test_it_is_at_least_0_and_0_for_equal_policies(one, other, temperature: float) -> None:
    assert policy_divergence(one, other, temperature) >= 0.0
    assert policy_divergence(one, one + 3.0, temperature) == pytest.approx(0.0, abs=1e-9)
    assert np.exp(log_policy(one, temperature)).sum(axis=1) == pytest.approx(np.ones(4))


def test_small_differences_give_half_a_variance() -> None:
    # KL(softmax(a) || softmax(a + d)) = Var_a(d) / 2 + O(d^3)
    rng = np.random.default_rng(1)
    values, change = rng.normal(size=(5, 3)), 1e-4 * rng.normal(size=(5, 3))
    chances = np.exp(log_policy(values, 1.0))
    mean = (chances * change).sum(axis=1, keepdims=True)
    half = 0.5 * (chances * (change - mean) ** 2).sum(axis=1).mean()
    assert policy_divergence(values, values + change, 1.0) == pytest.approx(half, rel=1e-3)


def test_the_federated_one_is_the_mean_over_hospitals() -> None:
    one, other = np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]])
    assert federated_divergence([one, other], one, 1.0) == pytest.approx(
        policy_divergence(other, one, 1.0) / 2.0
    )


def test_effectiveness_is_the_weighted_sum_of_the_paper() -> None:
    assert overall_effectiveness(0.0, 0.0, math.inf) == pytest.approx(0.3)
    assert overall_effectiveness(1.0, 0.0, 0.0) == pytest.approx(0.3)
    found = overall_effectiveness(0.2, 0.5, 1.0)
    assert found == pytest.approx(0.3 * 0.8 + 0.4 * 0.5 + 0.3 * math.exp(-1.0))


def test_numbers_out_of_range_are_refused() -> None:
    one = np.zeros((2, 3))
    for temperature in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(SettingError, match='temperature'):
            policy_divergence(one, one, temperature)
    with pytest.raises(SettingError, match='values'):
        policy_divergence(one, one[:1], 1.0)
    with pytest.raises(SettingError, match='values'):
        log_policy(np.array([[math.inf, 0.0]]), 1.0)
    with pytest.raises(SettingError, match='hospitals'):
        federated_divergence([], one, 1.0)
    for name, arguments in (
        ('leakage_rate', (-0.1, 0.0, 1.0)),
        ('divergence', (0.0, -0.1, 1.0)),
        ('epsilon', (0.0, 0.0, math.nan)),
        ('weights', (0.0, 0.0, 1.0, (0.5, 0.5, 0.5))),
    ):
        with pytest.raises(SettingError, match=name):
            overall_effectiveness(*arguments)
