# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The closed form of the per-unit gradient equals differentiating each unit by itself."""

from dueling_network import DuelingNetwork
from fdrl_ros.policy import NetworkShape
from fdrl_ros.trainer.gradient import double_dqn_targets, per_unit_gradients, q_values
from fdrl_ros.trainer.records import Batch
from hypothesis import given, settings, strategies
import numpy as np
import torch


def batch_of(rng, shape, units, transitions):
    size = (units, transitions)
    return Batch(
        states=rng.normal(size=(*size, shape.states)).astype(np.float32),
        actions=rng.integers(shape.actions, size=size),
        rewards=rng.normal(scale=2.0, size=size).astype(np.float32),
        next_states=rng.normal(size=(*size, shape.states)).astype(np.float32),
        terminals=rng.integers(2, size=size).astype(np.float32),
    )


def networks(seed, shape):
    return [DuelingNetwork(shape, torch.Generator().manual_seed(seed + i)) for i in range(2)]


def slow_gradients(network, target, batch, discount):
    """Differentiate one unit after the other, written as in the papers."""
    gradients = []
    for unit in range(len(batch.states)):
        states, following = (torch.from_numpy(x[unit]) for x in (batch.states, batch.next_states))
        with torch.no_grad():
            best = network(following).argmax(dim=1)
            value = target(following)[torch.arange(len(best)), best]
            going_on = 1.0 - torch.from_numpy(batch.terminals[unit])
            expected = torch.from_numpy(batch.rewards[unit]) + discount * going_on * value
        chosen = network(states)[torch.arange(len(best)), torch.from_numpy(batch.actions[unit])]
        network.zero_grad()
        torch.nn.functional.huber_loss(chosen, expected).backward()
        gradients.append(torch.cat([p.grad.reshape(-1) for p in network.parameters()]))
    return torch.stack(gradients).numpy()


@settings(max_examples=25, deadline=None)
@given(
    strategies.integers(0, 2**20),
    strategies.integers(1, 6),
    strategies.integers(1, 5),
    strategies.sampled_from([(4,), (7, 5), (3, 4, 5)]),
)
def test_closed_form_equals_one_unit_after_the_other(seed, units, transitions, hidden):
    shape = NetworkShape(6, 4, hidden)
    network, target = networks(seed, shape)
    batch = batch_of(np.random.default_rng(seed), shape, units, transitions)
    fast = per_unit_gradients(
        network.flat_weights(), target.flat_weights(), shape, batch, discount=0.9
    )
    np.testing.assert_allclose(
        fast, slow_gradients(network, target, batch, 0.9), atol=3e-6, rtol=1e-4
    )


def test_gradient_is_the_slope_of_the_loss():
    shape = NetworkShape(3, 2, (4,))
    network, target = networks(1, shape)
    weights, frozen = network.flat_weights().astype(np.float64), target.flat_weights()
    batch = batch_of(np.random.default_rng(1), shape, 1, 3)
    targets = double_dqn_targets(network.flat_weights(), frozen, shape, batch, 0.9)

    def loss(point):
        values = q_values(point, shape, batch.states)[0]
        error = np.take_along_axis(values, batch.actions[..., None], -1)[..., 0] - targets
        size = np.abs(error)
        return np.where(size < 1.0, 0.5 * size**2, size - 0.5).mean()

    found = per_unit_gradients(network.flat_weights(), frozen, shape, batch, 0.9)[0]
    step = 1e-6
    for index in range(shape.n_parameters):
        ahead = weights.copy()
        ahead[index] += step
        behind = weights.copy()
        behind[index] -= step
        assert abs((loss(ahead) - loss(behind)) / (2 * step) - found[index]) < 1e-4


def test_action_is_chosen_by_the_network_and_valued_by_the_target():
    shape = NetworkShape(2, 2, (2,))
    batch = batch_of(np.random.default_rng(0), shape, 1, 1)
    network, target = networks(5, shape)
    best = int(np.argmax(q_values(network.flat_weights(), shape, batch.next_states)[0]))
    value = q_values(target.flat_weights(), shape, batch.next_states)[0][0, 0, best]
    found = double_dqn_targets(network.flat_weights(), target.flat_weights(), shape, batch, 0.5)
    expected = batch.rewards[0, 0] + 0.5 * (1 - batch.terminals[0, 0]) * value
    np.testing.assert_allclose(found[0, 0], expected, rtol=1e-6)


def test_unit_s_gradient_does_not_depend_on_the_others():
    shape = NetworkShape(6, 4, (7, 5))
    network, target = networks(2, shape)
    batch = batch_of(np.random.default_rng(2), shape, 5, 4)
    alone = Batch(*(getattr(batch, n)[2:3] for n in Batch.__dataclass_fields__))
    weights, frozen = network.flat_weights(), target.flat_weights()
    together = per_unit_gradients(weights, frozen, shape, batch, 0.9)[2]
    np.testing.assert_allclose(
        together, per_unit_gradients(weights, frozen, shape, alone, 0.9)[0], atol=1e-6
    )
