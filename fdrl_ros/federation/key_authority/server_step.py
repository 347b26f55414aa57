# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The server's step: from a round's average update to the next global weights."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Weights = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class RoundSum:
    """
    What the key authority knows when a round is decrypted.

    :param round: number of the round.
    :param weights: of the newest global policy, shape (n_parameters,), float32; those of personal
        tensors are the server's own.
    :param shared: indices of the weights that hospitals share, shape (shared weights,), int64.
    :param average: update of those, weighted by n_i, shape (shared weights,), float64.
    :param state: what the step returned in the newest round that was released; empty at first,
        and after an operator rolled back.
    """

    round: int
    weights: Weights
    shared: NDArray[np.int64]
    average: NDArray[np.float64]
    state: bytes = b''


@dataclass(frozen=True, eq=False)
class Stepped:
    """
    The result of a step.

    :param weights: the next global weights, shape (n_parameters,), float32.
    :param state: what the step wants back in the next round.
    """

    weights: Weights
    state: bytes = b''


class ServerStep(Protocol):
    """
    Makes the next global weights.

    It runs on the key authority's worker and may take long. After a crash it runs again on the
    same sum, so it must be a function of what it is given: a generator that it needs is seeded by
    the round. The key authority keeps the returned state durably, together with the weights, and
    drops it if the weights do not pass the validation. When an operator rolls back to an older
    policy, it drops the state before as well: the step begins anew from those weights.
    """

    def __call__(self, given: RoundSum) -> Stepped:
        """
        Take the step.

        :raises PolicyError: if it makes no policy of this sum: the older one stays.
        :raises StoreError: if its state cannot be used: rounds end with the older policy.
        """
        ...


def fed_avg(given: RoundSum) -> Stepped:
    """Add the average update to the shared weights (FDRL Eq. 2)."""
    weights = given.weights.copy()
    before = weights[given.shared].astype(np.float64)
    weights[given.shared] = (before + given.average).astype(np.float32)
    return Stepped(weights)
