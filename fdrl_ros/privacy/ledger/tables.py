# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The ledger's tables in SQLite: making them, and reading nothing from them unchecked."""

from contextlib import closing
from dataclasses import astuple
from functools import cache
from pathlib import Path
import sqlite3

from fdrl_ros.errors import (
    LedgerCorruptError,
    LedgerError,
    LedgerLockedError,
    LedgerVersionError,
    PrivacyError,
)
from fdrl_ros.privacy.accountant.accountant import Charge
from fdrl_ros.privacy.ledger.chain import Chain
from fdrl_ros.privacy.ledger.entry import Entry, Owner

_APPLICATION = 0x4644524C  # 'FDRL'
_VERSION = 4
# What a damaged file makes SQLite's module raise: its messages may quote bytes that are no text.
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
    """Insert one entry into a ledger's tables."""
    connection.execute(
        'INSERT INTO entry VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)',
        (entry.number, entry.round, entry.block, *entry.charge, entry.inputs, entry.digest),
    )


def image(chain: Chain) -> bytes:
    """
    Return the bytes of a ledger file with these entries, as SQLite lays them out.

    A file that was made this way and appended to differs in its counter of changes alone.
    """
    owner = chain.owner
    with closing(sqlite3.connect(':memory:', isolation_level=None)) as connection:
        settle(connection)
        connection.executescript(_SCHEMA)
        connection.execute('BEGIN')
        connection.execute(
            'INSERT INTO owner VALUES (?, ?, ?, ?, ?, ?, ?)',
            (*astuple(owner), owner.digest),
        )
        for entry in chain.entries:
            write_entry(connection, entry)
        connection.execute('COMMIT')
        return connection.serialize()


def settle(connection: sqlite3.Connection) -> None:
    """Choose what builds of SQLite differ in: what a page keeps of what was removed from it."""
    connection.execute('PRAGMA secure_delete = ON')


def read_owner(connection: sqlite3.Connection, path: Path) -> Owner:
    """
    Read whose ledger it is.

    :raises LedgerCorruptError: if that was changed.
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
    Read all entries and walk the chain.

    :raises LedgerCorruptError: naming the first entry that does not fit.
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
        raise translated(error, path, expected) from error
    except LedgerError:
        raise
    except PrivacyError as error:
        raise LedgerCorruptError(f'ledger {path} holds what was never charged: {error}') from error
    return chain


def check_form(connection: sqlite3.Connection, path: Path) -> None:
    """
    Refuse a database that is no ledger of this version, or has more in it than a ledger.

    :raises LedgerCorruptError: if it is damaged, or no ledger.
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
    # A trigger, for one, could make reservations vanish.
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


def translated(error: Exception, path: Path, entry: int | None = None) -> LedgerError:
    """Say in our words what SQLite met."""
    code = getattr(error, 'sqlite_errorcode', None)
    primary = None if code is None else code & 0xFF
    if primary in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return LedgerLockedError(f'ledger {path} is already open, here or in another process')
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
