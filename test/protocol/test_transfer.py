# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Updates of many chunks arrive whole whatever is lost, and never many chunks are on their way."""

from collections import Counter
from dataclasses import replace
import random

from fdrl_ros.federation.aggregator.state import AT_ONCE
from fdrl_ros.federation.protocol.chunk_requests import ChunkRequests, FIRST, PATIENCE, WINDOW
from fdrl_ros.federation.protocol.message import (
    DecryptRequest,
    MaskedUpdate,
    Phase,
    Relay,
    STEP,
    Verdict,
    Wanted,
)
from fdrl_ros.policy import NetworkShape
from hypothesis import given, settings, strategies
import numpy as np
import pytest
from support.dropouts import CHUNKED
from support.federation_bench import Bench, SHAPE
from support.interception import Interception, resealed

LONG = NetworkShape(states=4, actions=3, hidden=(17_000,))  # 38 chunks


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path, rounds=1, shape=LONG)


def ends_exactly(bench, names=('hospital_1', 'hospital_2', 'hospital_3')):
    assert bench.run()
    policy = bench.parties[names[0]].policy
    assert not policy.rolled_back and policy.contributors == tuple(names)
    weights = bench.weights
    np.testing.assert_allclose(weights, bench.expected(1, list(names)), atol=2e-3)


def test_every_chunk_travels_once_and_few_are_on_their_way(bench):
    federation, under_way, most = bench.driver, Counter(), Counter()
    deliver, handle = federation.deliver, bench.aggregator.handle
    relays = Interception(bench, Relay)

    def noted(name, message):
        if isinstance(message, MaskedUpdate) and name == 'aggregator':
            under_way[message.envelope.sender] += 1
            most['all'] = max(most['all'], sum(under_way.values()))
            most['one'] = max(most['one'], *under_way.values())
        deliver(name, message)

    def handled(message, now):
        if isinstance(message, MaskedUpdate):
            under_way[message.envelope.sender] -= 1
        return handle(message, now)

    federation.deliver, bench.aggregator.handle = noted, handled
    updates = Interception(bench, MaskedUpdate)
    ends_exactly(bench)
    assert bench.scheme.ciphertexts == 38 > WINDOW + FIRST
    assert len(updates.messages) == 3 * 38
    assert sum(len(each.updates) for each in relays.messages) == 3 * 38
    assert most['one'] <= WINDOW and most['all'] <= AT_ONCE * WINDOW + 3 * FIRST
    assert not bench.driver.refused


@pytest.mark.parametrize('seed', range(2))
def test_what_is_lost_is_asked_for_again(bench, seed):
    chance = random.Random(seed)
    Interception(
        bench,
        MaskedUpdate,
        Wanted,
        Relay,
        change=lambda m: [m] if getattr(m, 'chunk', 1) == 0 or chance.random() < 0.7 else [],
    )
    ends_exactly(bench)
    assert bench.aggregator.attempt == 0  # the first attempt was enough
    assert all(learner.trained == [1] for learner in bench.learners.values())


def test_a_hospital_that_starts_again_in_the_middle_goes_on(bench):
    updates = Interception(bench, MaskedUpdate)
    assert bench.run(lambda: len(updates.messages) > 60)
    bench.restart('hospital_1')
    ends_exactly(bench)
    assert bench.learners['hospital_1'].trained == [1]
    assert {message.envelope.attempt for message in updates.messages} == {1}
    assert (
        len({message.ciphertext for message in updates.messages}) == 3 * bench.scheme.ciphertexts
    )


def test_a_hospital_that_is_killed_while_it_sends_sends_the_very_same_chunks_again(tmp_path):
    bench, lives = Bench(tmp_path, rounds=1, shape=CHUNKED), [{}]

    def lose_all_but_its_first(message):
        if message.envelope.sender != 'hospital_1':
            return [message]
        lives[-1][message.id, message.chunk] = message.ciphertext
        return [message] if message.chunk == 0 or len(lives) > 1 else []

    Interception(bench, MaskedUpdate, change=lose_all_but_its_first)
    assert bench.run(lambda: len(lives[0]) == 2)
    lives.append({})
    bench.restart('hospital_1')
    assert bench.run(lambda: len(lives[1]) == 2, ticks=60)
    assert lives[1] == lives[0]
    ends_exactly(bench)


def test_who_has_sent_a_part_by_the_deadline_is_left_out(tmp_path):
    bench = Bench(tmp_path, hospitals=4, rounds=1, shape=LONG)
    late = lambda m: m.envelope.sender == 'hospital_4' and m.chunk > 20  # noqa: E731
    Interception(bench, MaskedUpdate, change=lambda m: [] if late(m) else [m])
    ends_exactly(bench)


def test_an_aggregator_that_starts_again_later_needs_no_updates_of_the_past(bench):
    bench.settings = replace(bench.settings, rounds=2)
    bench.restart('aggregator')
    bench.run_to(Phase.TRAIN, 2)
    bench.restart('aggregator')
    assert bench.run()


@pytest.mark.parametrize('name', ['key_authority', 'aggregator'])
def test_a_server_that_starts_again_while_the_key_authority_adds_goes_on(bench, name):
    relays = Interception(bench, Relay)
    assert bench.run(lambda: len(relays.messages) > 5)
    bench.restart(name)
    ends_exactly(bench)
    # An aggregator that starts again before the survivors are fixed needs another attempt.
    attempts = {1} if name == 'key_authority' else {1, 2}
    assert {message.envelope.attempt for message in relays.messages} == attempts


def test_a_request_that_is_repeated_meanwhile_does_not_begin_anew(bench):
    relays, requests = Interception(bench, Relay), Interception(bench, DecryptRequest)
    assert bench.run(lambda: len(relays.messages) > 5)
    again = resealed(bench, requests.messages[0])
    bench.hear('key_authority', again)
    ends_exactly(bench)
    firsts = [message.first for message in relays.messages]
    assert set(firsts) == set(range(0, 3 * 38, STEP)) and len(firsts) <= 15 + WINDOW // STEP


def another_update(bench, relay):
    """Return a relay with a chunk that the hospital signed for this attempt, but never sent."""
    first, *others = relay.updates
    ciphertext = bench.secret.public.encrypt(np.zeros(4096, dtype=np.int64))
    changed = resealed(bench, first, ciphertext=ciphertext)
    return resealed(bench, relay, updates=(changed, *others))


SAID = "'aggregator': other updates than the request names"


def test_what_was_not_sent_is_not_summed(bench):
    lied: list = []
    verdicts = Interception(bench, Verdict)

    def change(relay):
        if not lied and relay.first > 40:
            lied.append(relay)
            return [another_update(bench, relay)]
        return [relay]

    Interception(bench, Relay, change=change)
    ends_exactly(bench)  # in another attempt
    refused = [each for each in verdicts.messages if not each.accepted]
    assert lied and [each.reason for each in refused] == ['malformed message from ' + SAID]


def test_relays_that_nobody_asked_for_are_refused(bench):
    relays = Interception(bench, Relay)
    ends_exactly(bench)
    relay = resealed(bench, relays.messages[0])
    bench.driver.refused.clear()
    bench.hear('key_authority', relay)
    assert 'not asked for' in str(bench.driver.refused[0][1])


def test_who_asks_for_what_is_not_there_gets_nothing(bench):
    updates, wanted = Interception(bench, MaskedUpdate), Interception(bench, Wanted)
    assert bench.run(lambda: bench.aggregator.phase is Phase.TRAIN and wanted.messages)
    ask, before = next(m for m in wanted.messages if m.to == 'hospital_1'), len(updates.messages)
    for changes in ({'to': 'hospital_2'}, {'first': 38}, {'count': -1}):
        bench.hear('hospital_1', resealed(bench, ask, **changes))
    assert len(updates.messages) == before
    ends_exactly(bench)


def test_updates_lie_in_files_that_go_with_their_round(bench, tmp_path):
    bench.run_to(Phase.SUM)
    spools = {path.name: path.stat() for path in tmp_path.glob('*.spool')}
    assert set(spools) == {
        'aggregator.updates-1-1.spool',
        *(f'{name}.sent-1-1.spool' for name in bench.names),
    }
    size = 38 * bench.scheme.ciphertext_bytes
    assert 3 * size < spools['aggregator.updates-1-1.spool'].st_size < 3 * size + 3 * 38 * 1000
    assert spools['hospital_1.sent-1-1.spool'].st_size == size
    assert all(each.st_mode & 0o777 == 0o600 for each in spools.values())
    ends_exactly(bench)
    assert not list(tmp_path.glob('*.spool'))
    # Policies are there, ciphertexts not.
    assert (tmp_path / 'aggregator.sqlite').stat().st_size < size / 3


@settings(max_examples=100, deadline=None)
@given(count=strategies.integers(1, 200), seed=strategies.integers(0, 2**32))
def test_a_pull_asks_for_everything_and_never_for_much(count, seed):
    chance, pull = random.Random(seed), ChunkRequests(FIRST)
    have: set[int] = {0}
    coming = set(range(1, min(FIRST, count)))
    now = 0.0
    for _ in range(2000):
        for first, size in pull.next(have, count, now):
            assert 1 <= size <= STEP and first + size <= count
            assert not have & set(range(first, first + size))
            coming |= set(range(first, first + size))
        assert len(coming) <= WINDOW
        if len(have) == count:
            break
        if coming:
            number = chance.choice(sorted(coming))
            coming.remove(number)
            if chance.random() < 0.8:
                have.add(number)
        else:
            now += PATIENCE
    assert have == set(range(count))


def test_short_updates_are_not_asked_for(tmp_path):
    bench = Bench(tmp_path, rounds=1, shape=SHAPE)
    asked = Interception(bench, Wanted)
    assert bench.run()
    assert {message.to for message in asked.messages} == {'aggregator'}
