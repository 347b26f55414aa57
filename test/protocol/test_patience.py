# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Rounds survive pauses, slow hospitals, power cuts and servers that say two things."""

import sqlite3

from fdrl_ros.errors import LateError, RoundError
from fdrl_ros.federation.local_driver import LocalFederation
from fdrl_ros.federation.protocol.message import DecryptRequest, RoundKey, Wanted
from fdrl_ros.federation.protocol.store import Store
from fdrl_ros.policy import digest_of, encode_weights
import pytest
from support.federation_bench import Bench
from support.interception import resealed


def contributors(bench):
    return bench.policy.contributors


@pytest.mark.parametrize('away', [False, True])
def test_a_pause_while_the_key_authority_sums_loses_nothing(away):
    bench, ordered = Bench(None, 4, 1), []
    post = bench.driver.post

    def heard(message):
        post(message)
        if type(message) is (DecryptRequest if away else Wanted) and not ordered:
            if isinstance(message, Wanted) and message.envelope.sender != 'key_authority':
                return
            ordered.append(message)
            if away:
                bench.kill('key_authority')
            bench.order('pause')
            bench.order('resume')
            if away:
                bench.join('key_authority')

    bench.driver.post = heard
    assert bench.run() and ordered
    policy = bench.policy
    assert not policy.rolled_back and len(policy.contributors) == 4


class Slow(LocalFederation):
    """Takes three seconds for each round key of hospital 5."""

    def __init__(self):
        super().__init__({})
        self.held = []

    def post(self, message):
        if isinstance(message, RoundKey) and message.envelope.sender == 'hospital_5':
            self.held.append((self.now + 3.0, message))
        else:
            super().post(message)

    def let_go(self):
        for due, message in list(self.held):
            if self.now >= due:
                self.held.remove((due, message))
                super().post(message)


def test_a_slow_hospital_that_was_away_once_takes_part_again():
    driver, took_part = Slow(), {}
    bench = Bench(None, 5, 6, driver=driver)

    def over():
        driver.let_go()
        released = bench.key_authority.state.released
        took_part[released.round] = 'hospital_5' in released.contributors
        if released.round == 1 and 'hospital_5' in driver.parties:
            bench.kill('hospital_5')
            driver.held.clear()
        if released.round == 2 and 'hospital_5' not in driver.parties:
            bench.join('hospital_5')
        return bench.is_over()

    assert bench.run(over)
    assert [took_part[round] for round in range(1, 7)] == [True, False, False, False, True, True]


@pytest.mark.parametrize('name', ['hospital_1', 'aggregator'])
def test_two_policies_of_one_round_are_no_mere_lateness(name):
    bench = Bench(None, 4, 1)
    assert bench.run()
    policy, party = bench.policy, bench.parties[name]
    with pytest.raises(LateError):
        party.handle(resealed(bench, policy), 0.0)
    other = {'weights': encode_weights(bench.start), 'digest': digest_of(bench.start)}
    with pytest.raises(RoundError) as caught:
        party.handle(resealed(bench, policy, **other), 0.0)
    assert not isinstance(caught.value, LateError)


def test_what_was_noted_is_there_for_others_and_after_a_sync_on_the_disk(tmp_path):
    store = Store(tmp_path / 'state.sqlite')
    store.put('a', b'1')
    store.note('b', b'2')
    assert store.get('b') == b'2'
    for _ in range(2):
        store.sync()
    store.close()
    with sqlite3.connect(tmp_path / 'state.sqlite') as table:
        found = dict(table.execute('SELECT name, value FROM entry'))
    assert (found['a'], found['b']) == (b'1', b'2')
