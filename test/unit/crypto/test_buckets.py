# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Buckets of a round: who is summed with whom, and that nobody has a say in it."""

from collections import Counter
from dataclasses import replace
from itertools import combinations

from fdrl_ros.crypto.keys.roster import Member, ring, Roster, SERVERS
from fdrl_ros.crypto.keys.signing import Identity
from fdrl_ros.crypto.masking.buckets import check_buckets, dealt, kept, most_kept, within
from fdrl_ros.crypto.masking.neighbourhoods import fewest_neighbours
from fdrl_ros.errors import CryptoError, RosterError
from hypothesis import given
from hypothesis import strategies as st
import pytest

IDENTITIES = {
    name: Identity.generate(name)
    for name in (*SERVERS, *(f'hospital_{number}' for number in range(1, 61)))
}


def roster(count, buckets):
    names = [f'hospital_{number}' for number in range(1, count + 1)]
    members = [Member(name, 'hospital', IDENTITIES[name].public, 100) for name in names]
    members += [Member(name, name, IDENTITIES[name].public) for name in SERVERS]
    agreeing, dealt = 2 * count // 3 + 1, ring(count, buckets=buckets)
    return Roster('federation', agreeing, tuple(members), disjoint_patients=True, **dealt)


@given(hospitals=st.integers(3, 60), count=st.integers(0, 20), round=st.integers(0, 99))
def test_each_hospital_is_in_one_bucket_of_three_at_least(hospitals, count, round):
    count = min(count, hospitals // 3)
    everybody = roster(hospitals, count if count > 1 else 0)
    found = within(everybody.buckets_of(round), [each.name for each in everybody.hospitals])
    assert len(found) == max(1, count)
    assert sorted(name for bucket in found for name in bucket) == sorted(
        each.name for each in everybody.hospitals
    )
    sizes = [len(bucket) for bucket in found]
    assert min(sizes) >= 3
    assert max(sizes) - min(sizes) <= 1


def test_rounds_have_other_buckets():
    everybody = roster(12, 4)
    assert len({everybody.buckets_of(round) for round in range(30)}) == 30


def test_another_roster_or_federation_has_other_buckets():
    everybody = roster(12, 4)
    for other in (replace(everybody, serial=2), replace(everybody, federation='other')):
        assert everybody.buckets_of(1) != other.buckets_of(1)


def test_a_roster_of_one_sum_is_what_it_was_before_there_were_buckets():
    assert 'buckets' not in roster(12, 0).to_dict()
    for everybody in (roster(12, 0), roster(12, 4)):
        assert Roster.from_dict(everybody.to_dict()) == everybody


def test_a_successor_has_as_many_buckets_unless_another_number_is_named():
    everybody = roster(12, 4)
    fewer = tuple(each for each in everybody.members if each.name != 'hospital_1')
    with pytest.raises(RosterError, match='4 buckets: expected 0, or 2 to 3, since 11'):
        everybody.successor(members=fewer, threshold=8)
    assert everybody.successor(members=fewer, threshold=8, buckets=3).buckets == 3
    assert everybody.successor(threshold=10).buckets == 4
    one = everybody.successor(buckets=0)
    assert (one.buckets, one.ring_seed) == (0, '')
    assert one.successor(buckets=2).ring_seed


NAMED = [f'hospital_{number}' for number in range(1, 13)]


def test_two_hospitals_meet_as_often_as_any_other_two():
    """In 3,000 rounds of 9 hospitals; 5.5 standard deviations fail by chance once in 10^6 runs."""
    names, rounds = [f'h{number}' for number in range(9)], 3000
    met = Counter()
    for round in range(rounds):
        for bucket in dealt(names, round.to_bytes(32, 'big'), 3):
            met.update(combinations(bucket, 2))
    expected = rounds / 4  # 2 of the 8 others
    assert len(met) == 36
    assert max(abs(each - expected) for each in met.values()) < 5.5 * (expected * 0.75) ** 0.5


@pytest.mark.parametrize('count', [-1, 1, 4, 11])
def test_buckets_of_fewer_than_three_are_refused(count):
    with pytest.raises(CryptoError, match='buckets'):
        check_buckets(count, 11)
    with pytest.raises(RosterError, match='buckets'):
        roster(11, count)


def test_a_bucket_of_fewer_than_three_survivors_is_left_out():
    buckets = (('a', 'b', 'c', 'd'), ('e', 'f', 'g'), ('h', 'i', 'j'))
    assert kept(buckets, tuple('jabcefghi')) == tuple('jabcefghi')
    assert kept(buckets, tuple('abefghij')) == tuple('efghij')
    assert kept(buckets, tuple('ab')) == ()


@given(data=st.data())
def test_no_deal_keeps_more_than_the_luckiest(data):
    hospitals = data.draw(st.integers(3, 14))
    count = data.draw(st.integers(0, hospitals // 3))
    missing = data.draw(st.integers(0, hospitals))
    sizes = [len(bucket) for bucket in dealt(range_of(hospitals), b'', count)]

    def best(sizes, missing):
        """Try all numbers that are missing in the first bucket."""
        if not sizes:
            return 0 if not missing else -(10**9)
        first, *others = sizes
        return max(
            (first - gone if first - gone >= 3 else 0) + best(others, missing - gone)
            for gone in range(min(first, missing) + 1)
        )

    most = hospitals - missing if count < 2 else best(sizes, missing)
    assert most_kept(hospitals, count if count > 1 else 0, missing) == most


def range_of(hospitals):
    return [f'h{number}' for number in range(hospitals)]


def test_survivors_are_summed_bucket_by_bucket():
    buckets = (('a', 'b', 'c', 'd'), ('e', 'f', 'g'))
    assert within(buckets, 'dba') == (('a', 'b', 'd'),)
    assert within(buckets, 'gaebfd') == (('a', 'b', 'd'), ('e', 'f', 'g'))


def test_without_buckets_all_are_summed_together():
    assert roster(12, 0).buckets_of(1) == ()
    assert within((), ('b', 'a')) == (('b', 'a'),) and kept((), ('b', 'a')) == ('b', 'a')


def test_a_roster_with_few_neighbours_has_no_buckets():
    everybody = roster(60, 0)
    sparse = ring(60, neighbours=fewest_neighbours(60, withstands_lies=False))
    with pytest.raises(RosterError, match='buckets'):
        replace(everybody, **sparse | {'buckets': 4})


def test_whoever_hands_its_key_in_last_has_no_say_in_the_buckets():
    """The root draws a seed when it knows all keys, and another one with each roster."""
    everybody = roster(12, 4)
    seeds = {roster(12, 4).ring_seed for _ in range(20)} | {everybody.successor().ring_seed}
    assert len(seeds) == 21
    other = replace(everybody, ring_seed=everybody.successor().ring_seed)
    assert everybody.buckets_of(1) != other.buckets_of(1)
    for seed in ('', '00' * 31, '00' * 33, 'Z' * 64):
        with pytest.raises(RosterError, match='seed'):
            replace(everybody, ring_seed=seed)
    with pytest.raises(RosterError, match='seed'):
        replace(everybody, buckets=0)
