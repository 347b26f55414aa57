# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The contract between the private learner's loop and a network with a loss (DP-DQN Alg. 1)."""

from typing import Protocol

from fdrl_ros.learner.records.transitions import Batch
import numpy as np
from numpy.typing import NDArray


class Gradients(Protocol):
    """
    Gradients of a loss, clipped by privacy unit.

    Weights are flat, shape (n_parameters,), float32, and must not change afterwards. A unit's
    gradient may depend on its own transitions and on released weights alone.
    """

    @property
    def index(self) -> slice | NDArray[np.int64]:
        """Indices of the trained weights, rising; the others keep the public start's values."""
        ...

    @property
    def size(self) -> int:
        """Number of trained weights: the length of a gradient."""
        ...

    def check_private(self) -> None:
        """
        Refuse private training where one unit could change what another adds to the sum.

        :raises PrivacyError: with the reason, and what to do.
        """
        ...

    def clipped_sum(
        self,
        weights: NDArray[np.float32],
        target: NDArray[np.float32],
        batch: Batch,
        clip_norm: float,
    ) -> NDArray[np.float64]:
        """
        Clip each unit's mean gradient to L2 norm C and sum; a gradient that is not finite adds 0.

        :param target: weights of the target network.
        :param clip_norm: C, > 0.
        :returns: shape (size,), float64: sums are wider than gradients, so that a unit's
            contribution does not depend on the others.
        """
        ...

    def mean(
        self, weights: NDArray[np.float32], target: NDArray[np.float32], batch: Batch
    ) -> NDArray[np.float64]:
        """
        Return the unclipped mean gradient over all transitions, for public records only.

        :returns: shape (size,), float64.
        """
        ...

    def errors(
        self, weights: NDArray[np.float32], target: NDArray[np.float32], batch: Batch
    ) -> NDArray[np.float32]:
        """
        Return what a unit's priority comes from: Q(s, a) minus its target, or its loss.

        :returns: shape (units, transitions).
        """
        ...
