# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The value model: what it learns, how sure it is, how it travels, what it refuses."""

import dataclasses

from fdrl_ros.errors import PolicyError, RecordsError, StateError
from fdrl_ros.runtime import kernels
from fdrl_ros.selector import (
    Experience,
    fit_value,
    measured_conformal_error,
    returns_to_go,
    StateValue,
    ValueBank,
    ValueModel,
    ValueSettings,
)
from fdrl_ros.selector.value.fitting import thinned
from fdrl_ros.selector.value.model import basis_of
from hypothesis import given
from hypothesis import strategies as st
import numpy as np
import pytest

SIZE = 6
SMALL = ValueSettings(features=48, groups=12, stride=1)


def truth(states):
    return 0.5 * np.sin(states[:, 0]) + 0.3 * states[:, 1] - 0.2 * states[:, 2] ** 2


def danger(states):
    return 0.3 + 0.1 * np.cos(states[:, 3])


def episodes(seed, cases=150, steps=12, noise=0.4):
    """Return states of cases that drift, with a return whose noise a whole case shares."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(cases, 1, SIZE))
    states = (0.8 * centres + 0.4 * rng.normal(size=(cases, steps, SIZE))).reshape(-1, SIZE)
    shared = np.repeat(noise * rng.normal(size=cases), steps)
    return states, truth(states) + shared, np.repeat(np.arange(cases), steps)


def rewards_of(returns, cases, discount=SMALL.discount):
    """Return the rewards that make these returns."""
    going = np.r_[cases[1:] == cases[:-1], False]
    return returns - discount * going * np.r_[returns[1:], 0.0]


def experience(seed, cases=150, **kind):
    states, returns, names = episodes(seed, cases, **kind)
    risks = rewards_of(danger(states), names)
    return Experience(states, rewards_of(returns, names), risks, names)


def fitted(seed, cases=150, settings=SMALL, **kind):
    return fit_value(experience(seed, cases, **kind), settings)


@pytest.fixture(scope='module')
def value():
    return fitted(1)


@pytest.fixture(scope='module')
def model(value):
    return ValueModel('ab' * 32, {'palpation': value, 'reach': fitted(11)})


@given(st.lists(st.floats(-3, 3), min_size=1, max_size=20), st.floats(0, 1))
def test_returns_equal_the_sum_of_discounted_rewards(rewards, discount):
    slow = [
        sum(discount ** (k - t) * rewards[k] for k in range(t, len(rewards)))
        for t in range(len(rewards))
    ]
    np.testing.assert_allclose(returns_to_go(np.array(rewards), discount), slow, atol=1e-9)


def test_it_predicts_unseen_cases_better_than_their_mean(value):
    states, returns, _ = episodes(3)
    mean, _ = value.mean_and_std(states)
    assert np.sqrt(np.mean((returns - mean) ** 2)) < 0.8 * returns.std()
    assert np.corrcoef(mean, truth(states))[0, 1] > 0.85
    assert np.corrcoef(value.basis(states) @ value.weights[1], danger(states))[0, 1] > 0.85


def slow_fit(known, settings, penalty, left_out=None):
    """
    Solve the equations of LSTD(lambda) state by state, as Boyan wrote them.

    :param left_out: group of cases that counts in the penalty alone.
    """
    basis = basis_of(SIZE, settings.features)
    matrix, target = np.zeros((basis.width, basis.width)), np.zeros(basis.width)
    square = 0.0
    for case in np.unique(known.cases):
        rows = np.flatnonzero(known.cases == case)
        trace = np.zeros(basis.width)
        for row in rows:
            features = basis(known.states[row : row + 1])[0]
            trace = settings.discount * settings.trace * trace + features
            following = np.zeros(basis.width)
            if row != rows[-1]:
                following = basis(known.states[row + 1 : row + 2])[0]
            if case % settings.groups != left_out:
                matrix += np.outer(trace, features - settings.discount * following)
                target += trace * known.rewards[row]
            square += float(features[1:] @ features[1:])
    ridge = penalty * square / (basis.width - 1) * np.eye(basis.width)
    ridge[0, 0] = 0.0
    return np.linalg.solve(matrix + ridge, target)


@pytest.mark.parametrize('trace', [0.0, 0.9, 1.0])
def test_it_solves_the_published_equations(trace):
    settings = ValueSettings(features=5, groups=4, trace=trace, stride=1)
    known = experience(2, cases=20)
    found = fit_value(known, settings)

    def off(penalty):
        return np.abs(found.weights[0] - slow_fit(known, settings, penalty)).max()

    penalty = min((1e-5, 1e-4, 1e-3, 1e-2), key=off)
    assert off(penalty) < 1e-9
    # The jackknife: the sum of squares of what leaving out each of K groups changes, by (K-1)/K.
    members = np.array([slow_fit(known, settings, penalty, group) for group in range(4)])
    expected = np.sqrt(3 / 4) * (members - members.mean(axis=0))
    np.testing.assert_allclose(found.deviations[0], expected, atol=1e-8)


@pytest.mark.parametrize('stride', [2, 5, 40])
def test_thinned_cases_keep_their_first_states_and_all_returns(stride):
    known = experience(2, cases=20)
    thin = thinned(known, stride, 0.9)
    place = 0
    for case in range(20):
        rows = np.flatnonzero(known.cases == case)
        own = np.flatnonzero(thin.cases == case)
        np.testing.assert_array_equal(thin.states[own], known.states[rows[::stride]])
        for name in ('rewards', 'risks'):
            every = returns_to_go(getattr(known, name)[rows], 0.9)
            some = returns_to_go(getattr(thin, name)[own], 0.9**stride)
            np.testing.assert_allclose(some, every[::stride])
        place += len(own)
    assert place == len(thin.states)


def test_a_measured_conformal_error_makes_intervals_hold_as_often_as_they_say():
    rng = np.random.default_rng(3)
    held = []
    for _ in range(400):
        off = rng.normal(size=65) * np.where(rng.random(65) < 0.2, 3.0, 0.5)
        noise = 0.3 * rng.normal(size=65)
        stds = np.full(64, 0.2)
        conformal_error = measured_conformal_error((off + noise)[:64], np.full(64, 0.3), stds)
        held.append(abs(off[64]) <= 1.645 * np.hypot(0.2, conformal_error))
    assert np.mean(held) == pytest.approx(0.9, abs=0.045)


def test_what_errs_less_than_it_says_has_no_conformal_error_and_its_other_errors_are_taken_off():
    assert measured_conformal_error(np.full(30, 0.1), np.zeros(30), np.ones(30)) == 0.0
    single = measured_conformal_error(np.array([1.645 * 3**0.5]), np.ones(1), np.ones(1))
    assert single == pytest.approx(1.0, 1e-3)


def test_a_conformal_error_is_taken_from_the_noise(value):
    states = episodes(4)[0]
    wider = value.with_conformal_error(0.3)
    assert np.hypot(wider.noise, wider.conformal_error) == pytest.approx(value.noise)
    grown = wider.mean_and_std(states)[1] ** 2 - value.mean_and_std(states)[1] ** 2
    np.testing.assert_allclose(grown, 0.09)
    assert value.with_conformal_error(50.0).noise == 0.0


def test_returns_lie_as_far_from_the_estimate_as_its_noise_says():
    scores = []
    for seed in range(5):
        states, returns, _ = episodes(seed + 100)
        found = fitted(seed)
        mean, std = found.mean_and_std(states)
        scores.append((returns - mean) ** 2 / (std**2 + found.noise**2))
    assert np.mean(scores) == pytest.approx(1.0, abs=0.1)


def test_far_from_what_was_met_it_is_not_sure(value):
    near, far = value.mean_and_std(np.array([np.zeros(SIZE), np.full(SIZE, 30.0)]))[1]
    assert far > 10 * near


@pytest.mark.parametrize('compiled', [True, False], ids=['compiled', 'numpy'])
@given(seed=st.integers(0, 2**32 - 1))
def test_the_bank_equals_the_models_one_by_one(compiled, seed):
    rng = np.random.default_rng(seed)
    models = [_drawn(rng), None, _drawn(rng), _drawn(rng)]
    weight = float(rng.uniform(0, 2))
    if compiled and not kernels.built():
        pytest.skip('the compiled arithmetic was not built here (native/build.py)')
    with pytest.MonkeyPatch.context() as patch:
        if not compiled:
            patch.setattr(kernels, 'lib', None)
        bank = ValueBank(models, weight)
        state = rng.normal(size=SIZE) * 3
        told = {name: bank.estimate(name, state) for name in ('palpation', 'reach', 'nowhere')}
        leads = {name: found.advantages(0, 1.5) for name, found in told.items()}
    for name, found in told.items():
        stds, over = found.stds, leads[name]
        for row, each in enumerate(models):
            one = None if each is None else each.estimates.get(name)
            if one is None:
                assert np.isnan([found.means[row], stds[row], found.risks[row]]).all()
                continue
            features = one.basis(state[None])[0]
            mean = features @ (one.weights[0] - weight * one.weights[1])
            strange = (one.caution * one.outside(state)) ** 2
            members = (one.deviations[0] - weight * one.deviations[1]) @ features
            std = np.sqrt(members @ members + one.conformal_error**2 + strange)
            np.testing.assert_allclose([found.means[row], stds[row]], [mean, std], rtol=1e-9)
            assert found.risks[row] == pytest.approx(float(features @ one.weights[1]))
            if row and name in models[0].estimates:
                first = models[0].estimates[name]
                other = (first.deviations[0] - weight * first.deviations[1]) @ features
                apart = np.square(members - other).sum() + strange
                apart += (first.caution * first.outside(state)) ** 2
                gain = mean - features @ (first.weights[0] - weight * first.weights[1])
                assert over[row] == pytest.approx(gain - 1.5 * np.sqrt(apart))


@pytest.mark.skipif(not kernels.built(), reason='the compiled arithmetic was not built here')
def test_a_state_of_another_size_is_refused_before_it_is_read():
    bank = ValueBank([_drawn(np.random.default_rng(0))])
    for shape in ((SIZE - 1,), (SIZE + 1,), (1, SIZE)):
        with pytest.raises(StateError, match='expected'):
            bank.estimate('palpation', np.zeros(shape))


def _drawn(rng):
    """Return a model of any numbers, of one procedure or two."""
    width = basis_of(SIZE, 7).width

    def one():
        low = rng.normal(size=SIZE) - 1.0
        return StateValue(
            weights=rng.normal(size=(2, width)),
            deviations=rng.normal(size=(2, 5, width)),
            low=low,
            high=low + rng.uniform(0, 3, SIZE),
            spread=rng.uniform(0.2, 2, SIZE),
            conformal_error=float(rng.uniform()),
            noise=1.0,
            caution=float(rng.uniform()),
        )

    names = ['palpation', 'reach'][: int(rng.integers(1, 3))]
    return ValueModel('', {name: one() for name in names})


def test_a_model_travels_as_bytes(model):
    back = ValueModel.from_bytes(model.to_bytes(), policy='ab' * 32)
    states = episodes(9)[0]
    assert list(back.estimates) == list(model.estimates)
    for name, one in model.estimates.items():
        again = back.estimates[name]
        np.testing.assert_array_equal(again.mean_and_std(states), one.mean_and_std(states))
        np.testing.assert_array_equal(again.weights, one.weights)


def test_a_model_of_another_basis_or_policy_and_damaged_bytes_are_refused(model, monkeypatch):
    data = model.to_bytes()
    with pytest.raises(PolicyError, match='expected cd'):
        ValueModel.from_bytes(data, policy='cd' * 32)
    for cut in (0, 10, 200, -100):
        with pytest.raises(PolicyError):
            ValueModel.from_bytes(data[:cut])
    monkeypatch.setattr(basis_of(SIZE, SMALL.features), 'digest', 'another')
    with pytest.raises(PolicyError, match='another basis'):
        ValueModel.from_bytes(data)


@pytest.mark.parametrize(
    'change',
    [
        {'weights': np.zeros((2, 5))},
        {'deviations': np.zeros((2, 12, 7))},
        {'spread': np.zeros(SIZE)},
        {'low': np.full(SIZE, np.nan)},
        {'low': np.zeros(0)},
        {'noise': -1.0},
        {'conformal_error': float('nan')},
    ],
)
def test_parts_that_do_not_fit_are_refused(value, change):
    with pytest.raises(PolicyError):
        dataclasses.replace(value, **change)


def test_models_of_different_forms_go_nowhere_together(value):
    other = fitted(1, settings=ValueSettings(features=8, groups=4))
    for estimates in ({'reach': value, 'follow': other}, {}):
        with pytest.raises(PolicyError):
            ValueModel('', estimates)
    with pytest.raises(PolicyError):
        ValueBank([ValueModel('', {'reach': each}) for each in (value, other)])


@pytest.mark.parametrize(
    'change',
    [
        {'states': np.zeros((119, SIZE))},
        {'rewards': np.zeros(119)},
        {'cases': np.repeat(np.arange(10), 12)[:-1]},
        {'cases': np.repeat(np.arange(10), 12) + 0.5},
        {'states': np.full((120, SIZE), np.nan)},
        {'rewards': np.full(120, np.inf)},
        {'risks': np.full(120, np.nan)},
        {'cases': np.zeros(120, int)},
        {'cases': np.tile(np.arange(10), 12)},
    ],
)
def test_experience_that_makes_no_estimate_is_refused(change):
    bad = dataclasses.replace(experience(1, cases=10), **change)
    with pytest.raises(RecordsError):
        fit_value(bad, SMALL)
