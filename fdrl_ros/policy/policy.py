# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
What every policy can do, and its weights as bytes.

Weights travel as float32, little-endian, in the order of the layout; SHA-256 is their digest.
"""

import hashlib
from typing import Any, Protocol

from fdrl_ros.errors import PolicyError
import numpy as np
from numpy.typing import NDArray

Action = int | NDArray[Any]
"""
Number of a discrete action, or one for each of several places, shape (places,), or a continuous
action, shape (actions,), float32.
"""


class Policy(Protocol):
    """
    A policy that acts: from a state to an action.

    It is immutable, so threads may share it, and can be pickled.
    """

    @property
    def weights(self) -> np.ndarray:
        """Flat, shape (n_parameters,), float32, read-only."""
        ...

    @property
    def digest(self) -> bytes:
        """SHA-256 of the encoded weights, 32 bytes."""
        ...

    @property
    def n_parameters(self) -> int:
        """Number of weights."""
        ...

    def q_values(self, states: np.ndarray) -> np.ndarray:
        """
        Value every action; a continuous policy gives its action instead.

        :param states: scaled, shape (N, states).
        :returns: shape (N, actions), float32.
        """
        ...

    def __call__(self, state: np.ndarray) -> Action:
        """
        Choose the action of highest value; ties go to the lowest number.

        :param state: scaled, shape (states,).
        :returns: number of a discrete action, one for each place if there are several, or a
            continuous one within the task's limits.
        """
        ...


def encode_weights(weights: np.ndarray) -> bytes:
    """
    Turn weights into bytes.

    :param weights: flat, shape (n_parameters,), finite.
    :raises PolicyError: on another number of dimensions or a value that is not finite.
    """
    if weights.ndim != 1 or not np.all(np.isfinite(weights)):
        raise PolicyError(f'expected finite flat weights, got shape {weights.shape}')
    return weights.astype('<f4').tobytes()


def decode_weights(data: bytes, n_parameters: int) -> np.ndarray:
    """
    Turn bytes into weights.

    :param n_parameters: how many weights there must be.
    :returns: shape (n_parameters,), float32.
    :raises PolicyError: on another length or a value that is not finite.
    """
    if len(data) != 4 * n_parameters:
        raise PolicyError(f'{len(data)} bytes for {n_parameters} weights of 4 bytes')
    weights = np.frombuffer(data, dtype='<f4').astype(np.float32)
    if not np.all(np.isfinite(weights)):
        raise PolicyError('weights that are not finite')
    return weights


def digest_of(weights: np.ndarray) -> bytes:
    """Return the SHA-256 of the encoded weights, 32 bytes."""
    return hashlib.sha256(encode_weights(weights)).digest()


def check_weights(weights: np.ndarray, n_parameters: int) -> None:
    """
    Refuse weights that do not fit the network.

    :raises PolicyError: on another length or a value that is not finite.
    """
    if np.shape(weights) != (n_parameters,) or not np.isfinite(weights).all():
        raise PolicyError(
            f'weights of shape {np.shape(weights)}: expected {n_parameters} finite numbers'
        )
