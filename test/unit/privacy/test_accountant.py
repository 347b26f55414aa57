# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Epsilon agrees with published values, closed forms and slow obvious versions, from above.

Given epsilon, the noise multiplier keeps it and wastes little.
"""

import math

from dp_accounting.rdp import rdp_privacy_accountant
from fdrl_ros.errors import PrivacyError, SettingError
from fdrl_ros.learner.settings import PrivacySettings
from fdrl_ros.privacy.accountant import accountant, renyi
from fdrl_ros.privacy.accountant.accountant import (
    Account,
    Charge,
    check_delta,
    epsilon_paper,
    epsilon_pld,
    epsilon_rdp,
)
from fdrl_ros.privacy.accountant.calibration import noise_multiplier_for
from fdrl_ros.privacy.accountant.loss_distribution import BLUR, Composer
from fdrl_ros.privacy.ledger.chain import Owner
from fdrl_ros.privacy.ledger.ledger import Ledger
from hypothesis import given, settings, strategies
import numpy as np
import pytest
from scipy import integrate, stats

DELTA = 1e-5
# Two composed grids differ by less: each is an upper bound, rounded up by itself.
GRID = 1.0 + BLUR
# q, sigma, steps; epsilon at delta 1e-5 by Opacus' RDP and by dp-accounting's PLD.
PUBLISHED = [
    (0.01, 1.0, 250, 1.397, 0.994),
    (0.01, 1.0, 10_000, 6.713, 6.191),
    (0.1, 1.0, 250, 12.36, 11.23),
    (0.1, 2.0, 10_000, 38.20, 36.01),
    (0.64, 0.5, 250, 385.5, 365.9),
    (0.64, 2.0, 250, 37.32, 35.08),
    (0.64, 4.0, 250, 14.61, 13.63),
    (0.64, 2.0, 10_000, 685.9, 660.9),
    (0.64, 4.0, 10_000, 203.8, 196.6),
]
CHARGES = strategies.builds(
    Charge,
    strategies.sampled_from([0.8, 1.0, 2.0, 5.0]),
    strategies.sampled_from([0.01, 0.128, 0.64, 1.0]),
    strategies.integers(1, 300),
    strategies.just(1),
)


def pld_alone(sigma, q, steps, delta):
    curve = steps * renyi.renyi_curve(sigma, q)
    return Composer().epsilon({(sigma, q, 1): steps}, 0.0, curve[0], delta)


@pytest.mark.parametrize('q, sigma, steps, rdp, pld', PUBLISHED)
def test_epsilons_agree_with_published_ones(q, sigma, steps, rdp, pld):
    charge = Charge(sigma, q, steps)
    assert epsilon_pld([charge], DELTA) == pytest.approx(pld, rel=1.5e-3)
    # Not above the library's by more than the spacing of our orders; lower where it has too few.
    assert pld < epsilon_rdp([charge], DELTA) < 1.005 * rdp


@given(strategies.floats(0.3, 50.0), strategies.integers(1, 5000))
def test_unsampled_steps_compose_as_one_gaussian(sigma, steps):
    mu = math.sqrt(steps) / sigma
    epsilon = epsilon_pld([Charge(sigma, 1.0, steps)], DELTA)
    assert epsilon == pytest.approx(epsilon_pld([Charge(1.0 / mu, 1.0, 1)], DELTA), rel=1e-9)
    spent = (
        stats.norm.cdf(mu / 2.0 - epsilon / mu)
        - math.exp(epsilon + stats.norm.logcdf(-mu / 2.0 - epsilon / mu))
        if epsilon > 0.0
        else 0.0
    )
    assert spent <= DELTA * (1.0 + 1e-6)


@pytest.mark.parametrize('delta', [1e-10, 1e-8, 1e-5, 1e-2])
@pytest.mark.parametrize('sigma, steps', [(1.0, 1), (10.0, 300), (100.0, 30_000)])
def test_composing_on_the_grid_bounds_the_closed_form_down_to_the_least_delta(sigma, steps, delta):
    exact = epsilon_pld([Charge(sigma, 1.0, steps)], delta)
    on_grid = pld_alone(sigma, 1.0, steps, delta)
    assert exact <= on_grid <= exact * (1.0 + 2.0 * BLUR)


@pytest.mark.parametrize('order', [1.05, 2.5, 7.0])
@pytest.mark.parametrize('sigma, q', [(0.5, 0.3), (1.0, 0.01), (2.0, 0.64), (20.0, 0.001)])
def test_moments_are_the_integral_and_below_the_librarys_bound(sigma, q, order):
    def surplus(z):  # of the moment over 1, so that tiny divergences keep their digits
        ratio = 1.0 - q + q * math.exp((2.0 * z - 1.0) / (2.0 * sigma**2))
        return stats.norm.pdf(z, scale=sigma) * (ratio**order - 1.0 - order * (ratio - 1.0))

    slow = integrate.quad(surplus, -12 * sigma, order + 12 * sigma, limit=500, epsabs=1e-14)[0]
    ours = renyi.integrated_log_moments(sigma, q, np.array([order]))[0]
    assert ours == pytest.approx(math.log1p(slow), rel=1e-5, abs=1e-12)
    # The library adds up the series of fractional orders without its signs.
    assert ours <= rdp_privacy_accountant._compute_log_a_frac(q, sigma, order) + 1e-12


@settings(max_examples=6, deadline=None)
@given(CHARGES, CHARGES)
def test_histories_compose(one, other):
    both = epsilon_pld([one, other], DELTA)
    assert both == epsilon_pld([other, one], DELTA)
    assert both <= epsilon_rdp([one, other], DELTA)
    assert both >= max(epsilon_pld([one], DELTA), epsilon_pld([other], DELTA)) / GRID
    split = [other, one._replace(steps=1), one]
    assert epsilon_pld(split, DELTA) == epsilon_pld(
        [one._replace(steps=one.steps + 1), other], DELTA
    )


@settings(max_examples=6, deadline=None)
@given(CHARGES)
def test_epsilon_grows_with_steps_and_sampling_and_falls_with_noise(charge):
    epsilon = epsilon_pld([charge], DELTA)
    assert epsilon_pld([charge._replace(steps=charge.steps + 40)], DELTA) >= epsilon / GRID
    louder = charge._replace(noise_multiplier=charge.noise_multiplier * 1.5)
    assert epsilon_pld([louder], DELTA) <= epsilon * GRID
    assert epsilon_pld([charge._replace(sampling_probability=1.0)], DELTA) >= epsilon / GRID
    assert epsilon_pld([charge], DELTA / 10.0) >= epsilon / GRID


def test_no_noise_is_no_privacy_and_no_steps_cost_nothing():
    for epsilon in (epsilon_pld, epsilon_rdp):
        assert epsilon([Charge(0.0, 0.1, 1)], DELTA) == math.inf
        assert epsilon([Charge(1.0, 0.1, 5), Charge(0.0, 1.0, 1)], DELTA) == math.inf
        assert epsilon([], DELTA) == 0.0
        assert epsilon([Charge(0.0, 1.0, 0)], DELTA) == 0.0


def test_hardly_any_noise_gives_a_finite_or_infinite_bound_but_never_a_small_one():
    for sigma in (1e-200, 1e-9, 1e-3, 0.049, 0.05, 0.1):
        for epsilon in (epsilon_pld, epsilon_rdp):
            assert epsilon([Charge(sigma, 0.5, 100)], DELTA) > 30.0 / sigma
    # Sampling is not credited there.
    assert epsilon_pld([Charge(0.04, 0.5, 3)], DELTA) == epsilon_pld([Charge(0.04, 1.0, 3)], DELTA)


def test_a_tiny_epsilon_is_not_drowned_by_the_grid():
    # One percent of what a step would cost at q = 1, and no more than Renyi says.
    for charge in (Charge(4.0, 0.001, 10_000), Charge(1e5, 0.3, 10_000)):
        assert 0.0 < epsilon_pld([charge], DELTA) <= epsilon_rdp([charge], DELTA) < 0.1


def test_the_papers_epsilon_is_one_release_at_order_alpha():
    assert epsilon_paper(2.0, 1.0) == 1.0
    assert epsilon_paper(8.0, 4.0) == 0.25
    assert epsilon_paper(2.0, 0.0) == math.inf
    curve = renyi.renyi_curve(1.7, 1.0)
    assert curve[50] == pytest.approx(epsilon_paper(renyi.ORDERS[50], 1.7))


def test_delta_must_be_below_one_over_the_units():
    check_delta(1e-4, 500)
    for delta, units in ((2e-3, 500), (1 / 500, 500), (0.0, 500), (math.nan, 5), (0.1, 0)):
        with pytest.raises(PrivacyError, match='delta'):
            check_delta(delta, units)


@pytest.mark.parametrize(
    'name, wrong',
    [
        ('noise_multiplier', [-1.0, math.nan, math.inf]),
        ('sampling_probability', [0.0, 1.1, math.nan]),
        ('steps', [-1, 1.5]),
        ('group', [0, 1.5]),
    ],
)
def test_a_charge_that_cannot_be_is_refused(name, wrong):
    for value in wrong:
        with pytest.raises(PrivacyError, match=repr(value)):
            Account(DELTA, [Charge(1.0, 0.1, 1)._replace(**{name: value})])


@pytest.mark.parametrize('delta', [0.0, 1.0, -1e-5, 9e-11, 1e-11, 1e-15, 1e-20, 1e-30, math.nan])
def test_a_delta_that_cannot_be_is_refused_at_every_door(delta, tmp_path):
    def begin_ledger():
        Ledger(tmp_path / 'ledger', Owner(hospital='a', unit='patient', delta=delta, budget=8.0))

    for ask in (
        lambda: Account(delta),
        lambda: epsilon_rdp([Charge(1.0, 0.1, 1)], delta),
        lambda: epsilon_pld([Charge(1.0, 0.1, 1)], delta),
        lambda: noise_multiplier_for(epsilon=8.0, delta=delta, phases=[(0.1, 10)]),
        lambda: check_delta(delta, 1),
        begin_ledger,
    ):
        with pytest.raises(PrivacyError, match=r'delta = .*: expected in \[1e-10, 1\)'):
            ask()
    assert not (tmp_path / 'ledger').exists()
    with pytest.raises(SettingError, match='delta'):
        PrivacySettings(delta=delta)


def epsilon_of_one_step(sigma, q, delta):
    """Bisect delta of one sampled step, where a unit is removed, in its closed form."""

    def spent(epsilon):
        z = sigma**2 * math.log(math.expm1(epsilon) / q + 1.0) + 0.5
        kept, gone = stats.norm.sf(z / sigma), stats.norm.sf((z - 1.0) / sigma)
        return q * gone - (math.expm1(epsilon) + q) * kept

    low, high = 0.0, 700.0
    for _ in range(200):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if spent(middle) > delta else (low, middle)
    return low


@pytest.mark.parametrize('sigma, q', [(1.0, 0.1), (0.5, 0.01), (3.0, 0.5), (0.1, 1e-3)])
def test_no_epsilon_is_below_the_truth_even_where_little_of_delta_is_left(sigma, q, monkeypatch):
    """A group's rare numbers use delta up, so the accountants meet what settings refuse."""
    assert accountant._LEAST_DELTA == 1e-10
    monkeypatch.setattr(accountant, '_LEAST_DELTA', 1e-40)
    for exponent in (10, 11, 13, 15, 17, 19, 22, 26, 30):
        delta = 10.0**-exponent
        truth = epsilon_of_one_step(sigma, q, delta)
        charge = [Charge(sigma, q, 1)]
        assert truth * (1.0 - 1e-9) <= epsilon_pld(charge, delta) <= 1.1 * truth
        assert truth * (1.0 - 1e-9) <= epsilon_rdp(charge, delta) <= 1.2 * truth


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


def test_a_plan_that_is_missing_or_cannot_be_is_refused():
    plan = {'epsilon': 1.0, 'delta': DELTA, 'phases': [(0.1, 5)]}
    wrong = {'phases': [[], [(0.1, 5), (1.5, 5)]], 'group': [0], 'epsilon': [0.0, math.nan, '8']}
    for name, values in wrong.items():
        for value in values:
            with pytest.raises(PrivacyError):
                noise_multiplier_for(**(plan | {name: value}))


def test_a_target_out_of_reach_is_refused():
    with pytest.raises(PrivacyError, match='1e\\+06'):
        noise_multiplier_for(epsilon=1e-9, delta=1e-10, phases=[(1.0, 10**9)])
