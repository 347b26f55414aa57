# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
A policy that acts, the dueling network in plain NumPy, and its weights as bytes.

Weights travel as float32, little-endian, in module order; SHA-256 is their digest.
"""

import hashlib

from fdrl_ros.errors import PolicyError
from fdrl_ros.policy.shape import NetworkShape
import numpy as np


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


def check_weights(weights: np.ndarray, shape: NetworkShape) -> None:
    """
    Refuse weights that do not fit the network.

    :raises PolicyError: on another length or a value that is not finite.
    """
    if np.shape(weights) != (shape.n_parameters,) or not np.isfinite(weights).all():
        raise PolicyError(
            f'weights of shape {np.shape(weights)}: expected {shape.n_parameters} finite numbers'
        )


class Policy:
    """
    Greedy policy of a dueling Q network.

    It is immutable, so threads may share it.
    """

    def __init__(self, weights: np.ndarray, shape: NetworkShape) -> None:
        """
        Split weights into layers.

        :param weights: flat, shape (n_parameters,), finite.
        :raises PolicyError: on another length or a value that is not finite.
        """
        check_weights(weights, shape)
        self.shape = shape
        self.weights = np.array(weights, dtype=np.float32)
        self.weights.flags.writeable = False
        self.digest = digest_of(self.weights)
        matrices = [(matrix.T, bias) for matrix, bias in shape.split(self.weights)]
        self._shared = [(np.ascontiguousarray(matrix), bias) for matrix, bias in matrices[:-2]]
        (value, value_bias), (advantage, advantage_bias) = matrices[-2:]
        # Q = V + A - mean(A) is linear in the last hidden layer: one matrix does it.
        centred = advantage - advantage.mean(axis=1, keepdims=True)
        self._head = np.ascontiguousarray(value + centred)
        self._head_bias = value_bias + advantage_bias - advantage_bias.mean()

    def layers(self) -> tuple[tuple[np.ndarray, np.ndarray], ...]:
        """
        Return the matrix (inputs, outputs) and the bias (outputs,) of each layer, float32.

        After each but the last comes tanh; the last gives the values of the actions.
        """
        return (*self._shared, (self._head, self._head_bias))

    def q_values(self, states: np.ndarray) -> np.ndarray:
        """
        Value every action.

        :param states: scaled, shape (..., states).
        :returns: shape (..., actions), float32.
        """
        hidden = np.asarray(states, dtype=np.float32)
        for matrix, bias in self._shared:
            hidden = hidden @ matrix
            hidden += bias
            np.tanh(hidden, out=hidden)
        values: np.ndarray = hidden @ self._head
        values += self._head_bias
        return values

    def __call__(self, state: np.ndarray) -> int:
        """
        Choose the action of highest value; ties go to the lowest number.

        :param state: scaled, shape (states,).
        """
        if type(state) is not np.ndarray or state.dtype != np.float32 or state.ndim != 1:
            return int(self.q_values(state).argmax())
        hidden = state
        for matrix, bias in self._shared:
            hidden = np.dot(hidden, matrix)
            hidden += bias
            np.tanh(hidden, hidden)
        values = np.dot(hidden, self._head)
        values += self._head_bias
        return int(values.argmax())
