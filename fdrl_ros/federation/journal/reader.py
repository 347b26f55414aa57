# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The lines of a round journal, and how it is read: each checked against the one before.

Each line says what its party did. Line i holds head i-1, and head i = SHA-256(line i). The
signature is the last value of the line and covers all before it, so that each entry vouches for
every earlier one. Reading takes little memory, however long the journal.
"""

from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache
import hashlib
import json
from numbers import Integral
import os
from pathlib import Path
import re
from typing import Any, Final, NamedTuple

from fdrl_ros.crypto.keys.signing import fingerprint, Identity, SIGNATURE_BYTES
from fdrl_ros.crypto.keys.signing import verify as is_signed
from fdrl_ros.errors import (
    JournalCutError,
    JournalDamagedError,
    JournalError,
    JournalOwnerError,
    JournalSignatureError,
)
from fdrl_ros.privacy.ledger.chain import Head

FORM: Final = 1
NOTHING: Final = Head(0, bytes(32))
"""The head of a journal without entries."""

MOST_BYTES: Final = 2**22
"""Bytes of the longest line: a release with some ten thousand contributors."""

MOST_LETTERS: Final = 1000
"""Letters of the longest text; what goes beyond is left out."""

FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    'begin': ('form', 'public'),
    'rotate': ('public',),
    # of the key authority
    'key': ('digest',),
    'decrypt': ('sum',),
    'release': ('contributors', 'before', 'policy', 'rolled_back', 'reason'),
    'refuse': ('reason',),
    # of the aggregator
    'open': ('members', 'reason'),
    'settle': ('survivors', 'dropped'),
    'fail': ('reason',),
    'blame': ('hospital', 'fault', 'proof'),
    'operator': ('operator', 'action', 'hospital'),
    # of a hospital, which notes blame too
    'sent': ('update', 'ledger'),
    'projected': ('nonce',),
    'signed': ('survivors',),
    'revealed': ('seeds', 'masks'),
    'policy': ('policy', 'included'),
}
"""Every kind of entry with what it holds. Nothing else is ever written: nothing secret can be."""

INTRODUCING: Final = ('begin', 'rotate')
"""Kinds that the journal writes itself: they hold the public key that signs from there on."""

# First words of what is signed, so that it is nothing else.
_SIGNED: Final = b'fdrl_ros journal 1\n'
_ENDING: Final = b',"signature":"' + bytes(2 * SIGNATURE_BYTES) + b'"}'
_NAME, _HASH, _COUNT = '[a-z][a-z0-9_]{0,62}', '[0-9a-f]{64}', '(?:0|[1-9][0-9]{0,17})'
# The one form of a line, so that people and programs cannot read it apart.
_LINE: Final = re.compile(
    rf'{{"number":(?P<number>{_COUNT}),"previous":"(?P<previous>{_HASH})",'
    r'"time":"(?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z)",'
    rf'"party":"(?P<party>{_NAME})","federation":"(?P<federation>{_NAME})",'
    rf'"round":(?P<round>{_COUNT}),"attempt":(?P<attempt>{_COUNT}),"kind":"(?P<kind>{_NAME})",'
    r'"key":"(?P<key>[a-z2-7]{4}(?:-[a-z2-7]{4}){4})",'
    r'"fields":(?P<fields>\{.*\}),"signature":"(?P<signature>[0-9a-f]{128})"}',
    re.ASCII,
)


class Entry(NamedTuple):
    """What a line holds, and its digest: the head of the journal up to here."""

    number: int
    previous: str
    time: str
    party: str
    federation: str
    round: int
    attempt: int
    kind: str
    key: str
    fields: dict[str, Any]
    signature: str
    digest: bytes

    @property
    def head(self) -> Head:
        """Return the head of the journal that ends with this entry."""
        return Head(self.number, self.digest)


@dataclass(frozen=True)
class Event:
    """
    What a party did.

    :param fields: those of :data:`FIELDS`; bytes are written in hexadecimal.
    """

    kind: str
    round: int
    attempt: int
    fields: Mapping[str, object]


def write_line(
    identity: Identity, previous: Head, event: Event, *, time: str, federation: str
) -> tuple[bytes, Entry]:
    """
    Return the signed line of the entry that follows a head, without its line break, and the entry.

    :raises JournalError: if the journal holds no such kind, fields or values.
    """
    kind, fields = event.kind, event.fields
    names = FIELDS.get(kind, ())
    if set(names) != fields.keys():
        expected = f'{sorted(names)}' if names else f'one of {sorted(FIELDS)}'
        raise JournalError(f'journal: {kind!r} with {sorted(fields)}: expected {expected}')
    values = {
        'number': previous.entries + 1,
        'previous': previous.digest.hex(),
        'time': time,
        'party': identity.name,
        'federation': federation,
        'round': event.round,
        'attempt': event.attempt,
        'kind': kind,
        'key': fingerprint(identity.public),
        'fields': {name: fields[name] for name in names},
    }
    body = _encode(_plain(values)).encode('ascii')
    signature = identity.sign(_SIGNED + body).hex().encode()
    line = body[:-1] + b',"signature":"' + signature + b'"}'
    if len(line) >= MOST_BYTES:
        raise JournalError(f'journal: an entry of {len(line)} bytes, expected below {MOST_BYTES}')
    try:
        return line, parse_line(line)
    except ValueError as error:
        raise JournalError(f'journal: {kind!r} cannot be written: {error}') from error


def parse_line(line: bytes) -> Entry:
    """
    Read a line; its signature and its place in the chain are not looked at.

    :raises ValueError: telling why it is no entry.
    """
    found = _LINE.fullmatch(line.decode('ascii'))
    if found is None:
        raise ValueError('it is not written as an entry is')
    values: dict[str, Any] = found.groupdict()
    kind, text = values['kind'], values['fields']
    try:
        fields = _decode(text)
        if _encode(fields) != text:
            raise ValueError('its fields are not written as those of an entry are')
    except RecursionError as error:
        raise ValueError('it is nested too deeply') from error
    # A kind that is not known is of a later version, and chained and signed like the others.
    names = FIELDS.get(kind, tuple(fields))
    if tuple(fields) != names:
        raise ValueError(f'{kind} has the fields {sorted(fields)}: expected {sorted(names)}')
    for name in names if kind in FIELDS else ():
        if not _fits(fields[name], VALUES[name]):
            raise ValueError(f'its {name} is {str(fields[name])[:80]!r}')
    numbers = {name: int(values[name]) for name in ('number', 'round', 'attempt')}
    digest = hashlib.sha256(line).digest()
    return Entry(**(values | numbers | {'fields': fields, 'digest': digest}))


def begins_whole(line: bytes) -> bool:
    """Tell whether a line is an entry and something more, as no half-written line is."""
    try:
        json.JSONDecoder().raw_decode(line.decode('latin-1'))
    except (ValueError, RecursionError):
        return False
    return True


def _plain(value: object) -> object:
    """Return a value as JSON holds it."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        return value if len(value) <= MOST_LETTERS else value[: MOST_LETTERS - 3] + '...'
    if isinstance(value, Head):
        return str(value)
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    raise JournalError(f'journal: it cannot hold a {type(value).__name__}')


_encode = json.JSONEncoder(separators=(',', ':')).encode
_decode = json.JSONDecoder().decode


def _fits(value: object, form: object) -> bool:
    """Tell whether a value has a form of :data:`VALUES`."""
    if isinstance(form, re.Pattern):
        return isinstance(value, str) and form.fullmatch(value) is not None
    if isinstance(form, list):
        if not isinstance(value, list):
            return False
        if form == [_OF_NAME] and {*map(type, value)} == {str}:
            text = '\n'.join(value)  # thousands of names are looked at together
            return text.count('\n') < len(value) and _OF_NAMES.fullmatch(text) is not None
        return all(_fits(item, form[0]) for item in value)
    if isinstance(form, range):
        return type(value) is int and value in form
    if form is bool:
        return isinstance(value, bool)
    assert isinstance(form, dict)
    if not isinstance(value, dict):
        return False
    if name := form.get(None):  # any number of names, each with what is told of it
        return all(_fits(key, _OF_NAME) and _fits(item, name) for key, item in value.items())
    return value.keys() == form.keys() and all(_fits(value[key], form[key]) for key in form)


_OF_NAME, _OF_HASH, _OF_HEAD = (
    re.compile(pattern, re.ASCII) for pattern in (_NAME, _HASH, f'{_COUNT}:{_HASH}')
)
_OF_NAMES: Final = re.compile(rf'(?:{_NAME})(?:\n(?:{_NAME}))*', re.ASCII)
_TEXT: Final = re.compile(rf'(?s:.{{0,{MOST_LETTERS}}})')
VALUES: Final[dict[str, object]] = {
    **dict.fromkeys(('public', 'digest', 'sum', 'before', 'policy', 'update', 'nonce'), _OF_HASH),
    **dict.fromkeys(('members', 'survivors', 'dropped', 'seeds', 'masks'), [_OF_NAME]),
    **dict.fromkeys(('reason', 'action', 'hospital', 'fault'), _TEXT),
    'proof': re.compile('(?:[0-9a-f]{2})*', re.ASCII),
    **dict.fromkeys(('rolled_back', 'included'), bool),
    'form': range(FORM, FORM + 1),
    'ledger': _OF_HEAD,
    'operator': _OF_NAME,
    'contributors': {None: {'size': range(2**63), 'update': _OF_HASH, 'ledger': _OF_HEAD}},
}
"""
The form of every field: a pattern of texts, a range of numbers, a list of a form, or a mapping.
"""


_AT_ONCE = 512  # signatures that are checked together
_fingerprint = lru_cache(maxsize=16)(fingerprint)

Progress = Callable[[int], None]
"""Told every now and then at which byte of a journal its verification is."""


@dataclass
class Position:
    """
    Where in a journal one stands: after which head and byte, and whose key signs.

    :param start: first byte of the last entry.
    :param end: first byte after it and its line break.
    """

    head: Head = NOTHING
    start: int = 0
    end: int = 0
    public: bytes = b''


class _Signed(NamedTuple):
    number: int
    public: bytes
    signature: bytes
    message: bytes

    def fits(self) -> bool:
        return is_signed(self.public, self.signature, self.message)


@dataclass
class JournalReader:
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
    :param cut_short: whether a half line follows the last entry: it is being written, or the party
        was killed; its next start removes it.
    :param unended: whether the last entry lacks its line break.
    """

    path: Path
    party: str = ''
    federation: str = ''
    place: Position = field(default_factory=Position)
    seen: Mapping[str, Head] = field(default_factory=dict)
    quick: bool = False
    times: tuple[str, str] = field(default=('', ''), init=False)
    cut_short: bool = field(default=False, init=False)
    unended: bool = field(default=False, init=False)
    _unchecked: list[_Signed] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self.keys: list[bytes] = [self.place.public] if self.place.public else []
        """Every key that signed, oldest first; the last one covers all before it."""

    @property
    def head(self) -> Head:
        """Head of the journal up to here."""
        return self.place.head

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
            if head.entries > self.head.entries:
                raise JournalCutError(
                    f'journal {self.path} was cut: it ends with entry {self.head.entries}, '
                    f'and {who} saw {head}'
                )

    def check_keys(self, keys: Collection[bytes] | None) -> None:
        """
        Check who signed, once :meth:`entries` came to its end.

        :param keys: public keys that the party has or had; None if nobody knows.
        :raises JournalSignatureError: if another one signed.
        """
        for public in self.keys:
            if keys is not None and public not in keys:
                raise JournalSignatureError(
                    f'journal {self.path}: signed by {fingerprint(public)}, which never was a key '
                    f'of {self.party}'
                )

    def damaged(self, problem: str) -> JournalDamagedError:
        """Return the error that says what is wrong with the entry that follows."""
        number = self.head.entries + 1
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
        signed, signature = _SIGNED + line[: -len(_ENDING)] + b'}', bytes.fromhex(entry.signature)
        self._unchecked.append(_Signed(entry.number, public, signature, signed))
        if len(self._unchecked) == _AT_ONCE:
            self._check_signatures()
        for who, head in self.seen.items():
            if head.entries == entry.number and not entry.digest.startswith(head.digest):
                raise self.damaged(f'it is another one than {who} saw')
        self.place = Position(entry.head, place.end, place.end + len(line) + ending, public)
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
            entries, digest = self.head
            expected = f'{{"number":{entries + 1},"previous":"{digest.hex()}",'.encode()
            if not line.startswith(expected[: len(line)]) or begins_whole(line):
                raise self.damaged(str(error)) from error
            self.cut_short = True
            return
        yield self._take(line, 0)

    def _check_owner(self, entry: Entry) -> None:
        self.party = self.party or entry.party
        self.federation = self.federation or entry.federation
        for what in ('party', 'federation'):
            found, expected = getattr(entry, what), getattr(self, what)
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
    return JournalReader(path, quick=True).entries()
