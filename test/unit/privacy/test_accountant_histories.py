# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Long, changing and extreme histories: within 1 % above the truth, never below, never stuck."""

import math

from fdrl_ros.privacy.accountant.accountant import (
    Account,
    Charge,
    epsilon_pld,
    epsilon_rdp,
    StepCounts,
    Tally,
)
from fdrl_ros.privacy.accountant.loss_distribution import (
    BLUR,
    Composer,
    Composition,
    gaussian_epsilon,
    saddle_points,
    Solution,
)
from fdrl_ros.privacy.accountant.one_step import inclusions, one_step
from hypothesis import given, settings, strategies
import numpy as np
import pytest
from support.epsilon_reference import random_history, upper_and_lower
from support.sample_size import sampled

DELTA = 1e-5


def growing(steps, start=1000, every=1):
    """Return batches of 64 out of data that grow by one record a step."""
    return [Charge(1.1, 64.0 / (start + every * i), 1) for i in range(steps)]


@pytest.mark.parametrize('seed', range(sampled(10, 2)))
def test_random_histories_lie_within_a_percent_of_the_library_and_not_below(seed):
    history, delta = random_history(np.random.default_rng(seed))
    history = [(sigma, q, min(steps, 20), min(group, 2)) for sigma, q, steps, group in history]
    epsilon = epsilon_pld(history, delta)
    interval = min(1e-2, max(2e-3, epsilon / 300.0))
    upper, lower = upper_and_lower(history, delta, interval)
    assert lower <= epsilon <= 1.01 * upper + 2e-4
    assert epsilon <= epsilon_rdp(history, delta)
    # The error of the library's grid is four times as large on one twice as coarse.
    (coarse,) = upper_and_lower(history, delta, 2.0 * interval, lower=False)
    assert epsilon >= (4.0 * upper - coarse) / 3.0 * (1.0 - 5e-4) - 2e-4


def test_rounded_sampling_probabilities_cost_at_most_a_percent_more_and_never_less():
    history = growing(70, every=110)
    tally = Tally.from_history(history)
    coarsest, seen = StepCounts(apart=9, finest=512, coarsest=128, limit=1), {}
    for step, count in tally.exact.items():
        seen[step] = count
        coarsest.add(step, count, seen)
    assert len(tally.exact) == 70 == sum(coarsest.counts.values())
    assert set(coarsest.counts).isdisjoint(tally.exact)
    exact, finest, rounded = (
        Composer().epsilon(counts, 0.0, tally.curve()[0], DELTA)
        for counts in (tally.exact, tally.tight.counts, coarsest.counts)
    )
    assert exact < finest < 1.001 * exact
    assert finest < rounded < 1.01 * exact


def test_thousands_of_sampling_probabilities_become_a_few_hundred():
    tight, exact = StepCounts(apart=64, finest=1024, coarsest=128, limit=512), {}
    for sigma, q, steps in (each[:3] for each in growing(3000)):
        exact[sigma, q, 1] = steps
        tight.add((sigma, q, 1), steps, exact)
    assert len(tight.counts) < 512 < sum(tight.counts.values()) == len(exact) == 3000
    assert min(q for _, q, _ in tight.counts) >= min(q for _, q, _ in exact)


def test_many_noises_are_rounded_downwards():
    kinds, exact = StepCounts(apart=40, finest=64, coarsest=4, limit=8), {}
    for i in range(80):
        step = (1.0 + i / 80.0, 0.01 + i / 100.0, 1)
        exact[step] = 1
        kinds.add(step, 1, exact)
    for sigma, q in ((each[0], each[1]) for each in exact):
        below, above = sigma * 2.0**-0.125 - 1e-12, q * 2.0**0.125 + 1e-12
        assert any(below <= s <= sigma and q <= p <= above for s, p, _ in kinds.counts)


@settings(max_examples=20, deadline=None)
@given(
    strategies.sampled_from([((1.0, 0.1, 1), 30), ((0.5, 0.01, 1), 200), ((3.0, 0.2, 5), 10)]),
    strategies.floats(-4.0, 4.0),
    strategies.integers(16, 6000),
    strategies.sampled_from([0.002, 0.02, 0.3]),
)
def test_an_ill_chosen_tilt_or_grid_makes_epsilon_loose_and_never_too_small(
    steps, log_tilt, points, interval
):
    step, count = steps
    exact = epsilon_pld([(*step[:2], count, step[2])], DELTA)
    tilt = 10.0**log_tilt
    composition = Composition(interval, (tilt, tilt), points, 1e-4 * DELTA / count)
    composition.extend_to({step: count})
    found = composition.epsilon(DELTA)
    assert found.epsilon >= exact / (1.0 + 2.0 * BLUR)
    if found.clear and found.blur < BLUR * exact:
        assert found.epsilon <= exact * (1.0 + 2.0 * BLUR)


def test_an_account_that_grows_tells_what_one_made_at_once_tells():
    account, history = Account(DELTA), []
    for i in range(12):
        charge = Charge(2.0, 64.0 / (500 + i // 2), 20, 1 + i % 2)
        wanted = account.epsilon_pld(charge), account.epsilon_rdp(charge)
        assert account.epsilon_pld() <= wanted[0]
        account.add(charge)
        history.append(charge)
        assert (account.epsilon_pld(), account.epsilon_rdp()) == pytest.approx(wanted, rel=1e-6)
        if i % 6 == 0:
            assert account.epsilon_pld() == pytest.approx(epsilon_pld(history, DELTA), rel=2e-3)
    assert account.epsilon_rdp() == pytest.approx(epsilon_rdp(history, DELTA))


def test_an_account_asked_what_if_stays_as_it_was():
    account = Account(DELTA, [Charge(2.0, 0.1, 100)])
    before = account.epsilon_pld()
    for steps in (1, 10_000):
        assert account.epsilon_pld(Charge(1.0, 0.2, steps)) > before
        assert account.epsilon_pld() == pytest.approx(before, rel=1e-6)


@pytest.mark.parametrize('delta', [1e-3, 1e-9])
@pytest.mark.parametrize(
    'charge',
    [
        Charge(0.05, 0.5, 10),
        Charge(0.06, 1e-3, 100),
        Charge(1.0, 1.0 - 1e-15, 100),
        Charge(3.0, 0.9999, 1000),
        Charge(1.0, 1e-12, 1000),
        Charge(1.0, 1e-300, 10**6),
        Charge(0.8, 1e-3, 1000),
        Charge(1e5, 0.3, 10),
        Charge(1e5, 0.3, 10**6),
        Charge(1e-3, 0.5, 3),
        Charge(2.0, 0.1, 10**5),
        Charge(0.3, 0.999, 50, 100),
        Charge(200.0, 0.5, 20, 10_000),
    ],
)
def test_extremes_are_finite_and_below_the_renyi_bound(charge, delta):
    with np.errstate(all='raise', under='ignore'):
        epsilon = epsilon_pld([charge], delta)
    assert 0.0 <= epsilon <= epsilon_rdp([charge], delta) < math.inf
    # What any sampled step costs at least: that a unit joins at all, and shows.
    sigma, q, steps, group = charge
    unsampled = charge._replace(sampling_probability=1.0)
    assert epsilon <= epsilon_pld([unsampled], delta) * 1.002


def test_a_unit_that_hardly_ever_joins_has_its_privacy_from_delta():
    assert epsilon_pld([Charge(0.1, 1e-9, 1000)], DELTA) == 0.0
    assert epsilon_pld([Charge(0.1, 1e-9, 1000), Charge(1.0, 1.0, 1)], DELTA) > 4.0


def test_an_unsampled_release_beside_sampled_steps_counts():
    steps = Charge(2.0, 0.1, 200)
    for sigma in (0.02, 0.5, 30.0):
        release = Charge(sigma, 1.0, 1)
        both = epsilon_pld([steps, release], DELTA)
        assert both >= epsilon_pld([release], DELTA) and both >= epsilon_pld([steps], DELTA)
        apart = epsilon_pld([release], DELTA / 2.0) + epsilon_pld([steps], DELTA / 2.0)
        assert both <= 1.001 * apart


LOSS_DELTA = 1e-3
INTERVAL = 1e-3


def composed(sigma: float, q: float, group: int, steps: int, share: float) -> Solution:
    """Compose steps, of which each may move this share of delta / steps to an infinite loss."""
    history, negligible = {(sigma, q, group): steps}, share * LOSS_DELTA / steps
    tilts, _ = saddle_points(history, INTERVAL, negligible, LOSS_DELTA)
    composition = Composition(INTERVAL, tilts, 2**16, negligible)
    composition.extend_to(history)
    return composition.epsilon(LOSS_DELTA)


def test_mass_at_an_infinite_loss_is_taken_from_delta():
    """Three whole releases are one of root 3 times the ratio, whose epsilon is known exactly."""
    exact, last = gaussian_epsilon(math.sqrt(3.0), LOSS_DELTA), 0.0
    for share in (0.0, 0.3, 0.6, 0.9):
        found = composed(1.0, 1.0, 1, 3, share).epsilon
        lost = 3.0 * one_step(1.0, 1.0, 1, INTERVAL, share * LOSS_DELTA / 3.0)[0].lost
        # At most all of what was moved counts at this epsilon in the exact curve, too.
        assert exact - 1e-9 <= found <= gaussian_epsilon(math.sqrt(3.0), LOSS_DELTA - lost) + 1e-3
        assert found > last
        last = found
    assert math.isinf(composed(1.0, 1.0, 1, 3, 3.0).epsilon)  # more than delta


@pytest.mark.parametrize('mechanism', [(1.0, 0.1, 1, 20), (2.0, 0.3, 3, 10)])
def test_whatever_is_moved_to_an_infinite_loss_epsilon_only_grows(mechanism):
    found = [composed(*mechanism, share).epsilon for share in (0.0, 0.3, 0.6, 0.9)]
    assert found == sorted(found) and found[-1] > found[0]


def test_numbers_who_join_beyond_those_listed_are_taken_from_delta():
    """Some 10^10 steps, whose chance of a number that is not listed is delta together."""
    group, q, sigma = 200, 0.1, 1e6
    steps = math.ceil(1e-10 / inclusions(group, q).forgotten)
    assert math.isfinite(Account(1e-10, [Charge(sigma, q, steps // 2, group)]).epsilon_rdp())
    spent = Account(1e-10, [Charge(sigma, q, steps, group)])
    assert math.isinf(spent.epsilon_rdp())
    assert math.isinf(spent.epsilon_pld())
