# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The one form of bytes of a message: what is signed, stored, and carried where ROS is not.

Each value is a letter of its type, its length where it has one, then its bytes; a record is its
fields in their order. Equal values have equal bytes, and no two values share them. Reading takes
exactly what a type wants, so that every bit of what is read back was written so.
"""

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from enum import IntEnum
from functools import cache, lru_cache
import struct
from typing import Any, Final, get_args, get_origin, get_type_hints, TypeVar

from fdrl_ros.errors import MessageError
from fdrl_ros.policy import decode_weights, encode_weights
import numpy as np

R = TypeVar('R')

MOST_BYTES = 2**28
"""Longest message that is read."""

_NAME: Final = 63  # letters of the longest name of a hospital
_SHORT: Final = 2**12
"""Bytes up to which a message is kept as it was read: many of them are read to be checked."""

_LENGTH = struct.Struct('<I')


def encode(value: object) -> bytes:
    """
    Write a value down.

    :param value: bool, int below 2^63, float, str, bytes, an array of weights, a tuple of these or
        a dataclass.
    """
    return _writer(type(value))(value)  # type: ignore[arg-type]


def decode(data: bytes, kind: type[R]) -> R:
    """
    Read what :func:`encode` wrote.

    :raises MessageError: if it is not a value of that kind in its one form.
    """
    reader = Reader(data)
    value = reader.read(kind)
    reader.end()
    return value


ENCODED: Final = '_encoded'
"""Attribute of a dataclass that goes into many messages: what :func:`encode_fields` wrote."""


def encode_fields(value: object) -> bytes:
    """
    Write down the fields of a dataclass, one after the other.

    A dataclass in a field of metadata `flat` counts as the fields that it has.
    """
    return b''.join(
        [
            encode_fields(getattr(value, name)) if flat else encode(getattr(value, name))
            for name, flat in _names(type(value))  # type: ignore[arg-type]
        ]
    )


def _write_text(value: str) -> bytes:
    data = value.encode()
    return b's' + _LENGTH.pack(len(data)) + data


_write_short = lru_cache(2**15)(_write_text)


def _write_name(value: str) -> bytes:
    """Write a name: those of hospitals come in many lists, what is longer than one is not kept."""
    return _write_short(value) if len(value) <= _NAME else _write_text(value)


def _write_tuple(value: tuple[Any, ...]) -> bytes:
    write = _write_name if {*map(type, value)} == {str} else encode
    return b't' + _LENGTH.pack(len(value)) + b''.join(map(write, value))


_WRITERS: dict[type, Callable[[Any], bytes]] = {
    bool: lambda value: b'b' + struct.pack('<?', value),
    int: lambda value: b'i' + struct.pack('<q', value),
    float: lambda value: b'f' + struct.pack('<d', value),
    str: _write_text,
    bytes: lambda value: b'y' + _LENGTH.pack(len(value)) + value,
    tuple: _write_tuple,
    np.ndarray: lambda value: encode(encode_weights(value)),
}


@cache
def _writer(kind: type) -> Callable[[Any], bytes]:
    """Return what writes values of a type, or of one derived from it."""
    for each, write in _WRITERS.items():
        if issubclass(kind, each):
            return write
    if is_dataclass(kind):
        return lambda value: b'm' + (value.__dict__.get(ENCODED) or encode_fields(value))
    raise TypeError(f'a message cannot hold a {kind.__name__}')


@cache
def _names(kind: type[Any]) -> list[tuple[str, bool]]:
    return [(each.name, 'flat' in each.metadata) for each in fields(kind)]


class Reader:
    """Reads values of known types from untrusted bytes, which it never copies whole."""

    def __init__(self, data: bytes) -> None:
        """
        Begin at the first byte.

        :raises MessageError: if there are too many.
        """
        if len(data) > MOST_BYTES:
            raise MessageError('', f'{len(data)} bytes: at most {MOST_BYTES}')
        self._data = data
        self._at = 0

    def read(self, kind: type[R]) -> R:
        """
        Read the next value.

        :param kind: bool, int, float, str, bytes, tuple[kind, ...] or a dataclass.
        :raises MessageError: if what comes next is not one, in its one form.
        """
        value: R = _reader(kind)(self)  # type: ignore[arg-type]
        return value

    def fields_of(self, kind: type[Any]) -> dict[str, Any]:
        """
        Read the fields of a dataclass, one after the other.

        :raises MessageError: if they are none, or one is longer than it may be.
        """
        values = {}
        for name, most, read in _fields(kind):  # type: ignore[arg-type]
            # Before anything of it is read: what is too long must not take memory.
            if most is not None and (count := self._peek_length()) > most:
                raise MessageError('', f'{count} of {name}: at most {most}')
            values[name] = read(self)
        return values

    def record_of(self, kind: type[Any]) -> Any:
        """Read a dataclass; one with `keeps_bytes` has the bytes that it was read from, if few."""
        start = self._at
        record = kind(**self.fields_of(kind))
        if getattr(kind, 'keeps_bytes', False) and self._at - start <= _SHORT:
            record.__dict__[ENCODED] = self._data[start : self._at]
        return record

    def end(self) -> None:
        """
        Refuse what is left over.

        :raises MessageError: if anything is.
        """
        if self._at != len(self._data):
            raise MessageError('', f'{len(self._data) - self._at} bytes after the end')

    def take(self, count: int) -> bytes:
        """Take so many bytes."""
        taken = self._data[self._at : self._at + count]
        if len(taken) != count:
            raise MessageError('', 'the bytes end early')
        self._at += count
        return taken

    def tagged(self, letter: bytes, form: str) -> Any:
        """Take a letter and a number of a fixed size."""
        self.letter(letter)
        (value,) = struct.unpack(form, self.take(struct.calcsize(form)))
        return value

    def letter(self, wanted: bytes) -> None:
        """Take the letter of a type."""
        if (found := self.take(1)) != wanted:
            raise MessageError('', f'{found!r} where {wanted!r} was expected')

    def _peek_length(self) -> int:
        """Return how long the next value says that it is, if it has a length."""
        head = self._data[self._at + 1 : self._at + 5]
        return int.from_bytes(head, 'little') if len(head) == 4 else 0

    def length(self, letter: bytes) -> int:
        """Take a letter and a length, which cannot be more than there is."""
        count: int = self.tagged(letter, '<I')
        if count > len(self._data) - self._at:
            raise MessageError('', f'a length of {count} beyond the end')
        return count

    def texts(self, count: int) -> tuple[str, ...]:
        """Take so many texts; lists of names have thousands."""
        data, at, found = self._data, self._at, []
        try:
            for _ in range(count):
                start = at + 5
                end = start + int.from_bytes(data[at + 1 : start], 'little')
                if data[at : at + 1] != b's' or not start <= end <= len(data):
                    raise MessageError('', 'a text was expected, or it ends early')
                found.append(data[start:end].decode())
                at = end
        except UnicodeDecodeError as error:
            raise MessageError('', 'a text is not UTF-8') from error
        self._at = at
        return tuple(found)


def _flag(reader: Reader) -> bool:
    reader.letter(b'b')
    byte = reader.take(1)
    if byte not in (b'\0', b'\1'):
        raise MessageError('', f'{byte!r} is neither yes nor no')
    return byte == b'\1'


def _member(kind: type[IntEnum], number: int) -> IntEnum:
    try:
        return kind(number)
    except ValueError as error:
        raise MessageError('', f'{number} is no {kind.__name__}') from error


def _weights(data: bytes) -> np.ndarray:
    return decode_weights(data, len(data) // 4)


_PLAIN: dict[object, Callable[[Reader], object]] = {
    bool: _flag,
    int: lambda reader: reader.tagged(b'i', '<q'),
    float: lambda reader: reader.tagged(b'f', '<d'),
    str: lambda reader: reader.texts(1)[0],
    bytes: lambda reader: reader.take(reader.length(b'y')),
}


@cache
def _reader(kind: Any) -> Callable[[Reader], Any]:
    """Return what reads values of a type."""
    if kind in _PLAIN:
        return _PLAIN[kind]
    if kind == tuple[str, ...]:
        return lambda reader: reader.texts(reader.length(b't'))
    if get_origin(kind) is tuple:
        item = _reader(get_args(kind)[0])
        return lambda reader: tuple(item(reader) for _ in range(reader.length(b't')))
    if np.ndarray in (kind, get_origin(kind)):
        return lambda reader: _weights(reader.read(bytes))
    if issubclass(kind, IntEnum):
        return lambda reader: _member(kind, reader.read(int))

    def record(reader: Reader) -> object:
        reader.letter(b'm')
        return reader.record_of(kind)

    return record


@cache
def _fields(kind: type[Any]) -> list[tuple[str, int | None, Callable[[Reader], object]]]:
    """Return name, greatest length and reader of each field of a dataclass."""
    hints = get_type_hints(kind)

    def reads(name: str, flat: bool) -> Callable[[Reader], object]:
        part = hints[name]
        return (lambda reader: part(**reader.fields_of(part))) if flat else _reader(part)

    return [
        (f.name, f.metadata.get('most'), reads(f.name, 'flat' in f.metadata)) for f in fields(kind)
    ]
