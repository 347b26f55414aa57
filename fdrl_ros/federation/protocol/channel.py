# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Sign the messages that a party sends, and check those that it receives."""

from collections import Counter
from collections.abc import Callable, Mapping
import time
from typing import Any, Final, TypeVar

from fdrl_ros.crypto.keys.roster import Member, Roster
from fdrl_ros.crypto.keys.signing import Identity
from fdrl_ros.errors import MessageError, ReplayError, RosterError, RoundError, SignatureError
from fdrl_ros.federation.journal.journal import Journal
from fdrl_ros.federation.protocol import message as protocol
from fdrl_ros.federation.protocol.message import AttemptId, Message, Phase
from fdrl_ros.federation.protocol.party import Effects, worth_logging
from fdrl_ros.federation.protocol.store import Store

M = TypeVar('M', bound=Message)

Takes = Mapping[type[Message], tuple[str, ...]]
"""Kinds of messages, and the roles in the roster that may send each."""

MOST_COUNT = 10**18
"""No round, attempt or counter gets that far."""


def check_signed(roster: Roster, message: Message, *roles: str) -> Member:
    """
    Check the sender of a message, whatever its counter.

    :param roles: in the roster, of who may send it.
    :returns: the sender.
    :raises SignatureError: unless a member of such a role signed exactly this.
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
    if member.role not in roles:
        raise SignatureError(member.name, f'a {member.role} cannot speak as {" or ".join(roles)}')
    if not message.is_signed_by(member.public):
        raise SignatureError(envelope.sender, f'bad signature on {type(message).__name__}')
    return member


class Receiver:
    """Checks messages without a key of its own."""

    def __init__(self, roster: Roster) -> None:
        """Begin without any message."""
        self.roster = roster
        self.counters: dict[tuple[str, type[Message]], int] = {}

    def check(self, message: Message, takes: Takes, party: str) -> None:
        """
        Check that a message is new, and sent by who may send it to this party.

        :param takes: the kinds that the party takes.
        :param party: what it is, in words.
        :raises SignatureError: unless a member of the right role signed exactly this.
        :raises RoundError: if it is of another kind or federation.
        :raises ReplayError: if its counter is not above the last one received.
        """
        kind, name = type(message), type(message).__name__
        if kind not in takes:
            raise RoundError(message.sender, f'{name} to {party}')
        check_signed(self.roster, message, *takes[kind])
        if message.is_bare:  # with the counter of the whole one, which may come yet
            raise SignatureError(message.sender, f'{name} without what its root stands for')
        key, counter = (message.sender, kind), message.envelope.counter
        if counter <= self.counters.get(key, -1):
            raise ReplayError(message.sender, f'{name} counter {counter}')
        self.counters[key] = counter


class Channel(Receiver):
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
        super().__init__(roster)
        self.name = identity.name
        self.clock = clock
        self.journal = journal or Journal(None, identity, roster.federation)
        self._identity = identity
        self._store = store

    def check_roster(self) -> None:
        """
        Refuse to go on with a roster that expired while this party was running.

        :raises RosterTimeError: if it did, or is not valid yet.
        """
        self.roster.check_time(self.clock())

    def sign(self, kind: type[M], round: int, attempt: int, **fields: object) -> M:
        """Make a signed message of this party; what it says in words is shortened."""
        if isinstance(reason := fields.get('reason'), str):
            fields['reason'] = protocol.shortened(reason)
        envelope = protocol.Envelope(
            self.roster.federation, round, attempt, self.name, self._store.next_counter()
        )
        return kind(envelope=envelope, **fields).signed_by(self._identity)

    def signature(self, data: bytes) -> bytes:
        """Sign what is a part of a message and has to prove something without the rest."""
        return self._identity.sign(data)

    def send(self, kind: type[Message], at: AttemptId, **fields: Any) -> Effects:
        """Have a signed message of this party sent."""
        return Effects((self.sign(kind, *at, **fields),))


OBSERVED: Final[Takes] = {
    protocol.Blame: ('aggregator',),
    protocol.GlobalPolicy: ('key_authority',),
    protocol.HospitalPolicy: ('hospital',),
    protocol.MaskedUpdate: ('hospital',),
    protocol.RoundStatus: ('aggregator',),
}
"""Kinds that an observer takes, and the roles that may send each."""


class MessageVerifier(Receiver):
    """
    Checks every message as a party does; sends nothing.

    :param finished: whether the aggregator's newest status is FINISHED.
    """

    finished = False

    def accept(self, message: Message) -> None:
        """
        Check signature, role and counter of a message.

        :raises MessageError: as :meth:`check`, or if its phase does not exist.
        """
        status = message if isinstance(message, protocol.RoundStatus) else None
        if status and status.phase not in set(Phase):
            raise MessageError(message.sender, f'there is no phase {status.phase}')
        self.check(message, OBSERVED, 'an observer')
        if status:
            self.finished = status.phase == Phase.FINISHED


class RosterMismatches:
    """
    A hospital's objections to the aggregator's roster, and what the aggregator logs of them.

    Each roster is reported once. A sender of ever new rosters is logged ever more seldom, so that
    it cannot fill the log.
    """

    def __init__(self, channel: Channel) -> None:
        """Begin without a known difference."""
        self._channel = channel
        self._reported: dict[str, bytes] = {}
        self._logged: Counter[str] = Counter()

    def object_to(self, status: protocol.RoundStatus) -> Effects | None:
        """
        Return a hospital's objection to the aggregator's roster, or None if both have the same.

        :raises RoundError: if it objected to this roster before.
        """
        sender, digest, roster = status.sender, status.roster_digest, self._channel.roster
        if digest == roster.digest_bytes:
            return None
        problem = f'{sender} goes by roster {self._difference(digest)}'
        if self._reported.get(sender) == digest:
            raise RoundError(sender, problem)
        ours = {'roster_serial': roster.serial, 'roster_digest': roster.digest_bytes}
        objection = self._channel.send(protocol.Objection, status.id, **ours)
        return objection + self._report(sender, digest, f'no part in the rounds: {problem}')

    def take(self, objection: protocol.Objection) -> Effects:
        """
        Log at the aggregator that a hospital takes no part, and why.

        :param objection: that was checked.
        """
        sender, digest = objection.sender, objection.roster_digest
        if digest == self._channel.roster.digest_bytes or self._reported.get(sender) == digest:
            return Effects()
        theirs = f'{objection.roster_serial}, {self._difference(digest)}'
        return self._report(sender, digest, f'{sender} takes no part: it goes by roster {theirs}')

    def _difference(self, digest: bytes) -> str:
        ours, name = self._channel.roster, self._channel.name
        own = f'{name} by number {ours.serial}, {ours.digest[:16]}'
        return f'{digest.hex()[:16]}, {own}: give both the newest one'

    def _report(self, sender: str, digest: bytes, problem: str) -> Effects:
        self._reported[sender] = digest
        self._logged[sender] += 1
        return Effects(notes=(problem,) if worth_logging(self._logged[sender]) else ())
