# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Adam (Kingma & Ba 2015) on flat weights; on noised gradients it costs no privacy."""

import numpy as np


class Adam:
    """
    Adam with its state in one array, so that a checkpoint is one copy.

    ``moments`` has shape (2, n_parameters): the means of the gradient and of its square.
    """

    def __init__(
        self,
        learning_rate: float,
        moments: np.ndarray,
        steps: int,
        betas: tuple[float, float] = (0.9, 0.999),
    ) -> None:
        """
        Go on from a state; zeros and 0 steps start afresh.

        :param learning_rate: size of a step, > 0.
        :param steps: steps already taken.
        """
        self.moments = moments
        self._learning_rate = learning_rate
        self._steps = steps
        self._betas = betas

    def step(self, gradient: np.ndarray) -> np.ndarray:
        """
        Take one step.

        :param gradient: shape (n_parameters,).
        :returns: what to add to the weights.
        """
        self._steps += 1
        first, second = self._betas
        self.moments[0] += (1.0 - first) * (gradient - self.moments[0])
        self.moments[1] += (1.0 - second) * (gradient**2 - self.moments[1])
        mean = self.moments[0] / (1.0 - first**self._steps)
        square = self.moments[1] / (1.0 - second**self._steps)
        return -self._learning_rate * mean / (np.sqrt(square) + 1e-8)
