# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Canaries: made-up units whose gradients are orthogonal directions in the space of trained weights.

A dense layer's gradient is the outer product of b, the slopes at its outputs, and [a, 1], its
inputs and the bias. With b along an axis and [a, 1] along a row of an orthogonal matrix whose last
column is constant, these make an orthogonal basis of the layer's whole space. So a canary can be
put where the gradients of real rows are, to be clipped and summed by the code that clips patients.

Where Q is a table, a row adds to its state's line and to the bias. Half the rows of a canary add
to one state's line what the other half takes from another's, so that nothing is left at the bias,
which all share; no state is in two pairs. So canaries are orthogonal there too.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
import math

from fdrl_ros.errors import SettingError
from fdrl_ros.learner.gradient import DuelingGradients, Trace
from fdrl_ros.learner.network import Array, Layers, Slopes, TrainedWeights
from fdrl_ros.learner.records.transitions import Batch
from fdrl_ros.learner.settings import LearnerSettings
from fdrl_ros.learner.tabular_dqn import dqn_for, TabularDqn
from fdrl_ros.policy import NetworkShape
from fdrl_ros.policy.dueling import Layer
from fdrl_ros.policy.layout import named
from fdrl_ros.policy.network import Network
import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class DenseCanaries:
    """
    Canaries in the dense layers of a network, and a fair coin for each.

    ``trained``: which weights are. ``layers``: those of which all are, in the order of the flat
    weights. ``layer``, ``output`` and ``row`` of its orthogonal matrix: of each canary,
    (canaries,), int64. ``members``: who takes part, (canaries,), bool. ``norm``: of a canary's
    gradient.
    """

    shape: NetworkShape
    trained: TrainedWeights
    layers: tuple[Layer, ...]
    layer: Numbers
    output: Numbers
    row: Numbers
    members: NDArray[np.bool_]
    norm: float

    @classmethod
    def draw(
        cls,
        shape: NetworkShape,
        frozen: Collection[str],
        count: int,
        norm: float,
        rng: np.random.Generator,
    ) -> 'DenseCanaries':
        """
        Draw different directions, and which canaries are members.

        :param frozen: names of tensors or layers that are not trained.
        :param count: number of canaries, at most that of weights in layers that are trained whole.
        :param norm: of their gradients before clipping; above C, so that clipping is tried.
        :raises SettingError: if there are not so many directions.
        """
        left_out = named(shape.layout.tensors, frozen)
        layers = tuple(
            each
            for each in shape.layers()
            if named(shape.layout.tensors, [each.name]).isdisjoint(left_out)
        )
        ends = np.cumsum([0, *(each.stop - each.start for each in layers)])[1:]
        most = int(ends[-1]) if layers else 0
        if not 1 <= count <= most:
            expected = f'1 to {most}, the weights of layers that are trained whole'
            raise SettingError('canaries', count, expected)
        chosen = np.sort(rng.permutation(most)[:count])
        layer = np.searchsorted(ends, chosen, side='right')
        inside = chosen - np.concatenate(([0], ends))[layer]
        widths = np.array([each.inputs + 1 for each in layers])[layer]
        return cls(
            shape,
            TrainedWeights.of(shape, frozen),
            layers,
            layer,
            inside // widths,
            inside % widths,
            rng.integers(2, size=count).astype(np.bool_),
            norm,
        )

    def __len__(self) -> int:
        """Return m."""
        return len(self.members)

    def along(self, gradient: NDArray[np.float64]) -> NDArray[np.float64]:
        """
        Return the inner product of a gradient with every canary's direction, shape (canaries,).

        :param gradient: of the trained weights, flat, shape (size,).
        """
        found, flat = np.empty(len(self)), np.zeros(self.shape.n_parameters)
        flat[self.trained.index] = gradient
        for number, each in enumerate(self.layers):
            mine = self.layer == number
            matrix = flat[each.start : each.bias_start]
            bias = flat[each.bias_start : each.stop]
            whole = np.column_stack((matrix.reshape(each.outputs, each.inputs), bias))
            products = whole @ orthogonal(each.inputs + 1).T
            found[mine] = products[self.output[mine], self.row[mine]]
        return found

    def plant(self, slopes: Sequence[Slopes], which: Numbers, rows: Numbers) -> None:
        """
        Replace the gradients of some rows by those of canaries that are members, or by nothing.

        :param slopes: of all rows, the head last; changed in place.
        :param which: canary of each unit of rows, shape (units,).
        :param rows: their rows in the batch, shape (units, rows); each gets an equal part.
        """
        for each in slopes:
            each.outputs[rows] = 0.0
        places = {each.name: place for place, each in enumerate(self.shape.layers())}
        head = len(self.shape.hidden)
        for number, layer in enumerate(self.layers):
            mine = (self.layer[which] == number) & self.members[which]
            if not mine.any():
                continue
            # Value and advantage are one layer there, the value first.
            part = slopes[min(places[layer.name], head) - self.trained.first]
            output = self.output[which[mine]] + (layer.name == 'advantage')
            size = math.sqrt(layer.inputs + 1.0)
            inputs = orthogonal(layer.inputs + 1)[self.row[which[mine]], :-1] * size
            part.inputs[rows[mine]] = inputs[:, None, :]
            part.outputs[rows[mine], output[:, None]] = self.norm / size / rows.shape[1]


def orthogonal(size: int) -> NDArray[np.float64]:
    """Return an orthogonal matrix, (size, size), whose last column is 1 / sqrt(size)."""
    normal = np.full(size, -1.0 / math.sqrt(size))
    normal[-1] += 1.0
    square = normal @ normal
    return np.eye(size) - (np.outer(normal, normal) * (2.0 / square) if square else 0.0)


@dataclass(frozen=True, eq=False)
class TabularCanaries:
    """
    Canaries in a table: pairs of states with an output each, and a fair coin for each.

    ``first``, ``second``: states, and ``output``: 0 for the value, then the advantages, each
    (canaries,), int64. ``lengths``: of the rows' gradients along both, (canaries, 2). ``members``:
    (canaries,), bool. ``norm``: of a canary's gradient.
    """

    shape: NetworkShape
    first: Numbers
    second: Numbers
    output: Numbers
    lengths: NDArray[np.float64]
    members: NDArray[np.bool_]
    norm: float

    @classmethod
    def draw(
        cls,
        shape: NetworkShape,
        scales: NDArray[np.floating],
        count: int,
        norm: float,
        rng: np.random.Generator,
    ) -> 'TabularCanaries':
        """
        Draw different directions, and which canaries are members.

        :param scales: what stands where the one of a one-hot state would, shape (states,).
        :param count: number of canaries.
        :param norm: of their gradients before clipping; above C, so that clipping is tried.
        :raises SettingError: if there are not so many directions.
        """
        states = rng.permutation(np.flatnonzero(scales))
        pairs, outputs = len(states) // 2, shape.actions + 1
        if not 1 <= count <= pairs * outputs:
            raise SettingError(
                'canaries', count, f'1 to {pairs * outputs}, pairs of states times outputs'
            )
        chosen = np.sort(rng.permutation(pairs * outputs)[:count])
        first, second = states[2 * (chosen // outputs)], states[2 * (chosen // outputs) + 1]
        return cls(
            shape,
            first,
            second,
            chosen % outputs,
            np.column_stack((scales[first], scales[second])).astype(np.float64),
            rng.integers(2, size=count).astype(np.bool_),
            norm,
        )

    def __len__(self) -> int:
        """Return m."""
        return len(self.members)

    def along(self, gradient: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return inner products with every direction; see :class:`DenseCanaries`."""
        states = self.shape.states
        advantages = gradient[states + 1 : -self.shape.actions].reshape(-1, states)
        lines = np.vstack((gradient[None, :states], advantages))
        both = np.column_stack((lines[self.output, self.first], -lines[self.output, self.second]))
        size = np.sqrt((self.lengths**2).sum(axis=1))
        return np.asarray((both * self.lengths).sum(axis=1) / size)

    def plant(self, slopes: Sequence[Slopes], which: Numbers, rows: Numbers) -> None:
        """
        Replace the gradients of some rows by those of canaries that are members, or by nothing.

        :param slopes: states of all rows, (rows,), and their slopes; changed in place.
        :param which: canary of each unit of rows, shape (units,).
        :param rows: their rows in the batch, shape (units, rows).
        :raises SettingError: if a unit has one row only.
        """
        states, heads = slopes[0]
        half = rows.shape[1] // 2
        if half == 0:
            raise SettingError('transitions_per_patient', 1, 'two for canaries in a table')
        heads[rows] = 0.0
        here = self.members[which]
        canary, mine = which[here], rows[here]
        size = self.norm / half / np.sqrt((self.lengths[canary] ** 2).sum(axis=1))
        for part, line, sign in (
            (mine[:, :half], self.first, 1.0),
            (mine[:, half : 2 * half], self.second, -1.0),
        ):
            states[part] = line[canary, None]
            heads[part, self.output[canary, None]] = sign * size[:, None]


Canaries = DenseCanaries | TabularCanaries


class PlantedDqn(DuelingGradients):
    """
    Gradients of patients and canaries.

    The trainer sets ``units`` before each batch.
    """

    first: int
    """Unit that is the first canary; those before are patients."""

    units: Numbers
    """Who is in the next batch, shape (joined,)."""

    known: NDArray[np.float64]
    """What the patients alone added to the last sum, shape (size,)."""

    canaries: Canaries

    def trace(self, weights: Layers, target: Layers, batch: Batch, scale: float) -> Trace:
        """Return every row's gradient; the canaries' rows have theirs."""
        found = super().trace(weights, target, batch, scale)
        self.canaries.plant(found.layers, *self.places(batch))
        return found

    def clipped_sum(
        self, weights: Array, target: Array, batch: Batch, clip_norm: float
    ) -> NDArray[np.float64]:
        """Clip and sum as ever; see :class:`DuelingGradients`. What patients add is kept too."""
        units, patients = self.units, self.units < self.first
        self.known = np.zeros(self.size)
        if patients.any():
            self.units = units[patients]
            alone = batch.mapped(lambda column: column[patients])
            self.known = super().clipped_sum(weights, target, alone, clip_norm)
            self.units = units
        return super().clipped_sum(weights, target, batch, clip_norm)

    def places(self, batch: Batch) -> tuple[Numbers, Numbers]:
        """Return which canaries are in a batch, (units,), and their rows, (units, rows)."""
        at = np.flatnonzero(self.units >= self.first)
        transitions = batch.actions.shape[-1]
        return self.units[at] - self.first, at[:, None] * transitions + np.arange(transitions)


class PlantedTabularDqn(PlantedDqn, TabularDqn):
    """Gradients of patients and canaries where Q is a table."""


def compiled(network: Network) -> NetworkShape:
    """
    Return a network of the compiled learner, whose arithmetic canaries are planted in.

    :raises SettingError: if it is of another learner.
    """
    if not isinstance(network, NetworkShape):
        raise SettingError('learner.kind', network.name, "'dqn': no other learner is audited")
    return network


def draw_canaries(
    shape: NetworkShape,
    learner: LearnerSettings,
    inputs: NDArray[np.floating] | None,
    *,
    count: int,
    norm: float,
    rng: np.random.Generator,
) -> Canaries:
    """
    Draw canaries that suit a learner, and which of them are members.

    :param inputs: as :class:`fdrl_ros.learner.trainer.Trainer` takes it.
    :param norm: of their gradients before clipping.
    :raises SettingError: if there are not so many directions.
    """
    if isinstance(dqn_for(shape, learner, inputs), TabularDqn) and inputs is not None:
        return TabularCanaries.draw(shape, np.diagonal(inputs), count, norm, rng)
    return DenseCanaries.draw(shape, learner.frozen_tensors, count, norm, rng)


def planted(
    shape: NetworkShape,
    learner: LearnerSettings,
    inputs: NDArray[np.floating] | None,
    canaries: Canaries,
    first: int,
) -> PlantedDqn:
    """
    Make the gradients that a learner takes, with canaries from a unit on.

    :param canaries: as :func:`draw_canaries` draws them for this learner.
    :param first: unit that is the first canary.
    """
    made = PlantedDqn(shape, learner)
    if isinstance(canaries, TabularCanaries):
        assert inputs is not None
        made = PlantedTabularDqn(shape, np.diagonal(inputs), learner)
    made.canaries = canaries
    made.first, made.units, made.known = first, np.empty(0, np.int64), np.zeros(made.size)
    return made
