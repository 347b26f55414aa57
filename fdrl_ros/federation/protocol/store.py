# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""A party's durable state: a table of named bytes, and files beside it for what is too long."""

from collections.abc import Callable, Iterator
from io import FileIO
import os
from pathlib import Path
import sqlite3
import tempfile
import threading
from typing import TypeVar

from fdrl_ros.errors import FdrlError, PrivacyError, StoreError
from fdrl_ros.federation.protocol.encoding import decode
from fdrl_ros.privacy.ledger.content import opened_copy
from fdrl_ros.runtime.durable import sync_folder

# Counters are handed out from blocks that are durable before their first number is used.
COUNTER_BLOCK = 1000

FORMAT = b'3'
"""Version of the rows; see docs/formats.md for what changed."""

OLDER = (b'1', b'2')
"""Versions that `fdrl migrate` brings to this one; the first one wrote no number."""

FORMAT_ROW = 'format'

WRITTEN = 2**20
"""Bytes after which the disk is told to begin."""

R = TypeVar('R')

Place = tuple[int, int]
"""First byte, and how many."""


class Spool:
    """
    A file that grows, until it is erased with all that is in it.

    Threads may read while one appends, and when it was closed are told so by a StoreError.
    """

    def __init__(self, path: Path | None, *, fresh: bool) -> None:
        """
        Open the file, readable by the owner alone.

        :param path: without one it has no name, for simulation.
        :param fresh: whether to begin with nothing; otherwise it must be there.
        :raises StoreError: if it cannot be used.
        """
        self.path = path
        self.end = 0
        self._begun = 0
        try:
            if path is None:
                self._file: FileIO = tempfile.TemporaryFile(buffering=0)
                return
            flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC if fresh else os.O_RDWR
            self._file = open(os.open(path, flags, 0o600), 'r+b', buffering=0)  # noqa: SIM115
            self.end = os.fstat(self._file.fileno()).st_size
        except OSError as error:
            raise StoreError(f'cannot use {path}: {error}') from error

    def append(self, data: bytes) -> Place:
        """
        Write bytes at the end.

        :returns: where they are.
        :raises StoreError: if there is no room for them.
        """
        place = self.end, len(data)
        try:
            if os.pwrite(self._file.fileno(), data, self.end) != len(data):
                raise StoreError(f'no room for {len(data)} bytes in {self.path}')
        except (OSError, ValueError) as error:
            raise StoreError(f'cannot write {self.path}: {error}') from error
        self.end += len(data)
        if self.end - self._begun >= WRITTEN:
            # The disk begins now, so that sync has little left to wait for.
            number, size = self._file.fileno(), self.end - self._begun
            os.posix_fadvise(number, self._begun, size, os.POSIX_FADV_DONTNEED)
            self._begun = self.end
        return place

    def read(self, place: Place) -> bytes:
        """
        Return the bytes of a place.

        :raises StoreError: if they are not there.
        """
        start, count = place
        try:
            data = os.pread(self._file.fileno(), count, start)
        except (OSError, ValueError) as error:
            raise StoreError(f'cannot read {self.path}: {error}') from error
        if len(data) != count:
            raise StoreError(f'{self.path} is damaged: it ends early')
        return data

    def sync(self) -> None:
        """
        Make durable what was appended.

        :raises StoreError: if the disk does not take it.
        """
        if self.path is None:
            return
        try:
            os.fsync(self._file.fileno())
            sync_folder(self.path.parent)
        except OSError as error:
            raise StoreError(f'cannot write {self.path}: {error}') from error

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def erase(self) -> None:
        """Remove the file."""
        self.close()
        if self.path is not None:
            self.path.unlink(missing_ok=True)


class Store:
    """
    Named values on disk; each write is durable when it returns.

    Without a path the values live in memory, for simulation.
    """

    def __init__(self, path: Path | None = None) -> None:
        """
        Open or create the file, readable by the owner alone.

        :raises StoreError: if it is damaged, locked by another process, or cannot be written.
        """
        self.path = path
        # Of whole transactions: a party's worker writes too.
        self._lock = threading.RLock()
        self._closing: list[Callable[[], None]] = []
        self._spools: dict[str, Spool] = {}
        try:
            if path is not None:
                os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
            self._table = sqlite3.connect(
                path or ':memory:', timeout=0.5, isolation_level=None, check_same_thread=False
            )
            self._table.execute('PRAGMA locking_mode=EXCLUSIVE')
            # A commit is one write to the end of one file, synced: half as dear as a journal.
            self._table.execute('PRAGMA journal_mode=WAL')
            self._table.execute('PRAGMA synchronous=FULL')
            self._table.execute(
                'CREATE TABLE IF NOT EXISTS entry (name TEXT PRIMARY KEY, value BLOB NOT NULL)'
            )
            _check_format(self._table, path)
            # The first write takes the lock that keeps a second process out.
            self._next_counter = self._reserve_counters(self.get_number('counter'))
            if self.get(FORMAT_ROW) is None:
                self.put(FORMAT_ROW, FORMAT)
        except (sqlite3.Error, OSError) as error:
            raise StoreError(f'cannot use the state file {path}: {error}') from error

    def _reserve_counters(self, first: int) -> int:
        self.put_number('counter', first + COUNTER_BLOCK)
        return first

    def get(self, name: str) -> bytes | None:
        """Return a value, or None where there is none."""
        row = self._run('SELECT value FROM entry WHERE name = ?', name).fetchone()
        return None if row is None else bytes(row[0])

    def load(self, name: str, kind: type[R]) -> R | None:
        """
        Return a value that :func:`encode` wrote, or None where there is none.

        :raises StoreError: if it is damaged.
        """
        return _decoded(self.path, self.get(name), kind)

    def put(self, name: str, value: bytes) -> None:
        """Write a value durably."""
        with self._lock:
            self._run(
                'INSERT INTO entry VALUES (?, ?) '
                'ON CONFLICT (name) DO UPDATE SET value = excluded.value',
                name,
                value,
            )

    def note(self, name: str, value: bytes) -> None:
        """
        Write a value that is durable at the latest with the next :meth:`put`.

        It outlives a process that is killed; a host that loses its power may forget it. Only for
        what was heard, and is acted upon after a :meth:`put` of something new, or :meth:`sync`.
        """
        with self._lock:
            self._run('PRAGMA synchronous=NORMAL')
            try:
                self.put(name, value)
            finally:
                self._run('PRAGMA synchronous=FULL')

    def sync(self) -> None:
        """Make durable what was noted."""
        # The library does not write, nor sync, what is there already.
        self.put_number('synced', self.get_number('synced') + 1)

    def _run(self, statement: str, *values: str | bytes) -> sqlite3.Cursor:
        try:
            return self._table.execute(statement, values)
        except sqlite3.Error as error:
            raise StoreError(f'cannot use the state file {self.path}: {error}') from error

    def replace(self, patterns: list[str] | tuple[str, ...], values: dict[str, bytes]) -> None:
        """
        Delete all values whose names match, and write others, in one durable step.

        :param patterns: of the names, as in shells.
        """
        with self._lock:
            self._run('BEGIN IMMEDIATE')
            try:
                for pattern in patterns:
                    self._run('DELETE FROM entry WHERE name GLOB ?', pattern)
                for name, value in values.items():
                    self.put(name, value)
                self._run('COMMIT')
            except BaseException:
                self._table.rollback()
                raise

    def matching(self, pattern: str) -> dict[str, bytes]:
        """Return all values whose names match, in the order of the names."""
        rows = self._run('SELECT name, value FROM entry WHERE name GLOB ? ORDER BY name', pattern)
        return {name: bytes(value) for name, value in rows.fetchall()}

    def get_number(self, name: str, default: int = 0) -> int:
        """Return a whole number."""
        value = self.get(name)
        try:
            return default if value is None else int(value)
        except ValueError as error:
            raise StoreError(f'the state file {self.path} is damaged: {name}') from error

    def put_number(self, name: str, value: int) -> None:
        """Write a whole number durably."""
        self.put(name, str(value).encode())

    def next_counter(self) -> int:
        """Return a number that no earlier call returned, not even before a crash."""
        self._next_counter += 1
        if self._next_counter % COUNTER_BLOCK == 0:
            self._reserve_counters(self._next_counter)
        return self._next_counter

    def skip_counters(self, first: int) -> None:
        """Go on counting from a number, or from where it is if that is further."""
        self._next_counter = self._reserve_counters(max(first, self._next_counter))

    def spool(self, name: str, *, fresh: bool = True) -> Spool:
        """
        Open a file for what is too long for this table; it is closed with it.

        :param fresh: whether to begin with an empty one.
        :raises StoreError: if it cannot be used.
        """
        path = self.path and self.path.with_name(f'{self.path.stem}.{name}.spool')
        self._spools[name] = Spool(path, fresh=fresh)
        return self._spools[name]

    def opened(self, name: str) -> Spool:
        """
        Return a spool that was written, maybe by an earlier process.

        :raises StoreError: if it is not there any more.
        """
        return self._spools.get(name) or self.spool(name, fresh=False)

    def erase_spools(self, kind: str, but: str = '') -> None:
        """Remove the spools whose names begin so, those of an earlier process too."""
        for name in [each for each in self._spools if each.startswith(kind) and each != but]:
            self._spools.pop(name).erase()
        if self.path is not None:
            begin = f'{self.path.stem}.{kind}'
            for path in self.path.parent.glob(f'{begin}*.spool'):
                if path.name != f'{self.path.stem}.{but}.spool':
                    path.unlink(missing_ok=True)

    def before_closing(self, action: Callable[[], None]) -> None:
        """Have something that writes here closed before the file is let go."""
        self._closing.append(action)

    def close(self) -> None:
        """Let go of the file, and of the spools."""
        while self._closing:
            self._closing.pop()()
        for each in self._spools.values():
            each.close()
        self._table.close()


def _check_format(table: sqlite3.Connection, path: Path | None) -> None:
    """
    Refuse a state file of another version.

    A file that a process was killed over as it began has a counter and nothing else.

    :raises StoreError: if it is one, with the way out.
    """
    row = table.execute('SELECT value FROM entry WHERE name = ?', (FORMAT_ROW,)).fetchone()
    found = OLDER[0] if row is None else bytes(row[0])
    if found not in (FORMAT, *OLDER):
        raise StoreError(f'the state file {path} is of a newer version of fdrl_ros')
    others = table.execute('SELECT COUNT(*) FROM entry WHERE name != ?', ('counter',))
    if found != FORMAT and others.fetchone()[0]:
        home = Path('DIRECTORY') if path is None else path.parent.parent
        home = home.parent if home.name == 'alone' else home
        raise StoreError(
            f'the state file {path} is of an older version of fdrl_ros: stop all parties and '
            f'run `fdrl migrate {home}`'
        )


def peek(path: Path, pattern: str) -> Iterator[tuple[str, bytes]]:
    """
    Read values of a party's state file without owning it, also while the party runs.

    :param pattern: of the names, as in shells.
    :returns: names and values; none where there is no such file.
    :raises StoreError: if it is damaged or cannot be read.
    """
    if not path.exists() or path.stat().st_size == 0:
        return
    try:
        with opened_copy(path) as (table, _):
            _check_format(table, path)
            rows = table.execute(
                'SELECT name, value FROM entry WHERE name GLOB ? ORDER BY name', (pattern,)
            )
            for name, value in rows:
                yield name, bytes(value)
    except (PrivacyError, sqlite3.Error, UnicodeDecodeError, TypeError) as error:
        raise StoreError(f'cannot read the state file {path}: {error}') from error


def peek_record(path: Path, name: str, kind: type[R]) -> R | None:
    """
    Read one record as :meth:`Store.load` does, without owning the file.

    :raises StoreError: if it is damaged or cannot be read.
    """
    return _decoded(path, dict(peek(path, name)).get(name), kind)


def _decoded(path: Path | None, data: bytes | None, kind: type[R]) -> R | None:
    try:
        return None if data is None else decode(data, kind)
    except FdrlError as error:
        raise StoreError(f'the state file {path} is damaged: {error}') from error
