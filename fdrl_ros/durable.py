# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Files that are whole or not there, also after a power cut."""

from collections.abc import Iterator
from contextlib import contextmanager
import os
from pathlib import Path
from typing import BinaryIO


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
