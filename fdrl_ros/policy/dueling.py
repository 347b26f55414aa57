# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The dueling network: its sizes and layout, and its policy in plain NumPy."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
import math

from fdrl_ros.errors import PolicyError
from fdrl_ros.policy.layout import Tensor, TensorLayout
from fdrl_ros.policy.policy import check_weights, digest_of
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

    @property
    def continuous(self) -> bool:
        """Whether an action is a vector of numbers: it is one of a list."""
        return False

    @property
    def places(self) -> int:
        """Places that have an action each: an observation has one."""
        return 1

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

    def shared(self, personal: Collection[str] = ()) -> np.ndarray:
        """
        Return the indices of the weights that hospitals share.

        :param personal: names of the layers that each keeps to itself.
        :returns: rising, shape (number of shared weights,), int64.
        :raises PolicyError: if there is no such layer, or nothing is left to share.
        """
        return self.layout.shared(personal)

    @property
    def n_parameters(self) -> int:
        """Length of the flat weight vector."""
        return list(self.layers())[-1].stop

    @property
    def name(self) -> str:
        """Kind and sizes, as a ledger names its model."""
        return f'dueling network {"-".join(map(str, (self.states, *self.hidden, self.actions)))}'

    @cached_property
    def layout(self) -> TensorLayout:
        """Names and shapes of the tensors in the flat weight vector."""
        tensors: list[Tensor] = []
        for layer in self.layers():
            tensors.append(Tensor(f'{layer.name}.weight', (layer.outputs, layer.inputs)))
            tensors.append(Tensor(f'{layer.name}.bias', (layer.outputs,)))
        return TensorLayout(tuple(tensors))

    def policy(self, weights: np.ndarray) -> 'DuelingPolicy':
        """
        Return the policy of some weights.

        :param weights: flat, shape (n_parameters,), finite.
        :raises PolicyError: on another length or a value that is not finite.
        """
        return DuelingPolicy(weights, self)


class DuelingPolicy:
    """
    Greedy policy of a dueling Q network.

    It is immutable, so threads may share it.
    """

    def __init__(self, weights: np.ndarray, shape: NetworkShape) -> None:
        """
        Split weights into layers.

        :param weights: flat, shape (n_parameters,), finite.
        :raises PolicyError: on another length or a value that is not finite.
        """
        check_weights(weights, shape.n_parameters)
        self.shape = shape
        self.weights = np.array(weights, dtype=np.float32)
        self.weights.flags.writeable = False
        self.digest = digest_of(self.weights)
        matrices = [(matrix.T, bias) for matrix, bias in shape.split(self.weights)]
        self._shared = [(np.ascontiguousarray(matrix), bias) for matrix, bias in matrices[:-2]]
        (value, value_bias), (advantage, advantage_bias) = matrices[-2:]
        # Q = V + A - mean(A) is linear in the last hidden layer: one matrix does it.
        centred = advantage - advantage.mean(axis=1, keepdims=True)
        self._head = np.ascontiguousarray(value + centred)
        self._head_bias = value_bias + advantage_bias - advantage_bias.mean()

    @property
    def n_parameters(self) -> int:
        """Number of weights."""
        return len(self.weights)

    def layers(self) -> tuple[tuple[np.ndarray, np.ndarray], ...]:
        """
        Return the matrix (inputs, outputs) and the bias (outputs,) of each layer, float32.

        After each but the last comes tanh; the last gives the values of the actions.
        """
        return (*self._shared, (self._head, self._head_bias))

    def q_values(self, states: np.ndarray) -> np.ndarray:
        """
        Value every action.

        :param states: scaled, shape (..., states).
        :returns: shape (..., actions), float32.
        """
        hidden = np.asarray(states, dtype=np.float32)
        for matrix, bias in self._shared:
            hidden = hidden @ matrix
            hidden += bias
            np.tanh(hidden, out=hidden)
        values: np.ndarray = hidden @ self._head
        values += self._head_bias
        return values

    def __call__(self, state: np.ndarray) -> int:
        """
        Choose the action of highest value; ties go to the lowest number.

        :param state: scaled, shape (states,).
        """
        if type(state) is not np.ndarray or state.dtype != np.float32 or state.ndim != 1:
            return int(self.q_values(state).argmax())
        hidden = state
        for matrix, bias in self._shared:
            hidden = np.dot(hidden, matrix)
            hidden += bias
            np.tanh(hidden, hidden)
        values = np.dot(hidden, self._head)
        values += self._head_bias
        return int(values.argmax())
