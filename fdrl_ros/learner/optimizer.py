# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Adam or plain descent; applied to noised gradients they cost no privacy."""

import numpy as np
from numpy.typing import NDArray

BETAS = 0.9, 0.999
"""Decay of Adam's two means in a step."""


def fresh_moments(kind: str, size: int) -> NDArray[np.float64]:
    """Return the initial state of an optimizer, 'adam' or 'sgd', for so many weights."""
    return np.zeros((2 if kind == 'adam' else 0, size))


Rate = float | NDArray[np.float64]


class Optimizer:
    """
    Turns gradients of flat weights into steps.

    'adam' (Kingma & Ba 2015) keeps the means of the gradient and of its square; 'sgd' is plain
    stochastic gradient descent (DP-DQN Alg. 1) and keeps nothing.
    """

    def __init__(
        self, kind: str, learning_rate: Rate, moments: NDArray[np.float64], steps: int = 0
    ) -> None:
        """
        Continue from a state.

        :param kind: 'adam' or 'sgd'.
        :param learning_rate: step size, or one for each weight, shape (size,); the
            attribute of that name may be changed between steps.
        :param moments: of :func:`fresh_moments` or a checkpoint; overwritten.
        :param steps: steps already taken.
        """
        self.moments = moments
        self.learning_rate = learning_rate
        self._kind, self._steps = kind, steps

    def step(self, gradient: NDArray[np.float64]) -> NDArray[np.float64]:
        """
        Take one step.

        :param gradient: shape (size,); it may be overwritten.
        :returns: what to add to the weights, same shape.
        """
        if self._kind == 'sgd':
            gradient *= -self.learning_rate
            return gradient
        self._steps += 1
        first, second = BETAS
        self.moments[0] += (1.0 - first) * (gradient - self.moments[0])
        self.moments[1] += (1.0 - second) * (gradient**2 - self.moments[1])
        mean = self.moments[0] / (1.0 - first**self._steps)
        square = self.moments[1] / (1.0 - second**self._steps)
        return -self.learning_rate * mean / (np.sqrt(square) + 1e-8)
