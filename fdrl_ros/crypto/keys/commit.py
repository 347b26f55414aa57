# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Files of a key directory that change together or not at all, whenever the process is killed.

New files are written aside with a list of what goes where; renaming their folder is the moment
at which the change is decided. What is left to do then is done again by whoever looks next, and
a lock on the directory lets nobody read keys and roster in between.
"""

from collections.abc import Iterator
from contextlib import contextmanager
import fcntl
import json
import os
from pathlib import Path
import shutil
from typing import Final

from fdrl_ros.errors import KeyFileError
from fdrl_ros.runtime.durable import sync_folder

_STAGED: Final = '.staged'
_DECIDED: Final = '.decided'
_LIST: Final = 'list.json'
_BEFORE: Final = '.before'


class Changes:
    """
    What is to change below a key directory; see :func:`changing`.

    Names are relative to the directory, as ``hospital_1/identity.key``.
    """

    def __init__(self, directory: Path) -> None:
        """Begin with no change; one that was never decided is forgotten."""
        self._directory = directory
        self._folder = directory / _STAGED
        self._written: list[str] = []
        self._removed: list[str] = []
        self.forget()
        self._folder.mkdir(mode=0o700)

    def write(self, name: str, data: bytes) -> None:
        """Write a file for its owner alone, in place of the one that is there."""
        self._put(str(len(self._written)), data)
        self._written.append(name)

    def remove(self, name: str) -> None:
        """Erase a file, if it is there, and its folder, if nothing else is in it."""
        self._removed.append(name)

    def decide(self) -> None:
        """Make the change happen, now or after a restart."""
        text = json.dumps({'written': self._written, 'removed': self._removed})
        self._put(_LIST, text.encode())
        sync_folder(self._folder)
        self._folder.rename(self._directory / _DECIDED)
        sync_folder(self._directory)
        _finish(self._directory)

    def forget(self) -> None:
        """Leave everything as it was."""
        if self._folder.exists():
            shutil.rmtree(self._folder)

    def _put(self, name: str, data: bytes) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(self._folder / name, flags, 0o600), 'wb') as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())


@contextmanager
def changing(directory: Path) -> Iterator[Changes]:
    """
    Change files of a key directory together, while nobody else reads or changes them.

    The change is decided at the end of the block; an error in it leaves everything as it was.

    :raises KeyFileError: if the directory is not there or a file cannot be written.
    """
    with _locked(directory, fcntl.LOCK_EX):
        try:
            _finish(directory)
            changes = Changes(directory)
            try:
                yield changes
            except BaseException:
                changes.forget()
                raise
            changes.decide()
        except OSError as error:
            raise KeyFileError(f'the keys in {directory} cannot be changed: {error}') from error


@contextmanager
def reading(directory: Path) -> Iterator[None]:
    """
    Read files of a key directory while nobody changes them.

    A change that was decided and then interrupted is finished first.

    :raises KeyFileError: if the directory is not there, or such a change cannot be finished.
    """
    while True:
        with _locked(directory, fcntl.LOCK_SH):
            if not (directory / _DECIDED).exists():
                yield
                return
        with _locked(directory, fcntl.LOCK_EX):
            try:
                _finish(directory)
            except OSError as error:
                raise KeyFileError(
                    f'a change of the keys in {directory} cannot be finished: {error}'
                ) from error


@contextmanager
def _locked(directory: Path, how: int) -> Iterator[None]:
    """Hold a lock on a directory, which ends with the process."""
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise KeyFileError(f'key directory {directory}: {error.strerror}') from error
    try:
        try:
            fcntl.flock(descriptor, how)
        except OSError as error:
            raise KeyFileError(f'{directory} cannot be locked: {error.strerror}') from error
        yield
    finally:
        os.close(descriptor)


def _finish(directory: Path) -> None:
    """Do what is left of a change that was decided; to do it twice is to do it once."""
    folder = directory / _DECIDED
    if not folder.exists():
        return
    if (folder / _LIST).exists():
        found = json.loads((folder / _LIST).read_bytes())
        for number, name in enumerate(found['written']):
            new, target = folder / str(number), directory / name
            if new.exists():
                if target.exists():
                    target.rename(folder / f'{number}{_BEFORE}')
                target.parent.mkdir(mode=0o700, exist_ok=True)
                new.rename(target)
                sync_folder(target.parent)
        for number, name in enumerate(found['removed']):
            target = directory / name
            if target.exists():
                target.rename(folder / f'removed_{number}{_BEFORE}')
                sync_folder(target.parent)
            if target.parent.exists() and not any(target.parent.iterdir()):
                target.parent.rmdir()
        sync_folder(directory)
        for each in folder.glob(f'*{_BEFORE}'):
            _erase(each)
        (folder / _LIST).unlink()
    shutil.rmtree(folder)
    sync_folder(directory)


def _erase(path: Path) -> None:
    """Write over a file that held a key, which some disks do elsewhere, and remove it."""
    with path.open('r+b') as file:
        file.write(bytes(path.stat().st_size))
        file.flush()
        os.fsync(file.fileno())
    path.unlink()
