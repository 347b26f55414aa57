# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
One party's end of the links, whatever carries the bytes: sealed, in order, nothing lost.

What is put on the way is encrypted for the parties of the federation, so that a router sees who
sends what kind of message, when and how long it is. It may lose, repeat and reorder; what it loses
is asked for again. Keys are `fdrl/FEDERATION/SENDER/KIND`, and for one party `.../KIND/ADDRESSEE`.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
import math
import os
import secrets
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from fdrl_ros.crypto.keys.roster import Roster
from fdrl_ros.deployment.link.credentials import operator_key
from fdrl_ros.deployment.link.streams import (
    ADDRESSED,
    addressee,
    Frame,
    Inbox,
    Marks,
    Outbox,
    read,
)
from fdrl_ros.errors import MessageError, RosterError
from fdrl_ros.federation.protocol.channel import Takes
from fdrl_ros.federation.protocol.encoding import decode, encode
from fdrl_ros.federation.protocol.message import KINDS, Message, Order

Put = Callable[[str, bytes], None]
"""Sends bytes under a key, or loses them."""

SOON: Final = 0.5
"""Time after which a party says again where its streams are, or asks again, second; it doubles."""

SELDOM: Final = 8.0
"""Longest such time, second: what was lost is missed after it at the latest."""

_AGAIN, _ANSWER, _NEWEST, _TAKEN, _WANT = 'again', 'answer', 'newest', 'taken', 'want'
_NONCE = 12

LINK_VERSION: Final = 1
"""Of what links carry; another version is refused."""


def bound(key: str) -> bytes:
    """Return what an encryption is bound to: the version, and the key that it goes under."""
    return f'fdrl_ros/link/{LINK_VERSION} {key}'.encode()


@dataclass(frozen=True)
class Taken:
    """
    What a server says of an operator's order.

    :param counter: of the order.
    :param refusal: why it was not taken; empty if it was.
    """

    counter: int
    refusal: str


@dataclass
class _Pause:
    """Says ever more seldom that something is due."""

    due: float = 0.0
    length: float = SOON

    def over(self, now: float) -> bool:
        if now < self.due:
            return False
        self.due, self.length = now + self.length, min(2 * self.length, SELDOM)
        return True


class PartyLink:
    """Sends a party's messages, and hands it those of the others. Of one thread."""

    def __init__(
        self,
        name: str,
        roster: Roster,
        takes: Takes,
        key: bytes,
        put: Put,
        hear: Callable[[str, Taken], object] = lambda server, answer: None,
    ) -> None:
        """
        Begin; :meth:`tick` asks everybody for what is there already.

        :param name: of the party, or of an operator, who takes nothing.
        :param takes: what it takes, of which roles.
        :param key: 32 bytes that all parties have and no router; of an operator its own ones.
        :param hear: gets what a server says of this operator's orders.
        """
        self.name = name
        self._prefix = f'fdrl/{roster.federation}'
        self._roster = roster
        self._key, self._put, self._hear = key, put, hear
        self._operators = {each.name for each in roster.members if each.role == 'operator'}
        # Orders are no stream: an operator repeats one until it is answered.
        takes = {kind: roles for kind, roles in takes.items() if kind is not Order}
        self._takes = takes
        self._outbox = Outbox()
        self._inbox = Inbox(takes, name)
        self._told: dict[str, Taken] = {}
        self._now = 0.0
        self._questions: dict[str, int] = {}
        self._answered: dict[str, float] = {}
        roles = {role for each in takes.values() for role in each}
        self._senders = [
            each.name for each in roster.members if each.role in roles and each.name != name
        ]
        self.rejoin()

    @property
    def keys(self) -> tuple[str, ...]:
        """What to listen to."""
        shared = (kind.__name__ for kind in self._takes if kind not in ADDRESSED)
        return (
            *(f'{self._prefix}/*/{kind}' for kind in (*shared, _NEWEST) if self._takes),
            f'{self._prefix}/*/*/{self.name}',
        )

    def sender(self, key: str) -> str:
        """Return who may publish under a key, by the router's access control."""
        return key.removeprefix(f'{self._prefix}/').partition('/')[0]

    def rejoin(self) -> None:
        """Ask everybody for what was missed, as after the way was cut; see :meth:`tick`."""
        self._inbox.behind.update(self._senders)
        self._asked: dict[str, _Pause] = {}
        self._said, self._fresh = _Pause(), False

    def send(self, message: Message) -> None:
        """
        Send a message of this party, and keep it for who misses it.

        :raises MessageError: if it is too long.
        """
        frame = self._outbox.add(message)
        to = addressee(message)
        self._put_sealed(type(message).__name__, to, frame)
        self._fresh = True

    def answer(self, order: Order, refusal: str) -> None:
        """
        Tell an operator what became of an order, and again whenever it comes again.

        :param refusal: why it was not taken; empty if it was.
        """
        told = self._told[order.sender] = Taken(order.envelope.counter, refusal)
        self._put_sealed(_TAKEN, order.sender, told)

    def heard(self, key: str, payload: bytes) -> list[Message]:
        """
        Take what came under a key.

        :returns: messages for the party, in order; who signed them is for its channel to check.
        :raises MessageError: if no party of the federation sent that.
        """
        sender, what = self._place(key)
        try:
            data = self._seal(sender).decrypt(payload[:_NONCE], payload[_NONCE:], bound(key))
        except (InvalidTag, ValueError) as error:
            raise MessageError(
                sender, 'not sealed with the key of the links, or in another version'
            ) from error
        if what == _WANT:
            self._answer(sender, decode(data, Marks))
            return []
        if what == _NEWEST:
            self._inbox.note(sender, decode(data, Marks))
            return []
        if what == _ANSWER:
            answer = decode(data, Marks)
            if answer.question != self._questions.get(sender):
                return []  # to an older question: a router repeated one of the two
            del self._questions[sender]
            return self._inbox.settle(sender, answer)
        if what == _TAKEN:
            self._hear(sender, decode(data, Taken))
            return []
        if what == Order.__name__:
            return self._order(sender, decode(data, Frame))
        if what != _AGAIN and what not in KINDS:
            raise MessageError(sender, f'there is no {what[:40]!r}')
        released = self._inbox.take(sender, decode(data, Frame))
        if what == _AGAIN and sender in self._asked:
            self._asked[sender] = _Pause(self._now + SOON)  # the rest is on its way
        return released

    def tick(self, now: float) -> None:
        """
        Say where the own streams are, and ask for what is missing; several times a second.

        :param now: a steady clock, second.
        """
        self._now = now
        if self._fresh:
            self._said, self._fresh = _Pause(min(self._said.due, now + SOON)), False
        if self._outbox.addressees and self._said.over(now):
            for to in self._outbox.addressees:
                self._put_sealed(_NEWEST, to, self._outbox.newest(to))
        for sender in sorted(self._inbox.behind):
            if self._asked.setdefault(sender, _Pause()).over(now):
                number = self._questions[sender] = secrets.randbelow(2**62) + 1
                self._put_sealed(
                    _WANT, sender, replace(self._inbox.known(sender), question=number)
                )
        for sender in self._asked.keys() - self._inbox.behind:
            del self._asked[sender]

    def _answer(self, asker: str, known: Marks) -> None:
        if self._now < self._answered.get(asker, -math.inf) + SOON:
            return  # nobody asks so often, but a router may repeat a question
        self._answered[asker] = self._now
        frames, settled = self._outbox.missing(known, asker)
        for frame in frames:
            self._put_sealed(_AGAIN, asker, frame)
        self._put_sealed(_ANSWER, asker, replace(settled, question=known.question))

    def _order(self, sender: str, frame: Frame) -> list[Message]:
        """Return an order, unless it was answered before; then answer again."""
        order = read(sender, frame)
        if not isinstance(order, Order) or order.to != self.name:
            raise MessageError(sender, f'no order to {self.name}')
        told = self._told.get(sender)
        if told is not None and told.counter == order.envelope.counter:
            self._put_sealed(_TAKEN, sender, told)
            return []
        return [order]

    def _seal(self, other: str) -> ChaCha20Poly1305:
        """Return what encrypts between this party and another one."""
        shared = other in self._operators and self.name not in self._operators
        return ChaCha20Poly1305(operator_key(self._key, other) if shared else self._key)

    def _put_sealed(self, what: str, to: str, content: Frame | Marks | Taken) -> None:
        key = '/'.join((self._prefix, self.name, what, *((to,) if to else ())))
        nonce = os.urandom(_NONCE)
        self._put(key, nonce + self._seal(to).encrypt(nonce, encode(content), bound(key)))

    def _place(self, key: str) -> tuple[str, str]:
        """Return sender and kind that a key names."""
        words = key.removeprefix(f'{self._prefix}/').split('/')
        sender, what, to = [*words, ''][:3] if len(words) in (2, 3) else ('', '', key)
        if to not in ('', self.name):
            raise MessageError('', f'{key[:80]!r} is not for {self.name}')
        try:
            return self._roster.member(sender).name, what
        except RosterError as error:
            raise MessageError(sender, str(error)) from error
