# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Reads a round journal entry by entry, each checked against the one before, in little memory."""

from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache
import os
from pathlib import Path
from typing import NamedTuple

from fdrl_ros.crypto.keys.signing import fingerprint
from fdrl_ros.crypto.keys.signing import verify as is_signed
from fdrl_ros.errors import (
    JournalCutError,
    JournalDamagedError,
    JournalError,
    JournalOwnerError,
    JournalSignatureError,
)
from fdrl_ros.federation.journal.entry import (
    beginning_after,
    begins_whole,
    Entry,
    INTRODUCING,
    MOST_BYTES,
    NOTHING,
    parse_line,
    signed_part,
)
from fdrl_ros.privacy.ledger.chain import Head

_AT_ONCE = 512  # signatures that are checked together
_fingerprint = lru_cache(maxsize=16)(fingerprint)

Progress = Callable[[int], None]
"""Told every now and then at which byte of a journal its verification is."""


@dataclass
class Place:
    """
    Where in a journal one stands: after which head and byte, and whose key signs.

    :param start: first byte of the last entry.
    :param end: first byte after it and its line break.
    """

    head: Head = NOTHING
    start: int = 0
    end: int = 0
    public: bytes = b''


@dataclass(frozen=True)
class Summary:
    """
    What a verified journal is.

    :param keys: every key that signed in it, oldest first; the last one covers all before it.
    :param cut_short: whether a half line follows the last entry: it is being written, or the party
        was killed; its next start removes it.
    """

    party: str
    federation: str
    head: Head
    keys: tuple[bytes, ...]
    cut_short: bool
    begun: str
    ended: str


class _Signed(NamedTuple):
    number: int
    public: bytes
    signature: bytes
    message: bytes

    def fits(self) -> bool:
        return is_signed(self.public, self.signature, self.message)


@dataclass
class Walk:
    """
    A way through a journal.

    :meth:`entries` goes on from where it was left. What it hands out is chained in order; whether
    it is signed is known at the end of the file.

    :param party: whose journal it must be; anyone's if empty.
    :param federation: of which it must be; of any if empty.
    :param place: where to begin.
    :param seen: heads that it must have or go on from, by who saw them; the beginning of a hash
        will do. What is cut off a journal's end at a line break is found by them alone.
    :param quick: check the last signature of each key alone: it covers all before it.
    :param times: when the first and the last entry were written, by the party's clock.
    :param cut_short: whether a half line follows the last entry.
    :param unended: whether the last entry lacks its line break.
    """

    path: Path
    party: str = ''
    federation: str = ''
    place: Place = field(default_factory=Place)
    seen: Mapping[str, Head] = field(default_factory=dict)
    quick: bool = False
    times: tuple[str, str] = field(default=('', ''), init=False)
    cut_short: bool = field(default=False, init=False)
    unended: bool = field(default=False, init=False)
    _unchecked: list[_Signed] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self.keys: list[bytes] = [self.place.public] if self.place.public else []

    def entries(self) -> Generator[Entry]:
        """
        Yield the entries that follow, to the end of the file.

        :raises JournalDamagedError: telling which entry is damaged.
        :raises JournalOwnerError: if the journal is of another party, federation or form.
        :raises JournalError: if the file cannot be read.
        """
        try:
            with self.path.open('rb') as file:
                file.seek(self.place.end)
                if self.unended and (ending := file.read(1)):
                    if ending != b'\n':
                        raise self.damaged('no line break stands before it')
                    self.place.end += 1
                    self.unended = self.cut_short = False
                while line := file.readline(MOST_BYTES + 1):
                    if line.endswith(b'\n'):
                        yield self._take(line[:-1], 1)
                    elif len(line) > MOST_BYTES:
                        raise self.damaged(f'it is longer than {MOST_BYTES} bytes')
                    else:
                        yield from self._take_last(line)
        except OSError as error:
            raise JournalError(f'journal {self.path}: {error.strerror or error}') from error
        self._check_signatures()
        for who, head in self.seen.items():
            if head.entries > self.place.head.entries:
                raise JournalCutError(
                    f'journal {self.path} was cut: it ends with entry {self.place.head.entries}, '
                    f'and {who} saw {head}'
                )

    def summary(self, keys: Collection[bytes] | None) -> Summary:
        """
        Say what the journal is, once :meth:`entries` came to its end.

        :param keys: public keys that the party has or had; None if nobody knows.
        :raises JournalSignatureError: if another one signed.
        """
        for public in self.keys:
            if keys is not None and public not in keys:
                raise JournalSignatureError(
                    f'journal {self.path}: signed by {fingerprint(public)}, which never was a key '
                    f'of {self.party}'
                )
        return Summary(
            self.party,
            self.federation,
            self.place.head,
            tuple(self.keys),
            self.cut_short,
            *self.times,
        )

    def damaged(self, problem: str) -> JournalDamagedError:
        """Return the error that says what is wrong with the entry that follows."""
        number = self.place.head.entries + 1
        return JournalDamagedError(f'journal {self.path}: entry {number} is damaged: {problem}')

    def _take(self, line: bytes, ending: int) -> Entry:
        """Check that a line follows, and go there."""
        place = self.place
        try:
            entry = parse_line(line)
        except ValueError as error:
            raise self.damaged(str(error)) from error
        if entry.number != place.head.entries + 1:
            raise self.damaged(f'it has the number {entry.number}')
        if entry.previous != place.head.digest.hex():
            raise self.damaged('it does not follow the one before')
        self._check_owner(entry)
        if (entry.kind == 'begin') != (entry.number == 1):
            raise self.damaged(f'it is of kind {entry.kind!r}')
        public = place.public
        if entry.kind in INTRODUCING:
            public = bytes.fromhex(entry.fields['public'])
            self.keys.append(public)
        if entry.key != _fingerprint(public):
            raise self._signature(entry.number, f'nothing introduced its key {entry.key}')
        if self.quick and public == place.public:
            self._unchecked.clear()
        signature = bytes.fromhex(entry.signature)
        self._unchecked.append(_Signed(entry.number, public, signature, signed_part(line)))
        if len(self._unchecked) == _AT_ONCE:
            self._check_signatures()
        for who, head in self.seen.items():
            if head.entries == entry.number and not entry.digest.startswith(head.digest):
                raise self.damaged(f'it is another one than {who} saw')
        self.place = Place(entry.head, place.end, place.end + len(line) + ending, public)
        self.times = (self.times[0] or entry.time, entry.time)
        self.cut_short = self.unended = not ending
        return entry

    def _take_last(self, line: bytes) -> Iterator[Entry]:
        """
        Take a line without its end: a write that was cut short, or a whole entry all the same.

        A power cut may leave zeros where bytes were to be.
        """
        line = line.rstrip(b'\0')
        try:
            parse_line(line)
        except ValueError as error:
            expected = beginning_after(self.place.head)[: len(line)]
            if not line.startswith(expected) or begins_whole(line):
                raise self.damaged(str(error)) from error
            self.cut_short = True
            return
        yield self._take(line, 0)

    def _check_owner(self, entry: Entry) -> None:
        self.party = self.party or entry.party
        self.federation = self.federation or entry.federation
        for what, found, expected in (
            ('party', entry.party, self.party),
            ('federation', entry.federation, self.federation),
        ):
            if found != expected:
                raise JournalOwnerError(
                    f'journal {self.path}: entry {entry.number} is of {what} {found!r}, '
                    f'not {expected!r}'
                )

    def _check_signatures(self) -> None:
        """Check the signatures that were put off."""
        waiting, self._unchecked = self._unchecked, []
        if len(waiting) < _AT_ONCE:
            good = list(map(_Signed.fits, waiting))
        else:
            # The library lets go of the interpreter's lock, so that every core takes part.
            with ThreadPoolExecutor(os.cpu_count()) as threads:
                good = list(threads.map(_Signed.fits, waiting))
        for signed, fits in zip(waiting, good, strict=True):
            if not fits:
                problem = f'{fingerprint(signed.public)} did not sign it'
                raise self._signature(signed.number, problem)

    def _signature(self, number: int, problem: str) -> JournalSignatureError:
        return JournalSignatureError(f'journal {self.path}: entry {number}: {problem}')


def read(path: Path) -> Iterator[Entry]:
    """
    Yield the entries of a journal, also while its party writes it.

    :raises JournalError: if it is damaged; an entry is handed out before its successors are read.
    """
    return Walk(path, quick=True).entries()
