# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Files that are whole or not there, also after a power cut; folders that one process writes."""

from collections.abc import Iterator
from contextlib import contextmanager, ExitStack
import fcntl
import os
from pathlib import Path
from typing import BinaryIO

from fdrl_ros.errors import StoreBusyError, StoreError

LOCK = 'lock'
"""File in a folder that the process holds which writes there."""


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

    The lock ends with the process.

    :raises StoreBusyError: if another one writes there.
    :raises StoreError: if the folder cannot be used.
    """
    path = folder / LOCK
    held = ExitStack()
    try:
        file = held.enter_context(path.open('ab'))
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        held.close()
        if isinstance(error, BlockingIOError):
            raise StoreBusyError(f'{folder} is used by another process') from error
        raise StoreError(f'{path} cannot be used: {error.strerror}') from error
    return held
