# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The dueling network's arithmetic on flat weights: Q = V + A - mean(A) (Wang et al. 2016)."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from fdrl_ros.policy import NetworkShape
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class TrainedWeights:
    """
    Which weights of a dueling network are trained; the head counts as one dense layer.

    ``index``: of them in the flat weights. ``size``: how many. ``first``: the first dense layer
    with some. ``picked``: which of the weights from that layer on. ``matrices``, ``biases``: of
    each dense layer, the outputs whose weights or bias are trained, (outputs,), bool.
    """

    index: slice | NDArray[np.int64]
    size: int
    first: int
    picked: slice | NDArray[np.int64]
    matrices: tuple[NDArray[np.bool_], ...]
    biases: tuple[NDArray[np.bool_], ...]

    @classmethod
    def of(cls, shape: NetworkShape, frozen: Collection[str] = ()) -> 'TrainedWeights':
        """
        Leave out some tensors.

        :param frozen: their names, or those of the modules that hold them.
        :raises PolicyError: if a name is not there, or nothing is left to train.
        """
        index = shape.layout.trained(frozen)
        kept = np.zeros(shape.n_parameters, np.bool_)
        kept[index] = True
        layers = list(shape.layers())
        columns = (
            [np.full(each.outputs, kept[each.start]) for each in layers],
            [np.full(each.outputs, kept[each.bias_start]) for each in layers],
        )
        matrices, biases = ((*each[:-2], np.concatenate(each[-2:])) for each in columns)
        some = [m.any() or b.any() for m, b in zip(matrices, biases, strict=True)]
        first = int(np.argmax(some))
        start = layers[first].start
        if len(index) == shape.n_parameters - start:
            views = slice(start, None), slice(None)
            return cls(views[0], len(index), first, views[1], matrices, biases)
        return cls(index, len(index), first, index - start, matrices, biases)

    def rows(self) -> tuple[tuple[NDArray[np.bool_], ...], ...]:
        """Return matrices and biases of the layers from the first trained one on."""
        return self.matrices[self.first :], self.biases[self.first :]

    @property
    def partly(self) -> bool:
        """Whether some weights after the first trained ones are not."""
        return not isinstance(self.picked, slice)


class Slopes(NamedTuple):
    """
    Gradients of one dense layer by row, as factors of outer products.

    ``inputs``: (rows, width). ``outputs``: slopes at the layer's outputs, (rows, outputs); those
    of the head are of the value, then of the advantages.
    """

    inputs: NDArray
    outputs: NDArray


class Layers:
    """Flat weights of a network, split into layers on first access."""

    def __init__(self, shape: NetworkShape, flat: Array) -> None:
        """:param flat: shape (n_parameters,), float32; must not change afterwards."""
        self.flat = flat
        self._shape = shape

    @cached_property
    def shared(self) -> list[tuple[Array, Array]]:
        """View the matrix (outputs, inputs) and bias (outputs,) of each shared layer."""
        return self._shape.split(self.flat)[:-2]

    @cached_property
    def head(self) -> tuple[Array, Array]:
        """
        Combine value and advantage into one layer, since Q is linear in the last hidden layer.

        :returns: matrix (actions, width) and bias (actions,).
        """
        (value, value_bias), (advantage, bias) = self._shape.split(self.flat)[-2:]
        # mean() costs several times a sum on arrays this small
        share = np.float32(1.0 / self._shape.actions)
        head: Array = advantage - advantage.sum(axis=0) * share + value
        head_bias: Array = bias - bias.sum() * share + value_bias
        return head, head_bias

    def forward(self, states: Array) -> tuple[Array, list[Array]]:
        """
        Value every action in some states.

        :param states: scaled, shape (rows, states), float32.
        :returns: Q, (rows, actions), and the inputs of each dense layer, the head last.
        """
        inputs = [states]
        for matrix, bias in self.shared:
            inputs.append(np.tanh(inputs[-1] @ matrix.T + bias))
        matrix, bias = self.head
        return inputs[-1] @ matrix.T + bias, inputs

    def backward(self, inputs: list[Array], slopes: Array, frozen: int) -> list[Slopes]:
        """
        Propagate slopes at the Q values back through the network.

        :param inputs: of each dense layer, from a forward pass.
        :param slopes: of the loss by each Q value, shape (rows, actions).
        :param frozen: number of first shared layers without a gradient.
        :returns: of each layer with a gradient, the head last.
        """
        found = [Slopes(inputs[-1], head_slopes(slopes))]
        matrix, back = self.head[0], slopes
        for index in range(len(self.shared) - 1, frozen - 1, -1):
            hidden = inputs[index + 1]
            back = back @ matrix * (1 - hidden * hidden)
            found.append(Slopes(inputs[index], back))
            matrix = self.shared[index][0]
        return found[::-1]


def head_slopes(slopes: NDArray[np.floating]) -> NDArray:
    """Turn slopes at Q values, (rows, actions), into those at value and advantages."""
    total = slopes.sum(axis=1, keepdims=True)
    return np.concatenate((total, slopes - total / slopes.shape[1]), axis=1)


def flat_gradient(layers: Iterable[tuple[NDArray, ...]]) -> NDArray[np.float64]:
    """
    Put the gradients of dense layers in the order of the flat weights.

    :param layers: matrix (outputs, inputs) and bias of each layer, the head last; its first output
        is the value.
    """
    *shared, (matrix, bias) = layers
    parts = [each.reshape(-1) for layer in shared for each in layer]
    return np.concatenate((*parts, matrix[0], bias[:1], matrix[1:].reshape(-1), bias[1:]))
