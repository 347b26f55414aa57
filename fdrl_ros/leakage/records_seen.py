# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
What a model shows of candidate records: signed errors, and the cosine of updates with gradients.

Gradients of dense layers are outer products, so inner products with an update and norms come from
their factors; none is formed.
"""

from dataclasses import dataclass

from fdrl_ros.leakage.shadow import ShadowTrainer
from fdrl_ros.learner.network import Slopes
from fdrl_ros.learner.records.transitions import Batch
from fdrl_ros.policy import NetworkShape
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Gradients:
    """
    The gradient of each record's loss at some weights, as factors of each dense layer.

    ``layers``: inputs and slopes at the outputs; those of the last are of the value, then of the
    advantages. ``errors``: signed temporal-difference errors, shape (records,).
    """

    shape: NetworkShape
    layers: list[Slopes]
    errors: NDArray[np.float64]

    def descent_along(self, update: NDArray[np.float64]) -> NDArray[np.float64]:
        """
        Return the cosine of an update with each record's direction of descent.

        The same as :func:`fdrl_ros.leakage.attacks.alignment` of the formed gradients.

        :param update: end minus start, shape (n_parameters,).
        :returns: shape (records,); 0 where a norm is 0.
        """
        *shared, (value, value_bias), (advantage, bias) = self.shape.split(update)
        head = np.concatenate((value, advantage)), np.concatenate((value_bias, bias))
        products, squares = np.zeros(len(self.errors)), np.zeros(len(self.errors))
        for (inputs, outputs), (matrix, each) in zip(self.layers, (*shared, head), strict=True):
            moved = inputs @ np.asarray(matrix.T, np.float32) + np.asarray(each, np.float32)
            products += np.einsum('ro,ro->r', outputs, moved)
            length = np.einsum('ri,ri->r', inputs, inputs) + 1.0
            squares += np.einsum('ro,ro->r', outputs, outputs) * length
        norms = np.sqrt(squares) * float(np.linalg.norm(update))
        with np.errstate(divide='ignore', invalid='ignore'):
            return np.where(norms > 0.0, -products / norms, 0.0)

    def formed(self) -> NDArray[np.float64]:
        """Return the gradients themselves, shape (records, n_parameters)."""
        parts = []
        for place, (inputs, outputs) in enumerate(self.layers):
            matrix = np.einsum('ro,ri->roi', outputs, inputs).astype(np.float64)
            if place < len(self.layers) - 1:
                parts += [matrix.reshape(len(matrix), -1), outputs]
            else:
                parts += [matrix[:, 0], outputs[:, :1]]
                parts += [matrix[:, 1:].reshape(len(matrix), -1), outputs[:, 1:]]
        return np.concatenate(parts, axis=1)


def batch_of(table: Array, states: int) -> Batch:
    """View lines of a table of transitions as a batch of one transition a unit."""
    lines = table[:, None, :]
    return Batch(
        np.ascontiguousarray(lines[..., :states]),
        lines[..., -1].astype(np.int64),
        np.ascontiguousarray(lines[..., -3]),
        np.ascontiguousarray(lines[..., states : 2 * states]),
        np.ascontiguousarray(lines[..., -2]),
    )


def gradients_at(trainer: ShadowTrainer, weights: Array, batch: Batch) -> Gradients:
    """
    Return every record's gradient at some weights, which are the target network's too.

    :param weights: flat, shape (n_parameters,).
    :param batch: of :func:`batch_of`.
    """
    trace = trainer.kernel.trace(weights, weights, batch, 1.0)
    return Gradients(trainer.shape, trace.layers, trace.errors.astype(np.float64))
