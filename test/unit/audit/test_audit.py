# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Bounds on epsilon: closed forms, a linear programme, and games with a known epsilon."""

import math

from fdrl_ros.audit.attack import Hits, log_ratio, PARTS, plan_guesses, rehearse
from fdrl_ros.audit.bound import epsilon_lower_bound, refuted_by_curve, tail_probability
from fdrl_ros.audit.estimate import Projections
from fdrl_ros.errors import SettingError
from fdrl_ros.privacy.accountant.accountant import Charge, epsilon_pld
from hypothesis import given, settings
from hypothesis import strategies as st
import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.stats import beta, binom, chi2, norm

FAILURE = 1e-3


def bound(canaries, guesses, correct, delta=0.0, failure=FAILURE):
    return epsilon_lower_bound(
        canaries=canaries, guesses=guesses, correct=correct, delta=delta, failure=failure
    )


def least_correct(canaries, guesses, epsilon, delta, failure=FAILURE):
    """Return the fewest right guesses that refute an epsilon; one more than all if none do."""
    low, high = 0, guesses + 1
    while low < high:
        middle = (low + high) // 2
        above = bound(canaries, guesses, middle, delta, failure) > epsilon
        low, high = (low, middle) if above else (middle + 1, high)
    return low


# The theorems.


@pytest.mark.parametrize(('guesses', 'correct'), [(10, 10), (100, 90), (400, 260), (1000, 1000)])
def test_without_delta_the_bound_is_that_of_clopper_and_pearson(guesses, correct):
    right = beta.ppf(FAILURE, correct, guesses - correct + 1)
    expected = math.log(right / (1.0 - right))
    assert bound(1000, guesses, correct) == pytest.approx(expected, abs=2e-4)


def test_tail_is_the_binomials_plus_what_delta_allows():
    right = math.exp(1.5) / (1.0 + math.exp(1.5))
    pmf = [binom.pmf(k, 20, right) for k in range(21)]
    below = [sum(pmf[18 - i : 18]) / i for i in range(1, 19)]
    expected = sum(pmf[18:]) + 2.0 * 50 * 1e-4 * max(below)
    assert tail_probability(50, 20, 18, 1.5, 1e-4) == pytest.approx(expected)
    assert tail_probability(50, 20, 0, 1.5, 1e-4) == 1.0


@pytest.mark.parametrize(('epsilon', 'delta'), [(0.3, 2e-2), (1.2, 1e-4), (3.0, 0.0)])
def test_curve_refutes_exactly_what_a_linear_programme_says_is_too_likely(epsilon, delta):
    """The programme finds the likeliest tail among all laws that the inequalities allow."""
    canaries, guesses, grown = 20, 15, math.exp(epsilon)
    j = np.arange(guesses + 1)
    rows, limits = [], []
    for i in range(guesses):
        right = np.where(j > i, j, 0) / canaries
        wrong = np.where(j >= i, guesses - j, 0) / canaries
        rows += [right - grown * wrong, right - wrong / grown]
        limits += [delta, 1.0 - (1.0 - delta) / grown]
    for correct in range(guesses // 2, guesses + 1):
        found = linprog(
            -(j >= correct).astype(float), rows, limits, np.ones((1, guesses + 1)), [1.0]
        )
        likeliest = -found.fun
        game = (canaries, guesses, correct, epsilon, delta)
        if likeliest < 0.999:
            assert refuted_by_curve(*game, likeliest * 1.001 + 1e-7)
        assert not refuted_by_curve(*game, likeliest * 0.999 - 1e-7)


@given(st.integers(1, 300), st.floats(0, 1), st.floats(0.5, 1), st.sampled_from([0.0, 1e-6, 1e-4]))
@settings(max_examples=15, deadline=None)
def test_bound_grows_with_right_guesses_and_falls_with_delta_and_confidence(
    canaries, part, share, delta
):
    guesses = max(1, round(part * canaries))
    correct = round(share * guesses)
    found = bound(canaries, guesses, correct, delta)
    assert found >= bound(canaries, guesses, correct - 1, delta) if correct else found == 0.0
    assert found <= bound(canaries, guesses, correct, 0.0) + 1e-4
    assert found <= bound(canaries, guesses, correct, delta, 0.05) + 1e-4
    assert found < math.log(canaries + 1) + 1.0


@pytest.mark.parametrize(
    'wrong',
    [{'correct': 11}, {'correct': -1}, {'guesses': 101}]
    + [{'canaries': 0, 'guesses': 0, 'correct': 0}]
    + [{'delta': 1.0}, {'delta': math.nan}, {'failure': 0.0}, {'failure': 1.0}],
)
def test_impossible_numbers_are_refused(wrong):
    good = {'canaries': 100, 'guesses': 10, 'correct': 9, 'delta': 0.0, 'failure': 0.01}
    with pytest.raises(SettingError):
        epsilon_lower_bound(**{**good, **wrong})


# Games whose epsilon is known. Chances are computed, so that no alarm is false.


@pytest.mark.parametrize('delta', [0.0, 3e-4])
@pytest.mark.parametrize('epsilon', [0.5, 4.0])
@pytest.mark.parametrize(('canaries', 'guesses'), [(100, 100), (1000, 200)])
def test_randomised_response_is_overestimated_at_most_once_in_a_thousand(
    canaries, guesses, epsilon, delta
):
    """It tells the truth with chance e^epsilon / (1 + e^epsilon), and always with chance delta."""
    right = delta + (1.0 - delta) / (1.0 + math.exp(-epsilon))
    least = least_correct(canaries, guesses, epsilon, delta)
    assert binom.sf(least - 1, guesses, right) <= FAILURE
    if delta == 0.0:
        # and so often when the number of guesses allows it
        assert binom.sf(least - 2, guesses, right) > FAILURE


def test_telling_everything_once_in_a_while_is_allowed_by_delta():
    """With chance delta all coins are told at once: that is (0, delta)-DP, canaries together."""
    assert bound(1000, 1000, 1000, 1.1 * FAILURE) == 0.0
    assert bound(1000, 1000, 1000, 0.9 * FAILURE) > 4.0


def test_bound_that_knows_the_mechanism_is_close_below_it():
    """A Gaussian with shift 1 / sigma: shares above 0 are binomial."""
    claimed, delta = Charge(0.8, 1.0, 1), 1e-5
    true = epsilon_pld([claimed], delta)

    def found(scores, members):
        return Hits.of(scores, members).by_errors(claimed, delta=delta, failure=FAILURE)

    scores, members = rehearse([claimed], 4000, np.random.default_rng(4))
    assert 0.75 * true < found(scores, members) < true
    assert found(scores, np.random.default_rng(5).permutation(members)) == 0.0
    # It stops looking at four times the claim.
    assert 4.0 * true < found(np.where(members, 1.0, -1.0), members) < 8.0 * true
    assert found(scores, np.ones(4000, np.bool_)) == 0.0


def test_estimate_is_below_the_truth_as_often_as_it_says_and_close_to_it():
    """400 draws, each too high with a chance of 5 %: more than 38 would come once in 5000."""
    claimed, delta, rng = Charge(1.5, 0.3, 40), 1e-5, np.random.default_rng(6)
    true, found = epsilon_pld([claimed], delta), []
    for _ in range(400):
        joins = rng.random((40, 300)) < claimed.sampling_probability
        members = rng.integers(2, size=300).astype(np.bool_)
        joined = joins & members
        along = joined + claimed.noise_multiplier * rng.standard_normal(joins.shape)
        sums = Projections.of(along, joined, joins)
        found.append(sums.epsilon(claimed, delta=delta, failure=0.05))
    assert sum(each > true for each in found) <= 38
    assert 0.85 * true < np.mean(found) < true


def test_estimate_is_that_of_the_limits_written_out():
    sums = Projections(
        joined=400, shift=380.0, rest=1600, square=6400.0, joins=0, coins=0, steps=9
    )
    assert sums.mean_shift == 0.95 and sums.sigma == 2.0
    deviation = math.sqrt(6400.0 / chi2.ppf(1e-4, 1600))
    least = 0.95 - norm.isf(8e-4) * deviation / 20.0
    assert sums.noise_over_shift(1e-3) == pytest.approx(deviation / least)
    true = epsilon_pld([Charge(deviation / least, 0.3, 9)], 1e-5)
    assert sums.epsilon(Charge(9.0, 0.3, 1), delta=1e-5, failure=1e-3) == pytest.approx(true)
    twice = sums + sums
    assert (twice.joined, twice.square, twice.steps) == (800, 12800.0, 9)
    assert twice.noise_over_shift(1e-3) < sums.noise_over_shift(1e-3)


def test_estimate_takes_the_probability_of_joining_that_coins_show():
    often = Projections(400, 380.0, 1600, 6400.0, joins=1800, coins=2000, steps=9)
    claimed = Charge(2.0, 0.3, 9)
    least = beta.ppf(1e-4, 1800, 201)
    true = epsilon_pld([Charge(often.noise_over_shift(1e-3), least, 9)], 1e-5)
    assert often.epsilon(claimed, delta=1e-5, failure=1e-3) == pytest.approx(true)
    charged = claimed._replace(sampling_probability=0.95)
    assert often.epsilon(charged, delta=1e-5, failure=1e-3) > true
    silent = Projections(400, 380.0, 1600, 0.0, joins=0, coins=0, steps=9)
    assert silent.epsilon(claimed, delta=1e-5, failure=1e-3) == 64.0
    nothing = Projections(400, -3.0, 1600, 6400.0, joins=0, coins=0, steps=9)
    assert nothing.epsilon(claimed, delta=1e-5, failure=1e-3) == 0.0


# The adversary.


def test_score_is_the_log_of_the_ratio_of_densities():
    x = np.linspace(-3.0, 4.0, 9)
    for sigma, q in ((0.7, 1.0), (2.6, 0.256), (1.0, 0.01)):
        member = q * norm.pdf(x, 1.0, sigma) + (1.0 - q) * norm.pdf(x, 0.0, sigma)
        expected = np.log(member / norm.pdf(x, 0.0, sigma))
        np.testing.assert_allclose(log_ratio(x, Charge(sigma, q, 1)), expected, atol=1e-12)


def test_planned_guesses_prove_more_than_guessing_everyone_and_less_than_is_claimed():
    history, rng = [Charge(1.0, 1.0, 2)], np.random.default_rng(3)
    planned, expected = plan_guesses(history, 1000, rng, delta=1e-5, failure=FAILURE)
    assert 0.0 < PARTS[planned.members] + PARTS[planned.others] < 0.5
    hits = Hits.of(*rehearse(history, 1000, rng))
    proven = hits.proven(planned, delta=1e-5, failure=FAILURE)
    everyone = bound(1000, 1000, 1000 - hits.missed - hits.alarms, 1e-5)
    assert everyone < proven < epsilon_pld(history, 1e-5)
    assert proven == pytest.approx(expected, abs=1.0)


def test_hits_are_counted_from_both_ends_and_add_up():
    scores = np.array([3.0, -1.0, 2.0, 0.5, -2.0, -3.0, 4.0, 0.0])
    members = np.array([1, 0, 1, 0, 1, 0, 1, 0], np.bool_)
    hits = Hits.of(scores, members)
    assert (hits.members, hits.others, hits.missed, hits.alarms) == (4, 4, 1, 1)
    assert dict(zip(PARTS, hits.top, strict=True))[0.5] == 3
    assert dict(zip(PARTS, hits.bottom, strict=True))[0.25] == 1
    both = hits + hits
    assert (both.members, both.missed, both.sizes[0], both.top[0]) == (8, 2, 8, 6)
