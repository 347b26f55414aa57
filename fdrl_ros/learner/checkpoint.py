# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Durable state of local training between two blocks, and the packed arrays that it is written as.

A checkpoint also records the ledger's head. Blocks that no update was sent with yet are remembered
here, so that a ledger restored alone is detected.
"""

from collections.abc import Mapping
from dataclasses import dataclass
import hashlib
import json
import math
from pathlib import Path
from typing import Any, Self

from fdrl_ros.errors import CheckpointError
from fdrl_ros.policy.task_identity import TaskIdentity
from fdrl_ros.privacy.ledger.chain import Head, Owner
from fdrl_ros.privacy.ledger.ledger import Ledger
from fdrl_ros.runtime.durable import replacing
import numpy as np
from numpy.typing import NDArray


def pack(header: Mapping[str, object], arrays: Mapping[str, np.ndarray]) -> bytes:
    """
    Serialise arrays: a line of JSON that describes them, then their numbers in order.

    :param header: further JSON values; the key `arrays` is reserved.
    """
    forms = {name: [array.dtype.str, array.shape] for name, array in arrays.items()}
    line = json.dumps({**header, 'arrays': forms}).encode()
    return b''.join((line, b'\n', *(array.tobytes() for array in arrays.values())))


def unpack(data: bytes) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """
    Parse the bytes of :func:`pack`.

    :returns: the JSON values, and the arrays, which own their memory.
    :raises ValueError: if the bytes are not packed arrays.
    """
    line, _, rest = data.partition(b'\n')
    try:
        header = json.loads(line)
        forms = header.pop('arrays').items()
        arrays, at = {}, 0
        for name, (kind, shape) in forms:
            dtype = np.dtype(kind)
            if dtype.hasobject:
                raise ValueError(f'{name} is an array of objects')
            arrays[name] = np.ndarray(shape, dtype, rest, at).copy()
            at += math.prod(shape) * dtype.itemsize
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f'no packed arrays: {error}') from error
    if at != len(rest):
        raise ValueError(f'{len(rest)} bytes of arrays where {at} are described')
    return header, arrays


_KIND = b'fdrl_ros checkpoint '
_FORM = _KIND + b'2\n'
_DIGEST = 32
_ARRAYS = ('weights', 'target', 'moments', 'priorities')


@dataclass(frozen=True)
class Checkpoint:
    """
    State of a round of local training after some blocks.

    ``start``: digest of everything that the round started from. ``weights``: (n_parameters,),
    float64. ``target``: the same, float32. ``moments``: of the optimizer; ``priorities``: of the
    replay. ``task``: that the records are of; None in older files. ``averaged``: steps whose
    trained weights ``total`` is the sum of, (trained weights,), float64; none if 0. ``erased``:
    links of the noise key that were erased by then.
    """

    round: int
    start: bytes
    blocks: int
    steps: int
    weights: np.ndarray
    target: np.ndarray
    moments: np.ndarray
    priorities: np.ndarray
    task: TaskIdentity | None = None
    averaged: int = 0
    total: NDArray[np.float64] | None = None
    erased: int = 0

    def result(self, trained: slice | NDArray[np.int64]) -> NDArray[np.float32]:
        """
        Return the weights that the round ends with: the mean over the averaged steps, if any.

        :param trained: which weights are.
        """
        weights = self.weights
        if self.total is not None:
            weights = weights.copy()
            weights[trained] = self.total / self.averaged
        return weights.astype(np.float32)

    def digest(self) -> bytes:
        """
        Return the SHA-256 of what the next block starts from.

        Averages are made of released weights and go into no block.
        """
        sha = hashlib.sha256(f'{self.round} {self.blocks} {self.steps}'.encode() + self.start)
        for name in _ARRAYS:
            sha.update(getattr(self, name).tobytes())
        return sha.digest()

    def to_bytes(self, ledger: Ledger) -> bytes:
        """Serialise format, state, the ledger's head, and a SHA-256 over all of it."""
        header = {
            'round': self.round,
            'start': self.start.hex(),
            'blocks': self.blocks,
            'steps': self.steps,
            'ledger': [ledger.owner.digest.hex(), str(ledger.chain.head)],
            'task': None if self.task is None else self.task.to_json(),
        }
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        if self.total is not None:
            header['averaged'], arrays['total'] = self.averaged, self.total
        if self.erased:
            header['erased'] = self.erased
        data = _FORM + pack(header, arrays)
        return data + hashlib.sha256(data).digest()

    def save(self, path: Path, ledger: Ledger) -> None:
        """Write atomically and durably, readable by the owner alone."""
        with replacing(path) as file:
            file.write(self.to_bytes(ledger))

    @classmethod
    def read(cls, path: Path, ledger: Ledger) -> Self | None:
        """
        Return the state in a file, or None if there is none.

        A damaged file counts as missing, since training can be repeated: the ledger recognises
        each repeated block by its inputs, so nothing is charged twice.

        :param ledger: the ledger that the state was charged to.
        :raises CheckpointError: if it is of another version, or was charged to another ledger.
        :raises LedgerCorruptError: if the ledger is older than the state.
        """
        found = _read_verified(path, ledger.owner)
        if found is None:
            return None
        values, head = found
        ledger.verify(head, f'the checkpoint {path}')
        task = values.pop('task', None)
        known = None if task is None else TaskIdentity.from_json(task)
        return cls(**values | {'start': bytes.fromhex(values['start']), 'task': known})


def recorded_ledger_head(path: Path, owner: Owner | None = None) -> Head | None:
    """
    Return the ledger's head recorded in a checkpoint, or None if there is none.

    :param owner: the ledger's required owner, if any.
    :raises CheckpointError: if the state is of another version, or was charged to another ledger.
    """
    found = _read_verified(path, owner)
    return None if found is None else found[1]


def _read_verified(path: Path, owner: Owner | None) -> tuple[dict[str, Any], Head] | None:
    """Return the state and the ledger's head in a file, None if it is missing or damaged."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CheckpointError(f'checkpoint {path} cannot be read: {error.strerror}') from error
    body, digest = data[:-_DIGEST], data[-_DIGEST:]
    if not body.startswith(_KIND) or hashlib.sha256(body).digest() != digest:
        return None
    if not body.startswith(_FORM):
        raise CheckpointError(
            f'checkpoint {path} was made by another version of this program: go on with that one, '
            'or move it away, and the round is trained again at no cost'
        )
    header, arrays = unpack(body[len(_FORM) :])
    charged, head = header.pop('ledger')
    if owner is not None and charged != owner.digest.hex():
        raise CheckpointError(
            f'checkpoint {path} was charged to another ledger, which may be of another hospital, '
            'unit, delta, budget or model: move it away, to where it belongs'
        )
    return header | arrays, Head.parse(head)
