# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Change files of a key directory together or not at all, even if the process is killed.

A transaction stages new files in a folder, with a list of their targets. Renaming the folder
commits it. After a crash, the next process to open the directory finishes a committed transaction.
A lock on the directory keeps others from reading keys and roster in between.
"""

from collections.abc import Iterator
from contextlib import contextmanager
import fcntl
import json
import os
from pathlib import Path
import shutil
from typing import Final

from fdrl_ros.errors import KeyFileError, os_errors_as
from fdrl_ros.runtime.durable import sync_folder, write_secret

_STAGED: Final = '.staged'
_COMMITTED: Final = '.decided'
_LIST: Final = 'list.json'


class Transaction:
    """
    The staged changes of one transaction; see :func:`transaction`.

    Names are relative to the directory, as ``hospital_1/identity.key``.
    """

    def __init__(self, directory: Path) -> None:
        """Discard a transaction that was never committed, and begin an empty one."""
        self._directory = directory
        self._folder = directory / _STAGED
        self._written: list[str] = []
        self._removed: list[str] = []
        self.discard()
        self._folder.mkdir(mode=0o700)

    def write(self, name: str, data: bytes) -> None:
        """Stage a file of mode 0600, which replaces the present one."""
        write_secret(self._folder / str(len(self._written)), data)
        self._written.append(name)

    def remove(self, name: str) -> None:
        """Stage the erasure of a file, if it exists, and of its folders that are then empty."""
        self._removed.append(name)

    def commit(self) -> None:
        """Make the changes durable: they take effect now or after a restart."""
        text = json.dumps({'written': self._written, 'removed': self._removed})
        write_secret(self._folder / _LIST, text.encode())
        sync_folder(self._folder)
        self._folder.rename(self._directory / _COMMITTED)
        sync_folder(self._directory)
        _finish(self._directory)

    def discard(self) -> None:
        """Drop all staged changes."""
        if self._folder.exists():
            shutil.rmtree(self._folder)


@contextmanager
def transaction(directory: Path) -> Iterator[Transaction]:
    """
    Hold the exclusive lock of a key directory and commit its changes at the end of the block.

    An error inside the block leaves all files as they were.

    :raises KeyFileError: if the directory is not there or a file cannot be written.
    """
    with _locked(directory, fcntl.LOCK_EX):
        with os_errors_as(KeyFileError, f'the keys in {directory} cannot be changed'):
            _finish(directory)
            changes = Transaction(directory)
            try:
                yield changes
            except BaseException:
                changes.discard()
                raise
            changes.commit()


@contextmanager
def reading(directory: Path) -> Iterator[None]:
    """
    Hold the shared lock of a key directory while reading its files.

    A transaction that was committed and then interrupted is finished first.

    :raises KeyFileError: if the directory is missing, or such a transaction cannot be finished.
    """
    while True:
        with _locked(directory, fcntl.LOCK_SH):
            if not (directory / _COMMITTED).exists():
                yield
                return
        with _locked(directory, fcntl.LOCK_EX):
            with os_errors_as(KeyFileError, f'a change of the keys in {directory} fails'):
                _finish(directory)


@contextmanager
def _locked(directory: Path, how: int) -> Iterator[None]:
    """Hold a lock on a directory; it ends with the process."""
    with os_errors_as(KeyFileError, f'cannot read the keys in {directory}'):
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with os_errors_as(KeyFileError, f'{directory} cannot be locked'):
            fcntl.flock(descriptor, how)
        yield
    finally:
        os.close(descriptor)


def _finish(directory: Path) -> None:
    """Finish a committed transaction; doing so twice has no further effect."""
    folder = directory / _COMMITTED
    if not folder.exists():
        return
    if (folder / _LIST).exists():
        found = json.loads((folder / _LIST).read_bytes())
        for number, name in enumerate(found['written']):
            new, target = folder / str(number), directory / name
            if new.exists():
                _erase(target)
                for parent in reversed(target.relative_to(directory).parents):
                    (directory / parent).mkdir(mode=0o700, exist_ok=True)
                new.rename(target)
                sync_folder(target.parent)
        for name in found['removed']:
            target = directory / name
            _erase(target)
            for parent in target.relative_to(directory).parents[:-1]:
                left = directory / parent
                if left.exists() and not any(left.iterdir()):
                    left.rmdir()
        sync_folder(directory)
        for former in folder.glob('*.before'):  # an older version moved former keys here
            _erase(former)
        (folder / _LIST).unlink()
    shutil.rmtree(folder)
    sync_folder(directory)


def _erase(path: Path) -> None:
    """Overwrite a file that may hold a key, and remove it; some disks overwrite elsewhere."""
    if path.exists():
        with path.open('r+b') as file:
            file.write(bytes(path.stat().st_size))
            file.flush()
            os.fsync(file.fileno())
        path.unlink()
        sync_folder(path.parent)
