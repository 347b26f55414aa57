# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
What a party keeps of its messages for who missed them, and the order in which others get them.

A stream is all messages of one kind from one sender to all, or to one addressee. The counters that
the sender signed number it, so that a restart of either end changes nothing.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Final

from fdrl_ros.errors import MessageError
from fdrl_ros.federation.local_driver import PASSING
from fdrl_ros.federation.protocol import message as protocol
from fdrl_ros.federation.protocol.message import KINDS, Message, message_from_bytes

LARGEST_MESSAGE: Final = 2**26
"""Bytes of one message; more is refused, as over ROS 2."""

KEPT: Final[Mapping[type[Message], int]] = {
    protocol.Blame: 64,
    protocol.Complaint: 64,
    protocol.Dispute: 64,
    protocol.GlobalPolicy: 8,
    protocol.MaskedUpdate: 64,
    protocol.Opening: 64,
    protocol.Relay: 64,
    protocol.Verdict: 8,
    protocol.Wanted: 64,
}
"""How many messages of a stream count; of other kinds only the newest to each addressee."""

MOST_KEPT: Final = 2**27
"""Bytes of a stream that are kept; the newest message always is."""

MOST_WAITING: Final = 2**27
"""Bytes that wait for what was lost before them; see :class:`FairBound`."""

JOINS: Final = -2
"""In place of a counter: nothing was asked of that stream yet."""

NONE: Final = -1
"""In place of a counter: there is nothing in that stream."""

NOT_FOR_JOINERS: Final = frozenset(PASSING) - {protocol.MaskedUpdate}
"""Kinds that counted only when they were sent; a server that starts again gets updates."""

ADDRESSED: Final = frozenset(
    kind for kind in KINDS.values() if 'to' in {each.name for each in fields(kind)}
)
"""Kinds that are for one party each."""

_MARKS = {'most': 4 * len(KINDS)}


@dataclass(frozen=True)
class Frame:
    """A message, and the counter of the one before it in its stream; NONE if there is none."""

    previous: int
    message: bytes


@dataclass(frozen=True)
class Mark:
    """The counter of a message of a kind."""

    kind: str
    counter: int


@dataclass(frozen=True)
class Marks:
    """
    Where some streams are.

    :param question: number that whoever asks draws, and the answer repeats; 0 where nobody asked.
    """

    marks: tuple[Mark, ...] = field(metadata=_MARKS)
    question: int = 0

    def __post_init__(self) -> None:
        """Refuse a kind that comes twice: its messages would be sent twice."""
        if len({each.kind for each in self.marks}) != len(self.marks):
            raise MessageError('', 'a kind of messages is named twice')


@dataclass
class _Stream:
    newest: int = NONE
    size: int = 0
    kept: deque[tuple[int, bytes]] = field(default_factory=deque)

    def add(self, counter: int, data: bytes, depth: int) -> None:
        self.newest = max(self.newest, counter)
        self.kept.append((counter, data))
        self.size += len(data)
        while len(self.kept) > depth or (self.size > MOST_KEPT and len(self.kept) > 1):
            self.size -= len(self.kept.popleft()[1])


def addressee(message: Message) -> str:
    """Return whom a message is for; '' for everybody."""
    return getattr(message, 'to', '')


def read(sender: str, frame: Frame) -> Message:
    """
    Read the message of a frame.

    :param sender: who may have sent it, by where it came.
    :raises MessageError: if it is none, or of another sender.
    """
    if len(frame.message) > LARGEST_MESSAGE:
        raise MessageError(sender, f'more than {LARGEST_MESSAGE} bytes')
    message = message_from_bytes(frame.message)
    if message.sender != sender:
        raise MessageError(sender, f'sent a message in the name of {message.sender[:40]!r}')
    return message


class Outbox:
    """What a party sent since it began, as far as others may still need it."""

    def __init__(self) -> None:
        """Begin without any."""
        self._streams: dict[tuple[type[Message], str], _Stream] = {}

    def add(self, message: Message) -> Frame:
        """
        Keep a message.

        :raises MessageError: if it is too long to be sent.
        """
        kind, data = type(message), message.to_bytes()
        if len(data) > LARGEST_MESSAGE:
            raise MessageError(message.sender, f'{len(data)} bytes: at most {LARGEST_MESSAGE}')
        stream = self._streams.setdefault((kind, addressee(message)), _Stream())
        previous, counter = stream.newest, message.envelope.counter
        stream.add(counter, data, KEPT.get(kind, 1))
        return Frame(previous if previous < counter else NONE, data)

    @property
    def addressees(self) -> frozenset[str]:
        """Who has a stream of their own; '' stands for everybody."""
        return frozenset(to for _, to in self._streams)

    def newest(self, to: str) -> Marks:
        """Return where the streams to an addressee are, or with '' those to everybody."""
        found = ((kind, each) for (kind, whom), each in self._streams.items() if whom == to)
        return Marks(tuple(Mark(kind.__name__, each.newest) for kind, each in found))

    def missing(self, known: Marks, to: str) -> tuple[list[Frame], Marks]:
        """
        Return what a party lacks.

        :param known: the newest message that it has of each kind; with JOINS it gets nothing that
            counted only when it was sent.
        :param to: its name.
        :returns: the messages, and where the streams are of which it lacks nothing.
        """
        frames, settled = [], []
        for name, counter in ((each.kind, each.counter) for each in known.marks):
            kind = KINDS.get(name, Message)
            stream = self._streams.get((kind, to if kind in ADDRESSED else ''), _Stream())
            joins = counter == JOINS and kind in NOT_FOR_JOINERS
            lacking = [] if joins else [each for each in stream.kept if each[0] > counter]
            if not lacking:
                settled.append(Mark(name, stream.newest))
            for at, data in lacking:
                frames.append(Frame(counter, data))
                counter = at
        return frames, Marks(tuple(settled))


class FairBound:
    """
    Bytes of several senders that are held at once, so that one who floods leaves room for others.

    A sender may hold as many bytes as are free (dynamic thresholds, Choudhury and Hahne 1998): one
    by itself half of all, two of them a third each.
    """

    def __init__(self, most: int) -> None:
        """Begin without any of at most so many bytes."""
        self._most, self._total = most, 0
        self._held: dict[str, int] = {}

    def add(self, sender: str, size: int) -> bool:
        """Hold further bytes of a sender, or return False where they are too many."""
        held = self._held.get(sender, 0) + size
        if held > self._most - self._total - size:
            return False
        self._held[sender], self._total = held, self._total + size
        return True

    def remove(self, sender: str, size: int) -> None:
        """Hold so many bytes less of a sender."""
        self._total -= size
        self._held[sender] -= size
        if not self._held[sender]:
            del self._held[sender]


class Inbox:
    """Hands on each message once, those of one stream in order; knows what was lost."""

    def __init__(self, takes: Iterable[type[Message]], name: str) -> None:
        """
        Begin without any.

        :param takes: kinds that the party takes.
        :param name: of the party.
        """
        self._takes = {kind.__name__: kind for kind in takes}
        self._name = name
        self._last: dict[tuple[str, str], int] = {}
        self._waiting: dict[tuple[str, str], dict[int, tuple[Frame, Message]]] = {}
        self._held = FairBound(MOST_WAITING)
        self.behind: set[str] = set()
        """Senders of which something is missing."""

    def known(self, sender: str) -> Marks:
        """Return the newest message of each kind that came of a sender, all before it too."""
        return Marks(
            tuple(Mark(name, self._last.get((sender, name), JOINS)) for name in self._takes)
        )

    def take(self, sender: str, frame: Frame) -> list[Message]:
        """
        Take a message.

        :param sender: who may have sent it, by where it came.
        :returns: what can be handed on now, in order.
        :raises MessageError: if it is none, of another sender, or not for this party.
        """
        message = read(sender, frame)
        name = type(message).__name__
        if name not in self._takes or addressee(message) not in ('', self._name):
            raise MessageError(sender, f'{name} is not for {self._name}')
        key, counter = (sender, name), message.envelope.counter
        last = self._last.get(key, JOINS)
        if counter <= last or counter in self._waiting.get(key, ()):
            return []
        if type(message) in KEPT and frame.previous > max(last, NONE):
            self.behind.add(sender)
            if self._held.add(sender, len(frame.message)):
                self._waiting.setdefault(key, {})[counter] = frame, message
            return []
        self._last[key] = counter
        return [message, *self._released(key)]

    def note(self, sender: str, newest: Marks) -> None:
        """Learn where the streams of a sender are."""
        for each in newest.marks:
            last = self._last.get((sender, each.kind), JOINS)
            if each.kind in self._takes and each.counter > last:
                self.behind.add(sender)

    def settle(self, sender: str, settled: Marks) -> list[Message]:
        """
        Take a sender's answer: up to where nothing is missing of some streams.

        :returns: what can be handed on now, in order.
        """
        released = []
        for each in settled.marks:
            if each.kind in self._takes:
                key = sender, each.kind
                # What came meanwhile waits for messages that do not count for this party.
                released += self._released(key, each.counter)
                self._last[key] = max(each.counter, self._last.get(key, JOINS))
                released += self._released(key)
        self.behind.discard(sender)
        if any(name == sender and waiting for (name, _), waiting in self._waiting.items()):
            self.behind.add(sender)
        return released

    def _released(self, key: tuple[str, str], settled: int = NONE) -> list[Message]:
        """Take out what waits for nothing any more, or only for what was settled."""
        released, waiting = [], self._waiting.get(key, {})
        for counter in sorted(waiting):
            frame, message = waiting[counter]
            if frame.previous > self._last.get(key, JOINS) and counter > settled:
                break
            del waiting[counter]
            self._held.remove(key[0], len(frame.message))
            if counter > self._last.get(key, JOINS):
                self._last[key] = counter
                released.append(message)
        return released
