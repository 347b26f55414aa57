# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Messages of the protocol to ROS messages and back, by the names of their fields.

Both sides have the same fields; the ROS side has a header besides. What comes from the wire is
checked for what Python or the signature's encoding cannot hold, before anybody looks at it.
"""

from dataclasses import fields, replace
from functools import cache
from typing import Any, get_args, get_origin, get_type_hints, TypeVar

from fdrl_ros.errors import MessageError
from fdrl_ros.federation.protocol.message import Envelope, Message
import fdrl_ros.msg as ros

M = TypeVar('M', bound=Message | Envelope)

LARGEST_MESSAGE = 2**26
"""Bytes of all payloads of one message; more is refused."""

_LARGEST_INTEGER = 2**63 - 1


def to_ros(message: Message | Envelope, target: Any) -> Any:
    """
    Fill a ROS message.

    :param target: a new ROS message or service request with the fields of `message`.
    :returns: `target`.
    """
    for each in fields(message):
        value = getattr(message, each.name)
        if isinstance(value, bytes):
            getattr(target, each.name).frombytes(value)
        elif isinstance(value, Message | Envelope):
            to_ros(value, getattr(target, each.name))
        elif isinstance(value, tuple):
            setattr(target, each.name, [_item_to_ros(item) for item in value])
        else:
            setattr(target, each.name, value)
    return target


def from_ros(source: Any, kind: type[M], **apart: Any) -> M:
    """
    Read a ROS message or service request.

    :param source: whose fields are those of `kind`.
    :param apart: fields that came beside it.
    :raises MessageError: if it holds a number or a payload that no honest sender would send.
    """
    return replace(_RosReader(source.envelope.sender).read(source, kind), **apart)


def envelope_from_ros(source: Any) -> Envelope:
    """
    Read an envelope that came without a message of the protocol.

    :raises MessageError: as :func:`from_ros`.
    """
    return _RosReader(source.sender).read(source, Envelope)


class _RosReader:
    """Reads one message; its payloads share the room that there is."""

    def __init__(self, sender: str) -> None:
        self._sender, self._room = sender, LARGEST_MESSAGE

    def read(self, source: object, kind: type[M]) -> M:
        values = {
            name: self._value(getattr(source, name), hint, name, most)
            for name, hint, most in _fields(kind)  # type: ignore[arg-type]
        }
        return kind(**values)

    def _value(self, value: Any, hint: Any, name: str = '', most: int | None = None) -> Any:
        if most and len(value) > most:
            raise MessageError(self._sender, f'{len(value)} of {name}: at most {most}')
        if hint is bytes:
            self._room -= len(value)
            if self._room < 0:
                raise MessageError(self._sender, f'more than {LARGEST_MESSAGE} bytes')
            return bytes(value)
        if hint is int and value > _LARGEST_INTEGER:
            raise MessageError(self._sender, f'the number {value} is out of range')
        if get_origin(hint) is tuple:
            return tuple(self._value(item, get_args(hint)[0]) for item in value)
        return self.read(value, hint) if hasattr(hint, '__dataclass_fields__') else value


@cache
def _fields(kind: type[Any]) -> list[tuple[str, Any, int | None]]:
    """Return name, type and greatest length of each field."""
    hints = get_type_hints(kind)
    return [(each.name, hints[each.name], each.metadata.get('most')) for each in fields(kind)]


def _item_to_ros(item: object) -> Any:
    """Convert one item of a sequence: a string or a message."""
    if isinstance(item, Message):
        return to_ros(item, getattr(ros, type(item).__name__)())
    return item
