# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The ONNX graph of a dueling network, written by hand: other libraries need not be there."""

from collections.abc import Callable

from fdrl_ros.policy import NetworkShape
from fdrl_ros.policy.onnx_network import OnnxNetwork, without_weights
import numpy as np
import onnx
from onnx import helper, TensorProto


def dueling_model(shape: NetworkShape) -> onnx.ModelProto:
    """Write a network with weights of zero: Q = V + A - mean(A)."""
    nodes, constants, last = [], [], 'state'
    for layer in shape.layers():
        for part, size in (('weight', (layer.outputs, layer.inputs)), ('bias', (layer.outputs,))):
            zeros = np.zeros(size, np.float32)
            constants.append(onnx.numpy_helper.from_array(zeros, f'{layer.name}.{part}'))
        names = [last, f'{layer.name}.weight', f'{layer.name}.bias']
        nodes.append(helper.make_node('Gemm', names, [layer.name], transB=1))
        if layer.name.startswith('shared'):
            last = f'{layer.name}.tanh'
            nodes.append(helper.make_node('Tanh', [layer.name], [last]))
    nodes.append(helper.make_node('ReduceMean', ['advantage'], ['mean'], axes=[1]))
    nodes.append(helper.make_node('Sub', ['advantage', 'mean'], ['centred']))
    nodes.append(helper.make_node('Add', ['value', 'centred'], ['q_values']))
    graph = helper.make_graph(
        nodes,
        'policy',
        [helper.make_tensor_value_info('state', TensorProto.FLOAT, ['n', shape.states])],
        [helper.make_tensor_value_info('q_values', TensorProto.FLOAT, ['n', shape.actions])],
        constants,
    )
    opsets = [helper.make_opsetid('', 17)]
    return helper.make_model(graph, ir_version=9, opset_imports=opsets)


def dueling_graph(
    shape: NetworkShape, change: Callable[[onnx.ModelProto], object] = lambda model: None
) -> bytes:
    """
    Return the graph of a network.

    :param change: applied to the model before its weights are left out.
    """
    model = dueling_model(shape)
    change(model)
    return without_weights(model.SerializeToString(), shape.layout)


def onnx_network(shape: NetworkShape) -> OnnxNetwork:
    """Return a network that gives an action the same value as the dueling one."""
    return OnnxNetwork(dueling_graph(shape))
