# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""A graph without weights and the weights make the policy, and what does not fit is refused."""

from functools import partial
import pickle
import sys

from fdrl_ros.errors import PolicyError
from fdrl_ros.policy import encode_weights, NetworkShape
from fdrl_ros.policy.layout import TensorLayout
from fdrl_ros.policy.onnx_network import OnnxNetwork, without_weights
from hypothesis import given, settings, strategies
import numpy as np
import onnx
import onnxruntime
import pytest
from support.onnx_graphs import dueling_graph, dueling_model, onnx_network

SHAPE = NetworkShape(5, 3, (8, 6))
WEIGHTS = SHAPE.draw(np.random.default_rng(1))


@pytest.fixture(scope='module')
def network():
    return onnx_network(SHAPE)


@settings(max_examples=15, deadline=None)
@given(
    strategies.integers(0, 2**31),
    strategies.integers(1, 9),
    strategies.integers(1, 7),
    strategies.sampled_from([(), (7, 4)]),
)
def test_values_are_those_of_the_compiled_learner_s_network(seed, states, actions, hidden):
    shape, rng = NetworkShape(states, actions, hidden), np.random.default_rng(seed)
    weights, batch = shape.draw(rng), rng.normal(size=(6, states)).astype(np.float32)
    ours, policy = shape.policy(weights), onnx_network(shape).policy(weights)
    np.testing.assert_allclose(policy.q_values(batch), ours.q_values(batch), atol=1e-5)
    assert [policy(each) for each in batch] == [
        int(np.argmax(each)) for each in policy.q_values(batch)
    ]
    assert (policy.digest, policy.n_parameters) == (ours.digest, ours.n_parameters)


def test_values_of_one_state_and_of_many_rows_have_their_shape(network):
    policy, states = network.policy(WEIGHTS), np.ones((2, 4, 5))
    assert policy.q_values(states).shape == (2, 4, 3)
    np.testing.assert_array_equal(policy.q_values(states[0, 0]), policy.q_values(states)[0, 0])


def test_weights_stay_outside_of_the_graph_and_are_found_by_name(network):
    assert network.layout == SHAPE.layout
    large = dueling_graph(NetworkShape(5, 3, (500, 500)))
    assert len(large) < 5000
    half = network.layout.split(WEIGHTS.copy())
    half['value.bias'][0] = 7.0
    changed = np.concatenate([each.ravel() for each in half.values()])
    states = np.ones((1, 5), np.float32)
    before, after = (network.policy(each).q_values(states) for each in (WEIGHTS, changed))
    shift = 7.0 - network.layout.split(WEIGHTS)['value.bias'][0]
    np.testing.assert_allclose(after - before, shift, rtol=1e-5)


def test_a_graph_beside_the_encoded_weights_is_a_model_by_onnx_own_rules(network, tmp_path):
    (tmp_path / 'weights').write_bytes(encode_weights(WEIGHTS))
    (tmp_path / 'network.onnx').write_bytes(network.graph)
    states = np.random.default_rng(2).normal(size=(4, 5)).astype(np.float32)
    values = network.policy(WEIGHTS).q_values(states)
    for source in (str(tmp_path / 'network.onnx'), network.model(WEIGHTS)):
        session = onnxruntime.InferenceSession(source, providers=['CPUExecutionProvider'])
        np.testing.assert_allclose(session.run(None, {'state': states})[0], values, atol=1e-6)
    onnx.checker.check_model(str(tmp_path / 'network.onnx'), full_check=True)


def test_a_policy_goes_to_another_process_and_cannot_be_changed(network):
    policy = network.policy(WEIGHTS)
    again = pickle.loads(pickle.dumps(policy))
    states = np.ones((2, 5), np.float32)
    np.testing.assert_array_equal(again.q_values(states), policy.q_values(states))
    assert again.digest == policy.digest and again.network.name == network.name
    for each in (policy, again):
        with pytest.raises(ValueError, match='read-only'):
            each.weights[0] = 1.0


def retyped(part, kind, model):
    (model.graph.input if part == 'state' else model.graph.output)[
        0
    ].type.tensor_type.elem_type = kind


def fixed_batch(model):
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1


def renamed(model):
    model.graph.node[0].input[0] = model.graph.input[0].name = 'pixels'


def with_constant(model):
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.zeros(3), 'extra'))


def with_integers(model):
    bias = np.zeros(8, np.int64)
    model.graph.initializer[1].CopyFrom(onnx.numpy_helper.from_array(bias, 'shared.0.bias'))


def transposed(model):
    weight = np.zeros((5, 8), np.float32)
    model.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(weight, 'shared.0.weight'))


def another_output(model):
    model.graph.output.append(
        onnx.helper.make_tensor_value_info('mean', onnx.TensorProto.FLOAT, ['n', 1])
    )


def without_a_node(model):
    del model.graph.node[1]


@pytest.mark.parametrize(
    ('change', 'words'),
    [
        (partial(retyped, 'state', onnx.TensorProto.DOUBLE), 'expected float32'),
        (partial(retyped, 'q_values', onnx.TensorProto.INT64), 'expected float32'),
        (fixed_batch, r'expected \(n, width\)'),
        (renamed, 'expected state alone'),
        (another_output, 'expected q_values or action alone'),
        (with_integers, 'expected FLOAT'),
        (transposed, r'expected FLOAT \(8, 5\)'),
        (without_a_node, 'no ONNX model'),
    ],
)
def test_a_model_that_does_not_fit_its_task_or_layout_is_refused(change, words):
    with pytest.raises(PolicyError, match=words):
        dueling_graph(SHAPE, change)


def test_a_graph_that_was_damaged_or_changed_is_refused(network):
    whole = network.model(WEIGHTS)
    for damaged, words in (
        (b'nothing', 'no ONNX model'),
        (network.graph[: len(network.graph) // 2], 'ONNX'),
        (whole, 'expected those of the layout outside'),
        (dueling_model(SHAPE).SerializeToString(), 'without the layout'),
        (bytes(11_000_000), 'without weights'),
    ):
        with pytest.raises(PolicyError, match=words):
            OnnxNetwork(damaged)
    moved = onnx.load_from_string(network.graph)
    moved.graph.initializer[0].external_data[1].value = '4'
    with pytest.raises(PolicyError, match='lies at'):
        OnnxNetwork(moved.SerializeToString())
    other = onnx.load_from_string(network.graph)
    other.metadata_props[0].value = NetworkShape(5, 3, (8, 7)).layout.to_json()
    with pytest.raises(PolicyError, match='expected FLOAT'):
        OnnxNetwork(other.SerializeToString())


def test_constants_of_a_module_stay_in_its_graph():
    assert OnnxNetwork(dueling_graph(SHAPE, with_constant)).layout == SHAPE.layout


def test_a_tensor_that_acting_does_not_need_may_lie_in_the_layout_alone():
    critic = NetworkShape(5, 3, ()).layout.tensors[0]
    layout = TensorLayout((*SHAPE.layout.tensors, type(critic)('critic', (2, 2))))
    graph = without_weights(dueling_model(SHAPE).SerializeToString(), layout)
    network = OnnxNetwork(graph)
    assert network.n_parameters == SHAPE.n_parameters + 4
    states = np.ones((1, 5), np.float32)
    found = network.policy(np.append(WEIGHTS, np.ones(4, np.float32))).q_values(states)
    np.testing.assert_allclose(found, SHAPE.policy(WEIGHTS).q_values(states), atol=1e-5)


def test_weights_and_states_that_do_not_fit_are_refused(network):
    for bad in (WEIGHTS[1:], np.full_like(WEIGHTS, np.nan)):
        for refused in (network.policy, network.model):
            with pytest.raises(PolicyError, match='finite numbers'):
                refused(bad)
    policy = network.policy(WEIGHTS)
    with pytest.raises(PolicyError, match='expected 5 numbers'):
        policy.q_values(np.zeros((2, 4)))
    with pytest.raises(PolicyError, match='fails'):
        policy(np.zeros(4))
    with pytest.raises(PolicyError, match='draws no'):
        network.draw(np.random.default_rng(1))


def test_a_value_that_is_not_finite_is_no_action(network):
    huge = network.policy(np.full_like(WEIGHTS, 1e38))
    with pytest.raises(PolicyError, match='finite'):
        huge(np.ones(5, np.float32))
    assert not np.isfinite(huge.q_values(np.ones((1, 5)))).all()


@pytest.mark.parametrize('missing', ['onnx', 'onnxruntime'])
def test_without_the_libraries_the_error_names_what_to_install(network, missing, monkeypatch):
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(PolicyError, match=r'pip install "fdrl_ros\[onnx\]"'):
        OnnxNetwork(network.graph)
