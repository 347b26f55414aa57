# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The state of local training between two blocks, durable on disk."""

from dataclasses import dataclass, fields
import hashlib
import os
from pathlib import Path
from typing import Self
from zipfile import BadZipFile

import numpy as np


@dataclass(frozen=True)
class Checkpoint:
    """
    Where a round of local training stands after some blocks.

    ``start``: digest of everything the round started from. ``weights``: (n_parameters,), float64.
    ``target``: the same, float32. ``moments``: of the optimizer; ``priorities``: of the replay.
    """

    round: int
    start: bytes
    blocks: int
    steps: int
    weights: np.ndarray
    target: np.ndarray
    moments: np.ndarray
    priorities: np.ndarray

    @classmethod
    def fresh(
        cls,
        round: int,
        start: bytes,
        weights: np.ndarray,
        moments: np.ndarray,
        priorities: np.ndarray,
    ) -> Self:
        """Begin a round at the global weights."""
        wide, narrow = weights.astype(np.float64), weights.astype(np.float32)
        return cls(round, start, 0, 0, wide, narrow, moments, priorities)

    def digest(self) -> bytes:
        """Return the SHA-256 of the whole state: the inputs of the next block."""
        sha = hashlib.sha256(f'{self.round} {self.blocks} {self.steps}'.encode() + self.start)
        for array in (self.weights, self.target, self.moments, self.priorities):
            sha.update(array.tobytes())
        return sha.digest()

    def save(self, path: Path) -> None:
        """Write atomically and durably, readable by the owner alone."""
        part = path.with_name(path.name + '.part')
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        values['start'] = np.frombuffer(self.start, dtype=np.uint8)
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), 'wb') as file:
            np.savez(file, **values)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)

    @classmethod
    def load(cls, path: Path, round: int, start: bytes) -> Self | None:
        """
        Return the state saved for this round and start, or None where there is none.

        A damaged file counts as none: the ledger then recognises each repeated block by its
        inputs, so that nothing is charged twice.
        """
        try:
            with np.load(path, allow_pickle=False) as file:
                values = {f.name: file[f.name] for f in fields(cls)}
        except (OSError, ValueError, KeyError, EOFError, BadZipFile):
            return None
        values['start'] = values['start'].tobytes()
        for name in ('round', 'blocks', 'steps'):
            values[name] = int(values[name])
        state = cls(**values)
        return state if (state.round, state.start) == (round, start) else None
