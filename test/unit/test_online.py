# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Online learning: what is collected, what each round is charged, and how it goes on."""

from dataclasses import replace
import math
import os
import signal
import subprocess
import sys

from fdrl_ros.errors import BudgetExceededError, RecordsError
from fdrl_ros.policy import NetworkShape
from fdrl_ros.privacy.accountant import epsilon_pld
from fdrl_ros.privacy.ledger import Ledger
from fdrl_ros.privacy.noise import NoiseSource
from fdrl_ros.trainer.learner import TrainingStopped
from fdrl_ros.trainer.online import GymCollector, OnlineSettings, OnlineTrainer
from fdrl_ros.trainer.records import Records
from fdrl_ros.trainer.settings import LearnerSettings, PrivacySettings
import gymnasium
import numpy as np
import pytest

SHAPE = NetworkShape(states=4, actions=2, hidden=(8,))
ONLINE = OnlineSettings(rounds=6, patients=5, updates=1.0, warm_up=10, exploration_rounds=4)
LEARNER = LearnerSettings(transitions_per_patient=4, target_period=5)
PRIVACY = PrivacySettings(batch=4, noise_multiplier=2.0, delta=1e-3, budget=40.0, clip_norm=1.0)
START = SHAPE.draw(np.random.default_rng(0))


class Site:
    """A hospital that can be taken down and set up again."""

    def __init__(self, directory, online=ONLINE, learner=LEARNER, privacy=PRIVACY) -> None:
        directory.mkdir(exist_ok=True)
        self.ledger = Ledger.open(
            directory / 'ledger.sqlite',
            hospital='hospital_1',
            unit=privacy.unit,
            delta=privacy.delta,
            budget=privacy.budget,
        )
        self.collector = GymCollector(gymnasium.make('CartPole-v1'), seed=3)
        self.trainer = OnlineTrainer(
            self.collector,
            SHAPE,
            online,
            learner,
            privacy,
            self.ledger,
            NoiseSource.seeded(7),
            directory,
        )

    def train(self, **options):
        try:
            return self.trainer.train(START, **options)
        finally:
            self.ledger.close()


def test_each_round_is_charged_with_its_own_sampling_probability(tmp_path):
    site = Site(tmp_path / 'a')
    seen = []
    site.trainer.train(START, report=lambda told, weights: seen.append(told))
    # Rounds 2 to 6 have 10, 15, ... patients and 5 new ones, so 5 steps, each.
    assert site.ledger.history() == tuple((2.0, 4 / n, 5, 1) for n in (10, 15, 20, 25, 30))
    never_the_last = epsilon_pld([(2.0, 4 / 30, 25)], 1e-3)
    assert site.ledger.epsilon() > never_the_last
    assert [told.round for told in seen] == [1, 2, 3, 4, 5, 6]
    assert seen[0].epsilon == 0.0 and seen[-1].epsilon >= site.ledger.epsilon()


def test_transitions_as_units_take_a_step_for_each_new_one(tmp_path):
    privacy = replace(PRIVACY, unit='transition', delta=1e-5, budget=math.inf)
    learner = replace(LEARNER, n_step=3)
    site = Site(tmp_path / 'a', learner=learner, privacy=privacy)
    site.trainer.train(START)
    parts = [Records.load(tmp_path / 'a' / f'patients_{i}.npz', 4) for i in range(1, 7)]
    lengths = [len(each.actions) for each in parts]
    history = site.ledger.history()
    assert [each.steps for each in history] == lengths  # already the first round has enough
    assert [each.sampling_probability for each in history] == pytest.approx(4 / np.cumsum(lengths))
    assert {each.group for each in history} == {3}


@pytest.mark.parametrize('replay', ['poisson', 'prioritised'])
def test_stopped_anywhere_it_goes_on_to_the_very_same_weights(tmp_path, replay):
    learner = replace(LEARNER, replay=replay)
    privacy = replace(PRIVACY, budget=math.inf)
    undisturbed = Site(tmp_path / 'a', learner=learner, privacy=privacy).train()
    for stop_at in (0, 4, 9, 17):
        asked = iter(range(1000))
        with pytest.raises(TrainingStopped):
            Site(tmp_path / str(stop_at), learner=learner, privacy=privacy).train(
                stopped=lambda asked=asked, last=stop_at: next(asked) >= last
            )
        resumed = Site(tmp_path / str(stop_at), learner=learner, privacy=privacy).train()
        np.testing.assert_array_equal(resumed, undisturbed)


CHILD = """
import os, signal, sys
sys.path.insert(0, {test!r})
from pathlib import Path
import test_online
from fdrl_ros.trainer import trainer
save = trainer.Checkpoint.save
def kill(self, path):
    if self.round == 4:
        os.kill(os.getpid(), signal.SIGKILL)
    save(self, path)
trainer.Checkpoint.save = kill
test_online.Site(Path({directory!r})).train()
"""


def test_kill_9_in_a_round_changes_nothing_and_charges_it_once(tmp_path):
    expected = Site(tmp_path / 'a').train()
    code = CHILD.format(test=os.path.dirname(__file__), directory=str(tmp_path / 'b'))
    ended = subprocess.run([sys.executable, '-c', code], timeout=60, check=False)
    assert ended.returncode == -signal.SIGKILL
    site = Site(tmp_path / 'b')
    assert len(site.ledger.history()) == 3  # the round that was cut short is paid for
    found = site.train()
    np.testing.assert_array_equal(found, expected)


def test_it_stops_before_the_budget_is_passed_and_keeps_what_it_has(tmp_path):
    site = Site(tmp_path / 'a', privacy=replace(PRIVACY, budget=2.0))
    seen = []
    with pytest.raises(BudgetExceededError):
        site.trainer.train(START, report=lambda told, weights: seen.append(weights))
    assert 0.0 < site.ledger.epsilon() <= 2.0
    assert not np.array_equal(seen[-1], START)


def test_the_same_number_is_the_same_patient_whatever_was_before():
    from fdrl_ros.policy import Policy

    collector = GymCollector(gymnasium.make('CartPole-v1'), seed=3)
    policy = Policy(START, SHAPE)
    together = collector.collect(policy, 0.3, 5, 4)
    alone = collector.collect(policy, 0.3, 7, 1)
    own = slice(together.starts[2], together.starts[3])
    np.testing.assert_array_equal(together.states[own], alone.states)
    np.testing.assert_array_equal(together.actions[own], alone.actions)
    assert together.patients[2] == alone.patients[0] == 'patient_7'


def test_exploration_falls_in_a_line_and_stays():
    told = [ONLINE.explored(each) for each in (1, 3, 5, 6)]
    assert told == pytest.approx([1.0, 0.525, 0.05, 0.05])


def test_records_put_together_are_of_different_patients():
    collector = GymCollector(gymnasium.make('CartPole-v1'), seed=3)
    from fdrl_ros.policy import Policy

    policy = Policy(START, SHAPE)
    first, second = (collector.collect(policy, 0.5, at, 2) for at in (0, 2))
    both = Records.joined([first, second])
    assert both.n_patients == 4
    assert both.digest() == collector.collect(policy, 0.5, 0, 4).digest()
    with pytest.raises(RecordsError, match='twice'):
        Records.joined([first, first])
    with pytest.raises(RecordsError, match='no records'):
        Records.joined([])
