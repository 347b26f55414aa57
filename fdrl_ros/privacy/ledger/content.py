# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Read a ledger for inspection, byte by byte, without a lock and without changing it.

Another process may be writing the file: the reader works on a consistent copy.
"""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
import fcntl
import os
from pathlib import Path
import sqlite3
import stat
import tempfile

from fdrl_ros.errors import LedgerCorruptError, LedgerError, LedgerLockedError
from fdrl_ros.privacy.ledger.chain import Chain
from fdrl_ros.privacy.ledger.file import (
    check_form,
    Damage,
    file_bytes,
    ledger_error,
    read_chain,
    read_owner,
)

_TRIES = 1000
_JOURNAL = '-journal'
_LOG = '-wal'


@contextmanager
def opened_copy(path: Path) -> Iterator[tuple[sqlite3.Connection, Path]]:
    """
    Open a private copy of a database; yield the connection and where the copy lies.

    The journal of an interrupted or running commit is copied too, so that SQLite rolls that commit
    back in the copy, as it would in the original. So is a write-ahead log, which holds the newest
    commits of databases in that mode.

    :raises LedgerError: if the file cannot be read.
    """
    main, *beside = _consistent_read(path)
    with tempfile.TemporaryDirectory(prefix='fdrl_') as folder:
        copy = Path(folder) / 'copy'
        copy.write_bytes(main)
        for suffix, content in zip((_JOURNAL, _LOG), beside, strict=True):
            if content:
                copy.with_name(copy.name + suffix).write_bytes(content)
        with closing(sqlite3.connect(copy, isolation_level=None)) as connection:
            yield connection, copy


def journal_is_hot(path: Path) -> bool:
    """Return whether a commit is running or was interrupted; the next opening undoes it."""
    return _read_or_empty(path.with_name(path.name + _JOURNAL))[:1] not in (b'', b'\0')


def in_use(path: Path) -> bool:
    """Return whether a process holds the lock of a ledger file."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _consistent_read(path: Path) -> tuple[bytes, bytes, bytes]:
    """
    Read a consistent state of a file, its journal and its write-ahead log.

    During a write the journal exists, or all changes are in the log. So if two reads are equal, no
    write happened in between, or SQLite undoes or repeats it.
    """
    if not path.is_file():
        raise LedgerError(f'ledger {path} is missing or not a plain file')
    before: tuple[bytes, bytes, bytes] | None = None
    for _ in range(_TRIES):
        journal, log = (
            _read_or_empty(path.with_name(path.name + suffix)) for suffix in (_JOURNAL, _LOG)
        )
        now = _read_or_empty(path), journal, log
        if now == before:
            if not now[0]:
                raise LedgerCorruptError(f'ledger {path} is empty: it was cut')
            return now
        before = now
    raise LedgerLockedError(f'ledger {path} is being written all the time')


def _read_or_empty(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b''
    except OSError as error:
        raise LedgerError(f'ledger {path} cannot be read: {error.strerror}') from error


# Bytes of an SQLite file that change while the ledger does not: the change counter, twice, and the
# version of the SQLite that wrote last, which SQLite never reads.
_COUNTER, _COUNTER_AGAIN, _WRITER = slice(24, 28), slice(92, 96), slice(96, 100)
_FIRST_WRITER = 3_037_000  # earlier versions have no STRICT tables


@dataclass(frozen=True)
class LedgerContent:
    """
    The content of a ledger file.

    :param interrupted: whether a commit is running or was interrupted; it does not count.
    :param in_use: whether a process has the ledger open.
    :param foreign_bytes: how the file differs from the bytes that its entries produce, although
        all entries and hashes are in order; empty if it does not.
    """

    path: Path
    chain: Chain
    interrupted: bool
    in_use: bool
    foreign_bytes: str

    def problems(self) -> list[str]:
        """Describe what is wrong with the file itself."""
        found = [self.foreign_bytes] if self.foreign_bytes else []
        if self.path.is_symlink():
            found.append('is a link: hospitals write to no ledger by another name')
        mode = stat.S_IMODE(self.path.stat().st_mode)
        if mode & 0o077:
            found.append(f'has mode {mode:04o} and is open to others: chmod 600 it')
        return found


def read_content(path: Path) -> LedgerContent:
    """
    Read a ledger file and verify its chain, even while a hospital writes it.

    :raises LedgerVersionError: if another version of this program made it.
    :raises LedgerCorruptError: if it was changed, or is not a ledger.
    :raises LedgerError: if it cannot be read.
    """
    # Checked first: a commit interrupted after this point belongs to a process that has it open.
    used, hot = in_use(path) if path.is_file() else False, journal_is_hot(path)
    with opened_copy(path) as (connection, copy):
        try:
            check_form(connection, path)
            chain = read_chain(connection, path, read_owner(connection, path))
        except Damage as error:
            raise ledger_error(error, path) from error
        content = copy.read_bytes()
    return LedgerContent(path, chain, hot, used, _foreign_bytes(content, chain))


def _foreign_bytes(content: bytes, chain: Chain) -> str:
    """
    Compare a file with the bytes that its entries produce.

    The remaining entries are in order, but another SQLite program may have removed the last ones.
    """
    if content[_COUNTER] != content[_COUNTER_AGAIN]:
        return 'has two counters of changes that differ: something else wrote to it'
    writer = int.from_bytes(content[_WRITER], 'big')
    if writer and not (_FIRST_WRITER <= writer < 4_000_000 and writer % 1000 < 100):
        return f'was written by an SQLite {writer} that there is not'
    made = file_bytes(chain)
    if len(content) != len(made):
        return f'has {len(content)} bytes where its entries make {len(made)}'
    found = bytearray(content)
    for changing in (_COUNTER, _COUNTER_AGAIN, _WRITER):
        found[changing] = made[changing]
    if found == made:
        return ''
    at = next(i for i, (one, other) in enumerate(zip(found, made, strict=True)) if one != other)
    return (
        f'has other bytes than were written from offset {at} on: something else than this program '
        'wrote to it, and may have removed its last entries; compare its head with one seen before'
    )
