# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Quantisation: bounded, unbiased, exact where it can be, and strict about its input."""

import math

from fdrl_ros.crypto.he.quantisation import Quantisation
from fdrl_ros.crypto.he.schemes import EncryptionSettings
from fdrl_ros.errors import CryptoError, SettingError
from hypothesis import given, settings, strategies
import numpy as np
import pytest

QUANTISATION = Quantisation(limit=0.5, bits=16, members=3)


@settings(deadline=None)
@given(
    strategies.lists(strategies.floats(-0.5, 0.5), min_size=1, max_size=50),
    strategies.sampled_from([1, 8, 16, 32]),
    strategies.integers(0, 2**32),
)
def test_one_value_is_off_by_at_most_a_step(values, bits, seed):
    quantisation = Quantisation(0.5, bits, 1)
    uniforms = np.random.default_rng(seed).random(len(values))
    integers = quantisation.quantise(values, uniforms)
    assert integers.dtype == np.int64
    assert integers.min() >= 0 and integers.max() <= 2**bits - 1
    error = np.abs(quantisation.dequantise_sum(integers, 1) - values)
    assert error.max() <= quantisation.step * (1 + 1e-9) + 1e-15


def test_limits_and_what_lies_beyond_become_the_extremes():
    for uniform in (0.0, 0.5, math.nextafter(1.0, 0.0)):
        values = np.array([-0.5, 0.5, -7.0, 1e300])
        integers = QUANTISATION.quantise(values, np.full(4, uniform))
        assert integers.tolist() == [0, 65535, 0, 65535]


def test_rounding_goes_up_exactly_when_the_uniform_is_below_the_remainder():
    value = 3.25 * QUANTISATION.step - 0.5
    integers = QUANTISATION.quantise([value] * 4, [0.0, 0.2499, 0.2501, 0.999])
    assert integers.tolist() == [4, 4, 3, 3]


def test_rounding_has_no_bias():
    # The mean of 200,000 roundings lies within 5 standard errors but for one run in a million.
    rng = np.random.default_rng(7)
    value, count = 0.123456789, 200_000
    integers = QUANTISATION.quantise(np.full(count, value), rng.random(count))
    mean = QUANTISATION.dequantise_sum(integers, 1).mean()
    assert abs(mean - value) < 5 * 0.5 * QUANTISATION.step / math.sqrt(count)


@settings(deadline=None)
@given(strategies.integers(0, 2**32), strategies.integers(1, 3))
def test_sum_of_integers_is_the_sum_of_values_within_count_steps(seed, count):
    rng = np.random.default_rng(seed)
    values = rng.normal(0, 0.2, (count, 20)).clip(-0.5, 0.5)
    sums = sum(QUANTISATION.quantise(row, rng.random(20)) for row in values)
    restored = QUANTISATION.dequantise_sum(sums, count)
    assert np.abs(restored - values.sum(axis=0)).max() <= count * QUANTISATION.step * (1 + 1e-9)


@pytest.mark.parametrize('bad', [math.nan, math.inf, -math.inf])
def test_value_that_is_not_finite_is_refused(bad):
    with pytest.raises(CryptoError, match='not finite') as refused:
        QUANTISATION.quantise([0.0, bad, 0.1], [0.5, 0.5, 0.5])
    assert not any(each.isdigit() for each in str(refused.value)), 'logs may tell it to anyone'


@pytest.mark.parametrize('uniforms', [[0.5], [0.5, 1.0], [0.5, -0.1], [0.5, math.nan]])
def test_uniforms_that_do_not_fit_are_refused(uniforms):
    with pytest.raises(CryptoError):
        QUANTISATION.quantise([0.0, 0.1], uniforms)


@pytest.mark.parametrize(
    'sums, count, words',
    [
        ([-4711], 2, 'masks did not cancel'),
        ([2 * 65535 + 1], 2, 'masks did not cancel'),
        ([2**60], 2, 'masks did not cancel'),
        ([0], 0, None),
        ([0], 4, None),
    ],
)
def test_sums_that_so_many_members_cannot_have_made_are_refused_and_not_told(sums, count, words):
    with pytest.raises(CryptoError, match=words) as refused:
        QUANTISATION.dequantise_sum(np.array(sums), count)
    assert not sums[0] or str(abs(sums[0])) not in str(refused.value)


@pytest.mark.parametrize(
    ('limit', 'bits', 'members'),
    [(0.0, 16, 3), (-1.0, 16, 3), (math.inf, 16, 3), (1.0, 0, 3), (1.0, 33, 3), (1.0, 16, 0)],
)
def test_quantisation_that_cannot_be_exact_is_refused(limit, bits, members):
    with pytest.raises(CryptoError):
        Quantisation(limit, bits, members)


def test_settings_refuse_fewer_than_2_bits():
    assert EncryptionSettings().bits >= 16
    with pytest.raises(SettingError):
        EncryptionSettings(bits=1)
