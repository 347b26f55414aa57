# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Returns of n steps end with their episode and their patient."""

from fdrl_ros.learner.guarantee import Guarantee
from fdrl_ros.learner.records.records import Records
from fdrl_ros.learner.records.transitions import Transitions
from fdrl_ros.learner.settings import LearnerSettings, PrivacySettings
from fdrl_ros.privacy.accountant.group import records_of_a_transition
from hypothesis import given, settings, strategies
import numpy as np
import pytest

GAMMA = 0.9


def records_of(lengths, terminated, rng, episodes_per_patient=2):
    """Make episodes of given lengths, two to a patient, whose states tell where they are."""
    states, next_states, terminals, rewards = [], [], [], []
    for number, (length, ended) in enumerate(zip(lengths, terminated, strict=True)):
        path = np.stack([np.full(length + 1, number), np.arange(length + 1)], axis=1)
        states.append(path[:-1])
        next_states.append(path[1:])
        terminals.append([False] * (length - 1) + [ended])
        rewards.append(rng.normal(size=length))
    per_patient = [
        sum(lengths[i : i + episodes_per_patient])
        for i in range(0, len(lengths), episodes_per_patient)
    ]
    count = sum(lengths)
    return Records(
        states=np.concatenate(states).astype(np.float32),
        actions=np.zeros(count, np.int64),
        rewards=np.concatenate(rewards).astype(np.float32),
        next_states=np.concatenate(next_states).astype(np.float32),
        terminals=np.concatenate(terminals).astype(bool),
        starts=np.concatenate(([0], np.cumsum(per_patient))),
        patients=np.array([f'patient_{i}' for i in range(len(per_patient))]),
    )


@settings(max_examples=60, deadline=None)
@given(
    strategies.lists(
        strategies.tuples(strategies.integers(1, 6), strategies.booleans()), min_size=1
    ),
    strategies.integers(1, 8),
    strategies.integers(0, 2**20),
)
def test_n_step_return_is_the_sum_written_out(episodes, n_step, seed):
    lengths, terminated = zip(*episodes, strict=True)
    records = records_of(lengths, terminated, np.random.default_rng(seed))
    made = Transitions.from_records(records, discount=GAMMA, n_step=n_step)
    at = 0
    for length, ended in episodes:
        for step in range(length):
            ahead = min(n_step, length - step)
            total = sum(GAMMA**k * float(records.rewards[at + step + k]) for k in range(ahead))
            assert made.rewards[at + step] == pytest.approx(total, abs=1e-5)
            over = ended and step + ahead == length
            expected = 0.0 if over else GAMMA**ahead
            assert made.discounts[at + step] == pytest.approx(expected)
            assert made.next_states[at + step, 1] == step + ahead
            assert made.next_states[at + step, 0] == made.states[at + step, 0]
        at += length


def test_a_step_of_a_transition_unit_is_in_n_samples():
    """
    What the accountant is told as the group is how many samples a changed step changes.

    They are replaced, not gone, so that each moves a sum by 2 C: Guarantee halves the noise.
    """
    rng = np.random.default_rng(0)
    for n_step in (1, 2, 5):
        records = records_of([9], [True], rng, 1)
        rewards = records.rewards.copy()
        rewards[6] += 1.0
        changed = Records(**{**vars(records), 'rewards': rewards})
        first, second = (
            Transitions.from_records(each, discount=GAMMA, n_step=n_step, unit='transition')
            for each in (records, changed)
        )
        assert len(first.starts) == 9 + 1
        assert (first.rewards != second.rewards).sum() == n_step == records_of_a_transition(n_step)


def test_the_records_themselves_are_not_changed():
    records = records_of([4, 4], [True, False], np.random.default_rng(1))
    before = records.digest()
    Transitions.from_records(records, discount=GAMMA, n_step=3)
    assert records.digest() == before


@pytest.mark.parametrize('n_step', [1, 2, 5])
def test_removing_a_step_moves_a_sum_by_less_than_the_charge_allows(n_step):
    """Each sample is a unit vector of its own: the worst that clipped gradients can do."""
    with_it = records_of([9], [True], np.random.default_rng(0), 1)
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
