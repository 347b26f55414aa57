# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Who saw a ledger's head refuses every ledger that does not go on from it, however it grows."""

import hashlib

from fdrl_ros.errors import MessageError, StoreError
from fdrl_ros.federation.ledger_watch import heads_seen, LedgerWatch
from fdrl_ros.federation.message import Envelope, MaskedUpdate
from fdrl_ros.federation.store import Store
from fdrl_ros.privacy.ledger_entry import Head
import pytest


def head(entries, history='true'):
    return Head(entries, hashlib.sha256(f'{history} {entries}'.encode()).digest())


def update(round, before, after):
    envelope = Envelope('test', round, 1, 'hospital_1', 1)
    return MaskedUpdate(envelope, 0, 1, b'', b'', *after, *before)


@pytest.fixture
def store(tmp_path):
    made = Store(tmp_path / 'state.sqlite')
    yield made
    made.close()


@pytest.fixture
def watch(store):
    """Somebody who saw ten entries after round 5."""
    made = LedgerWatch(store)
    see(made, update(5, head(8), head(10)))
    return made


def see(watch, message):
    watch.check(message)
    watch.remember(message)


def test_a_ledger_that_goes_on_is_taken(watch, store):
    see(watch, update(6, head(10), head(12)))
    see(watch, update(6, head(10), head(12)))  # the same update in another attempt
    # Rounds 7 and 8 were trained, and nobody here heard of it.
    see(watch, update(9, head(16), head(18)))
    assert heads_seen(store.path) == {'hospital_1': head(18)}


def test_each_hospital_has_a_ledger_of_its_own(watch):
    message = update(6, head(0), head(2))
    other = MaskedUpdate(
        Envelope('test', 6, 1, 'hospital_2', 1), 0, 1, b'', b'', *head(2), *head(0)
    )
    see(watch, other)
    with pytest.raises(MessageError, match='shrank'):
        watch.check(message)


@pytest.mark.parametrize(
    'before, after, complaint',
    [
        (head(6), head(8), 'shrank: 6 entries where 10 were seen'),
        (head(6), head(12), 'shrank'),
        (head(10, 'other'), head(12), 'rewritten up to entry 10'),
        (head(10), head(10), 'charged nothing'),
        (head(12), head(11), 'charged nothing'),
        (Head(10, b''), head(12), 'head of'),
        (head(10), Head(12, b'short'), 'head of 5 bytes'),
    ],
)
def test_a_ledger_that_does_not_go_on_is_refused(watch, before, after, complaint):
    with pytest.raises(MessageError, match=complaint):
        watch.check(update(6, before, after))


def test_an_update_of_the_same_round_has_the_same_head(watch):
    for after, complaint in ((head(9), 'shrank'), (head(10, 'other'), 'rewritten')):
        with pytest.raises(MessageError, match=complaint):
            watch.check(update(5, head(8), after))


def test_a_restored_ledger_is_refused_also_when_it_has_outgrown_what_was_seen(watch, tmp_path):
    with pytest.raises(MessageError, match='shrank'):
        watch.check(update(6, head(6), head(8, 'restored')))
    for round, entries in ((7, 10), (8, 12), (9, 100)):
        message = update(round, head(entries, 'restored'), head(entries + 2, 'restored'))
        with pytest.raises(MessageError, match='rewritten|has not shown the head seen, 10:'):
            watch.check(message)


def test_the_doubt_outlives_a_restart(watch, store, tmp_path):
    with pytest.raises(MessageError, match='shrank'):
        watch.check(update(6, head(6), head(8)))
    store.close()
    again = Store(tmp_path / 'state.sqlite')
    with pytest.raises(MessageError, match='has not shown the head'):
        LedgerWatch(again).check(update(7, head(12), head(14)))
    again.close()


def test_the_true_ledger_put_back_is_taken_again(watch):
    with pytest.raises(MessageError, match='shrank'):
        watch.check(update(6, head(6), head(8)))
    see(watch, update(7, head(10), head(12)))
    see(watch, update(9, head(14), head(16)))


def test_heads_are_read_while_their_owner_runs(watch, store, tmp_path):
    assert heads_seen(store.path) == {'hospital_1': head(10)}
    assert heads_seen(tmp_path / 'missing') == {}
    (tmp_path / 'empty').touch()
    assert heads_seen(tmp_path / 'empty') == {}
    (tmp_path / 'text').write_text('text')
    with pytest.raises(StoreError, match='cannot read'):
        heads_seen(tmp_path / 'text')
