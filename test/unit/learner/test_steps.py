# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Steps of the optimizers, of a round and of pre-training, held to the obvious slow loops."""

from dataclasses import replace
import math

from fdrl_ros.learner.gradient import DuelingGradients
from fdrl_ros.learner.optimizer import fresh_moments, Optimizer
from fdrl_ros.learner.pretraining import pretrain, PretrainingSettings, Start
from fdrl_ros.learner.records.transitions import Transitions
from fdrl_ros.learner.settings import LearnerSettings
from fdrl_ros.learner.trainer import Trainer, TrainingSetup
from fdrl_ros.policy import NetworkShape
import numpy as np
import pytest
from support.small_hospital import (
    ledger_of,
    PRIVACY,
    RecordedNoise,
    records,
    records_of,
    SHAPE,
    START,
    trained,
)

LEARNER = LearnerSettings(
    epochs=3, transitions_per_patient=2, target_period=3, learning_rate=0.05, proximal=0.3
)


class SlowAdam:
    """Adam, Algorithm 1 of Kingma and Ba (2015), number by number."""

    def __init__(self, size: int, rate: float) -> None:
        self.m, self.v, self.t, self.rate = [0.0] * size, [0.0] * size, 0, rate

    def step(self, gradient) -> np.ndarray:
        """Return what is added to each weight."""
        self.t += 1
        moved = []
        for i, g in enumerate(gradient):
            self.m[i] = 0.9 * self.m[i] + 0.1 * g
            self.v[i] = 0.999 * self.v[i] + 0.001 * g * g
            mean, square = self.m[i] / (1 - 0.9**self.t), self.v[i] / (1 - 0.999**self.t)
            moved.append(-self.rate * mean / (math.sqrt(square) + 1e-8))
        return np.array(moved)


class SlowDescent(SlowAdam):
    """Plain descent."""

    def step(self, gradient) -> np.ndarray:
        """Return what is added to each weight."""
        return np.array([-self.rate * slope for slope in gradient])


SLOW = {'adam': SlowAdam, 'sgd': SlowDescent}


@pytest.mark.parametrize('kind', SLOW)
def test_an_optimizer_takes_the_published_steps_and_goes_on_from_its_state(kind):
    rng = np.random.default_rng(0)
    optimizer = Optimizer(kind, 0.01, fresh_moments(kind, 5))
    slow = SLOW[kind](5, 0.01)
    for step in range(40):
        gradient = rng.normal(size=5) * 10.0 ** rng.integers(-4, 3, size=5)
        expected = slow.step(gradient)
        np.testing.assert_allclose(optimizer.step(gradient.copy()), expected, rtol=1e-9)
        if step == 20:
            optimizer = Optimizer(kind, 0.01, optimizer.moments.copy(), step + 1)


def slow_round(made: Trainer, start: np.ndarray, round: int = 1) -> np.ndarray:
    """Run all steps of a round one by one on one hospital's private gradients."""
    learner, dqn = made.learner, made.dqn
    optimizer = SLOW[learner.optimizer](dqn.size, learner.learning_rate)
    wide, target = start.astype(np.float64), start
    replay, steps, passed = made.replay(), learner.epochs * made.steps_per_block, []
    for step in range(steps):
        current = wide.astype(np.float32)
        if step % learner.target_period == 0:
            target = current
        gradient = made.private_gradient(replay, current, target, round, step)
        gradient = gradient + learner.proximal * (wide - start)[dqn.index]
        wide[dqn.index] += optimizer.step(gradient)
        passed.append(wide.copy())
    last = max(1, math.floor(learner.averaging * steps + 0.5))
    return np.mean(passed[-last:], axis=0).astype(np.float32)


@pytest.mark.parametrize(
    'changes',
    [
        {},
        {'optimizer': 'sgd'},
        {'target_period': 4},
        {'replay': 'prioritised_poisson'},
        {'frozen': 'shared'},
        {'frozen': 'shared.0.weight, value, advantage.bias'},
        {'averaging': 0.5},
        {'averaging': 1.0, 'frozen': 'shared'},
        {'averaging': 0.01},
    ],
    ids=str,
)
def test_a_round_is_its_steps_written_out(tmp_path, changes):
    """Blocks of 2 steps, so that target, moments and priorities are carried from one on."""
    learner = replace(LEARNER, **changes)
    with ledger_of(tmp_path, 'a', PRIVACY) as ledger:
        setup = TrainingSetup(SHAPE, learner, PRIVACY, ledger, RecordedNoise('a', []))
        made = Trainer(setup, records(), tmp_path / 'a.state')
        found = trained(made, START)
        assert made.steps_per_block == 2
        np.testing.assert_allclose(found.weights, slow_round(made, START), atol=1e-5)
        moved = np.abs(found.weights - START)
        kept = np.delete(moved, SHAPE.layout.trained(learner.frozen_tensors))
        assert moved.max() > 5e-3 and not kept.any()


class Constant(Trainer):
    """Has the same gradient in every step."""

    gradient = np.random.default_rng(1).normal(size=SHAPE.n_parameters)

    def private_gradient(self, *_: object) -> np.ndarray:
        """Return it."""
        return self.gradient.copy()


@pytest.mark.parametrize('proximal', [0.3, 5.0])
def test_plain_descent_on_a_constant_gradient_is_the_papers_local_step_in_closed_form(
    tmp_path, proximal
):
    """
    FDRL Eq. 3 with eta lambda for the paper's lambda: d <- (1 - eta lambda) d - eta g.

    So after k steps d = -(g / lambda) (1 - (1 - eta lambda)^k).
    """
    learner = replace(LEARNER, optimizer='sgd', proximal=proximal)
    with ledger_of(tmp_path, 'a', PRIVACY) as ledger:
        setup = TrainingSetup(SHAPE, learner, PRIVACY, ledger, RecordedNoise('a', []))
        made = Constant(setup, records(), tmp_path / 'a.state')
        found = trained(made, START)
        steps = learner.epochs * made.steps_per_block
    left = (1.0 - learner.learning_rate * proximal) ** steps
    expected = START - made.gradient / proximal * (1.0 - left)
    np.testing.assert_allclose(found.weights, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize('period, settling', [(1, 0.0), (4, 0.0), (4, 0.5), (4, 1.0)])
def test_pre_training_is_its_steps_written_out(period, settling):
    given = replace(records(), terminals=np.zeros(30, bool))
    settings = PretrainingSettings(
        steps=11,
        batch=8,
        learning_rate=0.1,
        target_period=period,
        discount=0.9,
        settling=settling,
    )
    found = pretrain(
        given, Start(START, SHAPE, LearnerSettings()), settings, np.random.default_rng(3)
    )
    rng, wide, target = np.random.default_rng(3), START.astype(np.float64), START
    dqn, transitions = DuelingGradients(SHAPE), Transitions.from_records(given, discount=0.9)
    adam = SlowAdam(len(wide), 0.1)
    for step in range(11):
        current = wide.astype(np.float32)
        if step % period == 0:
            target = current
        batch = transitions.at(rng.integers(30, size=(8, 1)))
        adam.rate = 0.1 * min(1.0, (11 - step) / (11 * settling) if settling else 1.0)
        wide += adam.step(dqn.mean(current, target, batch))
    np.testing.assert_allclose(found, wide.astype(np.float32), atol=1e-5)


def test_waiting_weighs_what_the_settings_say_in_training_and_pre_training():
    """Weight 0 of an action is as good as records without it."""
    rng = np.random.default_rng(3)
    states = np.round(rng.normal(size=(60, 3)), 3)
    actions = np.where(states[:, 0] > 0.0, 1, 0)
    actions[rng.random(60) < 0.8] = 2  # mostly waiting
    learner = LearnerSettings(algorithm='behaviour_cloning', hidden=4, idle_action=2)
    chosen = {}
    for weight in (1.0, 0.0):
        seen = records_of([60], size=(3, 3), states=states, actions=actions)
        settings = PretrainingSettings(steps=400, batch=32, learning_rate=0.02)
        network = NetworkShape(3, 3, (4, 4))
        own = replace(learner, idle_weight=weight)
        start = Start(network.draw(np.random.default_rng(0)), network, own)
        weights = pretrain(seen, start, settings, np.random.default_rng(1))
        values = network.policy(weights).q_values(states.astype(np.float32))
        chosen[weight] = values.argmax(axis=1)
    assert np.mean(chosen[1.0] == 2) > 0.8
    assert np.mean(chosen[0.0] == (states[:, 0] > 0.0)) > 0.9
    transitions = Transitions.from_records(seen, discount=0.9)
    index = np.arange(60)[:, None]
    half = transitions.idled(index, replace(learner, idle_weight=0.5), np.full((60, 1), 4.0))
    np.testing.assert_array_equal(half[:, 0], np.where(actions == 2, 2.0, 4.0))
    assert transitions.idled(index, learner) is None
