# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Recover a party from its journal when its state file was lost, or is an older copy.

A party writes what binds it into its state file first, then into its journal, and sends it last.
The file keeps the journal's head too. So the journal is ahead of an intact file by one entry at
most, and what binds the party by that entry is in the file. If not, the file is not the newest:
whatever the journal tells of was sent, and must never be sent otherwise.
"""

import logging

from fdrl_ros.errors import StateLostError
from fdrl_ros.federation.aggregator.state import AggregatorState
from fdrl_ros.federation.hospital.state import HospitalState, RoundSeeds
from fdrl_ros.federation.journal.journal import BEHIND, Journal
from fdrl_ros.federation.key_authority.state import KeyAuthorityState
from fdrl_ros.federation.protocol.channel import Channel
from fdrl_ros.federation.protocol.orders import forget_orders, StandingOrders
from fdrl_ros.federation.protocol.store import Store
from fdrl_ros.privacy.ledger.chain import Head

log = logging.getLogger(__name__)

_SAID = ('sent', 'signed', 'revealed')
_MICRO = 10**6


def recover_hospital(
    state: HospitalState, channel: Channel, store: Store, seeds: RoundSeeds
) -> None:
    """
    Close every attempt that the journal tells of, if the state does not know of all of them.

    The seeds of rounds that are over are erased, as at every start.

    That is safe: what is masked or revealed in a later attempt has nothing to do with what was,
    and the promises of a round, whom shares were revealed for above all, are known again. Without
    a journal too nothing tells what was said with the round's seed: it is erased.
    """
    behind = _found_behind(channel, store)
    if channel.journal.is_new or (not state.record.begun and behind is None):
        seeds.erase()
    state.begin()
    if behind is not None:
        _close_attempts(state, channel, store, behind)
    seeds.forget(state.record.over)


def _close_attempts(
    state: HospitalState, channel: Channel, store: Store, behind: tuple[int, int]
) -> None:
    journal = channel.journal
    record, values = state.completed_from(journal.unseen()), {}
    if record is not None or _is_lost(behind):
        last, over = (0, 0), 0
        for entry in journal.unseen():
            if entry.kind in _SAID:
                last = max(last, (entry.round, entry.attempt))
            elif entry.kind == 'policy':
                over = max(over, entry.round)
        values = state.close(record or state.record, last, over)
        _warn(channel, behind)
        log.warning(
            '%s takes part again after attempt %d of round %d; layers that it kept to itself '
            'begin as the global policy has them',
            channel.name,
            last[1],
            max(last[0], over),
        )
    store.replace([BEHIND], values)


def last_ledger_head(journal: Journal) -> Head | None:
    """Return the ledger's head in the newest update that the state file does not know of."""
    heads = [Head.parse(each.fields['ledger']) for each in journal.unseen() if each.kind == 'sent']
    return max(heads, default=None, key=lambda head: head.entries)


def recover_aggregator(
    state: AggregatorState, orders: StandingOrders, channel: Channel, store: Store
) -> None:
    """Go on above every attempt that the journal tells of, by all orders that it tells of."""
    journal = channel.journal
    behind = _found_behind(channel, store)
    if behind is None:
        return
    newest = known = state.record.id
    for entry in journal.unseen():
        newest = max(newest, (entry.round, entry.attempt))
        if entry.kind == 'operator':
            orders.keep(entry.fields['action'], entry.fields['hospital'])
    if newest > known or _is_lost(behind):
        _warn(channel, behind)
        forget_orders(channel, store)
        log.warning('aggregator goes on after attempt %d of round %d', newest[1], newest[0])
    store.replace([BEHIND], state.skipped_to(newest))


def recover_key_authority(state: KeyAuthorityState, channel: Channel, store: Store) -> None:
    """
    Refuse to decrypt without knowing what was decrypted or released before.

    :raises StateLostError: if the journal tells of more.
    """
    journal = channel.journal
    behind = _found_behind(channel, store)
    if behind is None:
        return
    released = state.record.round
    decrypted = state.record.chosen_round, state.record.chosen_sum
    for entry in journal.unseen():
        what = ''
        if entry.kind == 'release' and entry.round > released:
            what = f'the release of round {entry.round}, and the state of {released}'
        elif entry.kind == 'decrypt':
            sum = (entry.round, bytes.fromhex(entry.fields['sum']))
            if sum[0] > decrypted[0] or (sum[0] == decrypted[0] and sum != decrypted):
                what = f'a decryption in round {entry.round}, and the state does not'
        if what:
            raise StateLostError(
                f'the state file {store.path} was lost or is an older copy: the journal beside it '
                f'tells of {what}. A second sum of one round must not be decrypted: put back the '
                'newest state file; docs/journal.md says what to do if there is none'
            )
    if _is_lost(behind):
        _warn(channel, behind)
        forget_orders(channel, store)
    store.replace([BEHIND], {})


def _found_behind(channel: Channel, store: Store) -> tuple[int, int] | None:
    """Return how far the state is behind; messages are then counted from where they never were."""
    found = channel.journal.behind()
    if found is not None or channel.journal.is_new:
        store.skip_counters(int(channel.clock() * _MICRO))
    return None if found is None else (found[0].head.entries, found[1])


def _is_lost(behind: tuple[int, int]) -> bool:
    """Tell whether the state lacks more than a kill between an entry and its note leaves out."""
    return behind[1] - behind[0] > 1


def _warn(channel: Channel, behind: tuple[int, int]) -> None:
    """Say that the state is not the newest."""
    log.warning(
        'the state file of %s was lost or is an older copy: it knows of %d of the %d entries of '
        'the journal beside it',
        channel.name,
        *behind,
    )
