# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Reads an SQLite file that another process may be writing, without a lock and without a trace."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
import fcntl
import os
from pathlib import Path
import sqlite3
import tempfile

from fdrl_ros.errors import LedgerCorruptError, LedgerError, LedgerLockedError

_TRIES = 1000
_JOURNAL = '-journal'
_LOG = '-wal'


@contextmanager
def opened_copy(path: Path) -> Iterator[tuple[sqlite3.Connection, Path]]:
    """
    Open a private copy of a database; yield the connection and where the copy lies.

    A journal of an interrupted or running commit is copied too, so that SQLite rolls that commit
    back in the copy, as it would in the original; and a write-ahead log, which has the newest
    commits of files that are written so.

    :raises LedgerError: if the file cannot be read.
    """
    main, *beside = _all(path)
    with tempfile.TemporaryDirectory(prefix='fdrl_') as folder:
        copy = Path(folder) / 'copy'
        copy.write_bytes(main)
        for suffix, content in zip((_JOURNAL, _LOG), beside, strict=True):
            if content:
                copy.with_name(copy.name + suffix).write_bytes(content)
        with closing(sqlite3.connect(copy, isolation_level=None)) as connection:
            yield connection, copy


def journal_is_hot(path: Path) -> bool:
    """Tell whether a commit was cut short, or is under way; the next opening undoes it."""
    return _content(path.with_name(path.name + _JOURNAL))[:1] not in (b'', b'\0')


def in_use(path: Path) -> bool:
    """Tell whether a process holds the lock of :class:`LedgerFile`."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _all(path: Path) -> tuple[bytes, bytes, bytes]:
    """
    Read a file, its journal and its write-ahead log as they were at one moment.

    While the file is being written its journal is there, or all that is written is in the log.
    So if they look the same twice, no write fell between, or it is undone or done again.
    """
    if not path.is_file():
        raise LedgerError(f'ledger {path} is missing or not a plain file')
    before: tuple[bytes, bytes, bytes] | None = None
    for _ in range(_TRIES):
        journal, log = (_content(path.with_name(path.name + each)) for each in (_JOURNAL, _LOG))
        now = _content(path), journal, log
        if now == before:
            if not now[0]:
                raise LedgerCorruptError(f'ledger {path} is empty: it was cut')
            return now
        before = now
    raise LedgerLockedError(f'ledger {path} is being written all the time')


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b''
    except OSError as error:
        raise LedgerError(f'ledger {path} cannot be read: {error.strerror}') from error
