# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Gradients (DP-DQN Alg. 1) for numbered states, where Q is linear in a one-hot state.

Q is then a table and a row touches one line of it, so products with 716 zeros are avoided.
"""

from dataclasses import dataclass

from fdrl_ros.errors import PolicyError, SettingError
from fdrl_ros.learner.gradient import DuelingGradients, Trace
from fdrl_ros.learner.gradients import Gradients
from fdrl_ros.learner.losses import check_algorithm, Valued
from fdrl_ros.learner.network import Array, flat_gradient, head_slopes, Layers, Slopes
from fdrl_ros.learner.records.transitions import Batch
from fdrl_ros.learner.settings import LearnerSettings
from fdrl_ros.policy import NetworkShape
from fdrl_ros.policy.network import Network
from fdrl_ros.privacy.mechanism import clip_factors
from fdrl_ros.tasks.spec import TaskSpec
import numpy as np
from numpy.typing import NDArray


class TabularDqn(DuelingGradients):
    """
    Gradients of a dueling network without hidden layers on scaled one-hot states.

    Batches hold numbers of states, (units, transitions, 1).
    """

    def __init__(
        self, shape: NetworkShape, scales: NDArray[np.floating], learner: LearnerSettings
    ) -> None:
        """
        Choose network and loss.

        :param scales: value in place of the one of a one-hot state, shape (states,).
        """
        super().__init__(shape, learner)
        self._scales = np.asarray(scales, np.float64)

    def trace(self, weights: Layers, target: Layers, batch: Batch, scale: float) -> Trace:
        """Return every row's gradient, times `scale`."""
        rows = batch.rows()
        states, following = (x[:, 0].astype(np.int64) for x in (rows.states, rows.next_states))
        table = self._table(weights)
        valued = Valued(
            table[states],
            after=lambda: table[following],
            target=lambda: self._table(target)[states],
            target_after=lambda: self._table(target)[following],
        )
        slopes, errors = self.scaled_slopes(valued, rows, scale)
        made = [Slopes(states, head_slopes(slopes))]
        return TabularTrace(self._scales, made, errors.astype(np.float32))

    def _table(self, weights: Layers) -> NDArray[np.float64]:
        """Return Q of every state and action, (states, actions)."""
        matrix, bias = weights.head
        return self._scales[:, None] * matrix.T + bias.astype(np.float64)


@dataclass(frozen=True)
class TabularTrace:
    """
    The gradients of rows of a table.

    ``scales``: of the states. ``layers``: of the only one, the state of each row, (rows,), and its
    slopes at value and advantages, (rows, 1 + actions). ``errors``: what priorities come
    from, (rows,).
    """

    scales: NDArray[np.float64]
    layers: list[Slopes]
    errors: Array

    def clipped_sum(self, units: int, transitions: int, clip_norm: float) -> NDArray[np.float64]:
        """Clip each unit's gradient and sum."""
        factors = np.repeat(clip_factors(self._norms(units, transitions), clip_norm), transitions)
        self.layers[0].outputs[factors == 0.0] = 0.0
        return self._sum(factors[:, None])

    def summed(self) -> NDArray[np.float64]:
        """Return the sum of all rows' gradients, unclipped."""
        return self._sum(1.0)

    def _sum(self, factors: NDArray[np.float64] | float) -> NDArray[np.float64]:
        states, heads = self.layers[0]
        heads, count, width = heads * factors, len(self.scales), heads.shape[1]
        places = states[:, None] * width + np.arange(width)
        lines = np.bincount(places.reshape(-1), heads.reshape(-1), count * width)
        matrix = (lines.reshape(count, width) * self.scales[:, None]).T
        return flat_gradient([(matrix, heads.sum(axis=0))])

    def _norms(self, units: int, transitions: int) -> NDArray[np.float64]:
        """Return an upper bound of the norm of each unit's gradient, (units,)."""
        states, heads = self.layers[0]
        of_unit, by_unit = (
            states.reshape(units, transitions),
            heads.reshape(units, transitions, -1),
        )
        # The inputs of two rows overlap only if their states are equal.
        products = by_unit @ by_unit.swapaxes(1, 2)
        squares = np.square(self.scales[of_unit])
        products *= np.where(of_unit[:, :, None] == of_unit[:, None], squares[:, :, None], 0.0) + 1
        # Bound on what rounding hides where rows cancel.
        sizes = np.sqrt(np.square(by_unit).sum(axis=2) * (squares + 1.0)).sum(axis=1)
        hidden = transitions * np.finfo(np.float64).eps * np.square(sizes)
        return np.sqrt(np.maximum(products.sum(axis=(1, 2)), 0.0) + hidden)


def dueling_network(spec: TaskSpec, learner: LearnerSettings) -> NetworkShape:
    """
    Return the network of the compiled learner for a task.

    :raises SettingError: if the task has images, continuous actions or several at a time, or
        settings name a module or a loss that the compiled learner lacks.
    :raises PolicyError: if there is no such tensor to freeze, or nothing is left to train.
    """
    if spec.continuous or spec.dtype != 'float32' or spec.places > 1:
        what = 'images' if spec.dtype != 'float32' else f'{spec.in_words} actions'
        raise SettingError('learner.kind', 'dqn', f"'torch': this task has {what}")
    check_algorithm(learner)
    for name in ('network', 'adapter_rank'):
        if getattr(learner, name):
            value = getattr(learner, name)
            raise SettingError(f'learner.{name}', value, "nothing, or learner.kind 'torch'")
    shape = NetworkShape(spec.size, spec.n_actions, (learner.hidden, learner.hidden))
    shape.layout.trained(learner.frozen_tensors)
    return shape


def gradients_for(
    network: Network,
    learner: LearnerSettings,
    inputs: NDArray[np.floating] | None = None,
    *,
    public: bool = False,
) -> Gradients:
    """
    Make what computes the gradients of a network.

    :param inputs: public table of the network's input for each state number, or None.
    :param public: whether the records are public: all weights are trained then, and double DQN has
        no conservative term, and Huber's loss.
    :raises PolicyError: if the network brings no gradients.
    """
    if isinstance(network, NetworkShape):
        return dqn_for(network, _public(learner) if public else learner, inputs)
    make = getattr(network, 'gradients', None)
    if make is None or inputs is not None:
        raise PolicyError(f'no learner trains a {network.name}')
    made: Gradients = make(learner, public=public)
    return made


def _public(learner: LearnerSettings) -> LearnerSettings:
    """Return the settings of the loss that public pre-training takes in place of a learner's."""
    return LearnerSettings(
        algorithm=learner.algorithm,
        temperature=learner.temperature,
        most_weight=learner.most_weight,
        value_weight=learner.value_weight,
    )


def dqn_for(
    shape: NetworkShape, learner: LearnerSettings, inputs: NDArray[np.floating] | None
) -> DuelingGradients:
    """
    Make the fastest gradients for the settings.

    :param inputs: public table of the network's input for each state number, or None.
    """
    square = (shape.states, shape.states)
    if inputs is not None and inputs.shape == square and not (shape.hidden or learner.frozen):
        scales = np.diagonal(inputs)
        if np.count_nonzero(inputs) == np.count_nonzero(scales):
            return TabularDqn(shape, scales, learner)
    return DuelingGradients(shape, learner)
