# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Losses against their equations written out, and which head learns from which."""

import math

from fdrl_ros.learner.pretraining import pretrain, PretrainingSettings, Start
from fdrl_ros.learner.records.transitions import Batch
from fdrl_ros.learner.settings import LearnerSettings
from fdrl_ros.learner.torch.gradients import TorchGradients, TrainableNetwork
from fdrl_ros.learner.torch.losses import (
    ActorCritic,
    Algorithm,
    DiscreteActorCritic,
    ImplicitQ,
)
from fdrl_ros.learner.torch.network import TorchNetwork
from fdrl_ros.tasks.spec import TaskSpec
import numpy as np
import pytest
from support.corridor import corridor_records, DISCOUNT, PLACES, reaches_the_goal
import torch

PLAIN = TaskSpec((4,), actions=('a', 'b', 'c'))
VECTOR = TaskSpec((4,), low=(-1.0, -1.0), high=(1.0, 1.0))
IMAGE = TaskSpec((1, 6, 6), 'uint8', actions=('tissue', 'tool', 'blood'), places=36)
GAMMA = 0.9


class Case:
    """One batch, two sets of weights, and the loss that the learner computes."""

    def __init__(self, spec, algorithm, module='plain_mlp', size=(3, 2), **changes):
        settings = {'kind': 'torch', 'hidden': 8, 'device': 'cpu', **changes}
        learner = LearnerSettings(network=module, algorithm=algorithm, **settings)
        self.network = TorchNetwork.from_settings(spec, learner)
        self.gradients = TorchGradients(self.network, learner)
        rng = np.random.default_rng(5)
        self.weights, self.target = (self.network.draw(rng) for _ in range(2))
        self.rewards = rng.normal(size=size).astype(np.float32)
        self.discounts = np.full(size, GAMMA, np.float32)
        self.actions = rng.integers(spec.n_actions, size=size)
        if spec.continuous:
            self.actions = rng.uniform(-1.0, 1.0, (*size, spec.n_actions)).astype(np.float32)
        draws = rng.normal(size=(2, *size, spec.size)).astype(np.float32)
        if spec.dtype == 'uint8':
            draws = rng.integers(0, 256, (2, *size, spec.size)).astype(np.uint8)
        self.states, self.after = draws

    @property
    def batch(self):
        return Batch(self.states, self.actions, self.rewards, self.after, self.discounts)

    def losses(self):
        """Return the loss of each transition."""
        made = self.gradients
        made._load(self.weights, self.target)
        networks = made.networks(made.trained.module, flat=True)
        with torch.no_grad():
            return made.losses(networks, made._tensors(self.batch)).double().numpy()

    def part(self, name, weights, inputs):
        """Return what a head gives, in float64."""
        module = self.network.build(np.random.default_rng(0))
        self.network.load(module, weights)
        with torch.no_grad():
            found = module.get_submodule(name)(torch.from_numpy(inputs))
        return found.double().numpy()

    def gradient(self, name):
        """Return the mean gradient of the weights whose names begin so."""
        found = self.gradients.mean(self.weights, self.target, self.batch)
        parts = self.network.layout.split(found)
        return np.concatenate([parts[each].reshape(-1) for each in parts if each.startswith(name)])


def at(values, actions):
    return np.take_along_axis(values, actions[..., None], -1)[..., 0]


def log_softmax(values):
    return values - np.log(np.exp(values).sum(-1, keepdims=True))


def test_double_dqn_is_its_equation():
    for loss, alpha in (('squared', 0.0), ('huber', 0.0), ('huber', 0.5)):
        case = Case(PLAIN, 'double_dqn', loss=loss, conservative=alpha)
        values, after = (case.part('', case.weights, x) for x in (case.states, case.after))
        following = at(case.part('', case.target, case.after), after.argmax(-1))
        error = at(values, case.actions) - (case.rewards + GAMMA * following)
        size = np.abs(error)
        expected = error**2 / 2.0
        if loss == 'huber':
            expected = np.where(size < 1.0, expected, size - 0.5)
        expected = expected + alpha * (np.log(np.exp(values).sum(-1)) - at(values, case.actions))
        np.testing.assert_allclose(case.losses(), expected, atol=1e-5)
        np.testing.assert_allclose(
            case.gradients.errors(case.weights, case.target, case.batch), error, atol=1e-5
        )


def test_behaviour_cloning_is_the_likelihood_of_what_was_done():
    case = Case(PLAIN, 'behaviour_cloning')
    scores = case.part('', case.weights, case.states)
    np.testing.assert_allclose(case.losses(), -at(log_softmax(scores), case.actions), atol=1e-5)
    case = Case(VECTOR, 'behaviour_cloning')
    found = case.part('', case.weights, case.states)
    expected = ((found - case.actions) ** 2).mean(-1) / 2.0
    np.testing.assert_allclose(case.losses(), expected, atol=1e-5)


def test_advantage_weighted_cloning_is_its_equation():
    for loss in ('squared', 'huber'):
        settings = {'temperature': 0.7, 'most_weight': 2.0, 'value_weight': 0.4, 'loss': loss}
        case = Case(PLAIN, 'advantage_weighted', **settings)
        scores, expected = (case.part('', x, case.states) for x in (case.weights, case.target))
        weight = np.minimum(np.exp((case.rewards - expected.mean(-1)) / 0.7), 2.0)
        error = np.abs(scores.mean(-1) - case.rewards)
        value = error**2 / 2.0
        if loss == 'huber':
            value = np.where(error < 1.0, value, error - 0.5)
        expected = 0.4 * value - weight * at(log_softmax(scores), case.actions)
        assert (weight < 2.0).any() and (weight == 2.0).any()
        np.testing.assert_allclose(case.losses(), expected, atol=1e-5)


def test_implicit_q_is_its_three_equations():
    case = Case(PLAIN, 'implicit_q')
    now, after, weights = case.states, case.after, case.weights
    target = at(case.part('q', case.target, now), case.actions)
    value = case.part('value', weights, now)[..., 0]
    lead = target - value
    expectile = np.abs(ImplicitQ.expectile - (lead < 0.0)) * lead**2
    wanted = case.rewards + GAMMA * case.part('value', weights, after)[..., 0]
    error = at(case.part('q', weights, now), case.actions) - wanted
    weight = np.minimum(np.exp(ImplicitQ.temperature * lead), ImplicitQ.most_weight)
    chosen = at(log_softmax(case.part('policy', weights, now)), case.actions)
    np.testing.assert_allclose(
        case.losses(), expectile + error**2 - weight * chosen, rtol=1e-4, atol=1e-5
    )


def test_each_head_of_implicit_q_learns_from_its_own_loss_alone():
    case = Case(PLAIN, 'implicit_q')
    before = {name: case.gradient(name) for name in ('q', 'value', 'policy')}
    case.rewards = case.rewards + 1.0  # moves what Q is drawn to, and nothing else
    assert np.abs(case.gradient('q') - before['q']).max() > 1e-3
    for name in ('value', 'policy'):
        np.testing.assert_array_equal(case.gradient(name), before[name])


def test_actor_critic_is_its_equations():
    case = Case(VECTOR, 'actor_critic')
    now, after, weights = case.states, case.after, case.weights

    def critic(name, weights, states, actions):
        joined = np.concatenate((states, actions), -1).astype(np.float32)
        return case.part(name, weights, joined)[..., 0]

    heads = 'first', 'second'
    chosen = case.part('actor', case.target, after)
    following = np.minimum(*(critic(name, case.target, after, chosen) for name in heads))
    wanted = case.rewards + GAMMA * following
    expected = sum((critic(name, weights, now, case.actions) - wanted) ** 2 for name in heads)
    action = case.part('actor', weights, now)
    value = critic('first', weights, now, action)
    size = np.abs(value).mean(1, keepdims=True) + 1e-6
    expected = expected + ((action - case.actions) ** 2).mean(-1)
    expected = expected - ActorCritic.strength * value / size
    np.testing.assert_allclose(case.losses(), expected, rtol=1e-4, atol=1e-5)


def test_the_actor_s_loss_moves_no_critic_and_the_critics_loss_no_actor(monkeypatch):
    case = Case(VECTOR, 'actor_critic')
    critics, actor = (np.concatenate([case.gradient(x) for x in names]) for names in HEADS)
    case.rewards = case.rewards + 1.0
    np.testing.assert_array_equal(case.gradient('actor'), actor)
    case.rewards = case.rewards - 1.0
    monkeypatch.setattr(ActorCritic, 'strength', 5.0)
    np.testing.assert_allclose(
        np.concatenate([case.gradient(x) for x in HEADS[0]]), critics, atol=1e-5
    )
    assert np.abs(case.gradient('actor') - actor).max() > 1e-3


HEADS = ('first', 'second'), ('actor',)


def test_the_discrete_actor_critic_is_its_equations():
    for alpha in (0.0, 0.5):
        case = Case(PLAIN, 'discrete_actor_critic', conservative=alpha)
        now, after, weights = case.states, case.after, case.weights
        chances = np.exp(log_softmax(case.part('actor', case.target, after)))
        least = np.minimum(*(case.part(name, case.target, after) for name in HEADS[0]))
        wanted = case.rewards + GAMMA * (chances * least).sum(-1)
        expected = 0.0
        for name in HEADS[0]:
            values = case.part(name, weights, now)
            taken = at(values, case.actions)
            expected = expected + (taken - wanted) ** 2
            expected = expected + alpha * (np.log(np.exp(values).sum(-1)) - taken)
        values = case.part('first', weights, now)
        leads = values - values.mean(-1, keepdims=True)
        leads = leads / (np.abs(leads).mean((1, 2), keepdims=True) + 1e-6)  # of each unit
        logs = log_softmax(case.part('actor', weights, now))
        strength = DiscreteActorCritic.strength
        expected = expected - at(logs, case.actions) - strength * (np.exp(logs) * leads).sum(-1)
        np.testing.assert_allclose(case.losses(), expected, rtol=1e-4, atol=1e-5)


def test_the_discrete_actor_s_loss_moves_no_critic_and_the_critics_loss_no_actor(monkeypatch):
    case = Case(PLAIN, 'discrete_actor_critic')
    critics, actor = (np.concatenate([case.gradient(x) for x in names]) for names in HEADS)
    case.rewards = case.rewards + 1.0
    np.testing.assert_array_equal(case.gradient('actor'), actor)
    case.rewards = case.rewards - 1.0
    monkeypatch.setattr(DiscreteActorCritic, 'strength', 5.0)
    np.testing.assert_allclose(
        np.concatenate([case.gradient(x) for x in HEADS[0]]), critics, atol=1e-5
    )
    assert np.abs(case.gradient('actor') - actor).max() > 1e-3


CORRIDOR = TaskSpec((PLACES,), actions=('left', 'right'))


@pytest.mark.parametrize(
    ('algorithm', 'better'),
    [
        ('behaviour_cloning', False),
        ('advantage_weighted', True),
        ('implicit_q', True),
        ('discrete_actor_critic', True),
    ],
)
def test_cloning_does_what_most_did_and_the_others_what_paid(algorithm, better):
    settings = {'kind': 'torch', 'hidden': 16, 'device': 'cpu', 'temperature': 0.5}
    learner = LearnerSettings(algorithm=algorithm, **settings)
    network = TrainableNetwork.from_settings(CORRIDOR, learner)
    start = Start(network.draw(np.random.default_rng(0)), network, learner)
    rounds = PretrainingSettings(
        steps=500, batch=128, learning_rate=0.01, target_period=10, discount=DISCOUNT
    )
    found = pretrain(corridor_records(), start, rounds, np.random.default_rng(1))
    assert reaches_the_goal(network.policy(found)) == better


def test_an_actor_s_action_is_within_the_limits_of_the_task_and_of_its_records():
    wide = TaskSpec((4,), low=(0.0, -3.0), high=(10.0, -1.0))
    case = Case(wide, 'behaviour_cloning')
    case.actions = np.broadcast_to(np.array([10.0, -2.0], np.float32), (3, 2, 2))
    found = case.part('', case.weights, case.states)
    expected = ((found - [1.0, 0.0]) ** 2).mean(-1) / 2.0  # in the middle and at the end
    np.testing.assert_allclose(case.losses(), expected, atol=1e-5)
    policy = case.network.policy(case.weights)
    acted = policy(case.states[0, 0])
    np.testing.assert_allclose(
        acted, [5.0, -2.0] + np.clip(found[0, 0], -1, 1) * [5.0, 1.0], atol=1e-5
    )


PIXELS = """
from torch import nn
class Pixels(nn.Sequential):
    def __init__(self, shape, outputs):
        first = nn.Conv2d(shape[0], 16, 3, padding=1)
        super().__init__(first, nn.ReLU(), nn.Conv2d(16, outputs, 1))
"""


def test_segmentation_is_the_mean_cross_entropy_of_the_pixels(tmp_path):
    file = tmp_path / 'pixels.py'
    file.write_text(PIXELS)
    case = Case(IMAGE, 'supervised', f'{file}:Pixels')
    case.gradients.check_private()
    rng = np.random.default_rng(2)
    case.actions = rng.integers(3, size=(3, 2, 36))
    images = (case.states / 255.0).astype(np.float32).reshape(6, 1, 6, 6)
    scores = np.moveaxis(case.part('', case.weights, images).reshape(3, 2, 3, 36), 2, -1)
    expected = -at(log_softmax(scores), case.actions).mean(-1)
    np.testing.assert_allclose(case.losses(), expected, atol=1e-5)
    acted = case.network.policy(case.weights)(case.states[0, 0])
    np.testing.assert_array_equal(acted.reshape(-1), scores[0, 0].argmax(-1))


def test_targets_of_one_class_for_each_observation_are_classification():
    case = Case(PLAIN, 'supervised')
    scores = case.part('', case.weights, case.states)
    np.testing.assert_allclose(case.losses(), -at(log_softmax(scores), case.actions), atol=1e-5)


@pytest.mark.parametrize('algorithm', ['double_dqn', 'behaviour_cloning', 'implicit_q'])
def test_a_burst_is_read_at_its_end_after_the_rest_has_warmed_the_memory_up(algorithm):
    burst = TaskSpec((3, 2), actions=('a', 'b'))
    case = Case(burst, algorithm, 'gru')
    before = case.losses()
    for step in range(3):  # every observation of the burst counts, also the first
        changed = case.states.copy()
        changed.reshape(3, 2, 3, 2)[:, :, step] += 1.0
        kept, case.states = case.states, changed
        assert np.abs(case.losses() - before).min() > 1e-6
        case.states = kept
    assert issubclass(type(case.gradients.algorithm), Algorithm)


@pytest.mark.parametrize(
    ('spec', 'algorithm'),
    [
        (PLAIN, 'double_dqn'),
        (PLAIN, 'behaviour_cloning'),
        (PLAIN, 'implicit_q'),
        (PLAIN, 'advantage_weighted'),
        (VECTOR, 'behaviour_cloning'),
        (VECTOR, 'actor_critic'),
        (PLAIN, 'discrete_actor_critic'),
        (PLAIN, 'supervised'),
    ],
)
def test_gradient_descent_lowers_every_loss(spec, algorithm):
    case = Case(spec, algorithm, size=(4, 8))
    case.discounts = np.zeros((4, 8), np.float32)
    before = case.losses().mean()
    weights = case.weights.astype(np.float64)
    for _ in range(60):
        gradient = case.gradients.mean(case.weights, case.target, case.batch)
        weights -= 0.05 * gradient
        case.weights = weights.astype(np.float32)
    assert math.isfinite(before) and case.losses().mean() < 0.9 * before + 0.09 * abs(before)
