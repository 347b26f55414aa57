# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Policy divergence: closed forms, the sign, and numbers that overflow a plain softmax."""

import math

from fdrl_ros.errors import PolicyError
from fdrl_ros.metrics import central_divergence, federated_divergence, kl_divergence
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
import numpy as np
import pytest

tables = arrays(np.float64, (4, 3), elements=st.floats(-5, 5))


def test_two_coins_have_the_known_divergence():
    p, q = 0.8, 0.5
    table = np.log([[p, 1 - p]])
    expected = p * math.log(p / q) + (1 - p) * math.log((1 - p) / (1 - q))
    assert kl_divergence(table, np.log([[q, 1 - q]]), 1.0) == pytest.approx(expected)


def test_it_is_the_mean_over_states():
    table = np.log([[0.8, 0.2], [0.5, 0.5]])
    flat = np.zeros((2, 2))
    half = kl_divergence(table[:1], flat[:1], 1.0) / 2
    assert kl_divergence(table, flat, 1.0) == pytest.approx(half)


@given(tables, tables, st.floats(0.05, 10))
def test_never_negative_and_zero_on_itself(one, other, temperature):
    assert kl_divergence(one, other, temperature) >= 0.0
    assert kl_divergence(one, one, temperature) == pytest.approx(0.0, abs=1e-12)


@given(tables, tables, st.floats(-100, 100))
def test_a_constant_added_to_the_values_changes_nothing(one, other, shift):
    plain = kl_divergence(one, other, 0.5)
    assert kl_divergence(one + shift, other, 0.5) == pytest.approx(plain, abs=1e-9)


def test_huge_values_stay_finite():
    assert kl_divergence([[1000.0, 0.0]], [[0.0, 1000.0]], 0.5) == pytest.approx(2000.0)


def test_federated_is_the_mean_over_hospitals_and_central_points_from_federated():
    rng = np.random.default_rng(0)
    one, other, federated = rng.normal(size=(3, 6, 4))
    mean = (kl_divergence(one, federated, 1.0) + kl_divergence(other, federated, 1.0)) / 2
    assert federated_divergence([one, other], federated, 1.0) == pytest.approx(mean)
    assert central_divergence(federated, one, 1.0) == kl_divergence(federated, one, 1.0)


@pytest.mark.parametrize(
    ('one', 'other', 'temperature'),
    [
        (np.zeros((2, 3)), np.zeros((2, 4)), 1.0),
        (np.zeros((0, 3)), np.zeros((0, 3)), 1.0),
        (np.zeros((2, 3)), np.full((2, 3), np.nan), 1.0),
        (np.zeros((2, 3)), np.zeros((2, 3)), 0.0),
    ],
)
def test_what_is_no_pair_of_policies_is_refused(one, other, temperature):
    with pytest.raises(PolicyError):
        kl_divergence(one, other, temperature)


def test_no_hospital_is_refused():
    with pytest.raises(PolicyError):
        federated_divergence([], np.zeros((2, 3)), 1.0)
