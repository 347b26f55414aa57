# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Who acts while an online learner collects, what it explores, and what it learns on from."""

from dataclasses import replace

from fdrl_ros.errors import RecordsError
from fdrl_ros.learner.online import GymCollector, OnlineSettings, OnlineTrainer
from fdrl_ros.learner.settings import LearnerSettings
from fdrl_ros.learner.trainer import Trainer, TrainingSetup
from fdrl_ros.policy import NetworkShape
import gymnasium
import numpy as np
import pytest
from support.small_hospital import (
    joined,
    ledger_of,
    PRIVACY,
    RecordedNoise,
    records,
    records_of,
    SHAPE,
    START,
)

ONLINE = OnlineSettings(
    rounds=6, patients=5, warm_up=10, exploration=0.8, final_exploration=0.1, exploration_rounds=3
)
LEARNER = LearnerSettings(transitions_per_patient=2, target_period=4, learning_rate=0.05)
POLE = NetworkShape(states=4, actions=2, hidden=(8,))


class Asked:
    """Hands out patients who are there already, and notes who acts on them and how."""

    def __init__(self) -> None:
        self.noted: list = []

    def collect(self, policy, exploration, first, count):
        self.noted.append((policy.weights, exploration, first, count))
        return records(count, first)


def online(home, learner=LEARNER):
    setup = TrainingSetup(
        SHAPE, learner, PRIVACY, ledger_of(home, 'a', PRIVACY), RecordedNoise('a', [])
    )
    asked = Asked()
    return OnlineTrainer(setup, asked, ONLINE, home), asked


def test_the_latest_private_policy_acts_and_explores_as_its_round_says(tmp_path):
    made, asked = online(tmp_path)
    released: list = []
    made.train(START, report=lambda told, weights: released.append(weights.copy()))
    acting = [START, *released[:-1]]
    assert len(asked.noted) == len(acting) == 6
    for round, (weights, exploration, first, count) in enumerate(asked.noted, 1):
        np.testing.assert_array_equal(weights, acting[round - 1])
        assert exploration == pytest.approx(max(0.1, 0.8 - 0.7 * (round - 1) / 3))
        assert (first, count) == (5 * (round - 1), 5)
    # Nothing is learned in round 1, and something in each of the others.
    assert len({each.tobytes() for each in released}) == 6


@pytest.mark.parametrize(
    'replay, optimizer', [('poisson', 'sgd'), ('prioritised_poisson', 'adam')]
)
def test_a_round_goes_on_from_the_state_of_the_round_before(tmp_path, replay, optimizer):
    """Rounds of an online learner are single blocks on ever more records, one after another."""
    learner = replace(LEARNER, replay=replay, optimizer=optimizer)
    found = online(tmp_path, learner)[0].train(START)
    learner, state = replace(learner, epochs=1, proximal=0.0), None
    with ledger_of(tmp_path, 'b', PRIVACY) as ledger:
        setup = TrainingSetup(SHAPE, learner, PRIVACY, ledger, RecordedNoise('a', []))
        parts = [records(5, first) for first in range(0, 30, 5)]
        for round in range(2, 7):
            alone = Trainer(setup, joined(parts[:round]), tmp_path / 'b.state', steps=5)
            state = alone.train_on(state, START, round, stopped=lambda: False)
    np.testing.assert_array_equal(found, state.weights.astype(np.float32))
    assert state.steps == 25


def test_a_collector_acts_by_the_policy_but_for_the_share_that_it_explores():
    # Longer than a pole stands, so that patients end by themselves.
    collector = GymCollector(gymnasium.make('CartPole-v1'), seed=3)
    policy = POLE.policy(POLE.draw(np.random.default_rng(1)))
    for share in (0.0, 0.4, 1.0):
        made = collector.collect(policy, share, 0, 60)
        chosen = policy.q_values(made.states).argmax(axis=1)
        other = float((made.actions != chosen).mean())
        # An action that is drawn is another one half of the time; false alarm: below 1e-6.
        spread = 5.0 * np.sqrt(share / 2 * (1 - share / 2) / made.n_transitions)
        assert abs(other - share / 2) <= spread


@pytest.mark.parametrize('longest', [4, 500])
def test_an_episode_that_is_cut_off_ends_and_is_not_terminal(longest):
    """What is cut off still has a value; what fell has none."""
    env = gymnasium.make('CartPole-v1', max_episode_steps=longest)
    policy = POLE.policy(POLE.draw(np.random.default_rng(1)))
    made = GymCollector(env, seed=3).collect(policy, 1.0, 0, 8)
    last = made.starts[1:] - 1
    assert made.terminals[last].tolist() == [longest == 500] * 8
    assert made.terminals.sum() == (8 if longest == 500 else 0)
    assert np.flatnonzero(made.ends).tolist() == last.tolist()
    if longest == 4:
        assert np.diff(made.starts).tolist() == [4] * 8


def test_states_of_another_width_are_refused_before_they_are_kept(tmp_path):
    made, asked = online(tmp_path)
    asked.collect = lambda policy, share, first, count: records_of([3] * count, (5, 2), first)
    with pytest.raises(RecordsError, match='states of 5 numbers, expected 2'):
        made.train(START)
    assert made.transitions == 0
