# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The policy's three forms agree: torch network, numpy policy, bytes."""

from dueling_network import DuelingNetwork
from fdrl_ros.errors import PolicyError
from fdrl_ros.policy import (
    decode_weights,
    digest_of,
    encode_weights,
    NetworkShape,
    Policy,
)
from hypothesis import given, settings, strategies
import numpy as np
import pytest
import torch

SHAPE = NetworkShape(states=5, actions=3, hidden=(8, 6))


def network(seed: int = 0, shape: NetworkShape = SHAPE) -> DuelingNetwork:
    return DuelingNetwork(shape, torch.Generator().manual_seed(seed))


def test_flat_weights_lie_in_module_order():
    net = network()
    layers = list(SHAPE.layers())
    assert [layer.name for layer in layers] == ['shared.0', 'shared.1', 'value', 'advantage']
    assert SHAPE.n_parameters == 5 * 8 + 8 + 8 * 6 + 6 + 6 + 1 + 6 * 3 + 3
    assert SHAPE.n_parameters == sum(p.numel() for p in net.parameters())
    value = layers[2]
    np.testing.assert_array_equal(
        net.flat_weights()[value.start : value.bias_start], net.value.weight.detach()[0]
    )


@settings(max_examples=30, deadline=None)
@given(strategies.integers(0, 2**31), strategies.integers(1, 9), strategies.integers(1, 7))
def test_numpy_policy_values_actions_as_the_network_does(seed, states, actions):
    shape = NetworkShape(states, actions, (7, 4))
    net = network(seed, shape)
    batch = np.random.default_rng(seed).normal(size=(6, states)).astype(np.float32)
    policy = Policy(net.flat_weights(), shape)
    expected = net(torch.from_numpy(batch)).detach().numpy()
    np.testing.assert_allclose(policy.q_values(batch), expected, atol=2e-6)
    assert policy(batch[0]) == int(np.argmax(policy.q_values(batch[0])))


def test_advantages_are_centred_so_value_is_the_mean_of_q():
    net = network()
    states = torch.randn(4, 5, generator=torch.Generator().manual_seed(1))
    hidden = states
    for layer in net.shared:
        hidden = torch.tanh(layer(hidden))
    torch.testing.assert_close(net(states).mean(dim=-1), net.value(hidden)[:, 0])


def test_bytes_and_weights_round_trip_with_one_digest():
    weights = network(3).flat_weights()
    data = encode_weights(weights)
    again = decode_weights(data, SHAPE.n_parameters)
    np.testing.assert_array_equal(again, weights)
    assert digest_of(again) == digest_of(weights) == Policy(weights, SHAPE).digest
    other = network(4)
    other.load_flat_weights(again)
    np.testing.assert_array_equal(other.flat_weights(), weights)


def test_digest_is_that_of_little_endian_float32():
    # sha256 of 0000803f 000000c0, from any SHA-256 tool
    assert encode_weights(np.array([1.0, -2.0])).hex() == '0000803f000000c0'


@pytest.mark.parametrize('bad', [b'', b'\0' * 4, b'\0' * (4 * SHAPE.n_parameters + 1)])
def test_bytes_of_another_length_are_refused(bad):
    with pytest.raises(PolicyError, match='bytes'):
        decode_weights(bad, SHAPE.n_parameters)


def test_weights_that_are_not_finite_are_refused_everywhere():
    weights = network().flat_weights()
    weights[3] = np.nan
    with pytest.raises(PolicyError):
        encode_weights(weights)
    with pytest.raises(PolicyError):
        Policy(weights, SHAPE)
    with pytest.raises(PolicyError):
        decode_weights(weights.tobytes(), SHAPE.n_parameters)


def test_a_policy_cannot_be_changed_after_it_is_made():
    policy = Policy(network().flat_weights(), SHAPE)
    with pytest.raises(ValueError, match='read-only'):
        policy.weights[0] = 1.0


@pytest.mark.parametrize('sizes', [(0, 3, (4,)), (3, 0, (4,)), (3, 3, ()), (3, 3, (0,))])
def test_a_shape_without_units_is_refused(sizes):
    with pytest.raises(PolicyError):
        NetworkShape(*sizes)
