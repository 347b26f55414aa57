# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What a hospital keeps of a round until it ends: its noised weights, and what they cost."""

from dataclasses import dataclass
import json

from fdrl_ros.learner.learner import TrainingResult
from fdrl_ros.policy import decode_weights, encode_weights


@dataclass(frozen=True)
class LocalUpdate:
    """The result of local training for one round: masked anew in each attempt, never redone."""

    round: int
    base: bytes
    result: TrainingResult

    def to_bytes(self) -> bytes:
        """Serialise for the store: a JSON line, the weights, then the ledger's links."""
        head = {
            'round': self.round,
            'base': self.base.hex(),
            'epsilon': self.result.epsilon,
            'ledger_entries': self.result.ledger_entries,
            'ledger_head': self.result.ledger_head.hex(),
            'ledger_base_entries': self.result.ledger_base_entries,
            'ledger_base_head': self.result.ledger_base_head.hex(),
        }
        weights = encode_weights(self.result.weights)
        return json.dumps(head).encode() + b'\n' + weights + self.result.ledger_links

    @classmethod
    def from_bytes(cls, data: bytes, n_parameters: int) -> 'LocalUpdate':
        """Read back what :meth:`to_bytes` wrote."""
        line, rest = data.split(b'\n', 1)
        weights, links = rest[: 4 * n_parameters], rest[4 * n_parameters :]
        head = json.loads(line)
        result = TrainingResult(
            decode_weights(weights, n_parameters),
            head['epsilon'],
            head['ledger_entries'],
            bytes.fromhex(head['ledger_head']),
            head['ledger_base_entries'],
            bytes.fromhex(head['ledger_base_head']),
            links,
        )
        return cls(head['round'], bytes.fromhex(head['base']), result)
