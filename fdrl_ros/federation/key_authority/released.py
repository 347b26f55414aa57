# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""A policy as the key authority released it, kept so that it can be said again."""

from dataclasses import dataclass
import json

from fdrl_ros.policy import decode_weights, encode_weights
import numpy as np


@dataclass(frozen=True)
class Validation:
    """What a test of a policy on public patients found."""

    passed: bool
    reason: str


@dataclass(frozen=True)
class Released:
    """The outcome of a round: weights, and whose updates are in them."""

    round: int
    attempt: int
    weights: np.ndarray
    contributors: tuple[str, ...]
    update_hashes: bytes
    rolled_back: bool
    reason: str
    sizes: tuple[int, ...] = ()
    """Declared n_i of each contributor."""

    def to_bytes(self) -> bytes:
        """Serialise for the store: a JSON line, then the weights."""
        head = {
            'round': self.round,
            'attempt': self.attempt,
            'contributors': self.contributors,
            'update_hashes': self.update_hashes.hex(),
            'rolled_back': self.rolled_back,
            'reason': self.reason,
            'sizes': self.sizes,
        }
        return json.dumps(head).encode() + b'\n' + encode_weights(self.weights)

    @classmethod
    def from_bytes(cls, data: bytes, n_parameters: int) -> 'Released':
        """Read back what :meth:`to_bytes` wrote."""
        line, weights = data.split(b'\n', 1)
        head = json.loads(line)
        head['contributors'] = tuple(head['contributors'])
        head['sizes'] = tuple(head['sizes'])
        head['update_hashes'] = bytes.fromhex(head['update_hashes'])
        return cls(weights=decode_weights(weights, n_parameters), **head)
