# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Clipped double DQN gradients in closed form (DP-DQN Alg. 1), without differentiating each unit.

A row's gradient of a dense layer is the outer product of its inputs and the slopes at its outputs.
For units of one transition the norm follows from these factors (Goodfellow 2015), and one product
per layer sums the clipped gradients; for units of several transitions the gradients are formed.

Two implementations exist on purpose. Private training uses :mod:`fdrl_ros.runtime.kernels` only:
there no row depends on the others, while a NumPy product may round a row differently when the
number of rows changes, so that one patient would change what others contribute. The NumPy code is
the definition that tests compare the kernels with; it also trains on public records.
"""

from collections.abc import Sequence
from functools import cached_property
import math
from typing import overload, Self

from fdrl_ros.errors import PrivacyError
from fdrl_ros.learner.network import Array, Layered, Network, Slopes
from fdrl_ros.learner.records.transitions import Batch, Drawn
from fdrl_ros.learner.settings import LearnerSettings
from fdrl_ros.policy import NetworkShape
from fdrl_ros.privacy.mechanism import clip_factors, clip_limit
from fdrl_ros.runtime import kernels
import numpy as np
from numpy.typing import NDArray


class DoubleDqn:
    """
    Gradients of the double DQN loss of a dueling network.

    :meth:`layered` splits flat weights for the other methods.
    """

    def __init__(
        self,
        shape: NetworkShape,
        *,
        loss: str = 'huber',
        conservative: float = 0.0,
        frozen: int = 0,
    ) -> None:
        """
        Choose network and loss.

        :param loss: of the temporal-difference error: 'huber' (threshold 1) or 'squared'.
        :param conservative: alpha of conservative Q-learning (Kumar et al. 2020, Eq. 4).
        :param frozen: number of first shared layers that are not trained (public features).
        """
        self.network = Network(shape)
        self.shape = shape
        self.loss = loss
        self.conservative = conservative
        self.frozen = frozen
        self.start = shape.trained_from(frozen)
        """Index of the first trained weight."""
        self.size = shape.n_parameters - self.start
        """Number of trained weights: the length of a gradient."""

    @classmethod
    def from_settings(cls, shape: NetworkShape, learner: LearnerSettings) -> Self:
        """Choose network and loss by a hospital's settings."""
        return cls(
            shape,
            loss=learner.loss,
            conservative=learner.conservative,
            frozen=learner.frozen_layers,
        )

    def check_private(self) -> None:
        """
        Refuse private training without the compiled arithmetic; see the module for the reason.

        :raises PrivacyError: if the compiled arithmetic is missing, was built from other sources
            or does not support this network.
        """
        kernels.check_built()
        if len(self.shape.hidden) > kernels.most_layers():
            raise PrivacyError(
                f'private training is refused: {len(self.shape.hidden)} hidden layers, and the '
                f'compiled arithmetic takes {kernels.most_layers()}'
            )

    def layered(self, weights: Array) -> Layered:
        """
        Split weights into layers.

        :param weights: flat, shape (n_parameters,), float32; must not change afterwards.
        """
        return self.network.layered(weights)

    def clipped_sum(
        self, weights: Layered, target: Layered, batch: Batch, clip_norm: float
    ) -> NDArray[np.float64]:
        """
        Clip each unit's mean gradient to L2 norm C and sum; a gradient that is not finite adds 0.

        :param target: weights of the target network.
        :param clip_norm: C, > 0.
        :returns: shape (size,), float64: sums are wider than gradients, so that a unit's
            contribution does not depend on the others.
        """
        if isinstance(batch, Drawn) and type(self).slopes is DoubleDqn.slopes:
            table, kernel = batch.transitions.table, self._kernel
            if table is not None and kernel is not None and batch.index.size:
                limit = clip_limit(clip_norm)
                return kernel.drawn(
                    weights.flat, target.flat, table, batch.index, batch.weights, limit
                )
        units, transitions = batch.actions.shape
        with np.errstate(over='ignore', invalid='ignore'):  # a warning would reveal a record
            layers = self.slopes(weights, target, batch, 1.0 / transitions)
            if isinstance(layers, _TracedSlopes):
                return layers.clipped_sum(units, transitions, clip_limit(clip_norm))
            if transitions == 1:
                return self._sum_of_rows(layers, batch, clip_norm)
            return self._sum_of_formed(layers, batch, clip_norm)

    def _sum_of_rows(
        self, layers: Sequence[Slopes], batch: Batch, clip_norm: float
    ) -> NDArray[np.float64]:
        """Clip and sum units of one transition without forming their gradients."""
        squares = np.zeros(len(batch.actions), np.float32)
        for layer in layers:
            squares += _square(layer.outputs) * (_square(layer.inputs) + np.float32(1))
        factors = clip_factors(np.sqrt(squares), clip_norm)
        total = np.empty(self.size)
        for layer in layers:
            layer.inputs[factors == 0.0], layer.outputs[factors == 0.0] = 0.0, 0.0
            scaled = layer.outputs * factors[:, None]
            self._place(total, layer, *_outer_sum(layer.inputs, scaled))
        return total

    def _sum_of_formed(
        self, layers: Sequence[Slopes], batch: Batch, clip_norm: float
    ) -> NDArray[np.float64]:
        """
        Clip and sum units of several transitions.

        The norm is that of the formed gradient: a norm from products of rows loses digits where
        rows cancel, and lets a large gradient through.
        """
        units = len(batch.actions)
        squares = np.zeros(units, np.float32)
        formed = []
        for layer in layers:
            inputs, outputs = (
                each.reshape(units, -1, each.shape[1]) for each in (layer.inputs, layer.outputs)
            )
            matrix, bias = outputs.swapaxes(1, 2) @ inputs, outputs.sum(axis=1)
            squares += _square(matrix.reshape(units, -1)) + _square(bias)
            formed.append((matrix, bias))
        factors = clip_factors(np.sqrt(squares), clip_norm)
        total = np.empty(self.size)
        for layer, matrices in zip(layers, formed, strict=True):
            for each in matrices:
                each[factors == 0.0] = 0.0
            self._place(total, layer, *(_weighted_sum(factors, each) for each in matrices))
        return total

    def mean(self, weights: Layered, target: Layered, batch: Batch) -> NDArray[np.float64]:
        """
        Return the unclipped mean gradient over all transitions, for public records only.

        :returns: shape (size,), float64.
        """
        units, transitions = batch.actions.shape
        layers = self.slopes(weights, target, batch, 1.0 / (units * transitions))
        if isinstance(layers, _TracedSlopes):
            return layers.clipped_sum(units * transitions, 1, math.inf)
        total = np.empty(self.size)
        for layer in layers:
            self._place(total, layer, *_outer_sum(layer.inputs, layer.outputs))
        return total

    def errors(self, weights: Layered, target: Layered, batch: Batch) -> Array:
        """Return Q(s, a) minus its target, shape (units, transitions)."""
        if self._kernel is not None and batch.actions.size:
            found = self._kernel.trace(weights.flat, target.flat, _rows(batch), 1.0).errors
            return found.reshape(batch.actions.shape)
        rows = batch.rows()
        with np.errstate(over='ignore', invalid='ignore'):
            following = self.network.forward(weights, rows.next_states).values
            values = self.network.forward(weights, rows.states).values
            found = _at(values, rows.actions) - self._targets(following, target, rows)
        return found.reshape(batch.actions.shape)

    def _targets(self, following: Array, target: Layered, rows: Batch) -> Array:
        """
        Return the targets r + gamma Q_target(s', argmax_a Q(s', a)) (van Hasselt et al. 2016).

        A unit's targets depend only on its own transitions and on released weights, so clipping
        its gradient bounds its whole influence.
        """
        values = self.network.forward(target, rows.next_states).values
        return rows.rewards + rows.discounts * _at(values, following.argmax(axis=1))

    def slopes(
        self, weights: Layered, target: Layered, batch: Batch, scale: float
    ) -> Sequence[Slopes]:
        """
        Return each row's gradient of each layer, times `scale`.

        :returns: of the head, then of the trained shared layers from the last to the first.
        """
        if self._kernel is not None and batch.actions.size:
            trace = self._kernel.trace(weights.flat, target.flat, _rows(batch), scale)
            return _TracedSlopes(self._kernel, trace, self.network)
        rows = batch.rows()
        count = len(rows.actions)
        made = self.network.forward(weights, np.concatenate((rows.states, rows.next_states)))
        targets = self._targets(made.values[count:], target, rows)
        values = made.values[:count]
        slope = _at(values, rows.actions) - targets
        if self.loss == 'huber':
            np.clip(slope, -1.0, 1.0, out=slope)
        if self.conservative:
            slopes = np.exp(values - values.max(axis=1, keepdims=True))
            slopes *= np.float32(self.conservative) / slopes.sum(axis=1, keepdims=True)
            slope -= np.float32(self.conservative)
        else:
            slopes = np.zeros(values.shape, np.float32)
        slopes[np.arange(count), rows.actions] += slope
        slopes *= np.float32(scale) if rows.weights is None else scale * rows.weights[:, None]
        inputs = [each[:count] for each in made.inputs]
        return self.network.backward(weights, inputs, slopes, self.frozen)

    @cached_property
    def _kernel(self) -> kernels.NetworkKernel | None:
        """The compiled arithmetic, if it is built and supports this network."""
        if not kernels.built() or len(self.shape.hidden) > kernels.most_layers():
            return None
        return kernels.NetworkKernel(
            (self.shape.states, *self.shape.hidden),
            self.shape.actions,
            frozen=self.frozen,
            loss=self.loss,
            conservative=self.conservative,
        )

    def _place(self, total: NDArray, layer: Slopes, matrix: NDArray, bias: NDArray) -> None:
        """Write a layer's gradient at the positions of its weights."""
        for outputs, matrix_span, bias_span in layer.spans:
            total[self._shifted(matrix_span)] = matrix[outputs].reshape(-1)
            total[self._shifted(bias_span)] = bias[outputs]

    def _shifted(self, span: slice) -> slice:
        return slice(span.start - self.start, span.stop - self.start)


class _TracedSlopes(Sequence[Slopes]):
    """Slopes in the memory of the compiled code; views are made on access."""

    def __init__(
        self, kernel: kernels.NetworkKernel, trace: kernels.Trace, network: Network
    ) -> None:
        self._kernel = kernel
        self._trace = trace
        self._network = network

    def clipped_sum(self, units: int, transitions: int, limit: float) -> NDArray[np.float64]:
        """Clip and sum; see :meth:`fdrl_ros.runtime.kernels.NetworkKernel.clipped_sum`."""
        return self._kernel.clipped_sum(self._trace, units, transitions, limit)

    @cached_property
    def _views(self) -> list[Slopes]:
        spans = self._network.spans[self._kernel.frozen :]
        made = [Slopes(*each, span) for each, span in zip(self._trace.layers, spans, strict=True)]
        return made[::-1]

    def __len__(self) -> int:
        return len(self._views)

    @overload
    def __getitem__(self, index: int) -> Slopes: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Slopes]: ...

    def __getitem__(self, index: int | slice) -> Slopes | Sequence[Slopes]:
        return self._views[index]


def _at(values: Array, actions: NDArray[np.int64]) -> Array:
    """Select the value of an action in each row: (rows, actions) to (rows,)."""
    return values[np.arange(len(actions)), actions]


def _square(vectors: Array) -> Array:
    """Return the squared L2 norm of each row."""
    return np.einsum('ui,ui->u', vectors, vectors)


def _outer_sum(inputs: NDArray, outputs: NDArray) -> tuple[NDArray, NDArray]:
    """Sum the outer products of all rows, in float64: matrix (outputs, inputs) and bias."""
    wide = outputs.astype(np.float64, copy=False)
    return wide.T @ inputs.astype(np.float64), wide.sum(axis=0)


def _weighted_sum(factors: NDArray[np.float64], of_units: Array) -> NDArray[np.float64]:
    """Sum what is shaped (units, *shape) over units with weights (units,), in float64."""
    flat = of_units.reshape(len(factors), -1).astype(np.float64)
    return (factors @ flat).reshape(of_units.shape[1:])


def _rows(batch: Batch) -> kernels.Rows:
    columns = batch.states, batch.actions, batch.rewards, batch.next_states, batch.discounts
    return kernels.Rows(*columns, batch.weights)
