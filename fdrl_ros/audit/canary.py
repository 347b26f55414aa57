# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Canaries: made-up units whose gradients are orthogonal directions in the space of trained weights.

A dense layer's gradient is the outer product of b, the slopes at its outputs, and [a, 1], its
inputs and the bias. With b along an axis and [a, 1] along a row of an orthogonal matrix whose last
column is constant, these make an orthogonal basis of the layer's whole space. A canary mixes one
such direction of every layer, by a row of an orthogonal matrix: so it spans the network, and is
still orthogonal to all others. It can be put where the gradients of real rows are, to be clipped
and summed by the code that clips patients. Once the smallest layer has no direction left, further
canaries span the others.

Where Q is a table, a row adds to its state's line and to the bias. Half the rows of a canary add
to one state's line what the other half takes from another's, so that nothing is left at the bias,
which all share; no state is in two pairs. So canaries are orthogonal there too.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
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

    Each has a part in every dense layer that it spans. ``trained``: which weights are. ``layers``:
    those of which all are, in the order of the flat weights. ``canary``: of each part, (parts,),
    int64; ``layer``, ``output`` and ``row`` of the layer's orthogonal matrix: where it is, same
    shape; ``share``: its length, where the canary's own is 1. ``members``: who takes part,
    (canaries,), bool. ``norm``: of a canary's gradient.
    """

    shape: NetworkShape
    trained: TrainedWeights
    layers: tuple[Layer, ...]
    canary: Numbers
    layer: Numbers
    output: Numbers
    row: Numbers
    share: NDArray[np.float64]
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
        most = sum(each.stop - each.start for each in layers)
        if not 1 <= count <= most:
            expected = f'1 to {most}, the weights of layers that are trained whole'
            raise SettingError('canaries', count, expected)
        canary, share, layer, output, row = _mixed(_directions(shape, layers, rng), count)
        return cls(
            shape,
            TrainedWeights.of(shape, frozen),
            layers,
            canary,
            layer,
            output,
            row,
            share,
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
        found, flat = np.empty(len(self.canary)), np.zeros(self.shape.n_parameters)
        flat[self.trained.index] = gradient
        for number, each in enumerate(self.layers):
            mine = self.layer == number
            matrix = flat[each.start : each.bias_start]
            bias = flat[each.bias_start : each.stop]
            whole = np.column_stack((matrix.reshape(each.outputs, each.inputs), bias))
            products = whole @ orthogonal(each.inputs + 1).T
            found[mine] = products[self.output[mine], self.row[mine]]
        return np.asarray(np.bincount(self.canary, found * self.share, len(self)), np.float64)

    def plant(self, slopes: Sequence[Slopes], which: Numbers, rows: Numbers) -> None:
        """
        Replace the gradients of some rows by those of canaries that are members, or by nothing.

        :param slopes: of all rows, the head last; changed in place.
        :param which: canary of each unit of rows, shape (units,).
        :param rows: their rows in the batch, shape (units, rows); each gets an equal part.
        """
        for each in slopes:
            each.outputs[rows] = 0.0
        at = np.full(len(self), -1)
        at[which] = np.arange(len(which))
        at[~self.members] = -1
        for number, layer in enumerate(self.layers):
            parts = np.flatnonzero((self.layer == number) & (at[self.canary] >= 0))
            here = rows[at[self.canary[parts]]]
            into = slopes[_dense_layer(self.shape, layer) - self.trained.first]
            # Value and advantage are one layer there, the value first.
            output = self.output[parts] + (layer.name == 'advantage')
            size = math.sqrt(layer.inputs + 1.0)
            inputs = orthogonal(layer.inputs + 1)[self.row[parts], :-1] * size
            into.inputs[here] = inputs[:, None, :]
            slope = self.share[parts] * self.norm / size / rows.shape[1]
            into.outputs[here, output[:, None]] = slope[:, None]


def _dense_layer(shape: NetworkShape, layer: Layer) -> int:
    """Return which dense layer of the network one is; value and advantage are both its head."""
    places = {each.name: place for place, each in enumerate(shape.layers())}
    return min(places[layer.name], len(shape.hidden))


def _directions(
    shape: NetworkShape, layers: Sequence[Layer], rng: np.random.Generator
) -> list[Numbers]:
    """Return each dense layer's directions in random order: layer, output, row; (3, size)."""
    found: dict[int, list[Numbers]] = {}
    for number, each in enumerate(layers):
        output, row = np.divmod(np.arange(each.stop - each.start), each.inputs + 1)
        one = np.stack((np.full_like(output, number), output, row))
        found.setdefault(_dense_layer(shape, each), []).append(one)
    whole = [np.concatenate(parts, axis=1) for parts in found.values()]
    return [each[:, rng.permutation(each.shape[1])] for each in whole]


def _mixed(directions: Sequence[Numbers], count: int) -> tuple[NDArray, ...]:
    """
    Mix one direction of each layer that has some left into as many canaries.

    :returns: canary, share, layer, output and row of each part, (parts,).
    """
    columns: list[tuple[NDArray, ...]] = []
    made = begun = 0
    for end in sorted({each.shape[1] for each in directions}):
        spanned = [each for each in directions if each.shape[1] >= end]
        mixing = orthogonal(len(spanned))
        groups = max(0, min(end - begun, -(-(count - made) // len(spanned))))
        for column, each in enumerate(spanned):
            for turn, share in enumerate(mixing[:, column]):
                canary = made + turn + len(spanned) * np.arange(groups)
                columns.append((canary, np.full(groups, share), *each[:, begun : begun + groups]))
        made, begun = made + groups * len(spanned), end
    canary, *others = (np.concatenate(each) for each in zip(*columns, strict=True))
    return tuple(each[canary < count] for each in (canary, *others))


@lru_cache(maxsize=16)
def orthogonal(size: int) -> NDArray[np.float64]:
    """Return an orthogonal matrix, (size, size), whose last column is 1 / sqrt(size)."""
    normal = np.full(size, -1.0 / math.sqrt(size))
    normal[-1] += 1.0
    square = normal @ normal
    made = np.eye(size) - (np.outer(normal, normal) * (2.0 / square) if square else 0.0)
    made.setflags(write=False)
    return made


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

    clipped: NDArray[np.float64]
    """The last sum, shape (size,)."""

    known: NDArray[np.float64]
    """What the patients alone added to it, same shape."""

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
        self.forget()
        if patients.any():
            self.units = units[patients]
            alone = batch.mapped(lambda column: column[patients])
            self.known = super().clipped_sum(weights, target, alone, clip_norm)
        self.units = units
        total = super().clipped_sum(weights, target, batch, clip_norm)
        self.clipped = total.copy()
        return total

    def forget(self) -> None:
        """Begin a step: nobody joined yet."""
        self.units = np.empty(0, np.int64)
        self.clipped, self.known = np.zeros(self.size), np.zeros(self.size)

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
    made.canaries, made.first = canaries, first
    made.forget()
    return made
