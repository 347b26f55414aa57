# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The ONNX graph of a module, made once where PyTorch is, so that robots run without it."""

import copy
import io
import warnings

from fdrl_ros.errors import PolicyError
from fdrl_ros.policy.layout import TensorLayout
from fdrl_ros.policy.onnx_model import ACTION, libraries, loaded, OPSET, Q_VALUES, STATE
from fdrl_ros.policy.onnx_network import OnnxNetwork, without_weights
import numpy as np
from numpy.typing import DTypeLike, NDArray
import torch
from torch import nn

TOLERANCE = 1e-5
"""Largest difference of a value between module and graph, of the largest value, at least of 1."""

_TRIALS = (1, 2, 5)
"""States of each comparison, beside other weights."""


def onnx_graph(
    module: nn.Module,
    layout: TensorLayout,
    states: int,
    dtype: DTypeLike = np.float32,
    *,
    continuous: bool = False,
) -> bytes:
    """
    Trace a module, and compare the graph with it.

    :param module: from states, shape (n, states), to the values of actions, shape (n, actions),
        or to continuous ones.
    :param layout: of its parameters; those that it does not need for acting are left out.
    :param dtype: of states, float32 or uint8.
    :param continuous: whether it gives actions.
    :returns: a graph of :class:`fdrl_ros.policy.onnx_network.OnnxNetwork`.
    :raises PolicyError: if it cannot be traced, or the graph gives other values than the module,
        as where its branches depend on values; or if onnx is not installed.
    """
    libraries()
    acting = copy.deepcopy(module).cpu().eval()
    rng = np.random.default_rng(0)
    # The exporter makes one tensor of two with equal values, such as biases that begin at zero.
    _load(acting, layout, _weights(layout, rng))
    example = _states(states, dtype, 2, rng)
    file = io.BytesIO()
    output = ACTION if continuous else Q_VALUES
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter('ignore')  # of the exporter, which the newer one replaces
            sizes = acting(torch.from_numpy(example)).shape
            torch.onnx.export(
                acting,
                (torch.from_numpy(example),),
                file,
                dynamo=False,
                do_constant_folding=False,
                input_names=[STATE],
                output_names=[output],
                dynamic_axes={STATE: {0: 'n'}, output: {0: 'n'}},
                opset_version=OPSET,
            )
    except Exception as error:  # the exporter raises whatever a module does
        raise PolicyError(f'the module has no ONNX graph: {error}') from error
    model = loaded(file.getvalue())
    axes = model.graph.output[0].type.tensor_type.shape.dim
    for axis, size in zip(axes[1:], sizes[1:], strict=True):
        axis.dim_value = size
    graph = without_weights(model.SerializeToString(), layout)
    _compare(acting, layout, OnnxNetwork(graph))
    return graph


def _compare(module: nn.Module, layout: TensorLayout, network: OnnxNetwork) -> None:
    rng = np.random.default_rng(1)
    for count in _TRIALS:
        weights = _weights(layout, rng)
        _load(module, layout, weights)
        states = _states(network.states, network.dtype, count, rng)
        with torch.no_grad():
            wanted = module(torch.from_numpy(states)).numpy()
        found = network.policy(weights).q_values(states)
        error = np.abs(found - wanted).max() if found.shape == wanted.shape else np.inf
        if not error <= TOLERANCE * max(1.0, np.abs(wanted).max()):
            raise PolicyError(
                f'the ONNX graph of the module is off by {error:.2g} on {count} states: expected '
                'a module whose branches do not depend on values or the number of states'
            )


def _weights(layout: TensorLayout, rng: np.random.Generator) -> NDArray[np.float32]:
    return rng.normal(scale=0.2, size=layout.n_parameters).astype(np.float32)


def _load(module: nn.Module, layout: TensorLayout, weights: NDArray[np.float32]) -> None:
    """
    Put weights into a module.

    :raises PolicyError: if a tensor of the layout is none of it, or has another shape.
    """
    own = dict(module.named_parameters())
    for tensor in layout.tensors:
        shape = tuple(own[tensor.name].shape) if tensor.name in own else None
        if shape != tensor.shape:
            raise PolicyError(
                f'tensor {tensor.name} of shape {tensor.shape}: the module has {shape}'
            )
    with torch.no_grad():
        for name, values in layout.split(weights).items():
            own[name].copy_(torch.from_numpy(values))


def _states(width: int, dtype: DTypeLike, count: int, rng: np.random.Generator) -> np.ndarray:
    if np.issubdtype(dtype, np.integer):
        return rng.integers(0, 256, (count, width)).astype(dtype)
    return rng.normal(size=(count, width)).astype(dtype)
