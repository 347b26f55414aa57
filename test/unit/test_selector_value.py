# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The value model: what it learns, how sure it is, how it travels, what it refuses."""

import dataclasses
import time

from fdrl_ros.errors import PolicyError, RecordsError
from fdrl_ros.selector import (
    calibration,
    fit_value,
    mean_coverage,
    returns_to_go,
    ValueBank,
    ValueModel,
    ValueSettings,
)
from hypothesis import given
from hypothesis import strategies as st
import numpy as np
import pytest

SIZE = 6
SMALL = ValueSettings(features=48, members=12)


def truth(states):
    return 0.5 * np.sin(states[:, 0]) + 0.3 * states[:, 1] - 0.2 * states[:, 2] ** 2


def episodes(seed, cases=150, steps=12, noise=0.4):
    """Return states of cases that drift, with a return whose noise a whole case shares."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(cases, 1, SIZE))
    states = (0.8 * centres + 0.4 * rng.normal(size=(cases, steps, SIZE))).reshape(-1, SIZE)
    shared = np.repeat(noise * rng.normal(size=cases), steps)
    return states, truth(states) + shared, np.repeat(np.arange(cases), steps)


@pytest.fixture(scope='module')
def model():
    return fit_value(*episodes(1), np.random.default_rng(2), policy='ab' * 32, settings=SMALL)


def test_returns_follow_their_recursion():
    np.testing.assert_allclose(returns_to_go(np.array([1.0, 2.0, 4.0]), 0.5), [3.0, 4.0, 4.0])


@given(st.lists(st.floats(-3, 3), min_size=1, max_size=20), st.floats(0, 1))
def test_returns_equal_the_sum_of_discounted_rewards(rewards, discount):
    slow = [
        sum(discount ** (k - t) * rewards[k] for k in range(t, len(rewards)))
        for t in range(len(rewards))
    ]
    np.testing.assert_allclose(returns_to_go(np.array(rewards), discount), slow, atol=1e-9)


def test_it_predicts_unseen_cases_better_than_their_mean(model):
    states, returns, cases = episodes(3)
    result = calibration(model, states, returns, cases)
    assert result.error < 0.8 * result.baseline_error
    mean, _ = model.mean_and_std(states)
    assert np.corrcoef(mean, truth(states))[0, 1] > 0.85


def test_intervals_for_a_return_hold_it_as_often_as_said():
    found = []
    for seed in range(5):
        fitted = fit_value(*episodes(seed), np.random.default_rng(seed), settings=SMALL)
        found.append(calibration(fitted, *episodes(seed + 100), confidence=0.9).coverage)
    assert abs(np.mean(found) - 0.9) < 0.04


def test_intervals_for_the_expectation_hold_it_and_shrink_with_more_cases():
    coverages, widths = [], []
    for cases in (50, 400):
        for seed in range(4):
            fitted = fit_value(*episodes(seed, cases), np.random.default_rng(seed), settings=SMALL)
            states, _, _ = episodes(seed + 50)
            widths.append((cases, fitted.mean_and_std(states)[1].mean()))
            coverages.append(mean_coverage(fitted, states, truth(states), 0.0, confidence=0.9))
    few = np.mean([width for cases, width in widths if cases == 50])
    many = np.mean([width for cases, width in widths if cases == 400])
    assert many < 0.85 * few
    assert np.mean(coverages) > 0.8


def test_noise_and_estimate_are_told_apart(model):
    assert model.noise == pytest.approx(0.4, abs=0.08)
    assert model.mean_and_std(episodes(4)[0])[1].mean() < 0.3


def test_far_from_what_was_met_it_is_not_sure(model):
    near, far = model.mean_and_std(np.array([np.zeros(SIZE), np.full(SIZE, 30.0)]))[1]
    assert far > 10 * near


def test_steps_of_one_case_are_not_counted_as_independent():
    states, returns, cases = episodes(5, cases=40)
    honest = fit_value(states, returns, cases, np.random.default_rng(0), settings=SMALL)
    fooled = fit_value(
        states, returns, np.arange(len(cases)), np.random.default_rng(0), settings=SMALL
    )
    spread = [(m.features(states)[0] @ m.weights.T).std(axis=1).mean() for m in (honest, fooled)]
    assert spread[0] > 1.3 * spread[1]


def test_the_same_seed_gives_the_same_model():
    data = episodes(6, cases=20)
    one, two = (fit_value(*data, np.random.default_rng(3), settings=SMALL) for _ in range(2))
    assert one.to_bytes() == two.to_bytes()


def test_the_bank_equals_the_models_one_by_one(model):
    other = fit_value(*episodes(7), np.random.default_rng(8), settings=SMALL)
    larger = fit_value(
        *episodes(7), np.random.default_rng(8), settings=ValueSettings(features=8, members=4)
    )
    models = [model, None, other, larger]
    bank = ValueBank(models)
    for state in np.random.default_rng(0).normal(size=(20, SIZE)) * 3:
        means, stds = bank.mean_and_std(state)
        for mean, std, each in zip(means, stds, models, strict=True):
            if each is None:
                assert np.isnan(mean) and np.isnan(std)
            else:
                expected = each.mean_and_std(state)
                np.testing.assert_allclose([mean, std], expected, rtol=1e-9, atol=1e-12)


def test_eight_candidates_are_valued_within_100_microseconds(model):
    bank = ValueBank([model] * 8)
    state = np.zeros(SIZE)
    times = []
    for _ in range(300):
        begin = time.perf_counter()
        bank.mean_and_std(state)
        times.append(time.perf_counter() - begin)
    assert np.median(times) < 100e-6


def test_a_model_travels_as_bytes(model):
    back = ValueModel.from_bytes(model.to_bytes(), policy='ab' * 32)
    states = episodes(9)[0]
    np.testing.assert_array_equal(back.mean_and_std(states), model.mean_and_std(states))
    np.testing.assert_array_equal(back.interval(states, 0.9), model.interval(states, 0.9))


def test_a_model_of_another_policy_is_refused(model):
    with pytest.raises(PolicyError, match='expected cd'):
        ValueModel.from_bytes(model.to_bytes(), policy='cd' * 32)


@pytest.mark.parametrize('cut', [0, 10, 200, -100])
def test_damaged_bytes_are_refused(model, cut):
    with pytest.raises(PolicyError):
        ValueModel.from_bytes(model.to_bytes()[:cut])


@pytest.mark.parametrize(
    'change',
    [
        {'weights': np.zeros((12, 5))},
        {'spread': np.zeros(SIZE)},
        {'center': np.full(SIZE, np.nan)},
        {'noise': -1.0},
        {'misfit': float('nan')},
        {'quantiles': np.zeros(3)},
    ],
)
def test_parts_that_do_not_fit_are_refused(model, change):
    with pytest.raises(PolicyError):
        dataclasses.replace(model, **change)


def test_models_of_different_states_make_no_bank(model):
    rng = np.random.default_rng(0)
    narrow = fit_value(
        rng.normal(size=(60, 2)), rng.normal(size=60), np.arange(60) // 4, rng, settings=SMALL
    )
    with pytest.raises(PolicyError):
        ValueBank([model, narrow])


@pytest.mark.parametrize(
    'change',
    [
        lambda s, r, c: (s[:-1], r, c),
        lambda s, r, c: (s, r[:-1], c),
        lambda s, r, c: (s, r, c[:-1]),
        lambda s, r, c: (s * np.nan, r, c),
        lambda s, r, c: (s, r * np.inf, c),
        lambda s, r, c: (s, r, c * 0),
    ],
)
def test_records_that_make_no_estimate_are_refused(change):
    with pytest.raises(RecordsError):
        fit_value(*change(*episodes(1, cases=10)), np.random.default_rng(0), settings=SMALL)
