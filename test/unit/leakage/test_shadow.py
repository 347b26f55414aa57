# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Shadow models: the trainer's own weights without its ledger, and nothing that could go out."""

from dataclasses import replace
import math
from pathlib import Path

from fdrl_ros.errors import PolicyError, PrivacyError, SettingError
from fdrl_ros.leakage.attacks import alignment
from fdrl_ros.leakage.records_seen import batch_of, gradients_at
from fdrl_ros.leakage.shadow import Draws, ShadowTrainer, ShadowWeights
from fdrl_ros.learner.gradient import DuelingGradients
from fdrl_ros.learner.records.transitions import Transitions
from fdrl_ros.learner.settings import LearnerSettings, PrivacySettings
from fdrl_ros.learner.trainer import Trainer, TrainingSetup
from fdrl_ros.policy import NetworkShape
from fdrl_ros.privacy.ledger.chain import Owner
from fdrl_ros.privacy.ledger.ledger import Ledger
from fdrl_ros.privacy.noise import NoiseSource
from fdrl_ros.worlds.paper.env import PaperHospital
import numpy as np
import pytest

SHAPE = NetworkShape(5, 3, (64, 64))
RECORDS = PaperHospital(heterogeneity=0.5).records(40, seed=1)
LEARNER = LearnerSettings(
    discount=0.9, epochs=3, transitions_per_patient=1, target_period=3, proximal=0.1
)
PRIVACY = PrivacySettings(
    budget=math.inf, delta=1e-3, clip_norm=0.4, noise_multiplier=1.5, batch=8
)
START = SHAPE.draw(np.random.default_rng(0))


def table(discount: float = 0.9) -> np.ndarray:
    found = Transitions.from_records(RECORDS, discount=discount).table
    assert found is not None
    return found


@pytest.mark.parametrize(
    ('learner', 'privacy'),
    [
        ({}, {}),
        ({'optimizer': 'sgd', 'learning_rate': 0.3, 'loss': 'squared'}, {}),
        ({'proximal': 0.0, 'conservative': 1.0}, {'noise_multiplier': 0.0}),
        ({}, {'noise_multiplier': 0.0, 'clip_norm': 1e6}),
    ],
)
def test_weights_are_the_trainers_bit_for_bit(tmp_path: Path, learner, privacy) -> None:
    learner, privacy = replace(LEARNER, **learner), replace(PRIVACY, **privacy)
    owner = Owner(hospital='one', unit='patient', delta=1e-3, budget=math.inf)
    with Ledger(tmp_path / 'ledger.sqlite', owner) as ledger:
        setup = TrainingSetup(SHAPE, learner, privacy, ledger, NoiseSource.seeded(7))
        trainer = Trainer(setup, RECORDS, tmp_path / 'checkpoint')
        weights = START
        for round in (1, 2):
            weights = trainer.train(
                weights, round, report=lambda told: None, stopped=lambda: False
            ).weights

    shadow = ShadowTrainer(SHAPE, learner, privacy)
    found, count = START, RECORDS.n_patients
    for round in (1, 2):
        draws = Draws.of_trainer(
            NoiseSource.seeded(7),
            round,
            shadow.round_steps(count),
            count,
            shadow.rate(count),
            shadow.noise_size,
        )
        found = shadow.train(found, table(), np.arange(count), draws).astype(np.float32)
    assert found.tobytes() == weights.tobytes() and not np.array_equal(found, START)


def test_a_step_that_nobody_joins_moves_by_the_proximal_term_and_noise_alone() -> None:
    shadow = ShadowTrainer(SHAPE, LEARNER, replace(PRIVACY, noise_multiplier=0.0))
    nobody = Draws(np.zeros(0, np.int64), np.zeros(4, np.int64))
    assert np.array_equal(shadow.train(START, table(), np.arange(5), nobody), START)


def test_members_alone_matter() -> None:
    shadow = ShadowTrainer(SHAPE, LEARNER, replace(PRIVACY, noise_multiplier=0.0))
    draws = Draws.seeded(np.random.default_rng(1), 6, 10, 0.5)
    members, other = np.arange(10, 20), table()
    first = shadow.train(START, other, members, draws)
    other = other.copy()
    other[:10] = other[20:30]
    assert np.array_equal(shadow.train(START, other, members, draws), first)
    other[10:20] = other[20:30]
    assert not np.array_equal(shadow.train(START, other, members, draws), first)


def test_coins_are_fair_to_everybody() -> None:
    draws = Draws.seeded(np.random.default_rng(2), 4000, 20, 0.25)
    counts = np.bincount(draws.joined, minlength=20)
    assert draws.steps == 4000 and draws.noise is None
    assert np.abs(counts - 1000).max() < 5.0 * math.sqrt(4000 * 0.25 * 0.75)  # 1e-5 by chance


def test_secret_noise_and_what_the_loop_lacks_are_refused(tmp_path: Path) -> None:
    with pytest.raises(PrivacyError, match='seeded noise only'):
        Draws.of_trainer(NoiseSource.secure(tmp_path / 'noise.key'), 1, 2, 3, 0.5)
    for name, value in (('averaging', 0.5), ('frozen', 'value'), ('replay', 'uniform')):
        with pytest.raises(SettingError, match=name):
            ShadowTrainer(SHAPE, replace(LEARNER, **{name: value}), PRIVACY)


def test_what_does_not_fit_is_refused() -> None:
    shadow = ShadowTrainer(SHAPE, LEARNER, PRIVACY)
    draws = Draws.seeded(np.random.default_rng(1), 3, 10, 1.0, shadow.noise_size)
    members = np.arange(10)
    with pytest.raises(SettingError, match='start'):
        shadow.train(START[1:], table(), members, draws)
    with pytest.raises(SettingError, match='table'):
        shadow.train(START, table()[:, 1:], members, draws)
    with pytest.raises(SettingError, match='joined'):
        shadow.train(START, table(), members[:5], draws)
    with pytest.raises(SettingError, match='noise'):
        shadow.train(START, table(), members, replace(draws, noise=None))
    with pytest.raises(SettingError, match='index'):
        shadow.train(START, table(), members + 40, draws)


def test_weights_of_shadows_do_not_change_and_are_finite() -> None:
    made = ShadowWeights(START)
    with pytest.raises(ValueError, match='read-only'):
        made.values[0] = 1.0
    with pytest.raises(PolicyError, match='diverged'):
        ShadowWeights(np.array([math.nan], np.float32))
    steep = ShadowTrainer(
        SHAPE,
        replace(LEARNER, optimizer='sgd', learning_rate=1000.0, loss='squared'),
        replace(PRIVACY, noise_multiplier=0.0, clip_norm=1e6),
    )
    draws = Draws.seeded(np.random.default_rng(1), 200, 40, 1.0)
    with pytest.raises(PolicyError, match='diverged'):
        ShadowWeights(steep.train(START, table(), np.arange(40), draws))


def test_cosines_from_factors_are_those_of_formed_gradients() -> None:
    shadow = ShadowTrainer(SHAPE, LEARNER, PRIVACY)
    batch = batch_of(table(), 5)
    found = gradients_at(shadow, START, batch)
    formed = found.formed()
    one = DuelingGradients(SHAPE, LEARNER)
    for row in (0, 3, 17):
        alone = batch.mapped(lambda column, row=row: column[row : row + 1])
        assert formed[row] == pytest.approx(one.mean(START, START, alone), abs=1e-6)
    update = np.random.default_rng(3).normal(size=SHAPE.n_parameters)
    assert found.descent_along(update) == pytest.approx(alignment(update, formed), abs=1e-6)
    assert found.descent_along(-formed[4])[4] == pytest.approx(1.0, abs=1e-6)
