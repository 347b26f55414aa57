# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Fit a network with hidden layers to a table of values that is public (DP-DQN Eq. 8)."""

from fdrl_ros.learner.network import flat_gradient, Layers
from fdrl_ros.learner.optimizer import fresh_moments, Optimizer
from fdrl_ros.policy import NetworkShape
import numpy as np
from numpy.typing import NDArray

RATE = 0.01
"""Step size of Adam at first; it falls linearly to 0."""

UNUSUAL = 0.1
"""Weight of the square of an unusual treatment: it need not be exact to stay the worst."""


def fitted(
    shape: NetworkShape,
    inputs: NDArray[np.float32],
    values: NDArray[np.float64],
    usual: NDArray[np.bool_],
    steps: int,
    seed: int,
) -> NDArray[np.float32]:
    """
    Return weights whose Q values are near the given ones, by least squares over all states.

    The values are public, so this costs no epsilon.

    :param inputs: of the network in each state, (states, inputs).
    :param values: of each state and action, (states, actions).
    :param usual: which treatments are usual in a state, (states, actions); the others count less.
    :param steps: of Adam, each on all states.
    :param seed: of the weights before the first step.
    """
    weights = shape.draw(np.random.default_rng(seed)).astype(np.float64)
    optimizer = Optimizer('adam', RATE, fresh_moments('adam', weights.size))
    wanted = values.astype(np.float32)
    counted = np.where(usual, 1.0, UNUSUAL).astype(np.float32) / np.float32(len(inputs))
    for step in range(steps):
        optimizer.learning_rate = RATE * (1.0 - step / steps)
        layers = Layers(shape, weights.astype(np.float32))
        found, seen = layers.forward(inputs)
        slopes = (found - wanted) * counted
        parts = layers.backward(seen, slopes, 0)
        weights += optimizer.step(flat_gradient((y.T @ x, y.sum(axis=0)) for x, y in parts))
    return weights.astype(np.float32)
