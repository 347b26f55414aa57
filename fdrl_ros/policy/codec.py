# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Weights as bytes: float32 little-endian in module order, and their SHA-256 digest."""

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
    if weights.shape != (shape.n_parameters,):
        raise PolicyError(f'{weights.shape} weights for a network of {shape.n_parameters}')
    if not np.all(np.isfinite(weights)):
        raise PolicyError('weights that are not finite')
