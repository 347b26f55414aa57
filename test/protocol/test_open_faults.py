# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Faults that are known and open: each test says what should hold, and does not yet."""

from fdrl_ros.errors import StoreError
from fdrl_ros.federation.aggregator.state import AggregatorRecord
from fdrl_ros.federation.protocol.encoding import encode
from fdrl_ros.federation.protocol.message import Blame, Phase
from fdrl_ros.federation.protocol.store import Store
import pytest
from support.federation_bench import Bench
from support.interception import Interception
from support.lying_hospitals import deal_another_secret

LIAR = 'hospital_2'


@pytest.mark.xfail(strict=True, raises=StoreError)
def test_a_state_file_of_version_0_1_0_is_read_or_refused_with_the_way_out(tmp_path):
    store = Store(tmp_path / 'state.sqlite')
    with_bound = encode(AggregatorRecord(Phase.WAITING, 2, 0))
    store.put('state', with_bound.removesuffix(encode(())))  # as 0.1.0 wrote it, format 2
    assert store.load('state', AggregatorRecord) == AggregatorRecord(Phase.WAITING, 2, 0)


@pytest.mark.xfail(strict=True)
def test_one_that_deals_falsely_and_one_that_falls_silent_do_not_stop_the_rounds():
    bench = Bench(hospitals=7, rounds=1)  # t = 5
    blames = Interception(bench, Blame)
    deal_another_secret(bench, LIAR)
    assert bench.run(lambda: blames.messages)
    bench.kill('hospital_4')
    assert bench.run(ticks=1000)
