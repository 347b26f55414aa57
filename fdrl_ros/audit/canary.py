# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Canaries: made-up units whose gradients are orthogonal directions in the space of trained weights.

A dense layer's gradient is the outer product of b, the slopes at its outputs, and [a, 1], its
inputs and the bias. With b along an axis and [a, 1] along a row of an orthogonal matrix whose last
column is constant, these make an orthogonal basis of the layer's whole space. So a canary can be
put where the gradients of real rows are, to be clipped and summed by the code that clips patients.
"""

from collections.abc import Sequence
from dataclasses import dataclass
import math
from typing import Protocol

from fdrl_ros.errors import SettingError
from fdrl_ros.learner.network import Slopes
from fdrl_ros.policy import NetworkShape
from fdrl_ros.policy.shape import Layer
import numpy as np
from numpy.typing import NDArray


class Canaries(Protocol):
    """Orthogonal directions, and a fair coin each."""

    @property
    def members(self) -> NDArray[np.bool_]:
        """Return which canaries take part, shape (canaries,)."""
        ...

    def __len__(self) -> int:
        """Return m."""
        ...

    def along(self, gradient: NDArray[np.float64]) -> NDArray[np.float64]:
        """
        Return the inner product of a gradient with every canary's direction.

        :param gradient: of the trained weights, flat, shape (size,).
        :returns: shape (canaries,).
        """
        ...


@dataclass(frozen=True, eq=False)
class DenseCanaries:
    """
    Canaries in the dense layers of a network; see :class:`Canaries`.

    ``layers``: trained layers in the order of the flat weights. ``layer``, ``output`` and ``row``
    of its orthogonal matrix: of each canary, (canaries,), int64. ``members``: who takes part,
    (canaries,), bool. ``norm``: of a canary's gradient.
    """

    layers: tuple[Layer, ...]
    layer: NDArray[np.int64]
    output: NDArray[np.int64]
    row: NDArray[np.int64]
    members: NDArray[np.bool_]
    norm: float

    @classmethod
    def draw(
        cls,
        shape: NetworkShape,
        frozen: int,
        count: int,
        norm: float,
        rng: np.random.Generator,
    ) -> 'DenseCanaries':
        """
        Draw different directions, and which canaries are members.

        :param frozen: shared layers, from the first, that are not trained.
        :param count: number of canaries, at most that of trained weights.
        :param norm: of their gradients before clipping; above C, so that clipping is tried.
        :raises SettingError: if there are not so many directions.
        """
        layers = tuple(shape.layers())[frozen:]
        ends = np.cumsum([each.stop - each.start for each in layers])
        if not 1 <= count <= ends[-1]:
            raise SettingError('canaries', count, f'1 to {ends[-1]}, the trained weights')
        chosen = np.sort(rng.permutation(ends[-1])[:count])
        layer = np.searchsorted(ends, chosen, side='right')
        inside = chosen - np.concatenate(([0], ends))[layer]
        widths = np.array([each.inputs + 1 for each in layers])[layer]
        return cls(
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
        """Return inner products; see :class:`Canaries`."""
        found = np.empty(len(self))
        start = self.layers[0].start
        for number, each in enumerate(self.layers):
            mine = self.layer == number
            matrix = gradient[each.start - start : each.bias_start - start]
            bias = gradient[each.bias_start - start : each.stop - start]
            whole = np.column_stack((matrix.reshape(each.outputs, each.inputs), bias))
            products = whole @ orthogonal(each.inputs + 1).T
            found[mine] = products[self.output[mine], self.row[mine]]
        return found

    def plant(self, slopes: Sequence[Slopes], which: NDArray[np.int64], rows: NDArray) -> None:
        """
        Replace the gradients of some rows by those of canaries that are members, or by nothing.

        :param slopes: of all rows, from the head on; changed in place.
        :param which: canary of each unit of rows, shape (units,).
        :param rows: their rows in the batch, shape (units, rows); each gets an equal part.
        """
        for each in slopes:
            each.outputs[rows] = 0.0
        shared = len(self.layers) - 2
        for number, layer in enumerate(self.layers):
            mine = (self.layer[which] == number) & self.members[which]
            if not mine.any():
                continue
            # Value and advantage are one layer there, the value first.
            head = number >= shared
            part = slopes[0] if head else slopes[shared - number]
            output = self.output[which[mine]] + (number == shared + 1)
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
