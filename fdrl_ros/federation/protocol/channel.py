# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Sign the messages that a party sends, and check those that it receives."""

from collections.abc import Callable
import time
from typing import Any, TypeVar

from fdrl_ros.crypto.keys.roster import Member, Roster
from fdrl_ros.crypto.keys.signing import Identity, verify
from fdrl_ros.errors import ReplayError, RosterError, RoundError, SignatureError
from fdrl_ros.federation.journal.journal import Journal
from fdrl_ros.federation.protocol.message import Envelope, Message
from fdrl_ros.federation.protocol.store import Store

M = TypeVar('M', bound=Message)

MOST_COUNT = 10**18
"""No round, attempt or counter gets that far."""


def check_signed(roster: Roster, message: Message, role: str) -> Member:
    """
    Check the sender of a message; see :meth:`Channel.verify`, which needs a key of its own too.

    :raises SignatureError: unless a member of that role signed exactly this.
    :raises RoundError: if it belongs to another federation, or to no round that can be.
    """
    envelope = message.envelope
    if envelope.federation != roster.federation:
        raise RoundError(envelope.sender, f'of federation {envelope.federation!r}')
    place = envelope.round, envelope.attempt, envelope.counter
    if not all(0 <= number < MOST_COUNT for number in place):
        # Keys, stores and journals count from 0 and so far.
        raise RoundError(envelope.sender, f'round, attempt and counter cannot be {place}')
    try:
        member = roster.member(envelope.sender)
    except RosterError as error:
        raise SignatureError(envelope.sender, str(error)) from error
    if member.role != role:
        raise SignatureError(envelope.sender, f'a {member.role} cannot speak as a {role}')
    if not verify(member.public, envelope.signature, message.canonical()):
        raise SignatureError(envelope.sender, f'bad signature on {type(message).__name__}')
    return member


class Channel:
    """
    One party's end of the signed conversation.

    Counters grow per sender and kind of message: kinds travel on topics of their own, which may
    overtake each other. A party that starts again forgets the counters that it heard; what binds
    an old message then is its round and attempt.
    """

    def __init__(
        self,
        identity: Identity,
        roster: Roster,
        store: Store,
        journal: Journal | None = None,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """
        Sign as `identity` in the federation of `roster`.

        :param journal: where this party writes down what it does; in memory unless given.
        :param clock: tells seconds since 1970, by which a roster expires.
        :raises SignatureError: if the roster names another key for this identity.
        """
        if roster.member(identity.name).public != identity.public:
            raise SignatureError(identity.name, 'the roster holds another key for this name')
        self.name = identity.name
        self.clock = clock
        self.roster = roster
        self.journal = journal or Journal(None, identity, roster.federation)
        self._identity = identity
        self._store = store
        self.heard: dict[tuple[str, type[Message]], int] = {}

    def check_roster(self) -> None:
        """
        Refuse to go on with a roster that expired while this party was running.

        :raises RosterTimeError: if it did, or is not valid yet.
        """
        self.roster.check_time(self.clock())

    def seal(self, kind: type[M], round: int, attempt: int, **fields: Any) -> M:
        """Make a signed message of this party."""
        envelope = Envelope(
            self.roster.federation, round, attempt, self.name, self._store.next_counter()
        )
        return kind(envelope=envelope, **fields).signed_by(self._identity)

    def verify(self, message: Message, role: str) -> Member:
        """
        Check sender and signature, whatever the counter.

        :param role: role in the roster that may send this kind.
        :returns: the sender.
        :raises SignatureError: unless a member of that role signed exactly this.
        :raises RoundError: if it belongs to another federation.
        """
        return check_signed(self.roster, message, role)

    def accept(self, message: Message, role: str) -> Member:
        """
        Check sender and signature, and that the message is new.

        :raises ReplayError: if its counter is not above the last one received.
        """
        member = self.verify(message, role)
        key = (member.name, type(message))
        counter = message.envelope.counter
        if counter <= self.heard.get(key, -1):
            raise ReplayError(member.name, f'{type(message).__name__} counter {counter}')
        self.heard[key] = counter
        return member
