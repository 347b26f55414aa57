# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The ledger's file: SQLite tables, the lock that admits one writer, durability.

The file keeps a rollback journal, not a write-ahead log: after a commit everything is in the one
file that a backup copies. With synchronous = EXTRA, SQLite syncs the file and then the end of the
journal before a commit returns, so that a power cut cannot roll a reservation back.
"""

from contextlib import closing
from dataclasses import astuple, replace
import fcntl
from functools import cache
import os
from pathlib import Path
import sqlite3
import time
from typing import BinaryIO

from fdrl_ros.errors import (
    LedgerCorruptError,
    LedgerError,
    LedgerLockedError,
    LedgerVersionError,
    PrivacyError,
)
from fdrl_ros.privacy.accountant.accountant import Charge
from fdrl_ros.privacy.ledger.chain import BIRTH, Chain, Entry, Owner
from fdrl_ros.runtime.durable import create_once, open_private

_APPLICATION = 0x4644524C  # 'FDRL'
_VERSION = 4
# Exceptions on a damaged file. SQLite's messages may quote bytes that are not text.
Damage = (sqlite3.Error, UnicodeDecodeError)
_SCHEMA = f"""
PRAGMA application_id = {_APPLICATION};
PRAGMA user_version = {_VERSION};
CREATE TABLE owner (
    hospital TEXT NOT NULL, unit TEXT NOT NULL, delta REAL NOT NULL, budget REAL NOT NULL,
    model TEXT NOT NULL, birth BLOB NOT NULL, digest BLOB NOT NULL
) STRICT;
CREATE TABLE entry (
    number INTEGER PRIMARY KEY, round INTEGER NOT NULL, block INTEGER NOT NULL,
    noise_multiplier REAL NOT NULL, sampling_probability REAL NOT NULL, steps INTEGER NOT NULL,
    group_size INTEGER NOT NULL, inputs BLOB NOT NULL, digest BLOB NOT NULL, UNIQUE (round, block)
) STRICT;
"""


def write_entry(connection: sqlite3.Connection, entry: Entry) -> None:
    """Insert one entry into a ledger's tables; the commit makes it durable."""
    numbers = entry.number, entry.round, entry.block, *entry.charge
    connection.execute(
        'INSERT INTO entry VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)',
        (*numbers, entry.inputs, entry.digest),
    )


def file_bytes(chain: Chain) -> bytes:
    """
    Return the bytes of a ledger file with these entries, in SQLite's layout.

    A file that was made this way and appended to differs only in its change counter.
    """
    owner = chain.owner
    with closing(sqlite3.connect(':memory:', isolation_level=None)) as connection:
        overwrite_removed(connection)
        connection.executescript(_SCHEMA)
        connection.execute('BEGIN')
        connection.execute(
            'INSERT INTO owner VALUES (?, ?, ?, ?, ?, ?, ?)', (*astuple(owner), owner.digest)
        )
        for entry in chain.entries:
            write_entry(connection, entry)
        connection.execute('COMMIT')
        return connection.serialize()


def overwrite_removed(connection: sqlite3.Connection) -> None:
    """Overwrite removed content in pages, in which builds of SQLite differ."""
    connection.execute('PRAGMA secure_delete = ON')


def read_owner(connection: sqlite3.Connection, path: Path) -> Owner:
    """
    Read the owner of a ledger.

    :raises LedgerCorruptError: if it was changed.
    """
    rows = connection.execute(
        'SELECT hospital, unit, delta, budget, model, birth, digest FROM owner'
    ).fetchall()
    if len(rows) != 1:
        raise LedgerCorruptError(f'ledger {path} has {len(rows)} owners: expected 1')
    *fields, digest = rows[0]
    found = Owner(*fields)
    if digest != found.digest:
        raise LedgerCorruptError(f'ledger {path}: its owner was changed')
    return found


def read_chain(connection: sqlite3.Connection, path: Path, owner: Owner) -> Chain:
    """
    Read all entries and verify the chain.

    :raises LedgerCorruptError: if an entry does not fit; the message names the first one.
    """
    expected = 1
    try:
        chain = Chain(owner)
        for row in connection.execute(
            'SELECT number, round, block, noise_multiplier, sampling_probability, steps,'
            ' group_size, inputs, digest FROM entry ORDER BY number'
        ):
            number, round, block, *charge, inputs, digest = row
            entry = Entry(number, round, block, Charge(*charge), inputs, digest)
            if not chain.fits(entry):
                raise LedgerCorruptError(
                    f'ledger {path}: entry {expected} is missing or changed; restore a backup '
                    'that is not older than the last head sent, or retire this ledger'
                )
            chain.add(entry)
            expected += 1
    except Damage as error:
        raise ledger_error(error, path, expected) from error
    except LedgerError:
        raise
    except PrivacyError as error:
        raise LedgerCorruptError(f'ledger {path} holds what was never charged: {error}') from error
    return chain


def check_form(connection: sqlite3.Connection, path: Path) -> None:
    """
    Refuse a database that is not a ledger of this version, or contains other tables.

    :raises LedgerCorruptError: if it is damaged, or not a ledger.
    :raises LedgerVersionError: if another version of this program made it.
    """
    application = connection.execute('PRAGMA application_id').fetchone()[0]
    version = connection.execute('PRAGMA user_version').fetchone()[0]
    if application != _APPLICATION:
        raise LedgerCorruptError(f'{path} is a database, but not a ledger')
    if version != _VERSION:
        raise LedgerVersionError(
            f'ledger {path} has format version {version}, and this program reads version '
            f'{_VERSION}: keep it for its history; a hospital that goes on begins a new one'
        )
    # A trigger, for example, could delete reservations.
    if _tables(connection) != _expected_tables():
        raise LedgerCorruptError(f'ledger {path} has other tables than a ledger')
    problem = connection.execute('PRAGMA integrity_check(1)').fetchone()[0]
    if problem != 'ok':
        raise LedgerCorruptError(f'ledger {path} is damaged: {problem}')


@cache
def _expected_tables() -> list[tuple[str, ...]]:
    with closing(sqlite3.connect(':memory:', isolation_level=None)) as connection:
        connection.executescript(_SCHEMA)
        return _tables(connection)


def _tables(connection: sqlite3.Connection) -> list[tuple[str, ...]]:
    query = 'SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY rowid'
    return connection.execute(query).fetchall()


def ledger_error(error: Exception, path: Path, entry: int | None = None) -> LedgerError:
    """Translate an exception of SQLite or of the file system."""
    code = getattr(error, 'sqlite_errorcode', None)
    primary = None if code is None else code & 0xFF
    locked = primary in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
    if locked or isinstance(error, BlockingIOError):
        return LedgerLockedError(f'ledger {path} is already open, here or in another process')
    if isinstance(error, OSError) or primary in (
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_FULL,
    ):
        return LedgerError(f'ledger {path} cannot be read or written: {error}')
    where = '' if entry is None else f': entry {entry} cannot be read'
    return LedgerCorruptError(f'{path} is damaged or not a ledger{where} ({error})')


PATIENCE = 0.02
"""Seconds to wait for the lock of a ledger: an inspector holds it for microseconds."""

_PAUSE = 0.01  # second between two tries


def note_path(path: Path) -> Path:
    """Return the file beside a ledger that says which shared account it charges."""
    return path.with_name(path.name + '.account')


def file_identity(status: os.stat_result) -> tuple[int, int, int, int]:
    """Return the identity of a file, and when it was last written."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def create(path: Path, owner: Owner) -> None:
    """Write the empty ledger of a new birth, unless there is a ledger; refuse what is none."""
    if not path.parent.is_dir():  # nobody makes that of a shared account
        raise LedgerError(f'ledger {path}: make its folder first, of mode 0700 on a local disk')
    create_once(
        path, lambda: file_bytes(Chain(replace(owner, birth=os.urandom(BIRTH)))), error=LedgerError
    )
    if path.is_symlink() or not path.is_file():
        raise LedgerCorruptError(f'ledger {path} is not a plain file')
    if path.stat().st_size == 0:
        # SQLite would take it for a new database, with nothing spent.
        raise LedgerCorruptError(f'ledger {path} is empty: it was cut')


def lock_file(path: Path, patience: float) -> BinaryIO:
    """
    Open and lock the file for this process, until what is returned is released.

    :param patience: seconds to wait for another process.

    The lock is on the file itself (flock), so it ends with the process. SQLite's own lock is held
    too: it excludes other programs, but any close of the file by this process releases it.
    """
    file = open_private(path, LedgerError)
    deadline = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except OSError as error:
            if isinstance(error, BlockingIOError) and time.monotonic() < deadline:
                time.sleep(_PAUSE)
                continue
            file.close()
            raise ledger_error(error, path) from error
    _held.add(file)
    return file


def unlock_file(file: BinaryIO) -> None:
    """Let go of a file; may be called again."""
    if not file.closed:
        _held.discard(file)
        fcntl.flock(file, fcntl.LOCK_UN)
        file.close()


def _close_inherited() -> None:
    """Close inherited locks in a forked child; they belong to the parent."""
    while _held:
        _held.pop().close()


_held: set[BinaryIO] = set()
os.register_at_fork(after_in_child=_close_inherited)


def open_exclusively(path: Path) -> sqlite3.Connection:
    """Open the file and take SQLite's exclusive lock until it is closed."""
    connection = sqlite3.connect(path, timeout=0.1, isolation_level=None, check_same_thread=False)
    try:
        connection.execute('PRAGMA locking_mode = EXCLUSIVE')
        connection.execute('PRAGMA synchronous = EXTRA')
        overwrite_removed(connection)
        connection.execute('BEGIN EXCLUSIVE')
        connection.execute('COMMIT')
        mode = connection.execute('PRAGMA journal_mode = DELETE').fetchone()[0]
        if mode != 'delete':
            raise LedgerCorruptError(f'ledger {path} keeps a journal of mode {mode!r}')
    except BaseException:
        connection.close()
        raise
    return connection
