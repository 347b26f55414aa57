# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The dueling network's arithmetic on flat weights: Q = V + A - mean(A) (Wang et al. 2016)."""

from dataclasses import dataclass
from functools import cached_property

from fdrl_ros.policy import NetworkShape
from fdrl_ros.policy.shape import Layer
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]
Spans = tuple[tuple[slice, slice, slice], ...]


class Layered:
    """Flat weights, split into layers on first access."""

    def __init__(self, network: 'Network', flat: Array) -> None:
        """:param flat: shape (n_parameters,), float32; must not change afterwards."""
        self.flat = flat
        self._network = network

    @cached_property
    def shared(self) -> list[tuple[Array, Array]]:
        """View the matrix (outputs, inputs) and bias (outputs,) of each shared layer."""
        return self._network.shared_of(self.flat)

    @cached_property
    def head(self) -> tuple[Array, Array]:
        """
        Combine value and advantage into one layer, since Q is linear in the last hidden layer.

        :returns: matrix (actions, width) and bias (actions,).
        """
        return self._network.head_of(self.flat)


@dataclass(frozen=True)
class Pass:
    """
    Results of a forward pass that the backward pass needs.

    ``values``: Q, shape (rows, actions). ``inputs``: of each dense layer, the head last, each
    (rows, width).
    """

    values: Array
    inputs: list[Array]


@dataclass(frozen=True)
class Slopes:
    """
    Gradients of one dense layer by row, as factors of outer products.

    ``inputs``: (rows, width). ``outputs``: slopes at the layer's outputs, (rows, outputs).
    ``spans``: positions of matrix and bias for each run of outputs.
    """

    inputs: Array
    outputs: Array
    spans: Spans


class Network:
    """A dueling network with tanh between its shared layers."""

    def __init__(self, shape: NetworkShape) -> None:
        """Compute the position of each layer in the flat weights."""
        *shared, value, advantage = shape.layers()
        self._actions = shape.actions
        self._shared = [_Span(each) for each in shared]
        self._value, self._advantage = _Span(value), _Span(advantage)
        self.spans: list[Spans] = [
            ((slice(None), each.matrix, each.bias),) for each in self._shared
        ] + [
            (
                (slice(0, 1), self._value.matrix, self._value.bias),
                (slice(1, None), self._advantage.matrix, self._advantage.bias),
            )
        ]
        """Positions of the weights for each run of outputs of each dense layer, the head last."""

    def layered(self, weights: Array) -> Layered:
        """
        Split weights into layers.

        :param weights: flat, shape (n_parameters,), float32; must not change afterwards.
        """
        return Layered(self, weights)

    def shared_of(self, weights: Array) -> list[tuple[Array, Array]]:
        """View matrix and bias of each shared layer; see :attr:`Layered.shared`."""
        return [(each.matrix_in(weights), weights[each.bias]) for each in self._shared]

    def head_of(self, weights: Array) -> tuple[Array, Array]:
        """Combine value and advantage; see :attr:`Layered.head`."""
        # mean() costs several times a sum on arrays this small
        share = np.float32(1.0 / self._actions)
        advantage, bias = self._advantage.matrix_in(weights), weights[self._advantage.bias]
        head: Array = advantage - advantage.sum(axis=0) * share
        head += self._value.matrix_in(weights)
        head_bias: Array = bias - bias.sum() * share
        head_bias += weights[self._value.bias]
        return head, head_bias

    def forward(self, weights: Layered, states: Array) -> Pass:
        """
        Value every action in some states.

        :param states: scaled, shape (rows, states), float32.
        """
        inputs = [states]
        for matrix, bias in weights.shared:
            hidden = inputs[-1] @ matrix.T
            hidden += bias
            np.tanh(hidden, out=hidden)
            inputs.append(hidden)
        matrix, bias = weights.head
        values = inputs[-1] @ matrix.T
        values += bias
        return Pass(values, inputs)

    def backward(
        self, weights: Layered, inputs: list[Array], slopes: Array, frozen: int = 0
    ) -> list[Slopes]:
        """
        Propagate slopes at the Q values back through the network.

        :param inputs: of each dense layer, from a forward pass.
        :param slopes: of the loss by each Q value, shape (rows, actions).
        :param frozen: number of first shared layers without a gradient.
        :returns: of each layer with a gradient, the head first.
        """
        total = slopes.sum(axis=1, keepdims=True)
        heads = np.concatenate((total, slopes - total * np.float32(1.0 / self._actions)), axis=1)
        found = [Slopes(inputs[-1], heads, self.spans[-1])]
        matrix, _ = weights.head
        back = slopes
        for index in range(len(weights.shared) - 1, frozen - 1, -1):
            hidden = inputs[index + 1]
            back = back @ matrix
            back *= 1 - hidden * hidden
            found.append(Slopes(inputs[index], back, self.spans[index]))
            matrix = weights.shared[index][0]
        return found


class _Span:
    """Position of a layer in the flat weights."""

    def __init__(self, layer: Layer) -> None:
        self.matrix = slice(layer.start, layer.bias_start)
        self.bias = slice(layer.bias_start, layer.stop)
        self._shape = (layer.outputs, layer.inputs)

    def matrix_in(self, weights: Array) -> Array:
        """Return the matrix (outputs, inputs), a view."""
        return weights[self.matrix].reshape(self._shape)
