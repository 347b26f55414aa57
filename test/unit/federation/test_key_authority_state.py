# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What the key authority may not forget: which sum of a round it decrypts."""

import math

from fdrl_ros.errors import StoreError
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
