# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What the compiled learner's losses learn from records of people of little skill."""

from dataclasses import replace

from fdrl_ros.errors import PrivacyError
from fdrl_ros.learner.learner import TrainingResult
from fdrl_ros.learner.pretraining import pretrain, PretrainingSettings, Start
from fdrl_ros.learner.settings import LearnerSettings
from fdrl_ros.learner.trainer import Trainer, TrainingSetup
from fdrl_ros.policy import NetworkShape
from fdrl_ros.privacy.noise import NoiseSource
import numpy as np
import pytest
from support.corridor import corridor_records, DISCOUNT, PLACES, reaches_the_goal
from support.small_hospital import ledger_of, PRIVACY, trained

SHAPE = NetworkShape(PLACES, 2, (16,))
START = SHAPE.draw(np.random.default_rng(0))
LEARNED = [
    ('behaviour_cloning', False),
    ('advantage_weighted', True),
    ('double_dqn', True),
]


@pytest.mark.parametrize(('algorithm', 'better'), LEARNED)
def test_cloning_does_what_most_did_and_the_others_what_paid(algorithm, better):
    learner = LearnerSettings(algorithm=algorithm, temperature=0.5)
    settings = PretrainingSettings(
        steps=400, batch=128, learning_rate=0.01, target_period=20, discount=DISCOUNT
    )
    start = Start(START, SHAPE, learner)
    found = pretrain(corridor_records(), start, settings, np.random.default_rng(1))
    assert reaches_the_goal(SHAPE.policy(found)) == better


@pytest.mark.parametrize(('algorithm', 'better'), LEARNED[:2])
def test_private_training_learns_the_same(tmp_path, algorithm, better):
    """C leaves the weights room: clipped to less, all patients add as much."""
    learner = LearnerSettings(
        algorithm=algorithm,
        temperature=0.5,
        discount=DISCOUNT,
        epochs=40,
        transitions_per_patient=8,
        learning_rate=0.01,
        target_period=10,
        proximal=0.0,
    )
    privacy = replace(PRIVACY, batch=50, noise_multiplier=0.7, clip_norm=5.0)
    with ledger_of(tmp_path, 'h', privacy) as ledger:
        setup = TrainingSetup(SHAPE, learner, privacy, ledger, NoiseSource.seeded(3))
        made: TrainingResult = trained(
            Trainer(setup, corridor_records(), tmp_path / 'checkpoint'), START
        )
    assert reaches_the_goal(SHAPE.policy(made.weights)) == better


def test_a_return_to_the_end_of_an_episode_has_no_transition_as_its_unit(tmp_path):
    """Each step is part of every return before it: of how many, no one can say in public."""
    privacy = replace(PRIVACY, unit='transition', delta=1e-4)
    learner = LearnerSettings(algorithm='advantage_weighted')
    with ledger_of(tmp_path, 'h', privacy) as ledger:
        setup = TrainingSetup(SHAPE, learner, privacy, ledger, NoiseSource.seeded(3))
        with pytest.raises(PrivacyError, match="end of its episode; take 'patient'"):
            Trainer(setup, corridor_records(), tmp_path / 'checkpoint')
        assert not ledger.chain.history()
