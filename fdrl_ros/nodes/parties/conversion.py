# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Messages of the protocol to ROS messages and back, by the names of their fields.

Both sides have the same fields; the ROS side has a header besides. What comes from the wire is
checked for what Python or the signature's encoding cannot hold, before anybody looks at it.
"""

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, get_args, get_origin, get_type_hints, TypeVar

from fdrl_ros.errors import MessageError
from fdrl_ros.federation.protocol.message import Envelope, Message
import fdrl_ros.msg as ros

M = TypeVar('M', bound=Message)

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
    sender = source.envelope.sender
    room = [LARGEST_MESSAGE]

    def number(value: int) -> int:
        if value > _LARGEST_INTEGER:
            raise MessageError(sender, f'the number {value} is out of range')
        return value

    def payload(value: Any) -> bytes:
        room[0] -= len(value)
        if room[0] < 0:
            raise MessageError(sender, f'more than {LARGEST_MESSAGE} bytes')
        return bytes(value)

    def short(name: str, most: int, read_it: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def take(value: Any) -> Any:
            if len(value) > most:
                raise MessageError(sender, f'{len(value)} of {name}: at most {most}')
            return read_it(value)

        return take

    def read(source: Any, kind: type[Any]) -> Any:
        return kind(**{name: take(getattr(source, name)) for name, take in readers(kind).items()})

    def readers(kind: type[Any]) -> dict[str, Callable[[Any], Any]]:
        found = {name: reader(hint) for name, hint in get_type_hints(kind).items()}
        limits = {each.name: each.metadata.get('most') for each in fields(kind)}
        return found | {
            name: short(name, most, found[name]) for name, most in limits.items() if most
        }

    def reader(hint: Any) -> Callable[[Any], Any]:
        if hint is bytes:
            return payload
        if hint is int:
            return number
        if isinstance(hint, type) and issubclass(hint, Message | Envelope):
            return lambda value: read(value, hint)
        if get_origin(hint) is tuple:
            item = reader(get_args(hint)[0])
            return lambda values: tuple(item(value) for value in values)
        return lambda value: value

    made: M = read(source, kind)
    return replace(made, **apart)


def _item_to_ros(item: Any) -> Any:
    """Convert one item of a sequence: a string or a message."""
    if isinstance(item, Message):
        return to_ros(item, getattr(ros, type(item).__name__)())
    return item
