# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""One patient changes nothing that the others contribute, and all it adds is clipped."""

from dataclasses import replace
import math
from pathlib import Path

from fdrl_ros.errors import PrivacyError
from fdrl_ros.learner.gradient import DuelingGradients
from fdrl_ros.learner.losses import LOSSES
from fdrl_ros.learner.network_kernel import most_layers
from fdrl_ros.learner.online import OnlineSettings, OnlineTrainer
from fdrl_ros.learner.records.records import Records
from fdrl_ros.learner.settings import LearnerSettings, PrivacySettings
from fdrl_ros.learner.tabular_dqn import TabularDqn
from fdrl_ros.learner.trainer import Trainer, TrainingSetup
from fdrl_ros.policy import NetworkShape
from fdrl_ros.privacy.noise import NoiseSource
from fdrl_ros.runtime import kernels
from hypothesis import example, given, settings, strategies
import numpy as np
import pytest
from support.batches import batch_of, part, transitions_of
from support.neighbours import check_each_patient_in_turn
from support.sample_size import sampled
from support.small_hospital import ledger_of, records_of

SHAPE = NetworkShape(25, 15, (64, 64))
LEARNER = LearnerSettings(replay='prioritised_poisson', transitions_per_patient=1, discount=0.9)
PRIVACY = PrivacySettings(batch=80, budget=math.inf, delta=1e-3, clip_norm=1.0)
SOURCE = NoiseSource.seeded(3)
SEEDS = strategies.integers(0, 2**20)
TIES = strategies.sampled_from(['none', 'equal actions', 'equal but for the order', 'zero'])


def tied(rng, shape, ties):
    """Draw weights by which several actions are worth the same, exactly or up to rounding."""
    weights = shape.draw(rng) if ties != 'zero' else np.zeros(shape.n_parameters, np.float32)
    *shared, _, head = shape.layers()
    advantages = weights[head.start : head.bias_start].reshape(head.outputs, head.inputs)
    if ties == 'equal actions':
        advantages[...] = advantages[0]
        weights[head.bias_start : head.stop] = weights[head.bias_start]
    if ties == 'equal but for the order':  # of hidden units that are all the same
        advantages[...] = [rng.permutation(advantages[0]) for _ in range(head.outputs)]
        weights[head.bias_start : head.stop] = weights[head.bias_start]
        for last in shared[-1:]:
            matrix = weights[last.start : last.bias_start].reshape(last.outputs, last.inputs)
            matrix[...] = matrix[0]
            weights[last.bias_start : last.stop] = weights[last.bias_start]
    return weights


@settings(max_examples=sampled(80, 25), deadline=None)
@given(
    seed=SEEDS,
    ties=TIES,
    sizes=strategies.tuples(strategies.integers(1, 30), strategies.integers(1, 20)),
    hidden=strategies.lists(strategies.integers(1, 40), max_size=3),
    size=strategies.tuples(strategies.integers(1, 12), strategies.integers(1, 5)),
    loss=strategies.sampled_from(['huber', 'squared']),
    conservative=strategies.sampled_from([0.0, 0.7]),
    algorithm=strategies.sampled_from([*LOSSES]),
    bad=strategies.sampled_from([None, np.nan, np.inf, 3e38]),
    data=strategies.data(),
)
def test_slopes_and_errors_of_a_unit_are_the_same_bits_in_any_company(
    seed, ties, sizes, hidden, size, loss, conservative, algorithm, bad, data
):
    rng, shape = np.random.default_rng(seed), NetworkShape(*sizes, tuple(hidden))
    learner = LearnerSettings(loss=loss, conservative=conservative, algorithm=algorithm)
    dqn = DuelingGradients(shape, learner)
    now, target = (tied(rng, shape, ties) for _ in range(2))
    batch = batch_of(rng, shape, *size, weighted=seed % 2)
    if bad is not None:
        (batch.next_states if seed % 4 < 2 else batch.states)[0, 0, 0] = bad
    units = data.draw(strategies.lists(strategies.integers(0, size[0] - 1), min_size=1))
    errors = dqn.errors(now, target, batch)
    np.testing.assert_array_equal(dqn.errors(now, target, part(batch, units)), errors[units])
    everyone, some = (
        dqn.trace(dqn.layered(now), dqn.layered(target), each, 0.5).layers
        for each in (batch, part(batch, units))
    )
    for whole, own in zip(everyone, some, strict=True):
        for name in ('inputs', 'outputs'):
            found = getattr(own, name).reshape(len(units), -1)
            expected = getattr(whole, name).reshape(size[0], -1)[units]
            np.testing.assert_array_equal(found, expected)


@settings(max_examples=sampled(40, 15), deadline=None)
@given(
    seed=SEEDS,
    ties=TIES,
    units=strategies.integers(2, 40),
    transitions=strategies.sampled_from([1, 4]),
    left=strategies.integers(0, 39),
    drawn=strategies.booleans(),
    algorithm=strategies.sampled_from([*LOSSES]),
)
@example(3, 'equal but for the order', 22, 4, 21, False, 'double_dqn')
def test_without_one_unit_the_sum_moves_by_the_clip_norm_at_most(
    seed, ties, units, transitions, left, drawn, algorithm
):
    """
    Both for columns and for drawn rows of a table, which training takes.

    In NumPy the example moves it by 5.35 C: the batch's size decides which action is best.
    """
    rng, shape = np.random.default_rng(seed), NetworkShape(25, 7, (32,))
    now, target = tied(rng, shape, ties), (5.0 * shape.draw(rng)).astype(np.float32)
    learner = LearnerSettings(algorithm=algorithm, temperature=0.3)
    dqn, batch = DuelingGradients(shape, learner), batch_of(rng, shape, units, transitions)
    rest = [unit for unit in range(units) if unit != left % units]
    others = part(batch, rest)
    if drawn:
        everyone, index = (
            transitions_of(rng, shape, 60),
            rng.integers(60, size=(units, transitions)),
        )
        batch, others = everyone.at(index), everyone.at(index[rest])
    moved = dqn.clipped_sum(now, target, batch, 1.0) - dqn.clipped_sum(now, target, others, 1.0)
    alone = dqn.clipped_sum(now, target, part(batch, [left % units]), 1.0)
    assert np.linalg.norm(moved) <= 1.0
    np.testing.assert_allclose(moved, alone, rtol=0, atol=1e-12)


def test_of_actions_that_are_worth_the_same_the_first_is_best():
    dqn, rng = DuelingGradients(SHAPE), np.random.default_rng(4)
    now = tied(rng, SHAPE, 'equal actions')
    target = SHAPE.draw(rng)
    batch = batch_of(rng, SHAPE, 9, 1)
    rows = batch.rows()
    first = dqn.layered(target).forward(rows.next_states)[0][:, 0]
    value = dqn.layered(now).forward(rows.states)[0][:, 0]
    expected = value - rows.rewards - rows.discounts * first
    np.testing.assert_allclose(dqn.errors(now, target, batch)[:, 0], expected, atol=1e-5)


@settings(max_examples=sampled(60, 20), deadline=None)
@given(
    seed=SEEDS,
    size=strategies.tuples(strategies.integers(2, 9), strategies.integers(1, 9)),
    loss=strategies.sampled_from(['huber', 'squared']),
    conservative=strategies.sampled_from([0.0, 0.5]),
    algorithm=strategies.sampled_from([*LOSSES]),
)
def test_a_table_s_units_are_the_same_in_any_company_too(
    seed, size, loss, conservative, algorithm
):
    """It looks values up, in float64; what rounding adds is far below what clipping leaves."""
    rng, shape = np.random.default_rng(seed), NetworkShape(6, 13, ())
    learner = LearnerSettings(loss=loss, conservative=conservative, algorithm=algorithm)
    dqn = TabularDqn(shape, rng.uniform(0.5, 3.0, 6), learner)
    now, target = (tied(rng, shape, 'equal actions') for _ in range(2))
    batch = batch_of(rng, shape, *size)
    numbers = rng.integers(6, size=(2, *size, 1)).astype(np.float32)
    batch = replace(batch, states=numbers[0], next_states=numbers[1])
    errors, total = dqn.errors(now, target, batch), dqn.clipped_sum(now, target, batch, 0.3)
    alone = [part(batch, [unit]) for unit in range(size[0])]
    for unit, own in enumerate(alone):
        np.testing.assert_array_equal(dqn.errors(now, target, own), errors[[unit]])
    apart = sum(dqn.clipped_sum(now, target, own, 0.3) for own in alone)
    np.testing.assert_allclose(total, apart, rtol=0, atol=1e-14)


@pytest.fixture
def ledger(tmp_path):
    with ledger_of(tmp_path, 'a', PRIVACY) as opened:
        yield opened


def trainer(ledger, patients, shape=SHAPE, privacy=PRIVACY):
    """Return a learner on the first of 81 patients; asked for single steps, it keeps nothing."""
    whole = records_of([1] * 81, (shape.states, shape.actions)).arrays()
    given = Records(
        **{name: array[: patients + (name == 'starts')] for name, array in whole.items()}
    )
    setup = TrainingSetup(shape, LEARNER, privacy, ledger, SOURCE)
    return Trainer(setup, given, Path('no checkpoint'))


def test_without_one_patient_the_priorities_of_the_others_are_the_same(ledger):
    """Computed in NumPy, those of 23 others changed."""
    rng, learned = np.random.default_rng(0), []
    now, target = tied(rng, SHAPE, 'equal actions'), SHAPE.draw(rng)
    for patients in (80, 81):
        privacy = replace(PRIVACY, batch=patients)  # everybody joins
        made = trainer(ledger, patients, privacy=privacy)
        replay = made.replay()
        made.private_gradient(replay, now, target, 1, 0)
        learned.append(replay.priorities)
    assert (learned[0] != 1.0).any()
    np.testing.assert_array_equal(learned[0], learned[1][:80])


FROZEN = ['', 'shared.0.weight', 'shared.0', 'value, advantage.bias']
LEARNERS = strategies.fixed_dictionaries(
    {
        'algorithm': strategies.sampled_from([*LOSSES]),
        'loss': strategies.sampled_from(['huber', 'squared']),
        'conservative': strategies.sampled_from([0.0, 0.7]),
        'temperature': strategies.sampled_from([0.1, 1.0]),
        'n_step': strategies.integers(1, 3),
        'transitions_per_patient': strategies.integers(1, 5),
        'expected_transitions': strategies.sampled_from([0.0, 2.0]),
        'idle_action': strategies.integers(-1, 1),
        'replay': strategies.sampled_from(['poisson', 'prioritised_poisson']),
        'priority_exponent': strategies.floats(0.0, 1.0),
        'importance_exponent': strategies.floats(0.0, 1.0),
        'expected_priority': strategies.floats(0.05, 1.0),
        'optimizer': strategies.sampled_from(['adam', 'sgd']),
        'averaging': strategies.sampled_from([0.0, 0.6]),
        'target_period': strategies.integers(1, 3),
    }
)


@settings(max_examples=sampled(150, 25), deadline=None)
@given(
    seed=SEEDS,
    lengths=strategies.lists(strategies.integers(1, 5), min_size=2, max_size=6),
    size=strategies.tuples(strategies.integers(1, 9), strategies.integers(1, 6)),
    hidden=strategies.lists(strategies.integers(1, 20), max_size=2),
    drawn=LEARNERS,
    frozen=strategies.sampled_from(FROZEN),
    clip_norm=strategies.sampled_from([0.01, 1.0, 100.0]),
    clipped=strategies.sampled_from(['unit', 'transition']),
    wild=strategies.sampled_from([1.0, 1e4, 3e37]),
    data=strategies.data(),
)
def test_each_patient_in_turn_moves_a_release_by_the_clip_norm_and_no_coin_of_others(
    seed, lengths, size, hidden, drawn, frozen, clip_norm, clipped, wild, data
):
    """Whole blocks: sampling, clipping, noise on its grid, offsets of inputs, optimizer, means."""
    named = {'frozen': frozen, 'idle_weight': 0.3} if hidden else {}
    if named and frozen == 'shared.0.weight':
        named['offsets'] = 'input_0'
    privacy = PrivacySettings(
        batch=data.draw(strategies.integers(1, len(lengths))),
        clip_norm=clip_norm,
        clipped=clipped,
        most_transitions=max(lengths),
        noise_multiplier=data.draw(strategies.floats(0.1, 5.0)),
        budget=math.inf,
    )
    learner, shape = LearnerSettings(**drawn, **named), NetworkShape(*size, tuple(hidden))
    check_each_patient_in_turn(shape, learner, privacy, lengths, wild=wild, seed=seed)


def test_private_training_in_numpy_is_refused_before_anything_is_spent(ledger, monkeypatch):
    monkeypatch.setattr(kernels, 'lib', None)
    with pytest.raises(PrivacyError, match='not built.*native/build.py') as refused:
        trainer(ledger, 80)
    assert '\n' not in str(refused.value)
    setup, nobody = TrainingSetup(SHAPE, LEARNER, PRIVACY, ledger, SOURCE), None
    with pytest.raises(PrivacyError, match='not built'):  # no patient is collected first
        OnlineTrainer(setup, nobody, OnlineSettings(), Path('no checkpoint'))
    with pytest.raises(PrivacyError, match='not built'):
        SOURCE.gaussian('gradient', 1, 0, 2)
    assert not ledger.chain.history()
    trainer(ledger, 80, privacy=replace(PRIVACY, noise_multiplier=0.0))  # NOT PRIVATE: it may


def test_a_network_that_the_compiled_arithmetic_does_not_take_is_not_trained_privately(ledger):
    deep = NetworkShape(25, 15, (4,) * (most_layers() + 1))
    with pytest.raises(PrivacyError, match='16 hidden layers'):
        trainer(ledger, 80, shape=deep)
