# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The shape of a dueling network: sizes, and where each layer lies in the flat weights."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
import math

from fdrl_ros.errors import PolicyError
import numpy as np


@dataclass(frozen=True)
class Layer:
    """One dense layer in the flat weight vector: the matrix, then the bias."""

    name: str
    inputs: int
    outputs: int
    start: int

    @property
    def bias_start(self) -> int:
        """Index of the first bias."""
        return self.start + self.inputs * self.outputs

    @property
    def stop(self) -> int:
        """Index after the last bias."""
        return self.bias_start + self.outputs


@dataclass(frozen=True)
class NetworkShape:
    """
    Sizes of a dueling network (Wang et al. 2016; DP-DQN).

    :param states: numbers in a state.
    :param actions: discrete actions.
    :param hidden: units of each shared hidden layer; none makes Q linear in the state.
    """

    states: int
    actions: int
    hidden: tuple[int, ...] = (64, 64)

    def __post_init__(self) -> None:
        """Refuse sizes that make no network."""
        if self.states < 1 or self.actions < 1 or min(self.hidden, default=1) < 1:
            raise PolicyError(f'not the shape of a network: {self}')

    def layers(self) -> Iterator[Layer]:
        """Yield the layers in module order: shared, then value, then advantage."""
        start = 0
        sizes = (self.states, *self.hidden)
        named = [(f'shared.{i}', sizes[i], sizes[i + 1]) for i in range(len(self.hidden))]
        named += [('value', sizes[-1], 1), ('advantage', sizes[-1], self.actions)]
        for name, inputs, outputs in named:
            layer = Layer(name, inputs, outputs, start)
            start = layer.stop
            yield layer

    def split(self, weights: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        """View the matrix (outputs, inputs) and bias (outputs,) of each layer in flat weights."""
        return [
            (
                weights[layer.start : layer.bias_start].reshape(layer.outputs, layer.inputs),
                weights[layer.bias_start : layer.stop],
            )
            for layer in self.layers()
        ]

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        """
        Draw starting weights: uniform as Glorot & Bengio (2010), biases zero.

        :returns: flat, shape (n_parameters,), float32.
        """
        weights = np.zeros(self.n_parameters, dtype=np.float32)
        for layer in self.layers():
            bound = math.sqrt(6.0 / (layer.inputs + layer.outputs))
            size = layer.bias_start - layer.start
            weights[layer.start : layer.bias_start] = rng.uniform(-bound, bound, size)
        return weights

    def trained_from(self, frozen: int) -> int:
        """
        Return the index of the first weight after the first `frozen` shared layers.

        :raises PolicyError: unless there are so many shared layers.
        """
        if not 0 <= frozen <= len(self.hidden):
            raise PolicyError(f'{frozen} frozen layers of a network with {len(self.hidden)}')
        return list(self.layers())[frozen].start

    def shared(self, personal: Collection[str] = ()) -> np.ndarray:
        """
        Return the indices of the weights that hospitals share.

        :param personal: names of the layers that each keeps to itself.
        :returns: rising, shape (number of shared weights,), int64.
        :raises PolicyError: if there is no such layer, or nothing is left to share.
        """
        layers = list(self.layers())
        unknown = set(personal) - {layer.name for layer in layers}
        if unknown:
            names = ', '.join(layer.name for layer in layers)
            raise PolicyError(f'layer {sorted(unknown)[0]!r}: expected one of {names}')
        kept = [np.arange(x.start, x.stop) for x in layers if x.name not in personal]
        if not kept:
            raise PolicyError('every layer is personal: nothing is left to share')
        return np.concatenate(kept)

    @property
    def n_parameters(self) -> int:
        """Length of the flat weight vector."""
        return list(self.layers())[-1].stop
