# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Clipped gradients in closed form (DP-DQN Alg. 1), without differentiating each unit.

A row's gradient of a dense layer is the outer product of its inputs and the slopes at its outputs.
Two implementations exist on purpose. Private training uses :mod:`fdrl_ros.learner.network_kernel`
only, where no row depends on the others. The NumPy code is the definition that tests compare the
kernel with; it also trains on public records.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from fdrl_ros.errors import PrivacyError
from fdrl_ros.learner.losses import check_algorithm, LOSSES, Valued
from fdrl_ros.learner.network import Array, flat_gradient, Layers, Slopes, TrainedWeights
from fdrl_ros.learner.network_kernel import most_layers, NetworkKernel
from fdrl_ros.learner.records.transitions import Batch, DrawnBatch
from fdrl_ros.learner.settings import LearnerSettings
from fdrl_ros.policy import NetworkShape
from fdrl_ros.privacy.mechanism import clip_factors
from fdrl_ros.runtime import kernels
import numpy as np
from numpy.typing import NDArray


class Trace(Protocol):
    """The gradients of some rows, before they are clipped."""

    @property
    def layers(self) -> list[Slopes]:
        """Inputs and slopes of each trained layer, the head last; what is changed there counts."""
        ...

    @property
    def errors(self) -> Array:
        """What priorities come from: Q(s, a) minus its target, or the loss; (rows,)."""
        ...

    def clipped_sum(self, units: int, transitions: int, clip_norm: float) -> NDArray[np.float64]:
        """Clip each unit's gradient to C and sum: (trained weights,)."""
        ...

    def summed(self) -> NDArray[np.float64]:
        """Return the sum of all rows' gradients, unclipped."""
        ...


class DuelingGradients:
    """Gradients of a loss of a dueling network, see :mod:`fdrl_ros.learner.losses`."""

    def __init__(self, shape: NetworkShape, learner: LearnerSettings | None = None) -> None:
        """
        Choose network and loss.

        :param learner: for the loss and the names of frozen tensors.
        :raises PolicyError: if there is no such tensor, or nothing is left to train.
        :raises SettingError: if there is no such loss.
        """
        self.shape = shape
        self.learner = learner or LearnerSettings()
        self.loss = LOSSES[check_algorithm(self.learner)](self.learner)
        self.trained = TrainedWeights.of(shape, self.learner.frozen_tensors)
        self._target: Layers | None = None

    @property
    def index(self) -> slice | NDArray[np.int64]:
        """Indices of the trained weights, rising."""
        return self.trained.index

    @property
    def size(self) -> int:
        """Number of trained weights: the length of a gradient."""
        return self.trained.size

    def check_private(self) -> None:
        """
        Refuse private training without the compiled arithmetic; see the module for the reason.

        :raises PrivacyError: if the compiled arithmetic is missing, was built from other sources
            or does not support this network.
        """
        kernels.check_built()
        if len(self.shape.hidden) > most_layers():
            raise PrivacyError(
                f'private training is refused: {len(self.shape.hidden)} hidden layers, and the '
                f'compiled arithmetic takes {most_layers()}'
            )

    def layered(self, weights: Array) -> Layers:
        """
        Split weights into layers.

        :param weights: flat, shape (n_parameters,), float32; must not change afterwards.
        """
        return Layers(self.shape, weights)

    def clipped_sum(
        self, weights: Array, target: Array, batch: Batch, clip_norm: float
    ) -> NDArray[np.float64]:
        """Clip each unit's mean gradient and sum; see :class:`Gradients`."""
        kernel = self._kernel if type(self).trace is DuelingGradients.trace else None
        if kernel is not None and isinstance(batch, DrawnBatch) and batch.index.size:
            table = batch.transitions.table
            if table is not None:
                return kernel.drawn_sum(
                    weights, target, table, batch.index, batch.weights, clip_norm
                )
        units, transitions = batch.actions.shape
        with np.errstate(over='ignore', invalid='ignore'):  # a warning would reveal a record
            made = self.trace(*self._both(weights, target), batch, 1.0 / transitions)
            return made.clipped_sum(units, transitions, clip_norm)

    def mean(self, weights: Array, target: Array, batch: Batch) -> NDArray[np.float64]:
        """Return the mean gradient over all transitions; see :class:`Gradients`."""
        both = self._both(weights, target)
        return self.trace(*both, batch, 1.0 / batch.actions.size).summed()

    def errors(self, weights: Array, target: Array, batch: Batch) -> Array:
        """Return what priorities come from, shape (units, transitions)."""
        with np.errstate(over='ignore', invalid='ignore'):
            found = self.trace(*self._both(weights, target), batch, 1.0).errors
        return found.reshape(batch.actions.shape)

    def _both(self, weights: Array, target: Array) -> tuple[Layers, Layers]:
        """Split both weights; those of the target are kept, as they serve for many steps."""
        if self._target is None or self._target.flat is not target:
            self._target = self.layered(target)
        return self._target if weights is target else self.layered(weights), self._target

    def trace(self, weights: Layers, target: Layers, batch: Batch, scale: float) -> Trace:
        """Return every row's gradient, times `scale`."""
        if self._kernel is not None:
            return self._kernel.trace(weights.flat, target.flat, batch, scale)
        rows = batch.rows()
        values, inputs = weights.forward(rows.states.copy())  # an audit overwrites them
        valued = Valued(
            values,
            after=lambda: weights.forward(rows.next_states)[0],
            target=lambda: target.forward(rows.states)[0],
            target_after=lambda: target.forward(rows.next_states)[0],
        )
        slopes, errors = self.scaled_slopes(valued, rows, scale)
        layers = weights.backward(inputs, slopes, self.trained.first)
        return _NumpyTrace(layers, errors, self.trained)

    def scaled_slopes(self, values: Valued, rows: Batch, scale: float) -> tuple[Array, Array]:
        """
        Return the slopes of each row's weighted loss at its Q values, and its error.

        :param scale: of every row's loss, on top of the batch's own weights.
        :returns: (rows, actions) and (rows,).
        """
        slopes, errors = self.loss.slopes(values, rows)
        slopes *= scale if rows.weights is None else scale * rows.weights[:, None]
        return slopes, errors

    @cached_property
    def _kernel(self) -> NetworkKernel | None:
        """The compiled arithmetic, if it is built and supports this network."""
        if not kernels.built() or len(self.shape.hidden) > most_layers():
            return None
        return NetworkKernel(self.shape, self.learner, self.trained)


@dataclass(frozen=True)
class _NumpyTrace:
    """The definition of :class:`fdrl_ros.learner.network_kernel.Trace`."""

    layers: list[Slopes]
    errors: Array
    trained: TrainedWeights

    def clipped_sum(self, units: int, transitions: int, clip_norm: float) -> NDArray[np.float64]:
        """
        Clip each unit's gradient and sum.

        The norm of one row's gradient follows from its factors (Goodfellow 2015). Several rows'
        gradient is formed: a norm from products of rows loses digits where rows cancel, and lets
        a large gradient through.
        """
        formed = []
        by_factors = transitions == 1 and not self.trained.partly
        if by_factors:
            squares = sum(
                _square(outputs) * (_square(inputs) + 1) for inputs, outputs in self.layers
            )
        else:
            for layer in self.layers:
                inputs, outputs = (each.reshape(units, transitions, -1) for each in layer)
                formed.append((outputs.swapaxes(1, 2) @ inputs, outputs.sum(axis=1)))
            for both, *kept in zip(formed, *self.trained.rows(), strict=True):
                for each, outputs in zip(both, kept, strict=True):
                    each[:, ~outputs] = 0.0
            squares = sum(_square(each.reshape(units, -1)) for layer in formed for each in layer)
        factors = clip_factors(np.sqrt(squares), clip_norm)
        kept = factors > 0.0
        if by_factors:
            scaled = [Slopes(x[kept], y[kept] * factors[kept, None]) for x, y in self.layers]
            return _NumpyTrace(scaled, self.errors, self.trained).summed()
        found = flat_gradient(
            tuple(np.tensordot(factors[kept], each[kept], 1) for each in layer) for layer in formed
        )
        return found[self.trained.picked]

    def summed(self) -> NDArray[np.float64]:
        """Return the sum of all rows' gradients, unclipped."""
        layers = ((inputs, outputs.astype(np.float64)) for inputs, outputs in self.layers)
        found = flat_gradient(
            (outputs.T @ inputs, outputs.sum(axis=0)) for inputs, outputs in layers
        )
        return found[self.trained.picked]


def _square(vectors: NDArray) -> NDArray:
    """Return the squared L2 norm of each row."""
    return np.einsum('ui,ui->u', vectors, vectors)
