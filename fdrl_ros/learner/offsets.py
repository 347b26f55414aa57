# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Offsets of a network's inputs, learned through the bias of its first layer.

What the instruments of one hospital show differently, such as the error of a camera's calibration,
is the same offset d of some inputs for all its patients. The first layer W x + b then computes
W (x + d) + b, which is a bias of b + W d. The gradient of d is W' times that of b: it is computed
from the noised gradient, so it costs no privacy. With a learning rate of 0 for the bias itself,
the noise of all other directions is left out.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace

from fdrl_ros.errors import SettingError
from fdrl_ros.learner.optimizer import Optimizer
from fdrl_ros.learner.records.records import Records
from fdrl_ros.learner.settings import LearnerSettings
from fdrl_ros.policy.layout import named, TensorLayout
from fdrl_ros.policy.network import Network
import numpy as np
from numpy.typing import NDArray

MOST_UNUSED = 4.0
"""Greatest value that an unused input is given, in scales of the input."""


class InputOffsets:
    """
    How trained weights follow offsets of inputs.

    :param network: whose first layer takes the inputs; its bias is trained, its matrix is not.
    :param learner: for the names of the inputs and of frozen tensors.
    :param fields: names of the network's inputs, in their order.
    :raises SettingError: if an input or such a layer is not there, or its matrix is trained.
    """

    def __init__(self, network: Network, learner: LearnerSettings, fields: Sequence[str]) -> None:
        self._layout: TensorLayout = network.layout
        self._columns = _columns(learner.offset_inputs, fields)
        self._matrix, bias = _first_layer(network, learner)
        self._index = index = network.layout.trained(learner.frozen_tensors)
        first = int(np.searchsorted(index, bias[0]))
        self._rows, self._size = slice(first, first + bias[1] - bias[0]), len(index)
        rates = np.full(self.size + self._size, learner.learning_rate)
        rates[: self.size] = learner.offset_rate
        self.rates: NDArray[np.float64] = rates
        """Step sizes of the offsets, then of the trained weights."""

    @property
    def size(self) -> int:
        """Number of offsets."""
        return len(self._columns)

    def span(self, weights: NDArray[np.floating]) -> NDArray[np.float64]:
        """
        Return how the trained weights change with each offset.

        :param weights: flat, shape (n_parameters,).
        :returns: shape (trained weights, offsets).
        """
        made = np.zeros((self._size, self.size))
        made[self._rows] = self._bias_span(weights)
        return made

    def _bias_span(self, weights: NDArray[np.floating]) -> NDArray[np.floating]:
        """Return how the first bias changes with each offset; no other weight does."""
        return self._layout.split(weights)[self._matrix][:, self._columns]

    def between(
        self, start: NDArray[np.floating], weights: NDArray[np.floating]
    ) -> NDArray[np.float64]:
        """
        Return the offsets by which weights that were trained from a start differ most from it.

        They are found by least squares over the first bias, which alone follows offsets. It is
        post-processing, which costs nothing.

        :param start: flat, shape (n_parameters,).
        :param weights: flat, of the same network, with the same matrix in the first layer.
        :returns: in scales of the inputs, shape (offsets,).
        """
        bias = self._index[self._rows]
        change = np.asarray(weights[bias], np.float64) - start[bias]
        span = np.asarray(self._bias_span(start), np.float64)
        found = np.linalg.lstsq(span, change, rcond=None)[0]
        return np.asarray(found, np.float64)


def offsets_of(
    network: Network, learner: LearnerSettings, fields: Sequence[str]
) -> InputOffsets | None:
    """
    Return the offsets that a learner's settings ask for, None if they ask for none.

    :raises SettingError: as :class:`InputOffsets` does.
    """
    return InputOffsets(network, learner, fields) if learner.offsets else None


def with_unused_inputs(
    records: Records, names: Collection[str], fields: Sequence[str], rng: np.random.Generator
) -> Records:
    """
    Replace inputs with offsets by a random constant in the operations that do not use them.

    An input that shows 0 throughout an operation, such as the error of a force that nobody asked
    for, is not used there. A network learns from such records that its value does not matter
    there. A hospital's offset of that input then changes nothing in these operations.

    :param records: of public patients, each of whom has one operation.
    :param names: of the inputs with offsets.
    :param fields: names of the network's inputs, in their order.
    :param rng: of the values: constant in an operation, from -4 to 4 scales of the input.
    :raises SettingError: if an input is not there.
    """
    seen = {name: getattr(records, name).copy() for name in ('states', 'next_states')}
    lengths = np.diff(records.starts)
    for column in _columns(names, fields):
        used = np.logical_or.reduceat(seen['states'][:, column] != 0.0, records.starts[:-1])
        values = rng.uniform(-MOST_UNUSED, MOST_UNUSED, len(used)) * ~used
        for states in seen.values():
            states[:, column] += np.repeat(values, lengths)
    return replace(records, **seen)


def step_with(
    optimizer: Optimizer, gradient: NDArray[np.float64], span: NDArray[np.float64]
) -> NDArray[np.float64]:
    """
    Take a step of offsets and trained weights.

    :param optimizer: of the offsets, then of the trained weights.
    :param gradient: noised, of the trained weights, shape (trained weights,).
    :param span: of :meth:`InputOffsets.span`.
    :returns: what to add to the trained weights, same shape as the gradient.
    """
    count = span.shape[1]
    made = optimizer.step(np.concatenate([gradient @ span, gradient]))
    return made[count:] + span @ made[:count]


def _columns(names: Collection[str], fields: Sequence[str]) -> list[int]:
    """Return the numbers of the inputs whose offsets are learned."""
    unknown = [name for name in names if name not in fields]
    if unknown:
        known = f'some of the inputs {", ".join(fields) or "of the task, which has no names"}'
        raise SettingError('offsets', unknown[0], known)
    return [fields.index(name) for name in names]


def _first_layer(network: Network, learner: LearnerSettings) -> tuple[str, tuple[int, int]]:
    """Return the name of the first layer's matrix, and where its bias lies in flat weights."""
    layout = network.layout
    places = {tensor.name: (tensor, first, last) for tensor, first, last in layout.places()}
    kept = {tensor.name for tensor in named(layout.tensors, learner.frozen_tensors)}
    kept |= {tensor.name for tensor in layout.tensors[: layout.frozen]}
    for name, (tensor, _, _) in places.items():
        bias = places.get(f'{name.removesuffix("weight")}bias')
        if len(tensor.shape) != 2 or tensor.shape[1] != network.states or bias is None:
            continue
        if name not in kept or bias[0].name in kept:
            expected = f'{name}, as offsets of inputs go with a fixed first matrix, and not '
            raise SettingError('frozen', learner.frozen, expected + bias[0].name)
        return name, (bias[1], bias[2])
    raise SettingError('offsets', learner.offsets, f'none: {network.name} has no bias')
