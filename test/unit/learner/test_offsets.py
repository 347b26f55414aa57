# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Offsets of inputs: what they change, what they recover, what they cost, what is refused."""

from dataclasses import replace
import math

from fdrl_ros.deployment.plan import Plan
from fdrl_ros.errors import SettingError, TrainingStopped
from fdrl_ros.learner.offsets import (
    InputOffsets,
    MOST_UNUSED,
    offsets_of,
    step_with,
    with_unused_inputs,
)
from fdrl_ros.learner.optimizer import fresh_moments, Optimizer
from fdrl_ros.learner.settings import LearnerSettings
from fdrl_ros.learner.trainer import Trainer, TrainingSetup
from fdrl_ros.policy import NetworkShape
from fdrl_ros.privacy.noise import NoiseSource
from hypothesis import given, strategies
import numpy as np
import pytest
from support.small_hospital import ledger_of, PRIVACY, records_of

SHAPE = NetworkShape(states=4, actions=3, hidden=(6, 5))
FIELDS = ('x', 'y', 'z', 'force')
FROZEN = 'shared.0.weight, shared.1, value, advantage'
LEARNER = LearnerSettings(
    algorithm='behaviour_cloning', frozen=FROZEN, offsets='y, force', offset_rate=0.05
)
WEIGHTS = 3.0 * SHAPE.draw(np.random.default_rng(1))  # sure of what it does
WIDE = WEIGHTS.astype(np.float64)
INDEX = SHAPE.layout.trained(LEARNER.frozen_tensors)


@given(strategies.tuples(*[strategies.floats(-3.0, 3.0)] * 2))
def test_an_offset_of_inputs_is_a_change_of_the_first_bias(offset):
    moved = WIDE.copy()
    moved[INDEX] += InputOffsets(SHAPE, LEARNER, FIELDS).span(WEIGHTS) @ np.array(offset)
    states = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32)
    shifted = states + np.array([0.0, offset[0], 0.0, offset[1]], np.float32)
    seen = SHAPE.policy(WEIGHTS).q_values(shifted)
    made = SHAPE.policy(moved.astype(np.float32)).q_values(states)
    np.testing.assert_allclose(made, seen, rtol=1e-4, atol=1e-4)


def test_offsets_between_two_networks_are_solved_over_the_first_bias_alone(monkeypatch):
    wide = NetworkShape(states=4, actions=3, hidden=(1000, 1000))
    learner = replace(LEARNER, frozen='shared.0.weight')
    offsets, start = InputOffsets(wide, learner, FIELDS), wide.draw(np.random.default_rng(4))
    trained = wide.layout.trained(learner.frozen_tensors)
    moved, change = start.copy(), np.random.default_rng(5).normal(size=len(trained))
    moved[trained] += change.astype(np.float32)
    everything = np.linalg.lstsq(
        offsets.span(start), (moved.astype(np.float64) - start)[trained], rcond=None
    )[0]
    solve, shapes = np.linalg.lstsq, []

    def noted(matrix, *rest, **named):
        shapes.append(matrix.shape)
        return solve(matrix, *rest, **named)

    monkeypatch.setattr(np.linalg, 'lstsq', noted)
    np.testing.assert_allclose(offsets.between(start, moved), everything, rtol=1e-9)
    assert shapes == [(1000, 2)] and len(trained) > 10**6


def test_the_gradient_of_an_offset_is_that_of_the_loss():
    gradient = np.random.default_rng(2).normal(size=6)
    offsets = InputOffsets(SHAPE, LEARNER, FIELDS)
    span = offsets.span(WEIGHTS)
    optimizer = Optimizer('sgd', offsets.rates, fresh_moments('sgd', 8))
    step = step_with(optimizer, gradient.copy(), span)
    matrix = SHAPE.split(WEIGHTS)[0][0]
    slow = -LEARNER.learning_rate * gradient
    for column in (1, 3):
        slow = slow - 0.05 * (matrix[:, column] @ gradient) * matrix[:, column]
    np.testing.assert_allclose(step, slow, atol=1e-12)


def test_unused_inputs_show_any_constant_in_an_operation():
    made = records_of(np.full(60, 8), (4, 3))
    states, following = made.states.copy(), made.next_states.copy()
    unused = np.repeat(np.arange(60) < 30, 8)
    for each in (states, following):
        each[unused, 3] = 0.0
        each[0, 3] = 1.0  # used once in the operation of the first patient
    given = replace(made, states=states, next_states=following)
    names = LEARNER.offset_inputs
    found = with_unused_inputs(given, names, FIELDS, np.random.default_rng(3))
    unused[:8] = False
    for before, after in ((states, found.states), (following, found.next_states)):
        np.testing.assert_array_equal(after[:, :3], before[:, :3])
        np.testing.assert_array_equal(after[~unused], before[~unused])
    shown = found.states[unused, 3].reshape(29, 8)
    assert np.all(shown == shown[:, :1]) and len(set(shown[:, 0].tolist())) == 29
    np.testing.assert_array_equal(found.next_states[unused, 3], found.states[unused, 3])
    assert 0.5 * MOST_UNUSED < np.abs(shown).max() <= MOST_UNUSED
    with pytest.raises(SettingError, match='speed'):
        with_unused_inputs(made, ['speed'], FIELDS, np.random.default_rng(3))


def trainer_of(directory, learner=LEARNER, *, offset=(0.0, 0.0), privacy=PRIVACY, patients=200):
    """Open a trainer on patients whose instruments show two inputs with an offset."""
    directory.mkdir(exist_ok=True)
    made = records_of(np.full(patients, 8), (4, 3))
    shifted = made.states + np.array([0.0, offset[0], 0.0, offset[1]], np.float32)
    done = SHAPE.policy(WEIGHTS).q_values(shifted).argmax(axis=1)
    setup = TrainingSetup(
        SHAPE,
        learner,
        privacy,
        ledger_of(directory, 'hospital_1', privacy),
        NoiseSource.seeded(7),
        fields=FIELDS,
    )
    return Trainer(setup, replace(made, actions=done), directory / 'checkpoint')


def trained(trainer, stopped=lambda: False):
    found = trainer.train(WEIGHTS, 1, report=lambda told: None, stopped=stopped)
    trainer.ledger.close()
    return found.weights


def test_training_recovers_the_offset_and_nothing_else(tmp_path):
    learner = replace(LEARNER, learning_rate=0.0, epochs=60)
    public = replace(PRIVACY, noise_multiplier=0.0, budget=math.inf)
    trainer = trainer_of(tmp_path, learner, offset=(0.4, -0.3), privacy=public)
    moved = trained(trainer).astype(np.float64) - WIDE
    span = InputOffsets(SHAPE, LEARNER, FIELDS).span(WEIGHTS)
    found, *_ = np.linalg.lstsq(span, moved[INDEX], rcond=None)
    np.testing.assert_allclose(found, (0.4, -0.3), atol=0.1)
    np.testing.assert_allclose(moved[INDEX], span @ found, atol=1e-4)
    assert not np.delete(moved, INDEX).any()


def test_offsets_spend_what_the_bias_alone_spends_and_go_on_where_they_stopped(tmp_path):
    whole = trainer_of(tmp_path / 'whole')
    expected = trained(whole)
    bias = trainer_of(tmp_path / 'bias', replace(LEARNER, offsets=''))
    assert not np.array_equal(trained(bias), expected)
    assert whole.ledger.epsilon() == bias.ledger.epsilon()
    calls = iter(range(10**6))
    later = trainer_of(tmp_path / 'later')
    with pytest.raises(TrainingStopped):
        trained(later, stopped=lambda: next(calls) > 1.5 * later.steps_per_block)
    later.ledger.close()
    np.testing.assert_array_equal(trained(trainer_of(tmp_path / 'later')), expected)


@pytest.mark.parametrize(
    ('changes', 'match'),
    [
        ({'offsets': 'y, w'}, "offsets = 'w': expected some of the inputs x, y, z, force"),
        ({'frozen': ''}, 'frozen.*shared.0.weight, as offsets'),
        ({'frozen': 'shared.0, value'}, 'frozen.*not shared.0.bias'),
    ],
)
def test_offsets_that_do_not_fit_are_refused(changes, match):
    with pytest.raises(SettingError, match=match):
        offsets_of(SHAPE, replace(LEARNER, **changes), FIELDS)


def test_a_plan_names_the_group_whose_offsets_do_not_fit():
    home = {'frozen': FROZEN, 'offsets': 'goal_error_w'}
    with pytest.raises(SettingError, match=r'home\.offsets.*goal_error_x'):
        Plan({'home': home}).checked()
    home['offsets'] = 'goal_error_x, goal_error_y'
    made = Plan({'home': home, 'learner': {'offsets': ''}}).checked()
    tuned = made.home.fine_tuned(made.learner)
    assert tuned.offset_inputs == ('goal_error_x', 'goal_error_y')
    assert tuned.epochs == made.home.epochs
    assert offsets_of(made.network, made.learner, made.spec.names) is None
