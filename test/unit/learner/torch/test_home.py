# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Home policies of PyTorch modules: tensors frozen at home, continuous actions."""

from dataclasses import replace
import math

from fdrl_ros.learner.checkpoint import Checkpoint
from fdrl_ros.learner.home import agreement, HomeSetup, HomeTrainer, PERSONAL
from fdrl_ros.learner.settings import HomeSettings, LearnerSettings
from fdrl_ros.learner.torch.learner import torch_network
from fdrl_ros.learner.trainer import Trainer, TrainingSetup
from fdrl_ros.privacy.noise import NoiseSource
from fdrl_ros.tasks.spec import TaskSpec
import numpy as np
import pytest
from support.small_hospital import ledger_of, PRIVACY, records_of

SPEC = TaskSpec((5,), actions=('a', 'b', 'c', 'd'))
VECTOR = TaskSpec((5,), low=(-2.0, 0.0), high=(2.0, 5.0))
LEARNER = LearnerSettings(
    kind='torch', hidden=8, transitions_per_patient=3, epochs=1, device='cpu'
)
HOME = HomeSettings(epochs=2, learning_rate=0.05, frozen='value', choice_noise=0.0)
OPEN = replace(PRIVACY, batch=8, noise_multiplier=0.5, budget=math.inf)


def test_tensors_frozen_at_home_alone_come_back_in_the_order_of_the_federation(tmp_path):
    network = torch_network(SPEC, LEARNER)
    tuned = torch_network(SPEC, HOME.fine_tuned(LEARNER))
    ours, theirs = network.layout, tuned.layout
    assert [each.name for each in ours.tensors] != [each.name for each in theirs.tensors]
    released = network.draw(np.random.default_rng(1))
    records = records_of([3] * 40, (5, 4))
    home = HomeSetup(HOME, released, tuned)
    with ledger_of(tmp_path, 'hospital_1', OPEN) as ledger:
        setup = TrainingSetup(network, LEARNER, OPEN, ledger, NoiseSource.seeded(3))
        trainer = HomeTrainer(setup, records, tmp_path / 'checkpoint', home)
        found = trainer.home(released, 1)
        state = Checkpoint.read(tmp_path / 'home_checkpoint', ledger)
    weights = ours.reordered(state.weights.astype(np.float32), theirs)
    before, after = ours.split(released), ours.split(weights)
    for name in before:
        assert np.array_equal(before[name], after[name]) == name.startswith('value'), name
    expected = weights if found.chosen == PERSONAL else released
    np.testing.assert_array_equal(found.weights, expected)
    # Without noise the lead is that of the plain means; both are within the clip or shortened.
    assert -0.2 <= found.leads[PERSONAL] <= 0.2


def test_continuous_actions_score_by_how_near_they_are(tmp_path):
    learner = replace(LEARNER, algorithm='behaviour_cloning')
    network = torch_network(VECTOR, learner)
    weights = network.draw(np.random.default_rng(1))
    policy = network.policy(weights)
    plain = records_of([3] * 40, (5, 2))
    given = policy.q_values(plain.states)
    off = np.zeros_like(given)
    off[60:, 0] = 2.0
    records = replace(plain, actions=(given + off).astype(np.float32))
    with ledger_of(tmp_path, 'hospital_1', OPEN) as ledger:
        setup = TrainingSetup(network, learner, OPEN, ledger, NoiseSource.seeded(3))
        found = agreement(Trainer(setup, records, tmp_path / 'checkpoint'), policy)
    assert found[:20] == pytest.approx(1.0, abs=1e-6)
    assert found[20:] == pytest.approx(1.0 / (1.0 + 2.0), abs=1e-6)
