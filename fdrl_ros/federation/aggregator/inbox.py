# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
What arrived at the aggregator in one attempt, and the lists that it made of it.

From the moment at which the survivors are fixed it is durable: an aggregator that is killed then
goes on in the same attempt, with the same survivors. Before, a new attempt costs little.
"""

from collections.abc import Collection
from functools import cached_property
import json

from fdrl_ros.crypto.keys.roster import Roster
from fdrl_ros.crypto.masking.share_sealing import KeyList, SEALED_BYTES
from fdrl_ros.errors import LateError, MessageError, RoundError, StoreError
from fdrl_ros.federation.aggregator.updates import Updates
from fdrl_ros.federation.protocol.attempt import (
    attempt_of,
    AttemptId,
    check_reveal,
    key_list,
    read_round_key,
    settle_digest,
    setup_digest,
    split_sealed,
)
from fdrl_ros.federation.protocol.channel import Channel
from fdrl_ros.federation.protocol.message import (
    Delivery,
    MaskedUpdate,
    Message,
    message_from_bytes,
    Phase,
    Reveal,
    RoundKey,
    Settle,
    Shares,
)
from fdrl_ros.federation.protocol.party import Outcome
from fdrl_ros.federation.protocol.store import Store

_LISTS = 'fixed'
_UPDATES = 'updates'
_MESSAGE = 'heard '


class Inbox:
    """Messages of one attempt by their senders; `keyed`, `members` and `survivors` are lists."""

    def __init__(self, roster: Roster, store: Store, of: AttemptId, terms: bytes = b'') -> None:
        """
        Begin an attempt with nothing.

        :param terms: digest of what the attempt rests on.
        """
        self._roster = roster
        self._store = store
        self.of = of
        self.terms = terms
        self.keyed: tuple[str, ...] = ()
        self.members: tuple[str, ...] = ()
        self.survivors: tuple[str, ...] = ()
        self.revealing = False
        """Whether enough survivors signed: the round is for this set, or for none."""
        self.keys: dict[str, RoundKey] = {}
        self.shares: dict[str, Shares] = {}
        self.updates = Updates(store, of)
        self.settles: dict[str, Settle] = {}
        self.reveals: dict[str, Reveal] = {}

    @classmethod
    def load(cls, roster: Roster, store: Store, of: AttemptId) -> 'Inbox | None':
        """
        Return an attempt as it was stored, if its survivors were fixed.

        :raises StoreError: if what is stored cannot be read.
        """
        lists = json.loads(store.get(_LISTS) or b'null')
        if lists is None or (lists['round'], lists['attempt']) != of:
            return None
        inbox = cls(roster, store, of, bytes.fromhex(lists['terms']))
        inbox.keyed, inbox.members = tuple(lists['keyed']), tuple(lists['members'])
        inbox.survivors, inbox.revealing = tuple(lists['survivors']), lists['revealing']
        try:
            for data in store.matching(f'{_MESSAGE}*').values():
                inbox._put(message_from_bytes(data))
            inbox.updates.load(store.get(_UPDATES) or b'{}')
        except Exception as error:
            raise StoreError(f'the state of the aggregator is damaged: {error}') from error
        return inbox

    def check(self, message: Message, phase: Phase, admitted: Collection[str]) -> bool:
        """
        Refuse a hospital's message that does not belong into this attempt as it stands.

        :param phase: the present one.
        :param admitted: hospitals that may take part.
        :returns: whether it is new: after a restart a hospital says the same again.
        :raises MessageError: if it is refused.
        """
        sender = message.envelope.sender
        if (of := attempt_of(message.envelope)) != self.of:
            refusal = LateError if of < self.of else RoundError
            raise refusal(sender, f'{type(message).__name__} of {of}, now at {self.of}')
        match message:
            case RoundKey():
                awaited, new = phase is Phase.OPEN, self._new_key(message, admitted)
            case Shares():
                awaited, new = phase is Phase.SHARE, sender not in self.shares
            case MaskedUpdate():
                awaited, new = phase is Phase.TRAIN, not self.updates.is_known(message)
            case _:
                # Once survivors are fixed in whatever phase: it is said once, and needed later.
                heard = self.settles if isinstance(message, Settle) else self.reveals
                awaited, new = bool(self.survivors), sender not in heard
        if not new:
            return False
        if not awaited:
            raise RoundError(sender, f'{type(message).__name__} in phase {phase.name}')
        match message:
            case Shares():
                self._check_shares(message, sender)
            case MaskedUpdate():
                self._check_update(message, sender)
            case Settle() | Reveal():
                told = settle_digest(self.setup_digest, self.survivors)
                if sender not in self.survivors or message.settle_digest != told:
                    raise RoundError(sender, 'signed other survivors')
        if isinstance(message, Reveal):
            check_reveal(message, self.members)
        return True

    def _new_key(self, message: RoundKey, admitted: Collection[str]) -> bool:
        sender = message.envelope.sender
        if sender not in admitted:
            raise RoundError(sender, 'is not admitted')
        keys = read_round_key(message, self.keys.values())
        known = self.keys.get(sender)
        if known is not None and read_round_key(known, ()) != keys:
            raise RoundError(sender, 'other round keys than before in the same attempt')
        return known is None

    def _check_shares(self, message: Shares, sender: str) -> None:
        if sender not in self.keyed:
            raise RoundError(sender, 'shares of a hospital whose keys are not in the list')
        if message.keys_digest != self.key_list.digest:
            raise RoundError(sender, 'shares for another list of keys')
        split_sealed(message.sealed, self.keyed[1:], sender)

    def _check_update(self, message: MaskedUpdate, sender: str) -> None:
        if sender not in self.members:
            raise RoundError(sender, 'update of a hospital that is no member of this attempt')
        known = self.updates.has(sender, message.chunk)
        if known or not 0 <= message.chunk < message.chunks:
            raise MessageError(sender, f'chunk {message.chunk} of {message.chunks}')
        if message.setup_digest != self.setup_digest:
            raise RoundError(sender, 'masked for other members')

    def add(self, message: Message) -> None:
        """Take a message that was checked; durably if the survivors are fixed."""
        self._put(message)
        if self.survivors:
            self._store.note(*_entry(message))

    def settle(self, survivors: tuple[str, ...]) -> None:
        """Fix the survivors, durably with all that was heard so far."""
        self.survivors = survivors
        heard = (*self.keys.values(), *self.shares.values())
        lists = {_UPDATES: self.updates.index(), _LISTS: self._lists()}
        self._store.replace([f'{_MESSAGE}*'], {**dict(map(_entry, heard)), **lists})

    def reveal(self) -> None:
        """Fix durably that the round is for these survivors or for none."""
        self.revealing = True
        self._store.put(_LISTS, self._lists())

    @cached_property
    def key_list(self) -> KeyList:
        """Return the list of keys that shares are made along, once it is fixed."""
        return key_list(
            self._roster, [self.keys[name] for name in self.keyed], self.of, self.terms
        )

    @cached_property
    def setup_digest(self) -> bytes:
        """Return what the members' masks are bound to, once they are fixed."""
        return setup_digest(self.key_list, self.members)

    def deliver(self, channel: Channel) -> Outcome:
        """Hand each member what the others sealed for it."""
        place = {each: place for place, each in enumerate(sorted(self.keyed))}
        members = sorted(self.members)
        messages = []
        for to in members:
            senders = tuple(each for each in members if each != to)
            sealed = []
            for sender in senders:
                # A sender seals nothing for itself.
                start = SEALED_BYTES * (place[to] - (place[sender] < place[to]))
                sealed.append(self.shares[sender].sealed[start : start + SEALED_BYTES])
            joined = b''.join(sealed)
            messages.append(
                channel.seal(Delivery, *self.of, to=to, senders=senders, sealed=joined)
            )
        return Outcome(tuple(messages))

    def lacking(self) -> list[str]:
        """Return the members of whose secrets there are too few revealed shares."""
        held = dict.fromkeys(self.members, len(self.reveals))
        for reveal in self.reveals.values():
            for name in reveal.missing:
                held[name] -= 1
        return [name for name, count in held.items() if count < self._roster.threshold]

    def _put(self, message: Message) -> None:
        sender = message.envelope.sender
        match message:
            case RoundKey():
                self.keys[sender] = message
            case Shares():
                self.shares[sender] = message
            case MaskedUpdate():
                self.updates.add(message)
            case Settle():
                self.settles[sender] = message
            case Reveal():
                self.reveals[sender] = message

    def _lists(self) -> bytes:
        round, attempt = self.of
        lists = {
            'round': round,
            'attempt': attempt,
            'keyed': self.keyed,
            'members': self.members,
            'survivors': self.survivors,
            'revealing': self.revealing,
            'terms': self.terms.hex(),
        }
        return json.dumps(lists).encode()


def _entry(message: Message) -> tuple[str, bytes]:
    """Return name and bytes of a message in the store."""
    name = f'{_MESSAGE}{type(message).__name__} {message.envelope.sender}'
    return name, message.to_bytes()
