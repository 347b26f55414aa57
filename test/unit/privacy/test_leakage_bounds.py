# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Bounds on attacks: between the exact value of a mechanism and what (epsilon, delta) gives."""

import math

from fdrl_ros.errors import PrivacyError
from fdrl_ros.privacy.accountant import leakage_bounds as module
from fdrl_ros.privacy.accountant.accountant import Charge, epsilon_pld
from fdrl_ros.privacy.accountant.leakage_bounds import (
    bounds_of_guarantee,
    gaussian_bounds,
    leakage_bounds,
    NO_BOUNDS,
)
from hypothesis import given, settings
from hypothesis import strategies as st
import numpy as np
import pytest

HISTORIES = [
    [Charge(2.6, 0.1, 288)],
    [Charge(4.37, 0.25, 1000)],
    [Charge(0.8, 0.02, 500)],
    [Charge(1.0, 0.5, 3), Charge(6.0, 1.0, 2)],
    [Charge(30.0, 1.0, 100)],
    [Charge(2.0, 0.05, 20, 4)],
]


@pytest.mark.parametrize('history', HISTORIES)
@pytest.mark.parametrize('fpr', [0.001, 0.01, 0.3])
def test_the_pair_bounds_below_every_epsilon_and_delta(history, fpr: float) -> None:
    found = leakage_bounds(history, fpr)
    assert 0.5 <= found.auc <= 1.0 and fpr <= found.tpr <= 1.0 and 0.0 <= found.information <= 1.0
    for delta in (1e-6, 1e-4, 1e-2, 0.1):
        weaker = bounds_of_guarantee(epsilon_pld(history, delta), delta, fpr)
        for one, other in zip(found, weaker, strict=True):
            assert one <= other + 1e-7


@pytest.mark.parametrize('mu', [0.05, 1.0, 3.0, 7.0])
def test_composition_on_the_grid_is_just_above_the_exact_gaussian(mu: float) -> None:
    steps = 50
    exact = gaussian_bounds(mu)
    found = module._pair_bounds({(math.sqrt(steps) / mu, 1.0, 1): steps}, 0.0, 0.0, 0.01)
    for one, other in zip(found, exact, strict=True):
        assert other - 1e-12 <= one <= other + 2e-3 * (other + 0.01)


def test_gaussian_bounds_are_those_of_an_integral() -> None:
    # I of a bit and N(bit * 2, 1), by a plain sum over the output.
    at = np.linspace(-12.0, 14.0, 200001)
    one, other = (np.exp(-0.5 * (at - m) ** 2) / math.sqrt(2.0 * math.pi) for m in (2.0, 0.0))
    mean = (one + other) / 2.0
    told = np.trapezoid((one * np.log2(one / mean) + other * np.log2(other / mean)) / 2.0, at)
    assert gaussian_bounds(2.0).information == pytest.approx(told, abs=1e-9)
    assert gaussian_bounds(0.0, 0.02) == pytest.approx((0.5, 0.02, 0.0))


def test_one_sampled_step_is_the_mixture_that_it_is() -> None:
    sigma, q = 0.7, 0.3
    at = np.linspace(-9.0, 10.0, 400001)
    other = np.exp(-0.5 * (at / sigma) ** 2) / (sigma * math.sqrt(2.0 * math.pi))
    shifted = np.exp(-0.5 * ((at - 1.0) / sigma) ** 2) / (sigma * math.sqrt(2.0 * math.pi))
    one = (1.0 - q) * other + q * shifted
    mean, width = (one + other) / 2.0, at[1] - at[0]
    told = np.trapezoid((one * np.log2(one / mean) + other * np.log2(other / mean)) / 2.0, at)
    tpr, fpr = (np.cumsum(each[::-1]) * width for each in (one, other))  # by falling output
    exact = np.trapezoid(tpr, fpr), np.interp(0.01, fpr, tpr), told
    found = leakage_bounds([(sigma, q, 1)])
    for value, bound in zip(exact, found, strict=True):
        assert value - 1e-5 <= bound <= 1.02 * value + 1e-4


@settings(max_examples=25, deadline=None)
@given(st.floats(0.5, 20.0), st.floats(0.01, 1.0), st.integers(1, 400))
def test_more_steps_only_tell_more(sigma: float, q: float, steps: int) -> None:
    fewer, more = (leakage_bounds([Charge(sigma, q, count)]) for count in (steps, 2 * steps))
    for one, other in zip(fewer, more, strict=True):
        assert one <= other + 2e-3 * other


def test_without_noise_or_steps() -> None:
    assert leakage_bounds([(0.0, 0.1, 1)]) == NO_BOUNDS == bounds_of_guarantee(math.inf, 0.0)
    assert leakage_bounds([]) == pytest.approx((0.5, 0.01, 0.0))
    assert bounds_of_guarantee(0.0, 0.0) == pytest.approx((0.5, 0.01, 0.0))
    with pytest.raises(PrivacyError, match='fpr'):
        leakage_bounds([], 0.0)


def test_the_guarantee_alone_gives_the_numbers_of_the_specification() -> None:
    # PLR <= 1 - h2(1 / (1 + e^8)) = 0.996, and 0.16 at epsilon 1.
    assert bounds_of_guarantee(8.0, 0.0).information == pytest.approx(0.9956, abs=1e-4)
    assert bounds_of_guarantee(1.0, 0.0).information == pytest.approx(0.1601, abs=1e-4)
    # Randomised response reaches the ROC of epsilon: its corner is at 1 / (1 + e^epsilon).
    corner = 1.0 / (1.0 + math.e)
    assert bounds_of_guarantee(1.0, 0.0, corner).tpr == pytest.approx(1.0 - corner)
    assert bounds_of_guarantee(1.0, 0.0).auc == pytest.approx(1.0 - corner)
