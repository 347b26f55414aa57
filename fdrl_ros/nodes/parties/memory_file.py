# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Bytes for the other processes of this host, however many: a file in memory, named by its digest.

One process writes it once and each reader copies it once; no middleware has a part in it. A
process that is killed leaves nothing locked, only a file, which the next one removes.
"""

from collections import deque
from dataclasses import dataclass
import mmap
import os
from pathlib import Path
import stat

FOLDER = Path('/dev/shm')
"""Where files lie in memory; elsewhere than on Linux there is none, and nothing is offered."""

KEPT = 2
"""Files that a process leaves for readers: the newest, and one that may still be read."""


@dataclass(frozen=True)
class _File:
    path: Path
    size: int
    memory: mmap.mmap


class MemoryFiles:
    """What this process offers."""

    def __init__(self) -> None:
        """Offer nothing yet."""
        self._folder = FOLDER / f'fdrl_ros-{os.getuid()}'
        self._files: deque[_File] = deque()

    def offer(self, data: bytes, digest: bytes) -> bool:
        """
        Let other processes of this user read bytes.

        :param digest: SHA-256 of them.
        :returns: whether they can: there may be no room, or no such folder.
        """
        path = self._folder / f'{digest.hex()}-{os.getpid()}'
        if any(each.path == path for each in self._files):
            return True
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            if not _is_own(self._folder, stat.S_IFDIR):
                return False
            self._forget_the_dead()
            self._files.append(self._written(path, data))
        except (OSError, ValueError):
            return False
        return True

    def close(self) -> None:
        """Take everything back."""
        while self._files:
            self._drop(self._files.pop())

    def _written(self, path: Path, data: bytes) -> _File:
        """Write a file; over the oldest, whose memory is there already, if that has its size."""
        part = path.with_name(f'part-{os.getpid()}')
        file = None
        if len(self._files) == KEPT:
            file = self._files.popleft()
            if file.size == len(data):
                # Who reads it now will see that it has gone.
                file.path.rename(part)
            else:
                self._drop(file)
                file = None
        memory = file.memory if file else _room(part, len(data))
        memory[:] = data
        part.rename(path)
        return _File(path, len(data), memory)

    def _forget_the_dead(self) -> None:
        """Remove what processes left that are no more."""
        for path in self._folder.iterdir():
            number = path.name.rpartition('-')[2]
            if number.isdecimal() and not Path('/proc', number).exists():
                path.unlink(missing_ok=True)

    @staticmethod
    def _drop(file: _File) -> None:
        file.path.unlink(missing_ok=True)
        file.memory.close()


def _room(path: Path, size: int) -> mmap.mmap:
    """Make a file and map it."""
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        # Room that is really there: a write into a full memory would kill this process.
        os.posix_fallocate(descriptor, 0, size)
        return mmap.mmap(descriptor, size)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)


def fetch(digest: bytes, size: int) -> bytes | None:
    """
    Read what another process of this user on this host offers.

    It is for the caller to see whether it has that digest.

    :param size: bytes that it must have.
    :returns: None if nobody offers it.
    """
    for path in (FOLDER / f'fdrl_ros-{os.getuid()}').glob(f'{digest.hex()}-*'):
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                found = os.fstat(descriptor)
                if found.st_size != size or not _is_own(path, stat.S_IFREG):
                    continue
                # Nobody shortens it, so it can be mapped: quicker than reading.
                with mmap.mmap(descriptor, size, mmap.MAP_SHARED, mmap.PROT_READ) as memory:
                    data = memory[:]
                if os.path.samestat(path.lstat(), found):
                    return data
            finally:
                os.close(descriptor)
        except OSError:
            continue
    return None


def _is_own(path: Path, kind: int) -> bool:
    """Tell whether something is of this user and kind."""
    found = path.lstat()
    return stat.S_IFMT(found.st_mode) == kind and found.st_uid == os.getuid()
