# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
An entry of a round journal: one line that says what its party did, chained and signed.

Line i holds head i-1, and head i = SHA-256(line i). The signature is the last value of the line
and covers all before it, so that each entry vouches for every earlier one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
import hashlib
import json
from numbers import Integral
import re
from typing import Any, Final, NamedTuple

from fdrl_ros.crypto.keys.signing import fingerprint, Identity, SIGNATURE_BYTES
from fdrl_ros.errors import JournalError
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
    'operator': ('operator', 'action', 'hospital'),
    # of a hospital
    'sent': ('update', 'ledger'),
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


def beginning_after(previous: Head) -> bytes:
    """Return how the line of the entry that follows a head must begin."""
    return f'{{"number":{previous.entries + 1},"previous":"{previous.digest.hex()}",'.encode()


def signed_part(line: bytes) -> bytes:
    """Return what the signature of a line covers."""
    return _SIGNED + line[: -len(_ENDING)] + b'}'


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
        return isinstance(value, list) and all(_fits(item, form[0]) for item in value)
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
_TEXT: Final = re.compile(rf'(?s:.{{0,{MOST_LETTERS}}})')
VALUES: Final[dict[str, object]] = {
    **dict.fromkeys(('public', 'digest', 'sum', 'before', 'policy', 'update'), _OF_HASH),
    **dict.fromkeys(('members', 'survivors', 'dropped', 'seeds', 'masks'), [_OF_NAME]),
    **dict.fromkeys(('reason', 'action', 'hospital'), _TEXT),
    **dict.fromkeys(('rolled_back', 'included'), bool),
    'form': range(FORM, FORM + 1),
    'ledger': _OF_HEAD,
    'operator': _OF_NAME,
    'contributors': {None: {'size': range(2**63), 'update': _OF_HASH, 'ledger': _OF_HEAD}},
}
"""
The form of every field: a pattern of texts, a range of numbers, a list of a form, or a mapping.
"""
