# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Buckets of a round: who is summed with whom, and that nobody has a say in it."""

from collections import Counter
from dataclasses import replace
from itertools import combinations

from fdrl_ros.crypto.keys.roster import Member, Roster, SERVERS
from fdrl_ros.crypto.keys.signing import Identity
from fdrl_ros.errors import SettingError
from fdrl_ros.federation.protocol.buckets import buckets_of, check_buckets, dealt, kept, peers
from hypothesis import given
from hypothesis import strategies as st
import pytest

IDENTITIES = {
    name: Identity.generate(name)
    for name in (*SERVERS, *(f'hospital_{number}' for number in range(1, 61)))
}


def roster(count):
    names = [f'hospital_{number}' for number in range(1, count + 1)]
    members = [Member(name, 'hospital', IDENTITIES[name].public, 100) for name in names]
    members += [Member(name, name, IDENTITIES[name].public) for name in SERVERS]
    return Roster('federation', 2 * count // 3 + 1, tuple(members), disjoint_patients=True)


@given(hospitals=st.integers(3, 60), count=st.integers(0, 20), round=st.integers(0, 99))
def test_each_hospital_is_in_one_bucket_of_three_at_least(hospitals, count, round):
    everybody, count = roster(hospitals), min(count, hospitals // 3)
    found = buckets_of(everybody, round, count)
    assert len(found) == max(1, count)
    assert sorted(name for bucket in found for name in bucket) == sorted(
        each.name for each in everybody.hospitals
    )
    sizes = [len(bucket) for bucket in found]
    assert min(sizes) >= 3
    assert max(sizes) - min(sizes) <= 1


def test_rounds_have_other_buckets_and_attempts_have_the_same():
    everybody = roster(12)
    assert buckets_of(everybody, 1, 4) == buckets_of(everybody, 1, 4)
    assert len({buckets_of(everybody, round, 4) for round in range(30)}) == 30


def test_another_roster_or_federation_has_other_buckets():
    everybody = roster(12)
    for other in (replace(everybody, serial=2), replace(everybody, federation='other')):
        assert buckets_of(everybody, 1, 4) != buckets_of(other, 1, 4)


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


@pytest.mark.parametrize('count', [-1, 4, 11])
def test_buckets_of_fewer_than_three_are_refused(count):
    with pytest.raises(SettingError, match=r'federation\.buckets'):
        check_buckets(count, 11)
    with pytest.raises(SettingError, match=r'federation\.buckets'):
        buckets_of(roster(11), 1, count)


def test_a_bucket_of_fewer_than_three_survivors_is_left_out():
    buckets = (('a', 'b', 'c', 'd'), ('e', 'f', 'g'), ('h', 'i', 'j'))
    assert kept(buckets, 'abcefghij') == (('a', 'b', 'c'), ('e', 'f', 'g'), ('h', 'i', 'j'))
    assert kept(buckets, 'abefghij') == (('e', 'f', 'g'), ('h', 'i', 'j'))
    assert kept(buckets, 'ab') == ()


def test_peers_are_members_of_the_own_bucket():
    buckets = (('a', 'b', 'c', 'd'), ('e', 'f', 'g'))
    assert peers(buckets, ('a', 'b', 'd', 'e', 'f'), 'b') == ('a', 'd')
    assert peers(buckets, ('a', 'b'), 'stranger') == ()
