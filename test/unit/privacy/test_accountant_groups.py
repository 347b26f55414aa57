# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""A unit of one or many records costs what a mixture of Gaussians does, in both directions."""

import math

from fdrl_ros.errors import PrivacyError
from fdrl_ros.privacy.accountant import renyi
from fdrl_ros.privacy.accountant.accountant import Charge, epsilon_pld, epsilon_rdp
from fdrl_ros.privacy.accountant.one_step import inclusions, one_step, records_of_a_transition
from fdrl_ros.privacy.mechanism import charge_for, refuse_unbounded, SAMPLING
from hypothesis import given, settings, strategies
import numpy as np
import pytest
from scipy import integrate, stats
from support.epsilon_reference import upper_and_lower

DELTA = 1e-5
MECHANISMS = [
    (0.5, 0.64, 1),
    (1.0, 0.128, 1),
    (2.0, 0.01, 1),
    (1.5, 0.3, 2),
    (4.0, 0.05, 20),
    (0.7, 0.02, 3),
    (10.0, 0.9, 5),
    (4.5, 0.5, 20),
]


def densities(sigma, q, group):
    """Return the densities of the output with and without the unit, written out."""
    chances = stats.binom.pmf(range(group + 1), group, q)

    def without(z):
        return stats.norm.pdf(z, scale=sigma)

    def joined(z):
        return sum(
            chance * stats.norm.pdf(z, loc=number, scale=sigma)
            for number, chance in enumerate(chances)
        )

    return joined, without


def integrated(function, low, high):
    z = np.linspace(low, high, 30_001)
    return integrate.trapezoid(function(z), z)


@pytest.mark.parametrize('sigma, q, group', MECHANISMS)
def test_one_step_costs_what_integration_says(sigma, q, group):
    epsilon = epsilon_pld([Charge(sigma, q, 1, group)], 1e-3)
    joined, without = densities(sigma, q, group)
    spent = max(
        integrated(
            lambda z, p=p, r=r: np.maximum(0.0, p(z) - math.exp(epsilon) * r(z)),
            -12.0 * sigma,
            group + 12.0 * sigma,
        )
        for p, r in ((joined, without), (without, joined))
    )
    assert spent <= 1e-3 * (1.0 + 1e-6)
    assert spent == pytest.approx(1e-3, rel=0.02) or epsilon == 0.0


@pytest.mark.parametrize('sigma, q, group', MECHANISMS)
@pytest.mark.parametrize('order', [1.001, 1.3, 2.0, 6.5])
def test_the_renyi_divergence_is_the_integral_of_the_worse_direction(sigma, q, group, order):
    numbers, log_chances, forgotten = inclusions(group, q)
    chances = np.exp(log_chances)
    assert forgotten < 1e-20 and chances == pytest.approx(stats.binom.pmf(numbers, group, q))

    def integrand(z, power):
        ratio = np.exp(np.outer(z, numbers) / sigma**2 - 0.5 * (numbers / sigma) ** 2) @ chances
        return np.exp(stats.norm.logpdf(z, scale=sigma) + power * np.log(ratio))

    ends = -12.0 * sigma - order * group, order * group + 12.0 * sigma
    slow = max(
        integrated(lambda z, power=power: integrand(z, power), *ends)
        for power in (order, 1.0 - order)
    )
    ours = renyi.integrated_log_moments(sigma, q, np.array([order]), group)[0]
    assert ours == pytest.approx(math.log(slow), rel=1e-6, abs=1e-10)


@given(strategies.floats(0.3, 30.0), strategies.integers(1, 1000), strategies.integers(1, 500))
def test_without_sampling_a_group_has_its_size_as_sensitivity(sigma, group, steps):
    for epsilon in (epsilon_pld, epsilon_rdp):
        together = epsilon([Charge(sigma, 1.0, steps, group)], DELTA)
        assert together == pytest.approx(epsilon([Charge(sigma / group, 1.0, steps)], DELTA))


@settings(max_examples=6, deadline=None)
@given(
    strategies.floats(0.8, 20.0),
    strategies.floats(0.001, 0.9),
    strategies.integers(1, 60),
    strategies.integers(1, 300),
)
def test_epsilon_grows_with_the_group_and_stays_below_no_sampling(sigma, q, group, steps):
    epsilon = epsilon_pld([Charge(sigma, q, steps, group)], DELTA)
    assert epsilon <= epsilon_rdp([Charge(sigma, q, steps, group)], DELTA)
    assert epsilon_pld([Charge(sigma, q, steps, group + 1)], DELTA) >= epsilon / 1.002
    assert epsilon <= 1.002 * epsilon_pld([Charge(sigma, 1.0, steps, group)], DELTA)
    assert epsilon >= epsilon_pld([Charge(sigma, q, steps)], DELTA) / 1.002


@pytest.mark.parametrize(
    'sigma, group, epsilon', [(1.1, 10, 10.6), (4.0, 10, 1.82), (4.0, 50, 11.9)]
)
def test_batches_of_64_out_of_50000_cost_patients_many_times_what_they_cost_transitions(
    sigma, group, epsilon
):
    # Of dp-accounting's mixture of Gaussians.
    history = [Charge(sigma, 64 / 50_000, 20_000, group)]
    assert epsilon_pld(history, DELTA) == pytest.approx(epsilon, rel=6e-3)


@pytest.mark.parametrize('sigma, q, steps, group', [(2.0, 0.1, 3, 4), (6.0, 0.02, 10, 6)])
def test_groups_lie_between_the_bounds_of_the_library(sigma, q, steps, group):
    history = [(sigma, q, steps, group)]
    upper, lower = upper_and_lower(history, DELTA, 1e-2)
    assert lower <= epsilon_pld(history, DELTA) <= 1.01 * upper


@pytest.mark.parametrize('group, q', [(40, 0.3), (500, 0.9), (20_000, 0.37), (2**20, 1e-5)])
def test_numbers_who_join_are_rounded_upwards_and_lose_nothing(group, q):
    numbers, log_chances, forgotten = inclusions(group, q)
    assert np.exp(log_chances).sum() + forgotten == pytest.approx(1.0, abs=1e-9)
    assert forgotten <= 1e-20
    # At each number, at most as many have come as in truth: the rest comes later.
    rounded, exact = np.cumsum(np.exp(log_chances)), stats.binom.cdf(numbers, group, q)
    assert (rounded <= exact + 1e-9).all()
    mean = np.exp(log_chances) @ numbers
    assert group * q <= mean * (1.0 + 1e-9) and mean <= 1.002 * group * q


@pytest.mark.parametrize('sigma, q, group', [*MECHANISMS, (0.05, 0.5, 1), (5.0, 0.99, 100)])
def test_both_directions_are_one_pair_of_distributions(sigma, q, group):
    interval = 0.05
    removed, added = one_step(sigma, q, group, interval)
    losses = (removed.first + np.arange(len(removed.masses))) * interval
    for side in (removed, added):
        assert side.masses.sum() + side.lost == pytest.approx(1.0, abs=1e-12)
        assert side.masses.min() >= 0.0 and side.lost < 1e-18
    with np.errstate(over='ignore', invalid='ignore'):
        other = np.nan_to_num(removed.masses * np.exp(-losses))
    assert other[2:] == pytest.approx(added.masses[::-1][2:], abs=1e-12)


def test_a_group_of_millions_is_charged_and_a_larger_one_refused():
    spent = epsilon_pld([Charge(50.0, 1e-6, 10, 10**6)], DELTA)
    assert 0.0 < spent < epsilon_rdp([Charge(50.0, 1e-6, 10, 10**6)], DELTA) < 2.0
    with pytest.raises(PrivacyError, match='group'):
        epsilon_pld([Charge(50.0, 1e-6, 10, 10**8)], DELTA)


def test_a_transition_is_in_as_many_records_as_look_at_it():
    assert records_of_a_transition() == 1
    assert records_of_a_transition(n_steps=3) == 3
    assert records_of_a_transition(n_steps=3, frames=4) == 6
    # Slowly: which records are made of transition 50?
    touched = sum(start - 3 <= 50 < start + 3 for start in range(100))
    assert touched == records_of_a_transition(n_steps=3, frames=4)
    for wrong in (0, -1, 1.5, True, None):
        with pytest.raises(PrivacyError):
            records_of_a_transition(wrong)


def test_only_independent_coins_claim_amplification():
    charges = {name: charge_for(name, Charge(2.0, 0.1, 5, 3)) for name in SAMPLING}
    assert charges['poisson'] == Charge(2.0, 0.1, 5, 3)
    assert charges['prioritised_poisson'] == Charge(2.0, 1.0, 5, 3)
    for sampling, why in (('uniform', 'fixed size'), ('prioritised', 'sum of priorities')):
        assert epsilon_pld([charges[sampling], charges['poisson']], DELTA) == math.inf
        with pytest.raises(PrivacyError, match=why):
            refuse_unbounded(sampling)
    for sampling in ('', 'shuffled', 'Poisson', None):
        with pytest.raises(PrivacyError, match='expected one of'):
            charge_for(sampling, Charge(1.0, 0.1, 1))
