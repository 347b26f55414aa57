# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The policy's forms agree: for training, for acting, as bytes."""

import itertools
import math

from fdrl_ros.errors import PolicyError
from fdrl_ros.learner.network import Layers
from fdrl_ros.policy import decode_weights, digest_of, encode_weights, NetworkShape
from hypothesis import given, settings, strategies
import numpy as np
import pytest

SHAPE = NetworkShape(states=5, actions=3, hidden=(8, 6))


def weights_of(seed: int = 0, shape: NetworkShape = SHAPE) -> np.ndarray:
    return shape.draw(np.random.default_rng(seed))


def test_weights_lie_in_module_order_each_matrix_before_its_bias():
    layers = list(SHAPE.layers())
    assert [layer.name for layer in layers] == ['shared.0', 'shared.1', 'value', 'advantage']
    assert SHAPE.n_parameters == 5 * 8 + 8 + 8 * 6 + 6 + 6 + 1 + 6 * 3 + 3
    assert layers[0].start == 0
    for layer, following in itertools.pairwise(layers):
        assert layer.stop == following.start
        assert layer.stop - layer.bias_start == layer.outputs


def test_layout_of_a_network_names_its_tensors_in_the_order_of_the_weights():
    layout = SHAPE.layout
    names = [f'{x.name}.{part}' for x in SHAPE.layers() for part in ('weight', 'bias')]
    assert [tensor.name for tensor in layout.tensors] == names
    assert layout.n_parameters == SHAPE.n_parameters
    weights = weights_of()
    split = layout.split(weights)
    for layer, (matrix, bias) in zip(SHAPE.layers(), SHAPE.split(weights), strict=True):
        np.testing.assert_array_equal(split[f'{layer.name}.weight'], matrix)
        np.testing.assert_array_equal(split[f'{layer.name}.bias'], bias)


@pytest.mark.parametrize('personal', [(), ('value',), ('shared.1', 'advantage')])
def test_layers_that_hospitals_share_are_those_that_are_not_personal(personal):
    shared = [i for x in SHAPE.layers() if x.name not in personal for i in range(x.start, x.stop)]
    np.testing.assert_array_equal(SHAPE.shared(personal), shared)


def test_drawn_weights_are_glorot_s_with_biases_zero():
    weights = weights_of(1, NetworkShape(200, 3, (300,)))
    first = next(NetworkShape(200, 3, (300,)).layers())
    matrix = weights[: first.bias_start]
    bound = math.sqrt(6 / 500)
    assert abs(matrix).max() <= bound and abs(matrix.std() - bound / math.sqrt(3)) < 1e-3
    assert not weights[first.bias_start : first.stop].any()


@settings(max_examples=30, deadline=None)
@given(
    strategies.integers(0, 2**31),
    strategies.integers(1, 9),
    strategies.integers(1, 7),
    strategies.sampled_from([(), (7, 4)]),
)
def test_acting_form_values_actions_as_the_training_form_does(seed, states, actions, hidden):
    shape = NetworkShape(states, actions, hidden)
    weights = weights_of(seed, shape)
    batch = np.random.default_rng(seed).normal(size=(6, states)).astype(np.float32)
    policy = shape.policy(weights)
    expected = Layers(shape, weights).forward(batch)[0]
    np.testing.assert_allclose(policy.q_values(batch), expected, atol=2e-6)
    assert policy(batch[0]) == int(np.argmax(policy.q_values(batch[0])))


def test_bytes_and_weights_round_trip_with_one_digest():
    weights = weights_of(3)
    again = decode_weights(encode_weights(weights), SHAPE.n_parameters)
    np.testing.assert_array_equal(again, weights)
    assert digest_of(again) == digest_of(weights) == SHAPE.policy(weights).digest
    assert encode_weights(np.array([1.0, -2.0])).hex() == '0000803f000000c0'  # little-endian


def test_weights_of_another_length_or_not_finite_are_refused_everywhere():
    weights = weights_of()
    weights[3] = np.nan
    for bad in (b'', b'\0' * 4, b'\0' * (4 * SHAPE.n_parameters + 1), weights.tobytes()):
        with pytest.raises(PolicyError):
            decode_weights(bad, SHAPE.n_parameters)
    for refused in (encode_weights, lambda given: SHAPE.policy(given)):
        with pytest.raises(PolicyError):
            refused(weights)
    for sizes in ((0, 3, (4,)), (3, 0, (4,)), (3, 3, (0,))):
        with pytest.raises(PolicyError, match='not the shape of a network'):
            NetworkShape(*sizes)


def test_a_policy_cannot_be_changed_after_it_is_made():
    policy = SHAPE.policy(weights_of())
    with pytest.raises(ValueError, match='read-only'):
        policy.weights[0] = 1.0


def test_values_are_to_the_last_bit_those_of_the_plain_formula():
    shape = NetworkShape(26, 15)
    rng = np.random.default_rng(7)
    policy = shape.policy(shape.draw(rng))
    states = rng.normal(size=(200, 26)).astype(np.float32)
    for each in (*states, states, states[:, None]):
        hidden = each
        *shared, (head, head_bias) = policy.layers()
        for matrix, bias in shared:
            hidden = np.tanh(hidden @ matrix + bias)
        assert np.array_equal(policy.q_values(each), hidden @ head + head_bias)
    before = states.copy()
    assert policy(states[0]) == int(np.argmax(policy.q_values(states[0])))
    assert np.array_equal(states, before)
