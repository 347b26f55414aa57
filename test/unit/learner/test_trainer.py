# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The private learner: what it draws, spends and resumes."""

from dataclasses import replace
import math
import os
from pathlib import Path
import signal
import subprocess
import sys

from fdrl_ros.errors import BudgetExceededError, PrivacyError, RecordsError, TrainingStopped
from fdrl_ros.learner.gradient import DoubleDqn
from fdrl_ros.learner.network import Layered
from fdrl_ros.learner.records.records import Records
from fdrl_ros.learner.records.transitions import Transitions
from fdrl_ros.learner.settings import LearnerSettings, PrivacySettings
from fdrl_ros.learner.trainer import Trainer, TrainingSetup
from fdrl_ros.policy import NetworkShape
from fdrl_ros.privacy.accountant.accountant import epsilon_pld
from fdrl_ros.privacy.ledger.ledger import Ledger
from fdrl_ros.privacy.mechanism import poisson_sample
from fdrl_ros.privacy.noise import NoiseSource
import numpy as np
import pytest

SHAPE = NetworkShape(states=4, actions=3, hidden=(6,))
LEARNER = LearnerSettings(epochs=3, transitions_per_patient=4, target_period=3)
PRIVACY = PrivacySettings(batch=8, noise_multiplier=2.0, delta=1e-3, budget=20.0, clip_norm=1.0)
START = SHAPE.draw(np.random.default_rng(0))
APART = Layered(SHAPE, START)
WITHIN = PRIVACY.clip_norm * (1.0 - 2.0**-10)  # what clipping leaves room for


def records(patients: int = 40, seed: int = 0) -> Records:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 9, size=patients)
    count = int(lengths.sum())
    return Records(
        states=rng.normal(size=(count, 4)).astype(np.float32),
        actions=rng.integers(3, size=count),
        rewards=rng.normal(size=count).astype(np.float32),
        next_states=rng.normal(size=(count, 4)).astype(np.float32),
        terminals=rng.integers(2, size=count).astype(bool),
        starts=np.concatenate(([0], np.cumsum(lengths))),
        patients=np.array([f'patient_{i}' for i in range(patients)]),
    )


class Ward:
    """A hospital's directory, with a trainer that can be taken down and set up again."""

    def __init__(self, directory: Path, privacy=PRIVACY, learner=LEARNER, source=None) -> None:
        self.directory, self.privacy, self.learner = directory, privacy, learner
        self.source = source or NoiseSource.seeded(7)
        self.ledger: Ledger | None = None
        self.begin()

    def begin(self) -> None:
        if self.ledger:
            self.ledger.close()
        self.ledger = Ledger.open(
            self.directory / 'ledger.sqlite',
            hospital='hospital_1',
            unit=self.privacy.unit,
            delta=self.privacy.delta,
            budget=self.privacy.budget,
        )
        self.trainer = Trainer(
            TrainingSetup(SHAPE, self.learner, self.privacy, self.ledger, self.source),
            records(),
            self.directory / 'checkpoint.npz',
        )

    def gradient(self, step):
        replay = self.trainer.replay()
        return self.trainer.private_gradient(replay, APART, APART, 1, step)

    def train(self, round=1, weights=START, stopped=lambda: False, report=lambda progress: None):
        return self.trainer.train(weights, round, report=report, stopped=stopped)


def test_spends_what_its_steps_cost_and_reports_no_less_on_the_way(tmp_path):
    ward = Ward(tmp_path)
    seen: list = []
    result = ward.train(report=seen.append)
    steps = 3 * 5  # 3 epochs of 40 / 8 steps
    assert result.epsilon == pytest.approx(epsilon_pld([(2.0, 0.2, steps)], 1e-3), abs=1e-9)
    assert [(p.step, p.steps) for p in seen] == [(5, 15), (10, 15), (15, 15)]
    assert seen[-1].epsilon >= result.epsilon
    assert result.ledger_entries == 3
    assert (result.ledger_entries, result.ledger_head) == tuple(ward.ledger.head())


def test_same_round_asked_again_is_the_same_and_costs_nothing(tmp_path):
    ward = Ward(tmp_path)
    first = ward.train()
    ward.begin()
    again = ward.train()
    np.testing.assert_array_equal(first.weights, again.weights)
    assert again.epsilon == first.epsilon


@pytest.mark.parametrize('stop_at', [0, 3, 5, 7, 14])
def test_training_stopped_anywhere_goes_on_to_the_very_same_weights(tmp_path, stop_at):
    (tmp_path / 'a').mkdir()
    (tmp_path / 'b').mkdir()
    undisturbed = Ward(tmp_path / 'a').train()
    ward = Ward(tmp_path / 'b')
    asked = iter(range(1000))
    with pytest.raises(TrainingStopped):
        ward.train(stopped=lambda: next(asked) >= stop_at)
    ward.begin()
    resumed = ward.train()
    np.testing.assert_array_equal(resumed.weights, undisturbed.weights)
    assert resumed.epsilon == undisturbed.epsilon


def test_damaged_checkpoint_is_trained_over_for_free(tmp_path):
    ward = Ward(tmp_path)
    first = ward.train()
    (tmp_path / 'checkpoint.npz').write_bytes(b'no archive')
    ward.begin()
    again = ward.train()
    np.testing.assert_array_equal(first.weights, again.weights)
    assert again.epsilon == first.epsilon


CHILD = """
import os, signal, sys
sys.path.insert(0, {test!r})
from pathlib import Path
import test_trainer
from fdrl_ros.learner import trainer
save = trainer.Checkpoint.save
reserve = test_trainer.Ledger.reserve
def kill(*arguments, **options):
    os.kill(os.getpid(), signal.SIGKILL)
def before(self, **options):
    made = reserve(self, **options)
    return made if options['block'] < 1 else kill()
if {where!r} == 'reserve':
    test_trainer.Ledger.reserve = before
else:
    trainer.Checkpoint.save = lambda self, *to: kill() if self.blocks == 2 else save(self, *to)
test_trainer.Ward(Path({directory!r})).train()
"""


@pytest.mark.parametrize('where', ['reserve', 'checkpoint'])
def test_kill_9_between_reserving_and_saving_charges_the_block_once(tmp_path, where):
    (tmp_path / 'a').mkdir()
    (tmp_path / 'b').mkdir()
    undisturbed = Ward(tmp_path / 'a').train()
    code = CHILD.format(test=os.path.dirname(__file__), where=where, directory=str(tmp_path / 'b'))
    ended = subprocess.run([sys.executable, '-c', code], timeout=60, check=False)
    assert ended.returncode == -signal.SIGKILL
    ward = Ward(tmp_path / 'b')
    assert len(ward.ledger.history()) == 2  # the block that was cut short is paid for
    resumed = ward.train()
    np.testing.assert_array_equal(resumed.weights, undisturbed.weights)
    assert resumed.epsilon == undisturbed.epsilon


def test_other_weights_for_a_round_that_was_trained_are_refused(tmp_path):
    ward = Ward(tmp_path)
    ward.train()
    with pytest.raises(PrivacyError, match='inputs'):
        ward.train(weights=START + 1)


def test_stops_before_the_budget_is_passed_and_refuses_a_round_up_front(tmp_path):
    one_round = epsilon_pld([(2.0, 0.2, 15)], 1e-3)
    ward = Ward(tmp_path, privacy=replace(PRIVACY, budget=one_round + 0.1))
    ward.trainer.check_affordable(1)
    ward.train()
    ward.trainer.check_affordable(1)  # already paid for
    with pytest.raises(BudgetExceededError):
        ward.trainer.check_affordable(2)
    with pytest.raises(BudgetExceededError):
        ward.train(round=2)
    assert ward.ledger.epsilon() <= one_round + 0.1


def test_noise_of_another_key_for_a_round_that_was_begun_is_refused(tmp_path):
    ward = Ward(tmp_path)
    ward.train()
    (tmp_path / 'checkpoint.npz').unlink()
    ward.source = NoiseSource.seeded(8)
    ward.begin()
    with pytest.raises(PrivacyError, match='inputs'):
        ward.train()


def test_one_step_is_the_clipped_poisson_mean_plus_the_stated_noise(tmp_path):
    """The slow, obvious version of DP-DQN Alg. 1 for the first step."""
    learner = LearnerSettings(epochs=1, transitions_per_patient=4, learning_rate=0.01)
    ward = Ward(tmp_path, learner=learner)
    data, source = records(), NoiseSource.seeded(7)
    units = poisson_sample(40, 0.2, source, 1, 0)
    uniforms = source.uniform('transitions', 1, 0, 4 * len(units)).reshape(-1, 4)
    steps, dqn = Transitions.from_records(data, discount=learner.discount), DoubleDqn(SHAPE)
    total = np.zeros(SHAPE.n_parameters)
    for unit, draws in zip(units, uniforms, strict=True):
        own = np.arange(data.starts[unit], data.starts[unit + 1])
        chosen = own[(draws * len(own)).astype(int)]
        gradient = dqn.clipped_sum(APART, APART, steps.at(chosen[None]), 1e9)
        total += gradient / max(1.0, np.linalg.norm(gradient) / WITHIN)
    std = PRIVACY.noise_multiplier * PRIVACY.clip_norm
    expected = (total + std * source.gaussian('gradient', 1, 0, len(total))) / 8
    found = ward.gradient(step=0)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


def test_batch_noise_and_divisor_do_not_depend_on_who_came(tmp_path):
    """Without data in the batch the step is pure noise of std sigma C / L, not zero."""
    ward = Ward(tmp_path)
    source = NoiseSource.seeded(7)
    empty = next(s for s in range(100_000) if not len(poisson_sample(40, 0.2, source, 1, s)))
    noise = source.gaussian('gradient', 1, empty, SHAPE.n_parameters)
    np.testing.assert_allclose(ward.gradient(step=empty), 2.0 / 8 * noise, atol=1e-6)


def test_transition_unit_makes_every_transition_a_unit(tmp_path):
    ward = Ward(tmp_path, privacy=replace(PRIVACY, unit='transition'))
    assert ward.trainer.n_units == len(records().actions)


@pytest.mark.parametrize('privacy', [replace(PRIVACY, batch=41), replace(PRIVACY, delta=0.1)])
def test_settings_that_void_the_guarantee_are_refused(tmp_path, privacy):
    with pytest.raises(PrivacyError):
        Ward(tmp_path, privacy=privacy)


@pytest.mark.parametrize(
    'changes',
    [
        {'optimizer': 'sgd', 'learning_rate': 0.1},
        {'n_step': 3, 'conservative': 0.5, 'loss': 'squared'},
        {'replay': 'prioritised'},
        {'replay': 'prioritised_poisson'},
        {'frozen_layers': 1},
    ],
)
def test_every_kind_of_learner_goes_on_to_the_very_same_weights(tmp_path, changes):
    privacy = replace(PRIVACY, budget=math.inf)
    learner = replace(LEARNER, **changes)
    results = []
    for name, stop_at in (('a', None), ('b', 8)):
        (tmp_path / name).mkdir()
        ward = Ward(tmp_path / name, learner=learner, privacy=privacy)
        if stop_at:
            asked = iter(range(1000))
            with pytest.raises(TrainingStopped):
                ward.train(stopped=lambda asked=asked: next(asked) >= 8)
            ward.begin()
        results.append(ward.train())
    np.testing.assert_array_equal(results[0].weights, results[1].weights)
    assert np.abs(results[0].weights - START).max() > 1e-3
    assert math.isinf(results[0].epsilon) == (learner.replay == 'prioritised')


def test_frozen_layers_stay_as_the_public_start_has_them(tmp_path):
    learner = replace(LEARNER, frozen_layers=1)
    result = Ward(tmp_path, learner=learner).train()
    first = next(SHAPE.layers()).stop
    np.testing.assert_array_equal(result.weights[:first], START[:first])
    assert (result.weights[first:] != START[first:]).any()


def test_proximal_term_pulls_towards_the_global_weights(tmp_path):
    distances = []
    for number, proximal in enumerate((0.0, 10.0)):
        directory = tmp_path / str(number)
        directory.mkdir()
        learner = LearnerSettings(epochs=3, transitions_per_patient=4, proximal=proximal)
        result = Ward(directory, learner=learner).train()
        distances.append(np.linalg.norm(result.weights - START))
    assert distances[1] < distances[0]


def test_records_survive_the_file_and_damage_is_told(tmp_path):
    path = tmp_path / 'records.npz'
    data = records()
    data.save(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert Records.load(path, 4).digest() == data.digest()
    with pytest.raises(RecordsError, match='expected 5'):
        Records.load(path, 5)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(RecordsError):
        Records.load(path, 4)
    with pytest.raises(RecordsError):
        Records.load(tmp_path / 'missing.npz', 4)


def test_sampled_transitions_are_the_patient_s_own():
    data = records()
    units = np.array([3, 0, 39])
    uniforms = np.array([[0.0, 0.5, 1.0 - 2**-53]] * 3)
    steps = Transitions.from_records(data, discount=0.9)
    batch = steps.at(steps.drawn(units, uniforms))
    for row, unit in enumerate(units):
        own = data.states[data.starts[unit] : data.starts[unit + 1]]
        np.testing.assert_array_equal(batch.states[row, 0], own[0])
        np.testing.assert_array_equal(batch.states[row, 2], own[-1])


def test_with_expected_transitions_every_transition_weighs_the_same(tmp_path):
    """A patient's gradient, otherwise the mean of its own, is multiplied by its length."""
    found = {}
    for expected in (0.0, 4.0):
        learner = replace(LEARNER, expected_transitions=expected)
        directory = tmp_path / f'{expected:g}'
        directory.mkdir()
        ward = Ward(directory, learner=learner)
        draw = ward.trainer.replay().draw(0, 0)
        found[expected] = ward.trainer.batch(draw, 0, 0)
        ward.ledger.close()
    lengths = np.diff(records().starts)[draw.units]
    assert found[0.0].weights is None
    assert np.array_equal(found[4.0].weights, np.repeat(lengths[:, None] / 4.0, 4, axis=1))


def test_states_recorded_by_number_are_looked_up_in_a_public_table():
    seen = np.random.default_rng(1).normal(size=(9, 4)).astype(np.float32)
    plain = records()
    numbers = np.random.default_rng(2).integers(9, size=(2, len(plain.actions)))
    short = replace(
        plain,
        states=numbers[0][:, None].astype(np.float32),
        next_states=numbers[1][:, None].astype(np.float32),
    )
    long = replace(plain, states=seen[numbers[0]], next_states=seen[numbers[1]])
    index = np.arange(6).reshape(3, 2)
    by_number = Transitions.from_records(short, discount=0.9, inputs=seen).at(index)
    by_value = Transitions.from_records(long, discount=0.9).at(index)
    assert np.array_equal(by_number.states, by_value.states)
    assert np.array_equal(by_number.next_states, by_value.next_states)
