# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Whom and what each step of a learner draws."""

from dataclasses import replace
import math
from pathlib import Path

from fdrl_ros.learner.records.records import Records
from fdrl_ros.learner.settings import LearnerSettings, PrivacySettings
from fdrl_ros.learner.trainer import Trainer, TrainingSetup
from fdrl_ros.policy import NetworkShape
from fdrl_ros.privacy.noise import NoiseSource
import numpy as np
import pytest
from support.small_hospital import ledger_of, records_of, trained

SHAPE = NetworkShape(states=2, actions=2, hidden=(3,))
# A network that values everything at 0, and learns too slowly for that to change.
NOTHING = np.zeros(SHAPE.n_parameters, np.float32)
PRIVATE_REPLAY = LearnerSettings(
    epochs=1,
    transitions_per_patient=2,
    optimizer='sgd',
    learning_rate=1e-8,
    proximal=0.0,
    replay='prioritised_poisson',
    priority_exponent=1.0,
    importance_exponent=0.5,
    expected_priority=0.6,
)
QUIET = PrivacySettings(batch=3, noise_multiplier=0.0, delta=1e-3, budget=math.inf, clip_norm=1.0)


class Noting(Trainer):
    """Keeps what each step took: its round, its step, the patients' numbers, the batch."""

    noted: list

    def batch(self, draw, round, step):
        """Note it; states begin with the number of their patient."""
        taken = super().batch(draw, round, step)
        self.noted.append((round, step, taken.states[:, 0, 0].astype(int), taken))
        return taken


def patients(rewards, length: int = 2) -> Records:
    """Make patients of some steps, each of which is its own episode and pays the same reward."""
    numbers = np.repeat(np.arange(len(rewards)), length)
    states = np.stack([numbers, np.arange(len(numbers))], axis=1)
    return records_of(
        [length] * len(rewards),
        states=states,
        actions=np.zeros(len(numbers), np.int64),
        rewards=np.asarray(rewards)[numbers],
        next_states=states,
        terminals=np.ones(len(numbers), bool),
    )


def noting(home: Path, given: Records, steps: int, learner=PRIVATE_REPLAY, name='a') -> Noting:
    ledger, source = ledger_of(home, name, QUIET), NoiseSource.seeded(5)
    made = Noting(TrainingSetup(SHAPE, learner, QUIET, ledger, source), given, home / name, steps)
    made.noted = []
    return made


def train(made: Noting) -> Noting:
    trained(made, NOTHING)
    return made


def test_each_step_of_each_round_draws_other_transitions(tmp_path):
    learner = replace(PRIVATE_REPLAY, replay='poisson', transitions_per_patient=5)
    long = patients([0.5, 0.5, 0.5], length=50)
    made = noting(tmp_path, long, steps=6, learner=learner)  # 3 of 3 join each
    for round in (1, 2, 3):
        trained(made, NOTHING, round)
    drawn = {(who, tuple(row)) for *_, who, taken in made.noted for row, who in rows(taken)}
    # 5 of 50, 54 times: that two are the same is less likely than 1 in 100,000.
    assert len(made.noted) == 18 and len(drawn) == 54


def rows(taken):
    return [(each[:, 1].tolist(), int(each[0, 0])) for each in taken.states]


def test_private_replay_weighs_what_joins_too_often_down_and_nothing_up(tmp_path):
    errors = np.array([0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.9, 1.0])
    made = train(noting(tmp_path, patients(errors), steps=300))
    seen = set()
    for _, _, who, taken in made.noted:
        # 1 in the first time, as it was not known before.
        first = np.array([each not in seen for each in who])
        priority = np.where(first, 1.0, errors[who])
        expected = np.minimum(1.0, 0.6 / priority) ** 0.5
        np.testing.assert_allclose(taken.weights, np.tile(expected[:, None], 2), rtol=1e-4)
        assert taken.weights.max() <= 1.0
        seen |= set(who.tolist())
    assert len(seen) == 10


@pytest.mark.parametrize('replay', ['prioritised', 'prioritised_poisson'])
def test_priorities_are_carried_on_to_more_records(tmp_path, replay):
    learner = replace(PRIVATE_REPLAY, replay=replay)
    made = noting(tmp_path, patients(np.full(10, 0.25)), steps=1, learner=learner)
    state = made.train_on(None, NOTHING, 1, stopped=lambda: False)
    known = replace(state, priorities=np.linspace(0.05, 0.5, 10))
    made.use_records(patients(np.full(14, 0.25)), 1)
    after = made.train_on(known, NOTHING, 2, stopped=lambda: False)
    (who,) = [set(each.tolist()) for round, _, each, _ in made.noted if round == 2]
    for patient in range(14):
        kept = known.priorities[patient] if patient < 10 else 1.0
        expected = 0.25 if patient in who else kept
        assert after.priorities[patient] == pytest.approx(expected, rel=1e-4)
    assert 0 < len(who) < 14
    assert known.priorities[0] == 0.05  # nobody else's state is changed
