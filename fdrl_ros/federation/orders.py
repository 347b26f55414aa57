# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Orders of the federation's operators: signed, for one server, taken once and soon.

An order counts for :data:`ORDER_AGE` by the server's clock, and only if it was signed after the
last one of its operator that this server took. Of that the server's store keeps the time, so that
an order that somebody copied is of no use, also after a restart.
"""

from collections.abc import Mapping
import json
from typing import Final

from fdrl_ros.crypto.roster import utc
from fdrl_ros.crypto.signing import Identity
from fdrl_ros.errors import MessageError, OrderTimeError, ReplayError, RoundError
from fdrl_ros.federation.attempt import Try
from fdrl_ros.federation.channel import Channel
from fdrl_ros.federation.message import Envelope, Order
from fdrl_ros.federation.store import Store

ORDER_AGE: Final = 60.0
"""How far from a server's clock an order may have been signed, second."""

ADDRESSEES: Final[Mapping[str, str]] = {
    'pause': 'aggregator',
    'resume': 'aggregator',
    'stop': 'aggregator',
    'admit': 'aggregator',
    'withdraw': 'aggregator',
    'roll_back': 'key_authority',
}
"""Every order with the server that takes it."""

_OF_HOSPITALS: Final = ('admit', 'withdraw')
_MICRO: Final = 10**6  # counters of orders a second


def sign_order(
    operator: Identity,
    federation: str,
    action: str,
    now: float,
    *,
    hospital: str = '',
    to_round: int = 0,
) -> Order:
    """
    Make an order that its server takes within :data:`ORDER_AGE`.

    :param action: one of :data:`ADDRESSEES`.
    :param now: seconds since 1970 (UTC).
    :param hospital: to be admitted or withdrawn.
    :param to_round: whose policy to roll back to.
    """
    envelope = Envelope(federation, 0, 0, operator.name, int(now * _MICRO))
    order = Order(envelope, ADDRESSEES[action], action, hospital, to_round)
    return order.signed_by(operator)


def take_order(order: Order, channel: Channel, store: Store) -> None:
    """
    Check that an operator ordered this, of this party and now, and never let it count again.

    Whatever comes of an order, it is used up before anything is done.

    :raises SignatureError: unless an operator of the roster signed exactly this.
    :raises RoundError: if it is of another federation, for another party, or no order.
    :raises OrderTimeError: if it was not signed just now by this party's clock.
    :raises ReplayError: if it, or a later one of this operator, was taken before.
    """
    operator = channel.verify(order, 'operator').name
    if order.to != channel.name or ADDRESSEES.get(order.action) != channel.name:
        raise RoundError(
            operator, f'the order {order.action[:40]!r} to {order.to[:40]!r}, at {channel.name}'
        )
    if order.action not in _OF_HOSPITALS and order.hospital:
        raise MessageError(operator, f'{order.action} is about no hospital')
    counter, now = order.envelope.counter, channel.clock()
    age = now - counter / _MICRO
    if abs(age) > ORDER_AGE:
        when = 'before' if age > 0 else 'after'
        raise OrderTimeError(
            operator,
            f'{order.action} was signed {abs(age):.0f} s {when} {utc(now)}, which it is by the '
            f'clock of {channel.name}; orders count for {ORDER_AGE:.0f} s: set both clocks (NTP) '
            'and order again',
        )
    name = f'order {operator}'
    if counter <= store.get_number(name, -1):
        raise ReplayError(operator, f'{order.action} is not newer than the last order taken')
    store.put_number(name, counter)


def forget_orders(channel: Channel, store: Store) -> None:
    """Take no order that was signed before now: which were taken is not known any more."""
    now = int(channel.clock() * _MICRO)
    for member in channel.roster.members:
        if member.role == 'operator':
            store.put_number(f'order {member.name}', now)


def note_order(order: Order, channel: Channel, of: Try, action: str = '') -> None:
    """
    Write an order that was taken into the journal, before it is carried out.

    :param of: round and attempt that it met.
    :param action: in words; the order's own unless given.
    """
    channel.journal.append(
        'operator',
        round=of[0],
        attempt=of[1],
        operator=order.envelope.sender,
        action=action or order.action,
        hospital=order.hospital,
    )


class Orders:
    """Whether rounds are paused or over, and which hospitals are admitted to them."""

    def __init__(self, channel: Channel, store: Store) -> None:
        """Go on from the orders in `store`; without any, all hospitals are admitted."""
        self._channel = channel
        self._store = store
        self._names = [member.name for member in channel.roster.hospitals]
        self._withdrawn = set(json.loads(store.get('withdrawn') or b'[]'))

    @property
    def admitted(self) -> list[str]:
        """Return the names of the admitted hospitals, in the roster's order."""
        return [name for name in self._names if name not in self._withdrawn]

    @property
    def paused(self) -> bool:
        """Whether no round may begin or go on."""
        return self._store.get('paused') == b'yes'

    @property
    def over(self) -> bool:
        """Whether no round may ever begin again."""
        return self._store.get('stopped') == b'yes'

    def take(self, order: Order, of: Try) -> None:
        """
        Check an order to the aggregator, write it down, and keep durably what it says.

        :param of: round and attempt that it meets.
        :raises MessageError: as :func:`take_order`, or if the roster names no such hospital.
        """
        take_order(order, self._channel, self._store)
        if order.action in _OF_HOSPITALS and order.hospital not in self._names:
            raise RoundError(
                order.envelope.sender, f'the roster names no hospital {order.hospital[:80]!r}'
            )
        note_order(order, self._channel, of)
        self.keep(order.action, order.hospital)

    def keep(self, action: str, hospital: str) -> None:
        """Keep durably what an order says."""
        match action:
            case 'pause' | 'resume':
                self._store.put('paused', b'yes' if action == 'pause' else b'no')
            case 'stop':
                self._store.put('stopped', b'yes')
            case 'admit' | 'withdraw':
                (self._withdrawn.add if action == 'withdraw' else self._withdrawn.discard)(
                    hospital
                )
                self._store.put('withdrawn', json.dumps(sorted(self._withdrawn)).encode())
