# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Durable files of online learning: each round's patients, and a checkpoint after each round.

The log of patients only grows, and a round's patients are durable before anything is learned from
them. Each round carries a hash over its records and the hash before it, so that the last hash
covers all. Checkpoints alternate between two files: while one is written, the other is complete.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
import hashlib
import json
import os
from pathlib import Path
import struct
from typing import NamedTuple

from fdrl_ros.errors import CheckpointError, os_errors_as, RecordsError
from fdrl_ros.learner.checkpoint import Checkpoint, pack, unpack
from fdrl_ros.learner.records.records import Records
from fdrl_ros.privacy.ledger.ledger import Ledger
from fdrl_ros.runtime.closeable import Closeable
from fdrl_ros.runtime.durable import replacing

_FORM = b'fdrl_ros turns 1\n'
_HEAD = struct.Struct('<Q8s32s')
"""Prefix of a round: its bytes, a hash over their number, and the digest of all rounds so far."""


class CollectedRound(NamedTuple):
    """The new patients of a round, and the digest of all records up to them."""

    records: Records
    digest: bytes


class PatientLog(Closeable):
    """
    The collected patients, round by round.

    A round whose write was interrupted was never durable, so nothing was learned from it: it
    counts as not collected and is overwritten. A complete round that was changed is refused, since
    nobody can collect it again.
    """

    def __init__(self, path: Path, identity: Mapping[str, object]) -> None:
        """
        Open the file and verify it, or create one.

        :param identity: JSON values that identify the training.
        :raises RecordsError: if the file belongs to another training, or cannot be used.
        """
        self._path = path
        begin = _FORM + json.dumps(identity).encode() + b'\n'
        self._digest = hashlib.sha256(begin).digest()
        with os_errors_as(RecordsError, f'cannot use the records {path}'):
            if not path.exists():
                with replacing(path) as new:
                    new.write(begin)
            self._file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            with open(self._file, 'rb', closefd=False) as file:
                content = file.read()
        if not content.startswith(begin):
            self.close()
            raise RecordsError(_mismatch(path, content, identity))
        self._end = len(begin)
        try:
            self._stored = deque(self._read(memoryview(content)))
        except RecordsError:
            self.close()
            raise
        self.count = len(self._stored)
        """Rounds collected so far."""

    def next_stored(self) -> CollectedRound | None:
        """Return the next round that was already in the file when it was opened, if any."""
        return self._stored.popleft() if self._stored else None

    def append(self, records: Records) -> CollectedRound:
        """
        Add a round durably.

        :raises RecordsError: if it cannot be written.
        """
        data = pack({}, records.arrays())
        collected = CollectedRound(records, _next_digest(self._digest, data))
        frame = (
            _HEAD.pack(len(data), _size_check(self._digest, len(data)), collected.digest) + data
        )
        with os_errors_as(RecordsError, f'cannot write {self._path}'):
            os.ftruncate(self._file, self._end)
            if os.pwrite(self._file, frame, self._end) != len(frame):
                raise RecordsError(f'cannot write the records {self._path}: the disk is full')
            os.fdatasync(self._file)
        self._digest = collected.digest
        self._end += len(frame)
        self.count += 1
        return collected

    def close(self) -> None:
        """Release the file."""
        os.close(self._file)

    def _read(self, content: memoryview) -> Iterator[CollectedRound]:
        """Yield the completely written rounds."""
        number = 0
        while len(content) >= self._end + _HEAD.size:
            number += 1
            size, check, digest = _HEAD.unpack_from(content, self._end)
            begin = self._end + _HEAD.size
            try:
                if check != _size_check(self._digest, size):
                    raise ValueError('its head was changed')
                if begin + size > len(content):
                    return
                data = bytes(content[begin : begin + size])
                if digest != _next_digest(self._digest, data):
                    raise ValueError('they are not the ones that were collected')
                records = Records.from_arrays(unpack(data)[1])
            except (RecordsError, TypeError, ValueError) as error:
                raise RecordsError(
                    f'{self._path}: the patients of round {number}, from byte {self._end} on, are '
                    f'damaged ({error}): put back a copy'
                ) from error
            self._digest, self._end = digest, begin + size
            yield CollectedRound(records, digest)


def _size_check(digest: bytes, size: int) -> bytes:
    return hashlib.sha256(digest + size.to_bytes(8, 'little')).digest()[:8]


def _next_digest(digest: bytes, data: bytes) -> bytes:
    return hashlib.sha256(digest + data).digest()


def _mismatch(path: Path, content: bytes, identity: Mapping[str, object]) -> str:
    """Describe what a file belongs to instead."""
    found: object = None
    if content.startswith(_FORM):
        with suppress(ValueError):
            found = json.loads(content[len(_FORM) :].split(b'\n', 1)[0])
    if not isinstance(found, dict):
        return f'{path} does not hold the patients of rounds, or is damaged'
    for name, expected in identity.items():
        if found.get(name) != expected:
            return f'{path} was collected for {name} = {found.get(name)!r}, not {expected!r}'
    return f'{path} was collected for other settings'


class RoundCheckpoints(Closeable):
    """
    The states after rounds, in two alternating files.

    A kill loses at most the round that was being learned or written. Syncing a state takes
    milliseconds, in which the next round is already collected; it ends before the next state is
    written. So a power cut loses one round more.
    """

    def __init__(self, directory: Path, ledger: Ledger) -> None:
        """
        Read the existing states.

        :param ledger: the ledger that the rounds are charged to.
        :raises CheckpointError: if a state is of another version, or of another ledger.
        :raises LedgerCorruptError: if the ledger is older than a state.
        """
        self._paths = [directory / f'turn_{parity}.checkpoint' for parity in (0, 1)]
        self._ledger = ledger
        read = [Checkpoint.read(path, ledger) for path in self._paths]
        self.newest = max((s for s in read if s is not None), key=lambda s: s.round, default=None)
        """The state after the latest round, or None."""
        self._files: dict[Path, int] = {}
        self._syncing: Future[None] | None = None
        self._background = ThreadPoolExecutor(1, 'checkpoint')

    def save(self, state: Checkpoint) -> None:
        """
        Write the state after a round, and start syncing it.

        :raises CheckpointError: if this state, or the one before, cannot be written.
        """
        path = self._paths[state.round % 2]
        with os_errors_as(CheckpointError, f'{path} cannot be written'):
            # The other file must be safe first: it is all that remains if this write is torn.
            self._wait()
            if path not in self._files:
                self._files[path] = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            file, data = self._files[path], state.to_bytes(self._ledger)
            if os.pwrite(file, data, 0) != len(data):
                raise CheckpointError(f'checkpoint {path} cannot be written: the disk is full')
            os.ftruncate(file, len(data))
        self._syncing = self._background.submit(os.fsync, file)

    def close(self) -> None:
        """Wait for the disk and release the files."""
        try:
            self._wait()
        finally:
            self._background.shutdown()
            for file in self._files.values():
                os.close(file)

    def _wait(self) -> None:
        if self._syncing is not None:
            syncing, self._syncing = self._syncing, None
            try:
                syncing.result()
            except OSError as error:
                raise CheckpointError(f'a checkpoint is not on the disk: {error}') from error
