# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The closed form of the per-unit gradient is the slope of a loss written out slowly."""

import math

from fdrl_ros.policy import NetworkShape
from fdrl_ros.trainer.gradient import double_dqn_targets, per_unit_gradients, q_values
from fdrl_ros.trainer.records import Batch
from hypothesis import given, settings, strategies
import numpy as np


def batch_of(rng, shape, units, transitions):
    size = (units, transitions)
    return Batch(
        states=rng.normal(size=(*size, shape.states)).astype(np.float32),
        actions=rng.integers(shape.actions, size=size),
        rewards=rng.normal(scale=2.0, size=size).astype(np.float32),
        next_states=rng.normal(size=(*size, shape.states)).astype(np.float32),
        terminals=rng.integers(2, size=size).astype(np.float32),
    )


def two_weights(seed, shape):
    rng = np.random.default_rng(seed)
    return shape.draw(rng), shape.draw(rng)


def slow_q_values(weights, shape, state):
    """Run the network for one state, unit by unit, as the papers write it."""
    layers = list(shape.layers())

    def dense(layer, inputs):
        rows = weights[layer.start : layer.bias_start].reshape(layer.outputs, layer.inputs)
        biases = weights[layer.bias_start : layer.stop]
        return [
            sum(w * x for w, x in zip(r, inputs, strict=True)) + b
            for r, b in zip(rows, biases, strict=True)
        ]

    hidden = list(state)
    for layer in layers[:-2]:
        hidden = [math.tanh(each) for each in dense(layer, hidden)]
    (value,) = dense(layers[-2], hidden)
    advantages = dense(layers[-1], hidden)
    return [value + each - sum(advantages) / len(advantages) for each in advantages]


def slow_loss(weights, target_weights, acting, shape, batch, unit, discount):
    """Mean Huber loss of one unit; targets come from the weights `acting`, which stand still."""
    losses = []
    for i in range(batch.actions.shape[1]):
        following = slow_q_values(acting, shape, batch.next_states[unit, i])
        best = following.index(max(following))
        value = slow_q_values(target_weights, shape, batch.next_states[unit, i])[best]
        going_on = 1.0 - batch.terminals[unit, i]
        expected = batch.rewards[unit, i] + discount * going_on * value
        chosen = slow_q_values(weights, shape, batch.states[unit, i])[batch.actions[unit, i]]
        error = abs(chosen - expected)
        losses.append(0.5 * error**2 if error < 1.0 else error - 0.5)
    return sum(losses) / len(losses)


@settings(max_examples=8, deadline=None)
@given(
    strategies.integers(0, 2**20),
    strategies.integers(1, 3),
    strategies.integers(1, 3),
    strategies.sampled_from([(3,), (4, 3), (2, 3, 2)]),
)
def test_closed_form_is_the_slope_of_each_unit_s_loss(seed, units, transitions, hidden):
    shape = NetworkShape(3, 2, hidden)
    weights, target = two_weights(seed, shape)
    batch = batch_of(np.random.default_rng(seed), shape, units, transitions)
    found = per_unit_gradients(weights, target, shape, batch, discount=0.9)
    wide, frozen, step = weights.astype(float), target.astype(float), 1e-5
    for unit in range(units):
        for index in range(shape.n_parameters):
            ahead, behind = wide.copy(), wide.copy()
            ahead[index] += step
            behind[index] -= step
            losses = [
                slow_loss(each, frozen, wide, shape, batch, unit, 0.9) for each in (ahead, behind)
            ]
            slope = (losses[0] - losses[1]) / (2 * step)
            assert abs(slope - found[unit, index]) < 2e-5


def test_action_is_chosen_by_the_network_and_valued_by_the_target():
    shape = NetworkShape(2, 2, (2,))
    batch = batch_of(np.random.default_rng(0), shape, 1, 1)
    network, target = two_weights(5, shape)
    best = int(np.argmax(q_values(network, shape, batch.next_states)[0]))
    value = q_values(target, shape, batch.next_states)[0][0, 0, best]
    found = double_dqn_targets(network, target, shape, batch, 0.5)
    expected = batch.rewards[0, 0] + 0.5 * (1 - batch.terminals[0, 0]) * value
    np.testing.assert_allclose(found[0, 0], expected, rtol=1e-6)


def test_unit_s_gradient_does_not_depend_on_the_others():
    shape = NetworkShape(6, 4, (7, 5))
    weights, frozen = two_weights(2, shape)
    batch = batch_of(np.random.default_rng(2), shape, 5, 4)
    alone = Batch(*(getattr(batch, n)[2:3] for n in Batch.__dataclass_fields__))
    together = per_unit_gradients(weights, frozen, shape, batch, 0.9)[2]
    np.testing.assert_allclose(
        together, per_unit_gradients(weights, frozen, shape, alone, 0.9)[0], atol=1e-6
    )
