# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
DQN gradients (DP-DQN Alg. 1) for numbered states, where Q is linear in a one-hot state.

Q is then a table and a row touches one line of it, so products with 716 zeros are avoided.
"""

from fdrl_ros.learner.gradient import DoubleDqn
from fdrl_ros.learner.network import Array, Layered
from fdrl_ros.learner.records.transitions import Batch
from fdrl_ros.learner.settings import LearnerSettings
from fdrl_ros.policy import NetworkShape
from fdrl_ros.privacy.mechanism import clip_factors
import numpy as np
from numpy.typing import NDArray


class TableDqn(DoubleDqn):
    """
    Gradients of a dueling network without hidden layers on scaled one-hot states.

    Batches hold numbers of states, (units, transitions, 1).
    """

    def __init__(
        self,
        shape: NetworkShape,
        scales: NDArray[np.floating],
        *,
        loss: str = 'huber',
        conservative: float = 0.0,
    ) -> None:
        """
        Choose network and loss.

        :param scales: value in place of the one of a one-hot state, shape (states,).
        """
        super().__init__(shape, loss=loss, conservative=conservative)
        self._scales = np.asarray(scales, np.float64)

    def clipped_sum(
        self, weights: Layered, target: Layered, batch: Batch, clip_norm: float
    ) -> NDArray[np.float64]:
        """Clip each unit's mean gradient and sum; see :meth:`DoubleDqn.clipped_sum`."""
        units, transitions = batch.actions.shape
        states, heads = self.heads(weights, target, batch, 1.0 / transitions)
        by_unit = heads.reshape(units, transitions, -1)
        of_unit = states.reshape(units, transitions)
        # The inputs of two rows overlap only if their states are equal.
        products = by_unit @ by_unit.swapaxes(1, 2)
        squares = np.square(self._scales[of_unit])
        products *= np.where(of_unit[:, :, None] == of_unit[:, None], squares[:, :, None], 0.0) + 1
        # Bound on what rounding hides where rows cancel.
        sizes = np.sqrt(np.square(by_unit).sum(axis=2) * (squares + 1.0)).sum(axis=1)
        hidden = transitions * np.finfo(np.float64).eps * np.square(sizes)
        norms = np.sqrt(np.maximum(products.sum(axis=(1, 2)), 0.0) + hidden)
        factors = np.repeat(clip_factors(norms, clip_norm), transitions)
        heads[factors == 0.0] = 0.0
        return self._summed(states, heads * factors[:, None])

    def mean(self, weights: Layered, target: Layered, batch: Batch) -> NDArray[np.float64]:
        """Return the mean gradient, unclipped; see :meth:`DoubleDqn.mean`."""
        units, transitions = batch.actions.shape
        return self._summed(*self.heads(weights, target, batch, 1.0 / (units * transitions)))

    def errors(self, weights: Layered, target: Layered, batch: Batch) -> Array:
        """Return Q(s, a) minus its target, shape (units, transitions)."""
        table = self._table(weights)
        actions = batch.actions.reshape(-1)
        found = table[_numbers(batch.states), actions] - self._wanted(table, target, batch)
        return found.reshape(batch.actions.shape).astype(np.float32)

    def _table(self, weights: Layered) -> NDArray[np.float64]:
        """Return Q of every state and action, (states, actions)."""
        matrix, bias = weights.head
        return self._scales[:, None] * matrix.T + bias.astype(np.float64)

    def _wanted(
        self, table: NDArray[np.float64], target: Layered, batch: Batch
    ) -> NDArray[np.float64]:
        """Return the double DQN target of each row, (rows,)."""
        following = _numbers(batch.next_states)
        best = table.argmax(axis=1)[following]
        values = self._table(target)[following, best]
        return batch.rewards.reshape(-1) + batch.discounts.reshape(-1) * values

    def heads(
        self, weights: Layered, target: Layered, batch: Batch, scale: float
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """
        Return each row's gradient, times `scale`.

        :returns: the state of each row, (rows,), and its slopes at value and advantages, (rows,
            1 + actions).
        """
        table = self._table(weights)
        states, actions = _numbers(batch.states), batch.actions.reshape(-1)
        rows = np.arange(len(states))
        slope = table[states, actions] - self._wanted(table, target, batch)
        if self.loss == 'huber':
            np.clip(slope, -1.0, 1.0, out=slope)
        if self.conservative:
            spread = np.exp(table - table.max(axis=1, keepdims=True))
            spread *= self.conservative / spread.sum(axis=1, keepdims=True)
            slopes = spread[states]
            slope -= self.conservative
        else:
            slopes = np.zeros((len(states), table.shape[1]))
        slopes[rows, actions] += slope
        slopes *= scale if batch.weights is None else scale * batch.weights.reshape(-1, 1)
        total = slopes.sum(axis=1, keepdims=True)
        return states, np.concatenate((total, slopes - total / table.shape[1]), axis=1)

    def _summed(self, states: NDArray[np.int64], heads: NDArray[np.float64]) -> NDArray:
        """Sum the rows of each line of the table, in the order of the weights."""
        count, width = len(self._scales), heads.shape[1]
        places = states[:, None] * width + np.arange(width)
        lines = np.bincount(places.reshape(-1), heads.reshape(-1), count * width)
        matrix = (lines.reshape(count, width) * self._scales[:, None]).T
        bias = heads.sum(axis=0)
        return np.concatenate((matrix[0], bias[:1], matrix[1:].reshape(-1), bias[1:]))


def make_dqn(
    shape: NetworkShape, learner: LearnerSettings, inputs: NDArray[np.floating] | None
) -> DoubleDqn:
    """
    Make the fastest gradients for the settings.

    :param inputs: public table of the network's input for each state number, or None.
    """
    if inputs is not None and not shape.hidden and inputs.shape == (shape.states, shape.states):
        scales = np.diagonal(inputs)
        if np.count_nonzero(inputs) == np.count_nonzero(scales):
            return TableDqn(shape, scales, loss=learner.loss, conservative=learner.conservative)
    return DoubleDqn.from_settings(shape, learner)


def _numbers(states: np.ndarray) -> NDArray[np.int64]:
    """Return the numbers of the states of all rows."""
    return states.reshape(-1).astype(np.int64)
