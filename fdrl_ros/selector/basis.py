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

    def __call__(self, states: np.ndarray) -> np.ndarray:
        """
        Expand states.

        :param states: scaled, shape (N, S).
        :returns: one, state, features: shape (N, 1 + S + F), float64.
        """
        inside = np.clip(np.asarray(states, np.float64), -REACH, REACH)
        hidden = np.tanh(inside @ self._projection + self._offset)
        return np.concatenate([np.ones((len(inside), 1)), inside, hidden], axis=1)

    def one(self, state: np.ndarray) -> np.ndarray:
        """
        Expand one state, in a few microseconds.

        :param state: scaled, shape (S,).
        :returns: shape (1 + S + F,), float64.
        """
        expanded = np.empty(self.width)
        expanded[0] = 1.0
        inside = expanded[1 : self.size + 1]
        np.maximum(state, -REACH, out=inside)
        np.minimum(inside, REACH, out=inside)
        hidden = np.dot(inside, self._projection)
        hidden += self._offset
        np.tanh(hidden, out=expanded[self.size + 1 :])
        return expanded


@lru_cache(maxsize=8)
def basis_of(size: int, count: int) -> Basis:
    """
    Return the basis of a size, made once.

    :param size: numbers in a state.
    :param count: random features.
    """
    return Basis(size, count)
