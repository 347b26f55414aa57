# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Adam or plain descent; applied to noised gradients they cost no privacy."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class Optimizer(Protocol):
    """Turns gradients of flat weights into steps."""

    moments: NDArray[np.float64]
    """The whole state besides the number of steps, so that a checkpoint is one copy."""

    def step(self, gradient: NDArray[np.float64]) -> NDArray[np.float64]:
        """
        Take one step.

        :param gradient: shape (..., size); it may be overwritten.
        :returns: what to add to the weights, same shape.
        """
        ...


class Adam:
    """
    Adam (Kingma & Ba 2015).

    ``moments`` has shape (2, ..., size): the means of the gradient and of its square.
    """

    def __init__(
        self,
        learning_rate: float,
        moments: NDArray[np.float64],
        steps: int,
        betas: tuple[float, float] = (0.9, 0.999),
    ) -> None:
        """
        Continue from a state; zeros and 0 steps begin a new one.

        :param learning_rate: size of a step, > 0.
        :param steps: steps already taken.
        """
        self.moments = moments
        self._learning_rate = learning_rate
        self._steps = steps
        self._betas = betas

    def step(self, gradient: NDArray[np.float64]) -> NDArray[np.float64]:
        """Take one step; see :class:`Optimizer`."""
        self._steps += 1
        first, second = self._betas
        self.moments[0] += (1.0 - first) * (gradient - self.moments[0])
        self.moments[1] += (1.0 - second) * (gradient**2 - self.moments[1])
        mean = self.moments[0] / (1.0 - first**self._steps)
        square = self.moments[1] / (1.0 - second**self._steps)
        return -self._learning_rate * mean / (np.sqrt(square) + 1e-8)


class Descent:
    """Stochastic gradient descent (DP-DQN Alg. 1); ``moments`` is empty."""

    def __init__(self, learning_rate: float, moments: NDArray[np.float64]) -> None:
        """:param learning_rate: size of a step, > 0."""
        self.moments = moments
        self._learning_rate = learning_rate

    def step(self, gradient: NDArray[np.float64]) -> NDArray[np.float64]:
        """Take one step; see :class:`Optimizer`."""
        gradient *= -self._learning_rate
        return gradient


def make_optimizer(
    kind: str, learning_rate: float, moments: NDArray[np.float64], steps: int
) -> Optimizer:
    """
    Make the optimizer that a setting names.

    :param kind: 'adam' or 'sgd'.
    :param moments: from :func:`fresh_moments` or a checkpoint.
    """
    if kind == 'sgd':
        return Descent(learning_rate, moments)
    return Adam(learning_rate, moments, steps)


def fresh_moments(kind: str, *shape: int) -> NDArray[np.float64]:
    """Return the initial state of an optimizer for weights of this shape."""
    return np.zeros((2 if kind == 'adam' else 0, *shape))
