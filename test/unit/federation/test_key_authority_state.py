# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What the key authority may not forget: which sum of a round it decrypts."""

from contextlib import nullcontext
import math
from types import SimpleNamespace

from fdrl_ros.crypto.keys.signing import Identity
from fdrl_ros.errors import StateLostError, StoreError
from fdrl_ros.federation.journal.journal import FILE, Journal
from fdrl_ros.federation.key_authority.state import KeyAuthorityState
from fdrl_ros.federation.protocol.store import Store
import pytest
from support.federation_bench import START


def test_a_sum_whose_choice_the_disk_refused_is_chosen_anew(tmp_path, monkeypatch):
    store = Store(tmp_path / 'state.sqlite')
    state = KeyAuthorityState(store, START)

    def full(name, value):
        raise StoreError('the disk is full')

    with monkeypatch.context() as patch:
        patch.setattr(store, 'put', full)
        for _ in range(2):
            with pytest.raises(StoreError, match='full'):
                state.choose_sum(1, b'one', 'key', math.inf)
    assert state.choose_sum(1, b'one', 'key', math.inf)
    store.close()
    reopened = KeyAuthorityState(Store(tmp_path / 'state.sqlite'), START)
    assert reopened.record.chosen_round == 1
    assert reopened.choose_sum(1, b'one', 'key', math.inf)
    assert not reopened.choose_sum(1, b'another', 'key', math.inf)


ONE, ANOTHER = bytes([1]) * 32, bytes([2]) * 32


@pytest.mark.parametrize(
    ('decrypted', 'outcome'),
    [
        (ONE, nullcontext()),
        (ANOTHER, pytest.raises(StateLostError, match='a decryption in round 1')),
    ],
    ids=['same sum', 'another sum'],
)
def test_a_journal_that_tells_of_another_sum_of_the_round_is_refused(tmp_path, decrypted, outcome):
    party, store = Identity.generate('key_authority'), Store(tmp_path / 'state.sqlite')
    state = KeyAuthorityState(store, START)
    assert state.choose_sum(1, ONE, 'key', math.inf)
    Journal(tmp_path / FILE, party, 'test', store).close()
    with Journal(tmp_path / FILE, party, 'test') as journal:
        journal.append('decrypt', round=1, attempt=1, sum=decrypted)
    with Journal(tmp_path / FILE, party, 'test', store) as journal, outcome:
        state.recover(SimpleNamespace(name=party.name, journal=journal, clock=lambda: 0.0))
