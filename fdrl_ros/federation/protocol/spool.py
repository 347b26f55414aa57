# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Bytes that are too many for memory: appended to a file beside a party's state, read by place."""

import os
from pathlib import Path
import tempfile
from typing import Any

from fdrl_ros.errors import StoreError
from fdrl_ros.runtime.durable import sync_folder

WRITTEN = 2**20
"""Bytes after which the disk is told to begin."""

Place = tuple[int, int]
"""First byte, and how many."""


class Spool:
    """
    A file that grows, until it is erased with all that is in it.

    Threads may read while one appends, and when it was closed are told so by a StoreError.
    """

    def __init__(self, path: Path | None, *, fresh: bool) -> None:
        """
        Open the file, readable by the owner alone.

        :param path: without one it has no name, for simulation.
        :param fresh: whether to begin with nothing; otherwise it must be there.
        :raises StoreError: if it cannot be used.
        """
        self.path = path
        self.end = 0
        self._begun = 0
        self._file: Any = None
        try:
            if path is None:
                self._file = tempfile.TemporaryFile(buffering=0)
                return
            flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC if fresh else os.O_RDWR
            self._file = open(os.open(path, flags, 0o600), 'r+b', buffering=0)  # noqa: SIM115
            self.end = os.fstat(self._file.fileno()).st_size
        except OSError as error:
            raise StoreError(f'cannot use {path}: {error}') from error

    def append(self, data: bytes) -> Place:
        """
        Write bytes at the end.

        :returns: where they are.
        :raises StoreError: if there is no room for them.
        """
        place = self.end, len(data)
        try:
            if os.pwrite(self._file.fileno(), data, self.end) != len(data):
                raise StoreError(f'no room for {len(data)} bytes in {self.path}')
        except (OSError, ValueError) as error:
            raise StoreError(f'cannot write {self.path}: {error}') from error
        self.end += len(data)
        if self.end - self._begun >= WRITTEN:
            # The disk begins now, so that sync has little left to wait for.
            number, size = self._file.fileno(), self.end - self._begun
            os.posix_fadvise(number, self._begun, size, os.POSIX_FADV_DONTNEED)
            self._begun = self.end
        return place

    def read(self, place: Place) -> bytes:
        """
        Return the bytes of a place.

        :raises StoreError: if they are not there.
        """
        start, count = place
        try:
            data = os.pread(self._file.fileno(), count, start)
        except (OSError, ValueError) as error:
            raise StoreError(f'cannot read {self.path}: {error}') from error
        if len(data) != count:
            raise StoreError(f'{self.path} is damaged: it ends early')
        return data

    def sync(self) -> None:
        """
        Make durable what was appended.

        :raises StoreError: if the disk does not take it.
        """
        if self.path is None:
            return
        try:
            os.fsync(self._file.fileno())
            sync_folder(self.path.parent)
        except OSError as error:
            raise StoreError(f'cannot write {self.path}: {error}') from error

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def erase(self) -> None:
        """Remove the file."""
        self.close()
        if self.path is not None:
            self.path.unlink(missing_ok=True)
