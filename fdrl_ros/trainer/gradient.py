# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Double DQN gradient of each privacy unit in closed form (DP-DQN Alg. 1).

A unit's gradient of a dense layer is (output gradients)^T (activations) over its transitions: one
batched product a layer gives all units at once, several times faster than differentiating each.
"""

from collections.abc import Iterator

from fdrl_ros.policy import NetworkShape
from fdrl_ros.trainer.records import Batch
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]


def q_values(weights: Array, shape: NetworkShape, states: Array) -> tuple[Array, list[Array]]:
    """
    Run the dueling network: Q = V + A - mean(A) (Wang et al. 2016, Eq. 9).

    :param weights: flat, shape (n_parameters,).
    :param states: scaled, shape (..., states).
    :returns: Q values, shape (..., actions), and the activations of each shared layer's input
        and of the last one's output.
    """
    *shared, (value, value_bias), (advantage, advantage_bias) = _layers(weights, shape)
    activations = [states]
    for matrix, bias in shared:
        activations.append(np.tanh(activations[-1] @ matrix.T + bias))
    advantages = activations[-1] @ advantage.T + advantage_bias
    values = activations[-1] @ value.T + value_bias
    return values + advantages - advantages.mean(axis=-1, keepdims=True), activations


def double_dqn_targets(
    weights: Array, target_weights: Array, shape: NetworkShape, batch: Batch, discount: float
) -> Array:
    """
    Value what followed: r + gamma Q_target(s', argmax_a Q(s', a)) (van Hasselt et al. 2016).

    A unit's targets depend on its own transitions and on released weights alone, so that
    clipping its gradient bounds all of its influence.

    :returns: shape (units, transitions).
    """
    best = q_values(weights, shape, batch.next_states)[0].argmax(axis=-1, keepdims=True)
    following = q_values(target_weights, shape, batch.next_states)[0]
    following = np.take_along_axis(following, best, axis=-1)[..., 0]
    return batch.rewards + np.float32(discount) * (1 - batch.terminals) * following


def per_unit_gradients(
    weights: Array, target_weights: Array, shape: NetworkShape, batch: Batch, discount: float
) -> Array:
    """
    Differentiate each unit's mean Huber loss (threshold 1).

    :param weights: flat, shape (n_parameters,), float32.
    :param target_weights: of the target network, same shape.
    :returns: shape (units, n_parameters), float32, parameters in module order.
    """
    targets = double_dqn_targets(weights, target_weights, shape, batch, discount)
    values, activations = q_values(weights, shape, batch.states)
    chosen = batch.actions[..., None]
    error = np.take_along_axis(values, chosen, axis=-1) - targets[..., None]
    slope = np.clip(error, -1.0, 1.0) / np.float32(targets.shape[-1])

    # Q = V + A - mean(A): the value head gets the slope, the advantage head the centred slope.
    advantage_slope = np.zeros_like(values)
    np.put_along_axis(advantage_slope, chosen, slope, axis=-1)
    advantage_slope -= slope / np.float32(shape.actions)
    *shared, (value, _), (advantage, _) = _layers(weights, shape)
    hidden = activations[-1]
    found = [_outer(advantage_slope, hidden), _outer(slope, hidden)]
    back = advantage_slope @ advantage + slope @ value
    for (matrix, _), before, after in zip(
        reversed(shared), reversed(activations[:-1]), reversed(activations[1:]), strict=True
    ):
        back = back * (1 - after * after)
        found.append(_outer(back, before))
        back = back @ matrix
    return np.concatenate(found[::-1], axis=1)


def _outer(slopes: Array, inputs: Array) -> Array:
    """Return each unit's gradient of a layer, matrix then bias, shape (units, parameters)."""
    matrices = slopes.transpose(0, 2, 1) @ inputs
    return np.concatenate((matrices.reshape(len(matrices), -1), slopes.sum(axis=1)), axis=1)


def _layers(weights: Array, shape: NetworkShape) -> Iterator[tuple[Array, Array]]:
    """Yield the matrix (outputs, inputs) and the bias of each layer, as views."""
    for layer in shape.layers():
        matrix = weights[layer.start : layer.bias_start].reshape(layer.outputs, layer.inputs)
        yield matrix, weights[layer.bias_start : layer.stop]
