# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
StandingOrders of the federation's operators: signed, for one server, taken once and soon.

An order counts for :data:`ORDER_AGE` by the server's clock, and only if it was signed after the
last one of its operator that this server took. Of that the server's store keeps the time, so that
an order that somebody copied is of no use, also after a restart; and the times of those that were
refused because they were of the future, until these are past.

An order is used up in the very write that keeps what it does; the journal tells of it after that.
"""

from collections.abc import Mapping
import json
from typing import Final

from fdrl_ros.crypto.keys.roster import Roster, utc
from fdrl_ros.crypto.keys.signing import Identity
from fdrl_ros.errors import MessageError, OrderTimeError, ReplayError, RoundError
from fdrl_ros.federation.protocol.channel import Channel, check_signed
from fdrl_ros.federation.protocol.message import AttemptId, Envelope, Order
from fdrl_ros.federation.protocol.store import Store

ORDER_AGE: Final = 60.0
"""How far from a server's clock an order may have been signed, second."""

ADDRESSEES: Final[Mapping[str, str]] = {
    'pause': 'aggregator',
    'resume': 'aggregator',
    'stop': 'aggregator',
    'admit': 'aggregator',
    'withdraw': 'aggregator',
    'roll_back': 'key_authority',
    'forgive': 'key_authority',
}
"""Every order with the server that takes it."""

REFUSED_KEPT: Final = 100
"""Refused orders of the future that a server knows again, of each operator: the nearest ones."""

_OF_HOSPITALS: Final = ('admit', 'withdraw', 'forgive')
_MICRO: Final = 10**6  # counters of orders a second
_UNNOTED: Final = 'unnoted order'  # what the journal has to tell yet


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


def take_order(order: Order, channel: Channel, store: Store) -> dict[str, bytes]:
    """
    Check that an operator ordered this, of this party and now.

    :returns: what the store has to keep so that the order never counts again, whatever comes of
        it: in one step with what it does.
    :raises SignatureError: unless an operator of the roster signed exactly this.
    :raises RoundError: if it is of another federation, for another party, or no order.
    :raises OrderTimeError: if it was not signed just now by this party's clock. It never counts
        later either.
    :raises ReplayError: if it, or a later one of this operator, was taken before.
    """
    operator = check_signed(channel.roster, order, 'operator').name
    if order.to != channel.name or ADDRESSEES.get(order.action) != channel.name:
        raise RoundError(
            operator, f'the order {order.action[:40]!r} to {order.to[:40]!r}, at {channel.name}'
        )
    if order.action not in _OF_HOSPITALS and order.hospital:
        raise MessageError(operator, f'{order.action} is about no hospital')
    counter, now = order.envelope.counter, channel.clock()
    late = _untimely(order, now, channel.name)
    name, refused = f'order {operator}', _refused(operator, store)
    last, used = store.get_number(name, -1), {name: str(counter).encode()}
    if late is not None:
        if now < counter / _MICRO:
            _refuse(operator, counter, channel, store)
        elif counter > last:
            store.replace((), used)  # the clock may be set back
        raise late
    if counter in refused:
        raise ReplayError(operator, f'{order.action} was refused before, as one of the future')
    if counter <= last:
        raise ReplayError(
            operator,
            f'{order.action} is not newer than the last order taken (if it is that one, the '
            'journal tells what came of it); who lost its state takes none for '
            f'{ORDER_AGE:.0f} s: order again then',
        )
    note_order(channel, store)  # the one before, had the journal no room for it
    return used


def _untimely(order: Order, now: float, party: str) -> OrderTimeError | None:
    """Return why an order was not signed just now by the clock of a party, or None if it was."""
    age = now - order.envelope.counter / _MICRO
    if abs(age) <= ORDER_AGE:
        return None
    when = 'before' if age > 0 else 'after'
    return OrderTimeError(
        order.sender,
        f'{order.action} was signed {abs(age):.0f} s {when} {utc(now)}, which it is by the '
        f'clock of {party}; orders count for {ORDER_AGE:.0f} s: set both clocks (NTP) '
        'and order again',
    )


HAND_BACK: Final = 'hand_back'
"""Order to a robot's selector: the surgeon, who took over, leaves the arm to it again."""


def sign_hand_back(operator: Identity, federation: str, robot: str, now: float) -> Order:
    """
    Make the order that ends a take-over of one robot.

    :param now: seconds since 1970 (UTC).
    """
    envelope = Envelope(federation, 0, 0, operator.name, int(now * _MICRO))
    return Order(envelope, robot, HAND_BACK, '', 0).signed_by(operator)


def check_hand_back(order: Order, roster: Roster, robot: str, since: float, now: float) -> float:
    """
    Check that an operator of the roster ends the present take-over of a robot, now.

    :param since: when the arm was taken over, or the last such order that counted was signed,
        whichever was later. So an order that somebody copied ends no other take-over.
    :param now: seconds since 1970 (UTC), by the robot's clock.
    :returns: when it was signed.
    :raises RoundError: if it is for another robot, or another order.
    :raises SignatureError: unless an operator of the roster signed exactly this.
    :raises OrderTimeError: if it was not signed just now.
    :raises ReplayError: if it is not newer than `since`.
    """
    if (order.to, order.action) != (robot, HAND_BACK):
        raise RoundError(order.sender, f'the order {order.action!r} to {order.to!r}, at {robot}')
    check_signed(roster, order, 'operator')
    if (late := _untimely(order, now, robot)) is not None:
        raise late
    signed = order.envelope.counter / _MICRO
    if signed <= since:
        raise ReplayError(order.sender, f'signed before the arm was taken over, {utc(since)}')
    return signed


def _refused(operator: str, store: Store) -> list[int]:
    """Return the counters of refused orders of the future, in their order."""
    return list(json.loads(store.get(f'refused {operator}') or b'[]'))


def _refuse(operator: str, counter: int, channel: Channel, store: Store) -> None:
    """Know an order of the future again when its time has come."""
    before, begin = _refused(operator, store), (channel.clock() - ORDER_AGE) * _MICRO
    after = sorted({counter, *(each for each in before if each >= begin)})[:REFUSED_KEPT]
    if counter in after and counter not in before:
        store.put(f'refused {operator}', json.dumps(after).encode())


def forget_orders(channel: Channel, store: Store) -> None:
    """
    Refuse all orders up to now: the record of which ones were carried out is lost.

    Those signed until :data:`ORDER_AGE` from now are refused too, since clocks differ.
    """
    mark = int((channel.clock() + ORDER_AGE) * _MICRO)
    for member in channel.roster.members:
        if member.role == 'operator':
            name = f'order {member.name}'
            store.put_number(name, max(mark, store.get_number(name, -1)))


def unnoted(order: Order, channel: Channel, of: AttemptId, action: str = '') -> dict[str, bytes]:
    """
    Return what the store has to keep until :func:`note_order` has written it into the journal.

    :param of: round and attempt that the order met.
    :param action: in words; the order's own unless given.
    """
    fields = {
        'round': of[0],
        'attempt': of[1],
        'operator': order.sender,
        'action': action or order.action,
        'hospital': order.hospital,
    }
    return {_UNNOTED: json.dumps([channel.journal.head.entries, fields]).encode()}


def note_order(channel: Channel, store: Store) -> None:
    """Write the order that was taken last into the journal, if a kill kept it from there."""
    saved = store.get(_UNNOTED)
    if saved is None:
        return
    entries, fields = json.loads(saved)
    journal = channel.journal
    if journal.head.entries == entries or not any(
        each.kind == 'operator' and each.number > entries for each in journal.entries()
    ):
        journal.append('operator', **fields)
    store.replace([_UNNOTED], {})


class StandingOrders:
    """Whether rounds are paused or over, and which hospitals are admitted to them."""

    def __init__(self, channel: Channel, store: Store) -> None:
        """Go on from the orders in `store`; without any, all hospitals are admitted."""
        self._channel = channel
        self._store = store
        self._names = [member.name for member in channel.roster.hospitals]

    @property
    def admitted(self) -> list[str]:
        """Return the names of the admitted hospitals, in the roster's order."""
        without = self._withdrawn() | self.guilty.keys()
        return [name for name in self._names if name not in without]

    @property
    def guilty(self) -> dict[str, str]:
        """Return the hospitals that were proven guilty, and of what, until one is admitted."""
        return dict(json.loads(self._store.get('guilty') or b'{}'))

    def convict(self, hospital: str, fault: str) -> None:
        """Keep durably that a hospital was proven guilty, and admit it no more."""
        self._store.replace((), self.convicting({hospital: fault}))

    def convicting(self, faults: Mapping[str, str]) -> dict[str, bytes]:
        """Return what the store has to keep so that guilty hospitals are admitted no more."""
        return {'guilty': json.dumps(self.guilty | dict(faults)).encode()} if faults else {}

    @property
    def paused(self) -> bool:
        """Whether no round may begin or go on."""
        return self._store.get('paused') == b'yes'

    @property
    def paused_for(self) -> str:
        """Why the aggregator paused by itself; empty if an operator paused it."""
        return (self._store.get('paused for') or b'').decode()

    @property
    def over(self) -> bool:
        """Whether no round may ever begin again."""
        return self._store.get('stopped') == b'yes'

    def take(self, order: Order, of: AttemptId, ended: bool) -> None:
        """
        Check an order to the aggregator, keep durably what it says, and write it down.

        :param of: round and attempt that it meets.
        :param ended: whether the federation has ended.
        :raises MessageError: as :func:`take_order`, if the roster names no such hospital, or if
            it comes too late to do anything.
        """
        used, refusal = take_order(order, self._channel, self._store), ''
        if order.action not in _OF_HOSPITALS:
            refusal = f'{order.action}: the federation has ended' if ended else ''
        elif order.hospital not in self._names:
            refusal = f'the roster names no hospital {order.hospital[:80]!r}'
        if refusal:
            self._store.replace((), used)
            raise RoundError(order.sender, refusal)
        kept = self._values(order.action, order.hospital)
        self._store.replace((), used | kept | unnoted(order, self._channel, of))
        self.note()

    def note(self) -> None:
        """Write the order that was taken last into the journal, if a kill kept it from there."""
        note_order(self._channel, self._store)

    def keep(self, action: str, hospital: str) -> None:
        """Keep durably what an order of the journal says."""
        self._store.replace((), self._values(action, hospital))

    @staticmethod
    def pausing(why: str) -> dict[str, bytes]:
        """Return what the store has to keep so that no round begins until an operator resumes."""
        return {'paused': b'yes', 'paused for': why.encode()}

    def _values(self, action: str, hospital: str) -> dict[str, bytes]:
        """Return what the store has to keep of an order."""
        match action:
            case 'pause' | 'resume':
                return self.pausing('') | ({'paused': b'no'} if action == 'resume' else {})
            case 'stop':
                return {'stopped': b'yes'}
            case 'admit' | 'withdraw':
                withdrawn = self._withdrawn() - {hospital}
                withdrawn |= {hospital} if action == 'withdraw' else set()
                kept = {'withdrawn': json.dumps(sorted(withdrawn)).encode()}
                if action == 'admit':  # who was proven guilty too: the operator forgives
                    guilty = {name: why for name, why in self.guilty.items() if name != hospital}
                    kept['guilty'] = json.dumps(guilty).encode()
                return kept
        return {}

    def _withdrawn(self) -> set[str]:
        return set(json.loads(self._store.get('withdrawn') or b'[]'))
