# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The round journal: what a party did in each round, in signed lines that are only ever added.

A line names the hash of the one before, so a change anywhere shows; the signature keeps everyone
else from making the chain anew. What is cut off the end shows because the party's state keeps the
newest head too. It holds hashes, names and numbers of rounds: nothing secret, nothing of patients.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, UTC
import fcntl
import hashlib
import json
import os
from pathlib import Path
import stat
import threading
import time
from typing import Self
import weakref

from fdrl_ros.crypto.keys.signing import fingerprint, Identity
from fdrl_ros.errors import (
    FdrlError,
    JournalCutError,
    JournalError,
    JournalLockedError,
    JournalSignatureError,
    os_errors_as,
    StoreError,
)
from fdrl_ros.federation.journal.reader import (
    Entry,
    Event,
    FORM,
    JournalReader,
    parse_line,
    Position,
    read,
    write_line,
)
from fdrl_ros.federation.protocol.store import peek, Store
from fdrl_ros.privacy.ledger.chain import Head
from fdrl_ros.runtime.closeable import Closeable
from fdrl_ros.runtime.durable import sync_folder

__all__ = ['Entry', 'FILE', 'Head', 'head_noted', 'Journal', 'read']

FILE = 'journal.jsonl'
"""Name of the journal in its party's directory."""

KEPT_IN_MEMORY = 1000
"""Entries that a journal without a file keeps."""

_NOTE = 'journal'  # name of what the store keeps
BEHIND = 'journal behind'
"""Name of what the store keeps until what it missed of the journal was looked at."""


@dataclass
class Note:
    """What a party's store keeps of its journal: where it ends, and the newest round by kind."""

    place: Position = field(default_factory=Position)
    rounds: dict[str, int] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """Serialise for the store."""
        place = self.place
        values = [str(place.head), place.start, place.end, place.public.hex(), self.rounds]
        return json.dumps(values).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read back what :meth:`to_bytes` wrote."""
        head, start, end, public, rounds = json.loads(data)
        return cls(Position(Head.parse(head), start, end, bytes.fromhex(public)), rounds)


class Journal(Closeable):
    """
    A party's journal. One process writes it; threads of that process may share it.

    An entry is on the disk when :meth:`append` returns. A line that a kill or a power cut left
    half written is removed at the next start: its :meth:`append` never returned.
    """

    def __init__(
        self,
        path: Path | None,
        identity: Identity,
        federation: str,
        store: Store | None = None,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """
        Open a party's journal, or begin one.

        With a store only the end of the file is read, however long it is.

        :param path: file on a local disk, whose folder must exist; None keeps the newest
            entries in memory, for simulation.
        :param identity: of the party. After a rotation of keys the new one is introduced by an
            entry of its own, if the store tells that nobody else wrote here meanwhile.
        :param federation: its name.
        :param store: of the party; it remembers the newest head, so that a cut shows.
        :param clock: tells seconds since 1970, for people to read.
        :raises JournalLockedError: if it is open already, here or in another process.
        :raises JournalOwnerError: if it is of another party or federation.
        :raises JournalDamagedError: if it was changed or cut.
        :raises JournalError: if the file cannot be used.
        """
        self.path = path
        self._identity = identity
        self._federation = federation
        self._store = store if path else None
        self._clock = clock
        self._lock = threading.RLock()
        self._file = -1
        self._kept: deque[bytes] = deque(maxlen=KEPT_IN_MEMORY)
        self._note = Note()
        self.is_new = False
        """Whether its file was not there before it was opened."""
        if path is not None:
            self._file = _hold(path)
            _open.add(self)
        try:
            if path is not None:
                self._go_on(path)
            self._introduce()
        except BaseException:
            self.close()
            raise

    def behind(self) -> tuple[Position, int] | None:
        """
        Return what the state file had noted when it was found behind, and how many entries exist.

        A kill between an entry and its note leaves it behind by one. Who has looked at what it
        missed deletes :data:`BEHIND` from the store, in one step with what came of it.
        """
        saved = self._store.get(BEHIND) if self._store else None
        if saved is None or self._store is None:
            return None
        before, _, last = saved.rpartition(b' ')
        note = _note_of(before, self._store.path)
        return None if note is None else (note.place, int(last))

    def unseen(self) -> Iterator[Entry]:
        """Yield the entries that the state file had not noted; none if it is not behind."""
        if (found := self.behind()) is None or self.path is None:
            return
        for entry in JournalReader(self.path, place=found[0], quick=True).entries():
            if entry.number > found[1]:
                return
            yield entry

    @property
    def head(self) -> Head:
        """The number of entries and the hash of the newest."""
        return self._note.place.head

    def newest_round(self, kind: str) -> int | None:
        """Return the latest round that an entry of this kind was written for, if any was."""
        with self._lock:
            return self._note.rounds.get(kind)

    def append(self, kind: str, *, round: int = 0, attempt: int = 0, **fields: object) -> Head:
        """
        Write an entry; it is on the disk when this returns.

        :param kind: one of :data:`fdrl_ros.federation.journal.reader.FIELDS`.
        :param round: that it is about; 0 for none.
        :param fields: exactly those of its kind; text is cut to a thousand letters.
        :returns: the new head.
        :raises JournalError: if kind or fields are not the journal's: nothing is written; or if
            it cannot be written: the journal is then closed.
        :raises StoreError: if it was written, but the store could not note its head.
        """
        if kind in ('begin', 'rotate'):
            raise JournalError(f'journal: {kind!r} is written by the journal itself')
        with self._lock:
            return self._append(Event(kind, round, attempt, fields))

    def entries(self) -> Iterator[Entry]:
        """Yield all entries, oldest first; without a file, the newest thousand."""
        if self.path is not None:
            return read(self.path)
        with self._lock:
            return map(parse_line, list(self._kept))

    def close(self) -> None:
        """Release the file; closing twice does nothing."""
        with self._lock:
            _open.discard(self)
            if self._file >= 0:
                fcntl.flock(self._file, fcntl.LOCK_UN)
                os.close(self._file)
                self._file = -1

    def _leave(self) -> None:
        """Forget the file in a forked child: it and its lock are the parent's."""
        self._lock = threading.RLock()
        os.close(self._file)
        self._file = -1

    def _go_on(self, path: Path) -> None:
        """Read what the store has not seen yet, and mend the end of the file."""
        noted = None if self._store is None else _note_of(self._store.get(_NOTE), self._store.path)
        before = (noted or Note()).to_bytes()
        if noted is not None:
            self._check_noted(path, noted)
            self._note = noted
        reader = JournalReader(
            path, self._identity.name, self._federation, self._note.place, quick=True
        )
        for entry in reader.entries():
            self._count(entry)
        changed = reader.place != self._note.place
        self._note.place = reader.place
        # Whoever signs last vouches for all before: it must be this party, or its older key.
        known = {self._identity.public, b'' if noted is None else noted.place.public}
        if reader.place.head.entries and reader.place.public not in known:
            raise JournalSignatureError(
                f'journal {path} is signed with {fingerprint(reader.place.public)}; this party '
                f'has {fingerprint(self._identity.public)}, and its state file knows of no such '
                'key: put back the newest journal and state file'
            )
        if reader.cut_short:
            self._mend(path, reader.unended)
        if changed and self._store:
            # First the mark: who is killed here has to find again that the state was behind.
            saved = self._store.get(BEHIND)
            note = saved.rpartition(b' ')[0] if saved else before
            self._store.put(BEHIND, b'%s %d' % (note, reader.place.head.entries))
            self._store.put(_NOTE, self._note.to_bytes())

    def _check_noted(self, path: Path, noted: Note) -> None:
        """Refuse a file that does not hold the entry that the store noted last."""
        place = noted.place
        with os_errors_as(JournalError, f'journal {path}'):
            line = os.pread(self._file, place.end - place.start, place.start)
        whole = line.endswith(b'\n')
        if not whole or hashlib.sha256(line[:-1]).digest() != place.head.digest:
            raise JournalCutError(
                f'journal {path} was cut or changed: the state file of {self._identity.name} saw '
                f'{place.head}, and that entry is not where it was; put back the newest journal'
            )

    def _mend(self, path: Path, unended: bool) -> None:
        """Remove a half line, or end a whole one."""
        with os_errors_as(JournalError, f'journal {path} cannot be mended'):
            os.ftruncate(self._file, self._note.place.end)
            if unended:
                os.write(self._file, b'\n')
                self._note.place.end += 1
            os.fsync(self._file)

    def _introduce(self) -> None:
        """Write the party's public key where it signs for the first time."""
        public = self._identity.public
        if not self._note.place.head.entries:
            self.is_new = self.path is not None
            self._append(Event('begin', 0, 0, {'form': FORM, 'public': public}))
            if self.path is not None:
                sync_folder(self.path.parent)
        elif self._note.place.public != public:
            self._append(Event('rotate', 0, 0, {'public': public}))

    def _append(self, event: Event) -> Head:
        moment = datetime.fromtimestamp(self._clock(), UTC).isoformat(timespec='milliseconds')
        time, federation = moment.replace('+00:00', 'Z'), self._federation
        line, entry = write_line(
            self._identity, self.head, event, time=time, federation=federation
        )
        if self.path is None:
            self._kept.append(line)
        else:
            self._write(self.path, line + b'\n')
        start = self._note.place.end
        self._note.place = Position(
            entry.head, start, start + len(line) + 1, self._identity.public
        )
        self._count(entry)
        if self._store:
            self._store.put(_NOTE, self._note.to_bytes())
        return entry.head

    def _count(self, entry: Entry) -> None:
        rounds = self._note.rounds
        rounds[entry.kind] = max(entry.round, rounds.get(entry.kind, 0))

    def _write(self, path: Path, line: bytes) -> None:
        if self._file < 0:
            raise JournalError(f'journal {path} is closed')
        end = self._note.place.end
        try:
            mine, there = os.fstat(self._file), os.lstat(path)
            if (there.st_dev, there.st_ino, there.st_size) != (mine.st_dev, mine.st_ino, end):
                raise JournalCutError(
                    f'journal {path} was moved, replaced or changed while it was open: put it '
                    'back and start again'
                )
            if os.write(self._file, line) != len(line):
                raise OSError('the disk is full')
            os.fdatasync(self._file)
        except (OSError, JournalError) as error:
            # Whether the entry reached the disk is unknown: only opening it again will tell.
            self.close()
            if isinstance(error, JournalError):
                raise
            raise JournalError(
                f'journal {path} cannot be written: {error.strerror or error}'
            ) from error


def head_noted(state: Path) -> Head | None:
    """
    Read which head of its journal a party noted last out of its state file, also while it runs.

    :param state: file of its :class:`Store`.
    :returns: None if it noted none.
    :raises StoreError: if it cannot be read.
    """
    note = _note_of(dict(peek(state, _NOTE)).get(_NOTE), state)
    return None if note is None else note.place.head


def _note_of(saved: bytes | None, path: Path | None) -> Note | None:
    try:
        return None if saved is None else Note.from_bytes(saved)
    except (ValueError, TypeError, FdrlError) as error:
        raise StoreError(f'the state file {path} is damaged: {_NOTE}') from error


def _hold(path: Path) -> int:
    """Open a journal for adding to it, and lock it for this process."""
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    descriptor = -1
    try:
        descriptor = os.open(path, flags, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError('it is not a plain file')
    except OSError as error:
        if descriptor >= 0:
            os.close(descriptor)
        if isinstance(error, BlockingIOError):
            raise JournalLockedError(
                f'journal {path} is already open, here or in another process'
            ) from error
        raise JournalError(f'journal {path}: {error.strerror or error}') from error
    return descriptor


_open: 'weakref.WeakSet[Journal]' = weakref.WeakSet()


def _let_go() -> None:
    while _open:
        _open.pop()._leave()


os.register_at_fork(after_in_child=_let_go)
