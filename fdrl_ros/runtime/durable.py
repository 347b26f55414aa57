# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Files that are whole or not there, also after a power cut; folders that one process writes.

Private files belong to this process's user, and nobody else may read them.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, ExitStack, suppress
import fcntl
import glob
import os
from pathlib import Path
import stat
import sys
import tempfile
from typing import BinaryIO

from fdrl_ros.errors import FdrlError, KeyFileError, os_errors_as, StoreBusyError, StoreError

LOCK = 'lock'
"""File in a folder that the process holds which writes there."""

_SHOWN = 200  # letters of a command line


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """
    Write a file beside its place and move it there, readable by the owner alone.

    It is on the disk under its name at the end of the block; an error leaves what was there.

    :raises OSError: if it cannot be written.
    """
    part = path.with_name(path.name + '.part')
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), 'wb') as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
    sync_folder(path.parent)


def write_whole(path: Path, data: bytes) -> None:
    """
    Write a file with :func:`replacing`.

    :raises StoreError: if it cannot be written.
    """
    with os_errors_as(StoreError, f'cannot write {path}'):
        with replacing(path) as file:
            file.write(data)


def sync_folder(folder: Path) -> None:
    """Make the names of new files survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def exclusive(folder: Path) -> ExitStack:
    """
    Keep other processes from writing into a folder until what is returned is closed.

    The lock ends with the process, whose number and command the file has for others.

    :raises StoreBusyError: if another one writes there, naming it.
    :raises StoreError: if the folder cannot be used.
    """
    path = folder / LOCK
    held = ExitStack()
    try:
        file = held.enter_context(path.open('a+b'))
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with suppress(OSError):  # a full disk is no reason not to lock
            file.truncate(0)
            file.write(f'{os.getpid()} ({" ".join(sys.argv)[:_SHOWN]})'.encode(errors='replace'))
            file.flush()
    except OSError as error:
        held.close()
        if isinstance(error, BlockingIOError):
            holder = path.read_text('utf-8', errors='replace').strip()
            raise StoreBusyError(
                f'{folder} is used by process {holder or "another"}: wait for its end'
            ) from error
        raise StoreError(f'{path} cannot be used: {error.strerror}') from error
    return held


def is_held(folder: Path) -> bool:
    """
    Return whether a process holds a folder by :func:`exclusive`, without an attempt to take it.

    By the number in the lock's file: a process of another container counts as none.
    """
    try:
        number = int((folder / LOCK).read_text('utf-8', errors='replace').partition(' ')[0])
        if number > 0:
            os.kill(number, 0)
        return number > 0
    except PermissionError:
        return True  # of another user
    except (OSError, ValueError, OverflowError):
        return False


DRAFT = '.draft-'
"""Follows the name of a private file in the names of its drafts."""

_SECRET_BYTES = 2**24


def make_private_directory(path: Path) -> None:
    """
    Create a directory that only its owner may enter, or check an existing one.

    Directories above it that are missing are created in the same way.

    :raises KeyFileError: if it cannot be created, or others may enter it.
    """
    with os_errors_as(KeyFileError, f'cannot make the private directory {path}'):
        for each in (*reversed(path.parents), path):
            each.mkdir(mode=0o700, exist_ok=True)
        status = path.stat()
    _refuse_others(path, status, KeyFileError)


def write_secret(path: Path, data: bytes) -> None:
    """
    Write secret bytes to a new file of mode 0600, durably.

    :raises KeyFileError: if the file exists already or cannot be written.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        _write_durably(os.open(path, flags, 0o600), data)
    except FileExistsError as error:
        raise KeyFileError(f'{path} exists and is not overwritten; remove it yourself') from error
    except OSError as error:
        raise KeyFileError(f'{path} cannot be written: {error.strerror}') from error


def create_once(
    path: Path, data: Callable[[], bytes], error: type[FdrlError] = KeyFileError
) -> None:
    """
    Write a private file durably unless it exists; of several writers, one succeeds.

    :param data: makes the content; called only if the file does not exist.
    :raises FdrlError: an `error`, if the file cannot be written.
    """
    with os_errors_as(error, f'{path} cannot be written'):
        if not os.path.lexists(path):
            content = data()
            # Mode 0600.
            descriptor, draft = tempfile.mkstemp(dir=path.parent, prefix=path.name + DRAFT)
            try:
                _write_durably(descriptor, content)
                # A link, unlike a rename, never replaces a file created meanwhile. The process
                # that uses that one may have removed this draft.
                with suppress(FileExistsError, FileNotFoundError):
                    os.link(draft, path)
            finally:
                Path(draft).unlink(missing_ok=True)
        for draft_of_killed_writer in path.parent.glob(f'{glob.escape(path.name)}{DRAFT}*'):
            draft_of_killed_writer.unlink(missing_ok=True)
        # Also for a file whose writer was killed before its name was durable.
        sync_folder(path.parent)


def open_private(path: Path, error: type[FdrlError] = KeyFileError) -> BinaryIO:
    """
    Open a file that only its owner may read.

    :raises FdrlError: an `error`, if it is missing, no plain file, of another owner, or readable
        by others.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with os_errors_as(error, f'{path} cannot be read'):
        descriptor = os.open(path, flags)
    try:
        # Checked by its descriptor, since the name may point elsewhere a moment later.
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise error(f'{path} is not a plain file')
        _refuse_others(path, status, error)
    except FdrlError:
        os.close(descriptor)
        raise
    return os.fdopen(descriptor, 'rb')


def read_secret(path: Path) -> bytes:
    """
    Read a file that only its owner may read.

    :raises KeyFileError: as :func:`open_private`, or if it is too long.
    """
    with open_private(path) as file:
        data = file.read(_SECRET_BYTES + 1)
    if len(data) > _SECRET_BYTES:
        raise KeyFileError(f'{path} is longer than {_SECRET_BYTES} bytes: not a key file')
    return data


def replace_secret(path: Path, data: bytes) -> None:
    """
    Replace what a private file holds, whole or not at all, and overwrite what it held.

    :raises KeyFileError: if it cannot be written.
    """
    with os_errors_as(KeyFileError, f'{path} cannot be replaced'):
        with open(os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC), 'wb') as before:
            with replacing(path) as file:
                file.write(data)
            _overwrite(before)


def erase_secret(path: Path) -> None:
    """
    Overwrite and remove a file, if there is one; some disks and file systems overwrite elsewhere.

    :raises KeyFileError: if the file cannot be removed.
    """
    with os_errors_as(KeyFileError, f'{path} cannot be erased'):
        flags = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            file = open(os.open(path, flags), 'wb')
        except FileNotFoundError:
            return
        with file:
            # Removed first: a half overwritten secret must never be read.
            path.unlink(missing_ok=True)
            sync_folder(path.parent)
            _overwrite(file)


def _overwrite(file: BinaryIO) -> None:
    """Overwrite all of an open file with zeros; some disks and file systems write elsewhere."""
    file.write(bytes(os.fstat(file.fileno()).st_size))
    file.flush()
    os.fsync(file.fileno())


def _write_durably(descriptor: int, data: bytes) -> None:
    """Write all of a file, and close it once it is on the disk."""
    with open(descriptor, 'wb') as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _refuse_others(path: Path, status: os.stat_result, error: type[FdrlError]) -> None:
    """Refuse a file or directory of another user, or open to others."""
    if status.st_uid != os.geteuid():
        raise error(f'{path} belongs to user {status.st_uid}, not to {os.geteuid()}')
    mode = stat.S_IMODE(status.st_mode)
    if mode & 0o077:
        raise error(f'{path} has mode {mode:04o} and is open to others; run: chmod go-rwx {path}')
