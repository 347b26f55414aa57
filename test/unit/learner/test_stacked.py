# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Hospitals trained side by side end where each would have ended alone."""

from dataclasses import replace
import math

from fdrl_ros.errors import BudgetExceededError, SettingError, TrainingStopped
from fdrl_ros.learner.settings import LearnerSettings, PrivacySettings
from fdrl_ros.learner.stacked import StackedTrainers
from fdrl_ros.learner.trainer import Trainer
from fdrl_ros.policy import NetworkShape
from fdrl_ros.privacy.ledger.ledger import Ledger
from fdrl_ros.privacy.noise import NoiseSource
import numpy as np
import pytest
from unit.learner.test_trainer import records

SHAPE = NetworkShape(states=4, actions=3, hidden=(6, 5))
LEARNER = LearnerSettings(epochs=3, transitions_per_patient=4, target_period=3)
PRIVACY = PrivacySettings(batch=8, noise_multiplier=2.0, delta=1e-3, budget=20.0, clip_norm=1.0)
START = SHAPE.draw(np.random.default_rng(0))
SIZES = (40, 40, 25, 33)


def hospitals(directory, learner=LEARNER, privacy=PRIVACY, sizes=SIZES):
    made = []
    for number, size in enumerate(sizes):
        home = directory / str(number)
        home.mkdir(exist_ok=True)
        ledger = Ledger.open(
            home / 'ledger.sqlite',
            hospital=f'hospital_{number}',
            unit=privacy.unit,
            delta=privacy.delta,
            budget=privacy.budget,
        )
        made.append(
            Trainer(
                records(size, number),
                SHAPE,
                learner,
                privacy,
                ledger,
                NoiseSource.seeded(number),
                home / 'checkpoint.npz',
            )
        )
    return made


def alone(trainer, round=1):
    return trainer.train(START, round, report=lambda each: None, stopped=lambda: False)


@pytest.mark.parametrize(
    'changes',
    [{}, {'optimizer': 'sgd'}, {'replay': 'prioritised_poisson'}, {'frozen_layers': 1}],
)
def test_side_by_side_is_one_after_the_other(tmp_path, changes):
    learner = replace(LEARNER, **changes)
    privacy = replace(PRIVACY, budget=math.inf)
    for name in 'ab':
        (tmp_path / name).mkdir()
    expected = [alone(each) for each in hospitals(tmp_path / 'a', learner, privacy)]
    stacked = StackedTrainers(hospitals(tmp_path / 'b', learner, privacy))
    seen = []
    found = stacked.train(START, 1, report=lambda which, each: seen.append((which, each.step)))
    for one, other in zip(expected, found, strict=True):
        np.testing.assert_array_equal(other.weights, one.weights)
        assert other.epsilon == one.epsilon
        assert other.ledger_entries == one.ledger_entries
    assert {which for which, _ in seen} == {0, 1, 2, 3}
    assert (2, 3 * math.ceil(25 / 8)) in seen


def test_what_was_interrupted_goes_on_side_by_side(tmp_path):
    for name in 'ab':
        (tmp_path / name).mkdir()
    undisturbed = StackedTrainers(hospitals(tmp_path / 'a')).train(START, 1)
    asked = iter(range(1000))
    stacked = hospitals(tmp_path / 'b')
    with pytest.raises(TrainingStopped):
        StackedTrainers(stacked).train(START, 1, stopped=lambda: next(asked) >= 12)
    for each in stacked:
        each._ledger.close()
    resumed = StackedTrainers(hospitals(tmp_path / 'b')).train(START, 1)
    for one, other in zip(undisturbed, resumed, strict=True):
        np.testing.assert_array_equal(other.weights, one.weights)
        assert other.epsilon == one.epsilon


def test_a_spent_budget_stops_before_anything_is_drawn(tmp_path):
    trainers = hospitals(tmp_path, privacy=replace(PRIVACY, budget=1.0))
    with pytest.raises(BudgetExceededError):
        StackedTrainers(trainers).train(START, 1)
    assert all(each._ledger.epsilon() <= 1.0 for each in trainers)


def test_learners_of_other_settings_are_refused(tmp_path):
    first = hospitals(tmp_path, sizes=(40,))
    (tmp_path / 'other').mkdir()
    other = hospitals(tmp_path / 'other', replace(LEARNER, epochs=4), sizes=(40,))
    with pytest.raises(SettingError, match='the same settings'):
        StackedTrainers(first + other)
    with pytest.raises(SettingError, match='at least one'):
        StackedTrainers([])
    with pytest.raises(SettingError, match='each hospital once'):
        StackedTrainers([*first, *first])
