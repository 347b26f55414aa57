# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The ledger's file: SQLite tables, the lock that makes one writer, durability.

It keeps a rollback journal, not a write-ahead log: after a commit everything is in the one file
that a backup copies. With synchronous = EXTRA the file, and then the end of the journal, is synced
before a commit returns, so that a power cut cannot roll a reservation back.
"""

import os
from pathlib import Path
import sqlite3
import stat
import tempfile

from fdrl_ros.errors import (
    LedgerCorruptError,
    LedgerError,
    LedgerLockedError,
    LedgerOwnerError,
)
from fdrl_ros.privacy.accountant import Charge
from fdrl_ros.privacy.ledger_entry import Entry, Owner

_APPLICATION = 0x4644524C  # 'FDRL'
_VERSION = 2
# What a damaged file makes SQLite's module raise: its messages may quote bytes that are no text.
_Damage = (sqlite3.Error, UnicodeDecodeError)
_SCHEMA = f"""
PRAGMA application_id = {_APPLICATION};
PRAGMA user_version = {_VERSION};
CREATE TABLE owner (
    hospital TEXT NOT NULL, unit TEXT NOT NULL, delta REAL NOT NULL, budget REAL NOT NULL,
    digest BLOB NOT NULL
) STRICT;
CREATE TABLE entry (
    number INTEGER PRIMARY KEY, round INTEGER NOT NULL, block INTEGER NOT NULL,
    noise_multiplier REAL NOT NULL, sampling_probability REAL NOT NULL, steps INTEGER NOT NULL,
    group_size INTEGER NOT NULL, inputs BLOB NOT NULL, digest BLOB NOT NULL, UNIQUE (round, block)
) STRICT;
"""


def connect(path: Path, owner: Owner) -> sqlite3.Connection:
    """
    Open a ledger file and lock it for this process, beginning it if there is none.

    :raises LedgerError: see :meth:`fdrl_ros.privacy.ledger.Ledger.open`.
    """
    if not os.path.lexists(path):
        _create(path, owner)
    _check_file(path)
    connection = None
    try:
        connection = _lock(path)
        _check_form(connection, path)
        _check_owner(connection, path, owner)
    except BaseException as error:
        if connection is not None:
            connection.close()
        if isinstance(error, _Damage):
            raise _translated(error, path) from error
        raise
    return connection


def append(connection: sqlite3.Connection, entry: Entry) -> None:
    """Write one entry; it is on the disk when this returns."""
    try:
        connection.execute('BEGIN IMMEDIATE')
        connection.execute(
            'INSERT INTO entry VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)',
            (entry.number, entry.round, entry.block, *entry.charge, entry.inputs, entry.digest),
        )
        connection.execute('COMMIT')
    except sqlite3.Error:
        if connection.in_transaction:
            connection.execute('ROLLBACK')
        raise


def read(connection: sqlite3.Connection, path: Path, owner: Owner) -> list[Entry]:
    """
    Read all entries and walk the chain.

    :raises LedgerCorruptError: naming the first entry that does not fit.
    """
    entries: list[Entry] = []
    last = owner.digest
    try:
        for row in connection.execute(
            'SELECT number, round, block, noise_multiplier, sampling_probability, steps,'
            ' group_size, inputs, digest FROM entry ORDER BY number'
        ):
            number, round, block, *charge, inputs, digest = row
            entry = Entry(number, round, block, Charge(*charge), inputs, digest)
            expected = len(entries) + 1
            if number != expected or not entry.fits(last):
                raise LedgerCorruptError(
                    f'ledger {path}: entry {expected} is missing or changed; restore a backup '
                    'that is not older than the last head sent, or retire this ledger'
                )
            entries.append(entry)
            last = digest
    except _Damage as error:
        raise _translated(error, path, len(entries) + 1) from error
    return entries


def _create(path: Path, owner: Owner) -> None:
    """Make a whole ledger beside its place and move it there, so that no half of one is left."""
    try:
        descriptor, draft = tempfile.mkstemp(dir=path.parent, prefix=path.name)  # mode 0600
        try:
            os.close(descriptor)
            connection = sqlite3.connect(draft, isolation_level=None)
            try:
                connection.execute('PRAGMA synchronous = EXTRA')
                connection.executescript(_SCHEMA)
                connection.execute(
                    'INSERT INTO owner VALUES (?, ?, ?, ?, ?)',
                    (owner.hospital, owner.unit, owner.delta, owner.budget, owner.digest),
                )
            finally:
                connection.close()
            # A link, unlike a rename, never replaces a ledger that came meanwhile.
            os.link(draft, path)
        except FileExistsError:
            pass
        finally:
            os.unlink(draft)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except (OSError, sqlite3.Error) as error:
        raise LedgerError(f'ledger {path} cannot be made: {error}') from error


def _check_file(path: Path) -> None:
    try:
        status = os.lstat(path)
    except OSError as error:
        raise LedgerError(f'ledger {path} cannot be opened: {error.strerror}') from error
    if not stat.S_ISREG(status.st_mode):
        raise LedgerCorruptError(f'ledger {path} is not a plain file')
    if stat.S_IMODE(status.st_mode) & 0o077:
        mode = stat.S_IMODE(status.st_mode)
        raise LedgerError(f'ledger {path} has mode {mode:04o} and is open to others: chmod 600 it')
    if status.st_size == 0:
        # SQLite would take it for a new database, with nothing spent.
        raise LedgerCorruptError(f'ledger {path} is empty: it was cut')


def _lock(path: Path) -> sqlite3.Connection:
    """Open the file and take SQLite's exclusive lock, which the process keeps until it closes."""
    connection = sqlite3.connect(path, timeout=0.1, isolation_level=None, check_same_thread=False)
    try:
        connection.execute('PRAGMA locking_mode = EXCLUSIVE')
        connection.execute('PRAGMA synchronous = EXTRA')
        connection.execute('BEGIN EXCLUSIVE')
        connection.execute('COMMIT')
        mode = connection.execute('PRAGMA journal_mode = DELETE').fetchone()[0]
        if mode != 'delete':
            raise LedgerCorruptError(f'ledger {path} keeps a journal of mode {mode!r}')
    except BaseException:
        connection.close()
        raise
    return connection


def _check_form(connection: sqlite3.Connection, path: Path) -> None:
    application = connection.execute('PRAGMA application_id').fetchone()[0]
    version = connection.execute('PRAGMA user_version').fetchone()[0]
    if application != _APPLICATION:
        raise LedgerCorruptError(f'{path} is a database, but not a ledger')
    if version != _VERSION:
        raise LedgerCorruptError(
            f'ledger {path} has format version {version}, and this program reads version '
            f'{_VERSION}: keep it for its history; a hospital that goes on begins a new one'
        )
    problem = connection.execute('PRAGMA integrity_check(1)').fetchone()[0]
    if problem != 'ok':
        raise LedgerCorruptError(f'ledger {path} is damaged: {problem}')


def _check_owner(connection: sqlite3.Connection, path: Path, owner: Owner) -> None:
    rows = connection.execute('SELECT hospital, unit, delta, budget, digest FROM owner').fetchall()
    if len(rows) != 1:
        raise LedgerCorruptError(f'ledger {path} has {len(rows)} owners: expected 1')
    *fields, digest = rows[0]
    found = Owner(*fields)
    if digest != found.digest:
        raise LedgerCorruptError(f'ledger {path}: its owner was changed')
    for name in ('hospital', 'unit', 'delta', 'budget'):
        if getattr(found, name) != getattr(owner, name):
            raise LedgerOwnerError(
                f'ledger {path} was begun for {name} {getattr(found, name)!r}, '
                f'not {getattr(owner, name)!r}'
            )


def _translated(error: Exception, path: Path, entry: int | None = None) -> LedgerError:
    """Say in our words what SQLite met."""
    code = getattr(error, 'sqlite_errorcode', None)
    primary = None if code is None else code & 0xFF
    if primary in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return LedgerLockedError(f'ledger {path} is open in another process')
    if primary in (
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_FULL,
    ):
        return LedgerError(f'ledger {path} cannot be read or written: {error}')
    where = '' if entry is None else f': entry {entry} cannot be read'
    return LedgerCorruptError(f'{path} is damaged or not a ledger{where} ({error})')
