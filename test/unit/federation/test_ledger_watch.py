# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Who saw a ledger's head refuses every ledger that does not go on from it, however it grows."""

from dataclasses import replace
import hashlib
import shutil

from fdrl_ros.errors import LedgerHeadError, StoreError
from fdrl_ros.federation.protocol.ledger_watch import heads_seen, LedgerWatch
from fdrl_ros.federation.protocol.message import Envelope, MaskedUpdate
from fdrl_ros.federation.protocol.store import Store
from fdrl_ros.privacy.accountant.accountant import Charge
from fdrl_ros.privacy.ledger.chain import DIGEST, Head, MOST_LINKS
from fdrl_ros.privacy.ledger.ledger import Ledger
from hypothesis import given, settings, strategies
import pytest
from support.ledger_forger import OWNER

START = Head(0, hashlib.sha256(b'owner').digest())


def links(count, parted=1000, life='true'):
    """Return the links of a ledger that has a history of its own from an entry on."""
    lives = ['true'] * min(parted, count) + [life] * max(0, count - parted)
    return b''.join(
        hashlib.sha256(f'{life} {i}'.encode()).digest() for i, life in enumerate(lives)
    )


def head(entries, **history):
    *_, last = START.followed(links(entries, **history))
    return last


def update(round, before, after, most=MOST_LINKS, sender='hospital_1', **history):
    """Return the update of a round that began with so many entries and ended with so many."""
    sent = links(after, **history)[-DIGEST * most :] if most else b''
    base, now = (head(each, **history) for each in (before, after))
    return MaskedUpdate(
        Envelope('test', round, 1, sender, 1), 0, 1, b'', b'', b'', *now, *base, sent, False
    )


@pytest.fixture
def store(tmp_path):
    made = Store(tmp_path / 'state.sqlite')
    yield made
    made.close()


@pytest.fixture
def watch(store):
    """Somebody who saw ten entries after round 5."""
    made = LedgerWatch(store)
    made.take(update(5, 8, 10))
    return made


def test_a_ledger_that_goes_on_is_taken(watch, store):
    watch.take(update(6, 10, 12))
    watch.take(update(6, 10, 12))  # the same update in another attempt
    # Rounds 7 and 8 were trained, and nobody here heard of it.
    watch.take(update(9, 16, 18))
    assert heads_seen(store.path) == {'hospital_1': head(18)}


def test_as_many_links_are_enough_as_there_are_new_entries(watch):
    with pytest.raises(LedgerHeadError, match='links from entry 12 on, and the head seen is 10:'):
        watch.take(update(9, 16, 18, most=7))
    watch.take(update(9, 16, 18, most=8))
    # Who meets a ledger for the first time knows no head: the links must reach over the round.
    watch.take(update(9, 16, 18, most=2, sender='hospital_2'))
    with pytest.raises(LedgerHeadError, match='the head before the round is 16:'):
        watch.take(update(9, 16, 18, most=1, sender='hospital_3'))


OTHER = {'parted': 6, 'life': 'restored'}


@pytest.mark.parametrize(
    'message, complaint',
    [
        (update(5, 8, 9), 'shrank'),
        (update(5, 8, 10, **OTHER), 'rewritten'),
        (update(5, 8, 12, **OTHER), 'rewritten'),
        (update(6, 6, 8), 'shrank: 6 entries where 10 were seen'),
        (update(6, 6, 12), 'shrank'),
        (update(6, 10, 12, **OTHER), 'rewritten: its links do not lead from the head seen, 10:'),
        (update(6, 11, 13, **OTHER), 'rewritten'),
        (update(6, 60, 100, **OTHER), 'rewritten'),
        (update(6, 10, 10), 'charged nothing'),
        (update(6, 12, 11), 'charged nothing'),
        (replace(update(6, 10, 12), ledger_base_head=b''), 'head of'),
        (replace(update(6, 10, 12), ledger_head=b'short'), 'head of 5 bytes'),
        (replace(update(6, 10, 12), ledger_base_head=head(10, **OTHER).digest), 'before the'),
        (replace(update(6, 10, 12), ledger_links=b''), 'links from entry 13 on'),
        (replace(update(6, 10, 12), ledger_links=bytes(33)), '33 bytes of links'),
        (replace(update(6, 10, 12), ledger_links=bytes(13 * 32)), 'links for 12 entries'),
        (replace(update(6, 10, 12), chunk=1), 'links in chunk 1'),
    ],
)
def test_a_ledger_that_does_not_go_on_is_refused_and_not_remembered(
    watch, store, message, complaint
):
    with pytest.raises(LedgerHeadError, match=complaint):
        watch.take(message)
    assert heads_seen(store.path) == {'hospital_1': head(10)}


def test_more_links_than_an_update_may_have_are_refused_unread(watch, monkeypatch):
    many = replace(update(6, 10, 12), ledger_entries=10**6, ledger_links=bytes(32 * 2**14 + 32))
    monkeypatch.setattr(Head, 'followed', None)
    with pytest.raises(LedgerHeadError, match='bytes of links'):
        watch.take(many)


def test_what_was_seen_outlives_a_restart(watch, store, tmp_path):
    store.close()
    again = Store(tmp_path / 'state.sqlite')
    with pytest.raises(LedgerHeadError, match='rewritten'):
        LedgerWatch(again).take(update(7, 12, 14, **OTHER))
    again.close()


@given(
    spent=strategies.lists(strategies.integers(1, 4), min_size=1, max_size=8),
    heard=strategies.sets(strategies.integers(0, 7)),
)
@settings(max_examples=25, deadline=None)
def test_an_honest_hospital_is_taken_whatever_updates_were_lost(spent, heard):
    watch, entries = LedgerWatch(Store()), 0
    for round, new in enumerate(spent):
        message = update(round, entries, entries + new)
        entries += new
        if round in heard:
            watch.take(message)
            watch.take(message)


@given(seen=strategies.integers(1, 12), lost=strategies.integers(1, 12), data=strategies.data())
@settings(max_examples=25, deadline=None)
def test_a_ledger_that_lost_an_entry_is_refused_however_it_goes_on(seen, lost, data):
    watch = LedgerWatch(Store())
    watch.take(update(1, 0, seen))
    parted = max(0, seen - lost)
    before = data.draw(strategies.integers(parted, 30))
    after = data.draw(strategies.integers(before + 1, 31))
    with pytest.raises(LedgerHeadError):
        watch.take(update(2, before, after, parted=parted, life='restored'))


@given(data=strategies.data())
@settings(max_examples=25, deadline=None)
def test_links_that_were_changed_swapped_cut_or_lengthened_are_refused(data):
    watch = LedgerWatch(Store())
    watch.take(update(1, 0, 5))
    message = update(2, 9, 12)
    true, needed = message.ledger_links, 12 - 5
    each = [true[at : at + DIGEST] for at in range(0, len(true), DIGEST)]
    at, other = data.draw(
        strategies.lists(strategies.integers(5, 11), min_size=2, max_size=2, unique=True)
    )
    match data.draw(strategies.sampled_from(['flip', 'swap', 'drop', 'repeat', 'cut'])):
        case 'flip':
            flipped = bytearray(each[at])
            flipped[data.draw(strategies.integers(0, 31))] ^= 1 << data.draw(
                strategies.integers(0, 7)
            )
            each[at] = bytes(flipped)
        case 'swap':
            each[at], each[other] = each[other], each[at]
        case 'drop':
            del each[at]
        case 'repeat':
            each[at:at] = [each[at]]
        case 'cut':
            each = each[12 - data.draw(strategies.integers(0, needed - 1)) :]
    with pytest.raises(LedgerHeadError):
        watch.take(replace(message, ledger_links=b''.join(each)))
    watch.take(message)


def sent(ledger, round):
    found = (*ledger.chain.head, *ledger.chain.head_before(round), ledger.chain.links())
    return MaskedUpdate(
        Envelope('test', round, 1, 'hospital_1', 1), 0, 1, b'', b'', b'', *found, False
    )


def train(path, rounds, weights):
    """Let a hospital train, and return its last update."""
    with Ledger(path, OWNER) as ledger:
        for round in rounds:
            for block in range(3):
                ledger.reserve(
                    round=round, block=block, charge=Charge(2.0, 0.128, 20), inputs=weights
                )
        return sent(ledger, round)


def test_a_restored_backup_that_spends_more_than_it_lost_is_refused(tmp_path):
    path, backup = tmp_path / 'ledger.sqlite', tmp_path / 'backup.sqlite'
    watch = LedgerWatch(Store())
    watch.take(train(path, [1], b'weights'))
    shutil.copy(path, backup)
    watch.take(train(path, [2], b'weights'))
    with pytest.raises(LedgerHeadError, match='rewritten'):
        watch.take(train(backup, [3, 4, 5], b'weights'))
    # Spent again for the very same inputs it is the same release, and the same ledger.
    shutil.copy(path, tmp_path / 'other.sqlite')
    watch.take(train(tmp_path / 'other.sqlite', [2, 3], b'weights'))


def test_heads_are_read_while_their_owner_runs(watch, store, tmp_path):
    assert heads_seen(store.path) == {'hospital_1': head(10)}
    assert heads_seen(tmp_path / 'missing') == {}
    (tmp_path / 'empty').touch()
    assert heads_seen(tmp_path / 'empty') == {}
    (tmp_path / 'text').write_text('text')
    with pytest.raises(StoreError, match='cannot read'):
        heads_seen(tmp_path / 'text')
