# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What links promise, over a router in this process that does what it likes."""

from dataclasses import replace
from functools import cache

from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from fdrl_ros.deployment.link import streams
from fdrl_ros.deployment.link.party_link import bound
from fdrl_ros.deployment.link.streams import Frame, Mark, Marks
from fdrl_ros.errors import MessageError, ReplayError
from fdrl_ros.federation.protocol.encoding import encode
from fdrl_ros.federation.protocol.message import (
    GlobalPolicy,
    MaskedUpdate,
    Phase,
    RoundStatus,
    Settle,
)
from hypothesis import given, strategies
import pytest
from support.federation_bench import Bench
from support.interception import Interception, refusals
from support.relayed_federation import KEY, RelayedFederation

MESSAGE = b'fdrl_ros/'
"""In the clear form of every message."""


@cache
def in_process() -> bytes:
    """Return the digest of the last policy of the in-process driver."""
    bench = Bench()
    assert bench.run() and bench.policy
    return bench.policy.digest


def ends_as_in_process(bench: Bench) -> bool:
    return bench.run() and bench.policy.digest == in_process() and not bench.policy.rolled_back


def sealed(key: str, content: bytes, secret: bytes = KEY) -> bytes:
    return bytes(12) + ChaCha20Poly1305(secret).encrypt(bytes(12), content, bound(key))


@pytest.mark.parametrize(
    'lies',
    [
        {},
        {'lost': 0.3},
        {'repeated': 0.5},
        {'mixed': 0.5},
        {'lost': 0.15, 'repeated': 0.3, 'mixed': 0.3},
    ],
    ids=str,
)
@pytest.mark.parametrize('seed', range(3))
def test_a_router_that_drops_repeats_and_reorders_changes_nothing(seed, lies):
    bench = Bench(driver=RelayedFederation(seed, **lies))
    assert ends_as_in_process(bench)
    assert refusals(bench, ReplayError) == []  # repetitions do not even come to a party


@pytest.mark.parametrize('phase', [Phase.OPEN, Phase.SHARE, Phase.TRAIN, Phase.SETTLE, Phase.SUM])
@pytest.mark.parametrize('cut', ['hospital_2', 'aggregator', 'key_authority'])
def test_who_is_cut_off_in_the_middle_of_a_round_gets_what_it_missed(phase, cut):
    bench = Bench(driver=RelayedFederation(0))
    bench.run_to(phase, 1)
    bench.driver.cut.add(cut)
    bench.wait(3)
    bench.driver.cut.clear()
    bench.driver.links[cut].rejoin()
    assert ends_as_in_process(bench)


@pytest.mark.parametrize('name', ['hospital_2', 'aggregator', 'key_authority'])
def test_who_is_killed_and_starts_again_gets_the_newest_of_everybody(name):
    bench = Bench(driver=RelayedFederation(0, lost=0.1))
    bench.run_to(Phase.TRAIN, 1)
    bench.restart(name)
    assert ends_as_in_process(bench)


def test_the_router_sees_no_message_in_clear():
    bench = Bench(driver=RelayedFederation(0))
    assert bench.run()
    assert {key.split('/')[3] for key, _ in bench.driver.seen} >= {'MaskedUpdate', 'GlobalPolicy'}
    assert not any(MESSAGE in payload for _, payload in bench.driver.seen)


def test_what_no_party_sealed_is_refused_and_changes_nothing():
    bench = Bench(driver=RelayedFederation(0))
    bench.run_to(Phase.TRAIN, 1)
    link = bench.driver.links['aggregator']
    key, payload = next(each for each in bench.driver.seen if 'RoundKey' in each[0])
    other = key.replace('hospital_1', 'hospital_2')
    assert link.heard(key, payload) == []  # a repetition
    for forged in (
        (other, payload),  # under another name
        (key, payload[:-1] + bytes([payload[-1] ^ 1])),
        (key, payload[:5]),
        (key, b''),
        (key, sealed(key, encode(Frame(-1, b'')), bytes(32))),
        (key, sealed(key[1:], encode(Frame(-1, b'')))),
    ):
        with pytest.raises(MessageError, match='not sealed with the key of the links'):
            link.heard(*forged)
    assert ends_as_in_process(bench)


def marks(count):
    return tuple(Mark(f'kind_{each}', each) for each in range(count))


@pytest.mark.parametrize(
    ('key', 'content', 'words'),
    [
        ('hospital_1/RoundKey', b'', 'end early'),
        ('hospital_1/RoundKey', encode(Marks(())), 'was expected'),
        ('hospital_1/RoundKey', encode(Frame(-1, b'x')), 'was expected'),
        ('hospital_1/newest', encode(Marks(marks(1000))), 'at most'),
        # The second of two kinds named as the first is.
        (
            'hospital_1/newest',
            encode(Marks(marks(2))).replace(b'kind_1', b'kind_0'),
            'a kind of messages is named twice',
        ),
        ('hospital_1/want/aggregator', encode(Frame(-1, b'')), 'of marks: at most'),
        ('hospital_1/nothing', encode(Frame(-1, b'')), "there is no 'nothing'"),
        ('hospital_9/RoundKey', encode(Frame(-1, b'')), 'is not in roster'),
        ('hospital_1/RoundKey/hospital_2', encode(Frame(-1, b'')), 'is not for aggregator'),
        ('hospital_1', encode(Frame(-1, b'')), 'is not for aggregator'),
        ('hospital_1/a/b/c', encode(Frame(-1, b'')), 'is not for aggregator'),
    ],
)
def test_malformed_bytes_of_a_party_are_refused(key, content, words):
    bench = Bench(driver=RelayedFederation(0))
    key = f'fdrl/test/{key}'
    with pytest.raises(MessageError, match=words):
        bench.driver.links['aggregator'].heard(key, sealed(key, content))


def test_a_hospital_cannot_pass_on_what_another_one_signed():
    bench = Bench(driver=RelayedFederation(0))
    statuses = Interception(bench, RoundStatus, Settle).messages
    assert bench.run()
    settle = next(each for each in statuses if isinstance(each, Settle))
    key = 'fdrl/test/hospital_3/Settle'
    assert settle.sender != 'hospital_3'
    with pytest.raises(MessageError, match='sent a message in the name of'):
        bench.driver.links['aggregator'].heard(
            key, sealed(key, encode(Frame(-1, settle.to_bytes())))
        )
    status = next(each for each in statuses if isinstance(each, RoundStatus))
    key = 'fdrl/test/aggregator/RoundStatus'
    with pytest.raises(MessageError, match='RoundStatus is not for key_authority'):
        bench.driver.links['key_authority'].heard(
            key, sealed(key, encode(Frame(-1, status.to_bytes())))
        )


def test_too_long_a_message_is_neither_sent_nor_taken(monkeypatch):
    bench = Bench(driver=RelayedFederation(0))
    policies = Interception(bench, GlobalPolicy).messages
    assert bench.run()
    monkeypatch.setattr(streams, 'LARGEST_MESSAGE', 300)
    with pytest.raises(MessageError, match='at most 300'):
        bench.driver.links['key_authority'].send(policies[-1])
    key = 'fdrl/test/key_authority/GlobalPolicy'
    with pytest.raises(MessageError, match='more than 300'):
        bench.driver.links['hospital_1'].heard(
            key, sealed(key, encode(Frame(-1, policies[-1].to_bytes())))
        )


def test_an_answer_to_no_question_of_now_settles_nothing():
    bench = Bench(driver=RelayedFederation(0))
    bench.run_to(Phase.TRAIN, 1)
    key = 'fdrl/test/aggregator/answer/hospital_1'
    for number in (0, 7):
        old = encode(Marks((Mark('RoundStatus', 10**9),), number))
        assert bench.driver.links['hospital_1'].heard(key, sealed(key, old)) == []
    assert ends_as_in_process(bench)  # statuses of smaller counters still count


def test_a_question_that_is_repeated_is_answered_once():
    bench = Bench(driver=RelayedFederation(0))
    assert bench.run()
    key, link = 'fdrl/test/hospital_1/want/key_authority', bench.driver.links['key_authority']
    question = sealed(key, encode(Marks((Mark('GlobalPolicy', -2),), 7)))
    link.tick(bench.driver.now + 10.0)
    before = len(bench.driver.seen)
    for _ in range(5):
        assert link.heard(key, question) == []
    sent = [each.split('/')[3] for each, _ in bench.driver.seen[before:]]
    assert sent.count('answer') == 1 and sent.count('again') >= 1


def test_what_waits_for_lost_messages_is_bounded(monkeypatch):
    bench = Bench(driver=RelayedFederation(0))
    updates = Interception(bench, MaskedUpdate).messages
    assert bench.run()
    first = updates[0]
    monkeypatch.setattr(streams, 'MOST_WAITING', 6 * len(first.to_bytes()) + 100)
    inbox = streams.Inbox([MaskedUpdate], 'aggregator')
    for counter in range(1000, 1010):
        chunk = replace(first, envelope=replace(first.envelope, counter=counter))
        assert inbox.take(first.sender, Frame(counter - 1, chunk.to_bytes())) == []
    assert inbox.behind == {first.sender}
    released = inbox.settle(first.sender, Marks((Mark('MaskedUpdate', 999),)))
    assert [each.envelope.counter for each in released] == [1000, 1001, 1002]


@given(
    strategies.lists(
        strategies.tuples(strategies.sampled_from('abc'), strategies.integers(1, 60)), max_size=60
    )
)
def test_who_floods_holds_no_more_than_is_left_for_others(offered):
    bytes_held, held = streams.FairBound(100), dict.fromkeys('abc', 0)
    for sender, size in offered:
        free = 100 - sum(held.values()) - size
        assert bytes_held.add(sender, size) is (held[sender] + size <= free)
        if held[sender] + size <= free:
            held[sender] += size
    for sender, size in held.items():
        if size:
            bytes_held.remove(sender, size)
    assert bytes_held.add('d', 50) and not bytes_held.add('d', 1)
    assert bytes_held.add('e', 25) and not bytes_held.add('e', 1)


def test_the_first_messages_of_a_kind_are_not_lost_to_who_had_nothing_before():
    bench = Bench(driver=RelayedFederation(0))
    statuses = Interception(bench, RoundStatus).messages
    bench.run_to(Phase.TRAIN, 1)
    for name in bench.names:  # all of the first updates go astray
        bench.driver.cut.add(name)
    bench.wait(2)
    assert all(learner.trained == [1] for learner in bench.learners.values())
    bench.driver.cut.clear()
    assert ends_as_in_process(bench)
    opened = [each.id for each in statuses if each.phase == Phase.OPEN]
    assert {attempt for _, attempt in opened} == {1}
