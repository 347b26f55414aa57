# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The ledger's file: SQLite tables, the lock that makes one writer, durability.

It keeps a rollback journal, not a write-ahead log: after a commit everything is in the one file
that a backup copies. With synchronous = EXTRA the file, and then the end of the journal, is synced
before a commit returns, so that a power cut cannot roll a reservation back.
"""

from contextlib import suppress
from dataclasses import replace
import fcntl
import glob
import os
from pathlib import Path
import sqlite3
import stat
import tempfile
import time
from typing import NamedTuple

from fdrl_ros.errors import (
    LedgerCorruptError,
    LedgerError,
    LedgerLockedError,
    LedgerOwnerError,
)
from fdrl_ros.privacy.ledger.chain import Chain
from fdrl_ros.privacy.ledger.entry import BIRTH, Entry, Owner
from fdrl_ros.privacy.ledger.tables import (
    check_form,
    Damage,
    image,
    read_chain,
    read_owner,
    settle,
    translated,
    write_entry,
)
from fdrl_ros.runtime.durable import sync_folder

_DRAFT = '.draft-'
_TRIES, _PAUSE = 3, 0.01  # to get the lock; second


class Mark(NamedTuple):
    """Which file lies at a path, and when it was last written."""

    device: int
    inode: int
    size: int
    written_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> 'Mark':
        """Take it from what the system says of a file."""
        return cls(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


class LedgerFile:
    """
    A ledger file, locked for this process until it is closed.

    The lock is of the file itself (flock), so it ends with the process. SQLite's own lock is
    taken too: it keeps other programs out, but any close of the file by this process drops it.
    """

    def __init__(self, path: Path, owner: Owner) -> None:
        """
        Open and lock a file, beginning it if there is none.

        :raises LedgerError: see :meth:`fdrl_ros.privacy.ledger.ledger.Ledger.open`.
        """
        self.path = path
        if not os.path.lexists(path):
            _create(path, owner)
        _check_file(path)
        self._lock = _hold(path)
        self._connection: sqlite3.Connection | None = None
        try:
            self._connection = _open_exclusively(path)
            check_form(self._connection, path)
            found = read_owner(self._connection, path)
            if difference := found.unlike(owner):
                raise LedgerOwnerError(f'ledger {path} {difference}')
            self.chain = read_chain(self._connection, path, found)
            _sweep(path)
            self._mark = Mark.of(os.fstat(self._lock))
        except BaseException as error:
            self.close()
            if isinstance(error, Damage):
                raise translated(error, path) from error
            raise

    @property
    def open(self) -> bool:
        """Whether it is open and locked."""
        return self._connection is not None

    def check_in_place(self) -> None:
        """
        Refuse to go on if the file is not as this process left it.

        :raises LedgerCorruptError: if it was moved, replaced or written by somebody else.
        """
        try:
            found = Mark.of(os.lstat(self.path))
        except OSError:
            found = None
        if found != self._mark:
            raise LedgerCorruptError(
                f'ledger {self.path} was moved, replaced or changed while it was open: put it '
                'back and start again'
            )

    def append(self, entry: Entry) -> None:
        """
        Write one entry; it is on the disk when this returns.

        :raises sqlite3.Error: if it is not known to be there.
        """
        assert self._connection is not None
        connection = self._connection
        try:
            connection.execute('BEGIN IMMEDIATE')
            write_entry(connection, entry)
            connection.execute('COMMIT')
        except sqlite3.Error:
            if connection.in_transaction:
                connection.execute('ROLLBACK')
            raise
        self._mark = Mark.of(os.fstat(self._lock))

    def close(self) -> None:
        """Release the file; closing twice does nothing."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._lock >= 0:
            _release(self._lock)
            self._lock = -1


def _create(path: Path, owner: Owner) -> None:
    """Make a whole ledger beside its place and move it there, so that no half of one is left."""
    try:
        # Mode 0600.
        descriptor, draft = tempfile.mkstemp(dir=path.parent, prefix=path.name + _DRAFT)
        try:
            with open(descriptor, 'wb') as file:
                file.write(image(Chain(replace(owner, birth=os.urandom(BIRTH)))))
                file.flush()
                os.fsync(file.fileno())
            # A link, unlike a rename, never replaces a ledger that came meanwhile; whoever has
            # that one open may have swept this draft away.
            with suppress(FileExistsError, FileNotFoundError):
                os.link(draft, path)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(draft)
        sync_folder(path.parent)
    except (OSError, sqlite3.Error) as error:
        raise LedgerError(f'ledger {path} cannot be made: {error}') from error


def _check_file(path: Path) -> None:
    try:
        status = os.lstat(path)
    except OSError as error:
        raise LedgerError(f'ledger {path} cannot be opened: {error.strerror}') from error
    if not stat.S_ISREG(status.st_mode):
        raise LedgerCorruptError(f'ledger {path} is not a plain file')
    if status.st_uid != os.geteuid():
        raise LedgerError(f'ledger {path} belongs to user {status.st_uid}, not to this one')
    if stat.S_IMODE(status.st_mode) & 0o077:
        mode = stat.S_IMODE(status.st_mode)
        raise LedgerError(f'ledger {path} has mode {mode:04o} and is open to others: chmod 600 it')
    if status.st_size == 0:
        # SQLite would take it for a new database, with nothing spent.
        raise LedgerCorruptError(f'ledger {path} is empty: it was cut')


def _sweep(path: Path) -> None:
    """Remove drafts that a killed beginning left: this ledger is there, so none is of use."""
    for each in path.parent.glob(f'{glob.escape(path.name)}{_DRAFT}*'):
        with suppress(FileNotFoundError):
            each.unlink()


def _hold(path: Path) -> int:
    """Lock the file for this process and return the descriptor that holds the lock."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError as error:
        raise LedgerError(f'ledger {path} cannot be opened: {error.strerror}') from error
    for tries_left in reversed(range(_TRIES)):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError as error:
            if not tries_left:
                os.close(descriptor)
                raise LedgerLockedError(
                    f'ledger {path} is already open, here or in another process'
                ) from error
            time.sleep(_PAUSE)  # whoever looks whether it is in use holds it for microseconds
        except OSError as error:
            os.close(descriptor)
            raise LedgerError(f'ledger {path} cannot be locked: {error.strerror}') from error
    _held.add(descriptor)
    return descriptor


def _release(descriptor: int) -> None:
    _held.discard(descriptor)
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)


def _let_go() -> None:
    """In a forked child: the lock is the parent's, and must not outlive it."""
    while _held:
        os.close(_held.pop())


_held: set[int] = set()
os.register_at_fork(after_in_child=_let_go)


def _open_exclusively(path: Path) -> sqlite3.Connection:
    """Open the file and take SQLite's exclusive lock, which the process keeps until it closes."""
    connection = sqlite3.connect(path, timeout=0.1, isolation_level=None, check_same_thread=False)
    try:
        connection.execute('PRAGMA locking_mode = EXCLUSIVE')
        connection.execute('PRAGMA synchronous = EXTRA')
        settle(connection)
        connection.execute('BEGIN EXCLUSIVE')
        connection.execute('COMMIT')
        mode = connection.execute('PRAGMA journal_mode = DELETE').fetchone()[0]
        if mode != 'delete':
            raise LedgerCorruptError(f'ledger {path} keeps a journal of mode {mode!r}')
    except BaseException:
        connection.close()
        raise
    return connection
