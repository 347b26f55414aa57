# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of turns in two files in turn: while one is written, the other is whole."""

from concurrent.futures import Future, ThreadPoolExecutor
import os
from pathlib import Path

from fdrl_ros.errors import CheckpointError
from fdrl_ros.learner.checkpoint import Checkpoint
from fdrl_ros.privacy.ledger.ledger import Ledger
from fdrl_ros.runtime.closing import Closing


class TurnCheckpoints(Closing):
    """
    The state after each turn.

    A kill costs the turn that was being learned or written at most. To bring a state to the disk
    takes milliseconds, in which the next turn is collected already; it is there before the one
    after it is written. So a power cut costs one turn more.
    """

    def __init__(self, directory: Path, ledger: Ledger) -> None:
        """
        Read what is there.

        :param ledger: that the turns are charged to.
        :raises CheckpointError: if a state is of another version, or of another ledger.
        :raises LedgerCorruptError: if the ledger is older than a state.
        """
        self._paths = [directory / f'turn_{parity}.checkpoint' for parity in (0, 1)]
        self._ledger = ledger
        read = [Checkpoint.read(path, ledger) for path in self._paths]
        self.newest = max((s for s in read if s is not None), key=lambda s: s.round, default=None)
        """The state after the latest turn, unless there is none."""
        self._files: dict[Path, int] = {}
        self._syncing: Future[None] | None = None
        self._background = ThreadPoolExecutor(1, 'checkpoint')

    def save(self, state: Checkpoint) -> None:
        """
        Write the state after a turn, and begin to bring it to the disk.

        :raises CheckpointError: if this one, or the one before, cannot be written.
        """
        path = self._paths[state.round % 2]
        try:
            # Not before the other one is safe: it is all that is left if this one is torn.
            self._wait()
            if path not in self._files:
                self._files[path] = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            file, data = self._files[path], state.to_bytes(self._ledger)
            if os.pwrite(file, data, 0) != len(data):
                raise CheckpointError(f'checkpoint {path} cannot be written: the disk is full')
            os.ftruncate(file, len(data))
        except OSError as error:
            raise CheckpointError(f'{path} cannot be written: {error.strerror}') from error
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
