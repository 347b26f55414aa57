# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The features of a state that value models weigh: the state itself and random tanh of it."""

from functools import lru_cache
import hashlib

import numpy as np

REACH = 4.0
"""Scaled numbers of a state count as no larger than this."""

STEEPNESS = 0.5
"""Standard deviation of what each number of a state is multiplied with."""

SEED = 20251222
"""All models share one basis, so that a state is expanded once for all candidates."""


class Basis:
    """
    Random features of a fixed seed; it was fitted to nothing, so it tells of nobody.

    :param size: numbers in a state, S.
    :param count: random features, F.
    """

    def __init__(self, size: int, count: int) -> None:
        rng = np.random.default_rng([SEED, size, count])
        self.size, self.count = size, count
        self.width = 1 + size + count
        self._projection = STEEPNESS * rng.standard_normal((size, count))
        self._offset = rng.uniform(-1.5, 1.5, count)
        sha = hashlib.sha256(self._projection.tobytes() + self._offset.tobytes())
        self.digest = sha.hexdigest()
        """Tells models of another basis apart, as another release of numpy might draw one."""
        self.projection = np.concatenate([self._offset[None], self._projection])
        """Offsets of the features, then what each number of a state adds, shape (1 + S, F)."""

    def __call__(self, states: np.ndarray) -> np.ndarray:
        """
        Expand states.

        :param states: scaled, shape (N, S).
        :returns: one, state, features: shape (N, 1 + S + F), float64.
        """
        inside = np.clip(np.asarray(states, np.float64), -REACH, REACH)
        hidden = np.tanh(inside @ self._projection + self._offset)
        return np.concatenate([np.ones((len(inside), 1)), inside, hidden], axis=1)

    def complete(self, expanded: np.ndarray) -> None:
        """
        Write the features of one state behind it, in a few microseconds.

        :param expanded: one, state within :data:`REACH`, place for the features and anything
            else, shape (1 + S + F + ...,), float64.
        """
        size = self.size + 1
        hidden = expanded[size : self.width]
        np.dot(expanded[:size], self.projection, out=hidden)
        np.tanh(hidden, out=hidden)


@lru_cache(maxsize=8)
def basis_of(size: int, count: int) -> Basis:
    """
    Return the basis of a size, made once.

    :param size: numbers in a state.
    :param count: random features.
    """
    return Basis(size, count)
