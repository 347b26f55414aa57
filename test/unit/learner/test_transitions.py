# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Returns of n steps end with their episode and their patient."""

import itertools

from fdrl_ros.learner.guarantee import Guarantee
from fdrl_ros.learner.records.records import Records
from fdrl_ros.learner.records.transitions import Transitions
from fdrl_ros.learner.settings import LearnerSettings, PrivacySettings
from fdrl_ros.privacy.accountant.group import records_of_a_transition
from hypothesis import given, settings, strategies
import numpy as np
import pytest
from support.small_hospital import records_of

GAMMA = 0.9


@settings(max_examples=80, deadline=None)
@given(
    lengths=strategies.lists(strategies.integers(1, 6), min_size=1, max_size=5),
    n_step=strategies.integers(1, 7),
    told=strategies.booleans(),
    seed=strategies.integers(0, 2**20),
)
def test_no_return_reaches_across_a_patient_or_the_end_of_an_episode(lengths, n_step, told, seed):
    """States go on from row to row, so that nothing but what is recorded tells them apart."""
    rng, count = np.random.default_rng(seed), sum(lengths)
    terminals, ends = rng.random(count) < 0.3, rng.random(count) < 0.3
    made = records_of(lengths, first=seed, terminals=terminals, ends=ends if told else None)
    found = Transitions.from_records(made, discount=GAMMA, n_step=n_step)
    for start, stop in itertools.pairwise(made.starts):
        for at in range(start, stop):
            total, last = 0.0, at
            for ahead in range(n_step):
                last = at + ahead
                total += GAMMA**ahead * float(made.rewards[last])
                if terminals[last] or (told and ends[last]) or last == stop - 1:
                    break
            left = 0.0 if terminals[last] else GAMMA ** (last - at + 1)
            assert found.rewards[at] == pytest.approx(total, abs=1e-5)
            assert found.discounts[at] == pytest.approx(left, abs=1e-6)
            np.testing.assert_array_equal(found.next_states[at], made.next_states[last])


def test_a_step_of_a_transition_unit_is_in_n_samples():
    """
    What the accountant is told as the group is how many samples a changed step changes.

    They are replaced, not gone, so that each moves a sum by 2 C: Guarantee halves the noise.
    """
    records = records_of([9], terminals=np.arange(9) == 8)
    for n_step in (1, 2, 5):
        rewards = records.rewards.copy()
        rewards[6] += 1.0
        changed = Records(**{**vars(records), 'rewards': rewards})
        first, second = (
            Transitions.from_records(each, discount=GAMMA, n_step=n_step, unit='transition')
            for each in (records, changed)
        )
        assert len(first.starts) == 9 + 1
        assert (first.rewards != second.rewards).sum() == n_step == records_of_a_transition(n_step)


@pytest.mark.parametrize('n_step', [1, 2, 5])
def test_removing_a_step_moves_a_sum_by_less_than_the_charge_allows(n_step):
    """Each sample is a unit vector of its own: the worst that clipped gradients can do."""
    with_it = records_of([9], terminals=np.arange(9) == 8)
    rows = np.delete(np.arange(9), 6)
    arrays = {n: v[rows] for n, v in vars(with_it).items() if n not in ('starts', 'patients')}
    without = Records(**arrays, starts=np.array([0, 8]), patients=with_it.patients)
    samples = [
        {
            (*s, r, *n, d)
            for s, r, n, d in zip(m.states, m.rewards, m.next_states, m.discounts, strict=True)
        }
        for m in (
            Transitions.from_records(each, discount=GAMMA, n_step=n_step, unit='transition')
            for each in (with_it, without)
        )
    ]
    moved = len(samples[0] ^ samples[1])  # all in one direction
    learner = LearnerSettings(n_step=n_step)
    privacy = PrivacySettings(unit='transition', batch=4, budget=50.0, delta=1e-3)
    charge = Guarantee.from_settings(with_it, learner, privacy).charge(1)
    assert moved <= 2 * n_step - 1
    assert moved / privacy.noise_multiplier <= charge.group / charge.noise_multiplier
