# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The private learner: what it draws, spends and resumes."""

from dataclasses import replace
import math
from pathlib import Path
import shutil

from fdrl_ros.errors import (
    BudgetExceededError,
    KeyFileError,
    LedgerOwnerError,
    PolicyError,
    PrivacyError,
    RecordsError,
    TaskError,
    TrainingStopped,
)
from fdrl_ros.learner.checkpoint import Checkpoint
from fdrl_ros.learner.gradient import DuelingGradients
from fdrl_ros.learner.records.records import Records
from fdrl_ros.learner.records.transitions import Transitions
from fdrl_ros.learner.settings import LearnerSettings
from fdrl_ros.learner.trainer import Trainer, TrainingSetup
from fdrl_ros.policy import NetworkShape
from fdrl_ros.policy.task_identity import TaskIdentity
from fdrl_ros.privacy.accountant.accountant import epsilon_pld
from fdrl_ros.privacy.ledger.ledger import Ledger
from fdrl_ros.privacy.mechanism import poisson_sample
from fdrl_ros.privacy.noise import NoiseSource
import numpy as np
import pytest
from support.killing import die, killed
from support.small_hospital import ledger_of, records_of, trained
from support.small_hospital import PRIVACY as SMALL

SHAPE = NetworkShape(states=4, actions=3, hidden=(6,))
LEARNER = LearnerSettings(epochs=3, transitions_per_patient=4, target_period=3)
PRIVACY = replace(SMALL, batch=8, budget=20.0)
START = SHAPE.draw(np.random.default_rng(0))
WITHIN = PRIVACY.clip_norm * (1.0 - 2.0**-10)  # what clipping leaves room for


def records(**changes) -> Records:
    return records_of(np.random.default_rng(0).integers(1, 9, size=40), (4, 3), **changes)


class Ward:
    """A hospital's directory, with a trainer that can be taken down and set up again."""

    def __init__(
        self, directory: Path, privacy=PRIVACY, learner=LEARNER, task=None, secure=False
    ) -> None:
        directory.mkdir(exist_ok=True)
        self.directory, self.privacy, self.learner = directory, privacy, learner
        self.task, self.secure = task, secure
        self.ledger: Ledger | None = None
        self.begin()

    def begin(self) -> None:
        if self.ledger:
            self.ledger.close()
        self.ledger = ledger_of(self.directory, 'hospital_1', self.privacy)
        key = self.directory / 'noise.key'
        source = NoiseSource.secure(key) if self.secure else NoiseSource.seeded(7)
        setup = TrainingSetup(
            SHAPE, self.learner, self.privacy, self.ledger, source, task=self.task
        )
        self.trainer = Trainer(setup, records(), self.directory / 'checkpoint')

    def gradient(self, step):
        replay = self.trainer.replay()
        return self.trainer.private_gradient(replay, START, START, 1, step)

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
    assert (result.ledger_entries, result.ledger_head) == tuple(ward.ledger.chain.head)


@pytest.mark.parametrize(
    'changes, stop_at',
    [
        *(({}, stop_at) for stop_at in (0, 5, 7)),
        ({'optimizer': 'sgd', 'learning_rate': 0.1}, 8),
        ({'n_step': 3, 'conservative': 0.5, 'loss': 'squared'}, 8),
        ({'replay': 'prioritised'}, 8),
        ({'replay': 'prioritised_poisson'}, 8),
        ({'frozen': 'shared.0.weight, advantage'}, 8),
        *(({'averaging': 0.5}, stop_at) for stop_at in (5, 8, 12)),
        ({'averaging': 1.0, 'frozen': 'shared.0.weight, advantage'}, 8),
    ],
)
def test_training_stopped_anywhere_goes_on_to_the_very_same_weights(tmp_path, changes, stop_at):
    settings = replace(PRIVACY, budget=math.inf), replace(LEARNER, **changes)
    undisturbed = Ward(tmp_path / 'a', *settings).train()
    ward = Ward(tmp_path / 'b', *settings)
    asked = iter(range(1000))
    with pytest.raises(TrainingStopped):
        ward.train(stopped=lambda: next(asked) >= stop_at)
    ward.begin()
    resumed = ward.train()
    np.testing.assert_array_equal(resumed.weights, undisturbed.weights)
    assert resumed.epsilon == undisturbed.epsilon
    assert math.isinf(resumed.epsilon) == (changes.get('replay') == 'prioritised')
    assert np.abs(resumed.weights - START).max() > 1e-3


@pytest.mark.parametrize('damaged', [False, True])
def test_a_round_that_is_asked_for_again_is_the_same_and_costs_nothing(tmp_path, damaged):
    ward = Ward(tmp_path)
    first = ward.train()
    if damaged:
        (tmp_path / 'checkpoint').write_bytes(b'no archive')
    ward.begin()
    again = ward.train()
    np.testing.assert_array_equal(first.weights, again.weights)
    assert again.epsilon == first.epsilon


def test_a_checkpoint_of_another_task_is_refused_before_anything_is_spent(tmp_path):
    ward = Ward(tmp_path, task=TaskIdentity('pole', 1, 'aa'))
    ward.train()
    spent = ward.ledger.chain.head
    ward.task = TaskIdentity('pole', 1, 'bb')
    ward.begin()
    with pytest.raises(TaskError, match='checkpoint is of task pole 1'):
        ward.train(2)
    assert ward.ledger.chain.head == spent
    ward.task = TaskIdentity('pole', 1, 'aa')
    ward.begin()
    ward.train(2)


def test_a_checkpoint_of_a_round_from_other_weights_is_not_this_round_s_result(tmp_path):
    ward = Ward(tmp_path)
    spent = ward.train().epsilon
    ward.begin()
    with pytest.raises(PrivacyError, match='reserved with other inputs'):
        ward.train(weights=1.01 * START)
    assert ward.ledger.epsilon() == spent


@pytest.mark.parametrize('averaging', [0.0, 0.8])
@pytest.mark.parametrize('owner, method', [(Trainer, 'replay'), (Checkpoint, 'save')])
def test_kill_9_between_reserving_and_saving_charges_the_block_once(
    tmp_path, monkeypatch, owner, method, averaging
):
    learner = replace(LEARNER, averaging=averaging)
    undisturbed = Ward(tmp_path / 'a', learner=learner).train()
    reserve = Ledger.reserve

    def reserved(self, **named):
        granted = reserve(self, **named)
        if named['block'] == 1:
            setattr(owner, method, die)
        return granted

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, 'reserve', reserved)
        assert killed(lambda: Ward(tmp_path / 'b', learner=learner).train())
    ward = Ward(tmp_path / 'b', learner=learner)
    assert len(ward.ledger.chain.history()) == 2  # the block that was cut short is paid for
    resumed = ward.train()
    np.testing.assert_array_equal(resumed.weights, undisturbed.weights)
    assert resumed.epsilon == undisturbed.epsilon


def test_the_average_of_fewer_epochs_is_that_of_their_own_steps_and_costs_nothing(tmp_path):
    """Also when more epochs were begun before, and whether or not the checkpoint is there."""
    ward = Ward(tmp_path, learner=replace(LEARNER, averaging=0.4))
    ward.train()
    spent, found = ward.ledger.chain.head, []
    for lost in (False, True):
        if lost:
            (tmp_path / 'checkpoint').unlink()
        found.append(
            ward.trainer.train(
                START, 1, report=lambda told: None, stopped=lambda: False, most=2
            ).weights
        )
    fewer = Ward(tmp_path / 'b', learner=replace(LEARNER, averaging=0.4, epochs=2))
    for weights in found:
        np.testing.assert_array_equal(weights, fewer.train().weights)
    assert ward.ledger.chain.head == spent


def test_a_checkpoint_without_averages_is_as_it_was(tmp_path):
    ward = Ward(tmp_path)
    ward.train()
    assert b'averaged' not in (tmp_path / 'checkpoint').read_bytes()


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


def test_one_step_is_the_clipped_poisson_mean_plus_the_stated_noise(tmp_path):
    """The slow, obvious version of DP-DQN Alg. 1 for the first step."""
    learner = LearnerSettings(epochs=1, transitions_per_patient=4, learning_rate=0.01)
    ward = Ward(tmp_path, learner=learner)
    data, source = records(), NoiseSource.seeded(7)
    units = poisson_sample(40, 0.2, source, 1, 0)
    uniforms = source.uniform('transitions', 1, 0, 4 * len(units)).reshape(-1, 4)
    steps, dqn = Transitions.from_records(data, discount=learner.discount), DuelingGradients(SHAPE)
    total = np.zeros(SHAPE.n_parameters)
    for unit, draws in zip(units, uniforms, strict=True):
        own = np.arange(data.starts[unit], data.starts[unit + 1])
        chosen = own[(draws * len(own)).astype(int)]
        gradient = dqn.clipped_sum(START, START, steps.at(chosen[None]), 1e9)
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


def test_records_survive_the_file_and_damage_is_told(tmp_path):
    path = tmp_path / 'records.npz'
    records().save(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert Records.load(path, 4).digest() == records().digest()
    with pytest.raises(RecordsError, match='expected 5'):
        Records.load(path, 5)
    path.write_bytes(path.read_bytes()[:-100])
    for name in ('records.npz', 'missing.npz'):
        with pytest.raises(RecordsError):
            Records.load(tmp_path / name, 4)


def test_sampled_transitions_are_the_patient_s_own():
    data = records()
    units = np.array([3, 0, 39])
    uniforms = np.array([[0.0, 0.5, 1.0 - 2**-53]] * 3)
    steps = Transitions.from_records(data, discount=0.9)
    batch = steps.at(steps.draw_rows(units, uniforms))
    for row, unit in enumerate(units):
        own = data.states[data.starts[unit] : data.starts[unit + 1]]
        np.testing.assert_array_equal(batch.states[row, 0], own[0])
        np.testing.assert_array_equal(batch.states[row, 2], own[-1])


def test_with_expected_transitions_every_transition_weighs_the_same(tmp_path):
    """A patient's gradient, otherwise the mean of its own, is multiplied by its length."""
    found = {}
    for expected in (0.0, 4.0):
        learner = replace(LEARNER, expected_transitions=expected)
        ward = Ward(tmp_path / f'{expected:g}', learner=learner)
        draw = ward.trainer.replay().draw(0, 0)
        found[expected] = ward.trainer.batch(draw, 0, 0)
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


FEW = replace(PRIVACY, batch=4)


@pytest.fixture
def ledger(tmp_path):
    with ledger_of(tmp_path, 'a', FEW) as opened:
        yield opened


def trainer(ledger, given, *, shape=SHAPE, privacy=FEW, inputs=None):
    source, place = NoiseSource.seeded(3), Path('no checkpoint')
    return Trainer(TrainingSetup(shape, LEARNER, privacy, ledger, source, inputs), given, place)


@pytest.mark.parametrize(
    'changes', [{'unit': 'transition'}, {'delta': 1e-4}, {'budget': 1.0}, {'budget': 100.0}]
)
def test_a_ledger_that_counts_for_another_promise_is_refused(ledger, changes):
    with pytest.raises(LedgerOwnerError, match=next(iter(changes))):
        trainer(ledger, records(), privacy=replace(FEW, **changes))


def test_records_that_the_network_does_not_take_are_refused(ledger):
    table, far = np.ones((6, 4), np.float32), [np.zeros((60, 1)) for _ in range(2)]
    for states, number in zip(far, (-1.0, 6.0), strict=True):
        states[7] = number
    for given, changes, words in (
        (records(actions=np.full(records().n_transitions, 3)), {}, 'action'),
        (records(), {'shape': NetworkShape(5, 3, (8,))}, '5'),
        (records(), {'inputs': table}, 'turn the number of a state into 4'),
        *(
            (
                records_of([3] * 20, states=states, next_states=np.zeros((60, 1))),
                {'inputs': table},
                'beyond the 6 of the inputs',
            )
            for states in far
        ),
    ):
        with pytest.raises(RecordsError, match=words):
            trainer(ledger, given, **changes)


@pytest.mark.parametrize(
    'weights', [START[:-1], np.append(START, 0.0), START * np.nan, START[None]]
)
def test_weights_that_are_not_the_network_s_are_refused_and_cost_nothing(ledger, weights):
    with pytest.raises(PolicyError):
        trained(trainer(ledger, records()), weights)
    assert ledger.epsilon() == 0.0


def test_copies_of_a_key_give_every_ledger_noise_of_its_own(tmp_path):
    """A ledger that was lost and begun anew must not release the old noise for new gradients."""

    def released(name, given, source):
        privacy = replace(FEW, noise_multiplier=20.0)
        learner = LearnerSettings(epochs=1, transitions_per_patient=2, optimizer='sgd')
        with ledger_of(tmp_path, name, privacy) as ledger:
            setup = TrainingSetup(SHAPE, learner, privacy, ledger, source)
            return trained(Trainer(setup, given, tmp_path / name, 1), START).weights - START

    others = records(rewards=np.zeros(records().n_transitions))
    source = NoiseSource.secure(tmp_path / 'noise.key')
    shutil.copy(tmp_path / 'noise.key', tmp_path / 'copy.key')
    copied = NoiseSource.secure(tmp_path / 'copy.key')
    one, two = released('a', records(), source), released('b', others, copied)
    assert abs(np.corrcoef(one, two)[0, 1]) < 0.5
    seeded = NoiseSource.seeded(4)
    one, two = released('c', records(), seeded), released('d', others, seeded)
    assert np.corrcoef(one, two)[0, 1] > 0.9


@pytest.mark.parametrize('owner, method', [(NoiseSource, 'gaussian'), (Checkpoint, 'save')])
def test_kill_9_in_a_round_after_an_erased_one_draws_the_very_same(tmp_path, owner, method):
    ward = Ward(tmp_path / 'a', secure=True)
    first = ward.train().weights
    ward.trainer.forget(1)
    ward.ledger.close()
    shutil.copytree(tmp_path / 'a', tmp_path / 'b')
    undisturbed = Ward(tmp_path / 'a', secure=True).train(2, first)

    def train_and_die():
        killed_one = Ward(tmp_path / 'b', secure=True)
        setattr(owner, method, die)
        killed_one.train(2, first)

    assert killed(train_and_die)
    ward = Ward(tmp_path / 'b', secure=True)
    assert len(ward.ledger.chain.history()) == 3 + 1
    resumed = ward.train(2, first)
    np.testing.assert_array_equal(resumed.weights, undisturbed.weights)
    assert resumed.epsilon == undisturbed.epsilon
    # Nobody acknowledges in a library: what its user does not erase can be asked for again.
    (tmp_path / 'b' / 'checkpoint').unlink()
    np.testing.assert_array_equal(ward.train(2, first).weights, undisturbed.weights)


def test_a_noise_key_older_than_the_checkpoint_is_refused_before_anything_is_spent(tmp_path):
    ward, key = Ward(tmp_path, secure=True), tmp_path / 'noise.key'
    ward.train()
    older = key.read_bytes()
    ward.trainer.forget(1)
    ward.train(2)
    spent, newer = ward.ledger.chain.head, key.read_bytes()
    key.write_bytes(older)
    for round in (2, 3):
        ward.begin()
        with pytest.raises(KeyFileError, match='older than the checkpoint'):
            ward.train(round)
    assert ward.ledger.chain.head == spent
    key.write_bytes(newer)
    ward.begin()
    ward.train(2)
    key.unlink()  # a lost key is replaced
    ward.begin()
    ward.train(3)


def test_a_round_that_was_erased_is_neither_drawn_nor_charged_again(tmp_path):
    ward = Ward(tmp_path, secure=True)
    ward.train(2)
    ward.trainer.forget(2)
    spent = ward.ledger.chain.head
    assert len(ward.train(2).weights) == len(START)  # out of its checkpoint
    (tmp_path / 'checkpoint').unlink()
    for round in (1, 2):
        ward.begin()
        with pytest.raises(PrivacyError, match='erased'):
            ward.train(round)
        with pytest.raises(PrivacyError, match='erased'):
            ward.trainer.rounding(round, 3)
        assert ward.ledger.chain.head == spent
    ward.train(3)
