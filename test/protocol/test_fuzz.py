# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
10,000 messages that nobody may take: none is taken, none changes anything, and the rounds go on.

They are thrown at every party in every phase of two rounds. What a party has, on disk and in
memory, is the same afterwards; see :mod:`fuzzing`.
"""

from dataclasses import fields, is_dataclass, replace
from functools import partial
import tracemalloc
from typing import get_args, get_origin, get_type_hints

from fdrl_ros.crypto.keys.signing import Identity
from fdrl_ros.errors import MessageError, RoundError
from fdrl_ros.federation.protocol import encoding
from fdrl_ros.federation.protocol.channel import MOST_COUNT
from fdrl_ros.federation.protocol.encoding import encode
from fdrl_ros.federation.protocol.message import (
    Blame,
    Complaint,
    Decline,
    Dispute,
    Envelope,
    KINDS,
    Message,
    message_from_bytes,
    Objection,
    Opening,
    Phase,
    Verdict,
)
from hypothesis import given, HealthCheck, settings, strategies
import pytest
from support.federation_bench import Bench
from support.fuzzing import Fuzzer, state_of
from support.interception import Interception
from support.lying_hospitals import deal_garbage, project_pair_wrong

PHASES = (Phase.OPEN, Phase.SHARE, Phase.TRAIN, Phase.SETTLE, Phase.REVEAL, Phase.SUM)
EACH = 130
"""Messages thrown at each of six parties in each of thirteen moments."""


@pytest.fixture(scope='module')
def federation():
    """Return how to make a federation, all with the same keys, and what is said in one."""
    bench = Bench(hospitals=4)
    said = Interception(bench, Message).messages
    assert bench.run()
    said += map(bench.signed_order, ('pause', 'resume', 'stop', 'roll_back'))
    said.append(bench.signed_order('withdraw', 'hospital_4'))
    channel = bench.parties['hospital_1'].channel
    said.append(channel.sign(Objection, 1, 1, roster_serial=9, roster_digest=bytes(32)))
    said.append(channel.sign(Decline, 1, 1, reason=1, detail='its budget is spent'))
    spoiled = Bench(hospitals=4, rounds=1)
    tap = Interception(spoiled, Complaint, Blame, Dispute, Opening)
    project_pair_wrong(spoiled, 'hospital_4')
    assert spoiled.run()
    said += tap.messages
    spoiled = Bench(hospitals=4, rounds=1)
    tap = Interception(spoiled, Complaint, Blame)
    deal_garbage(spoiled, 'hospital_4', ['hospital_1'])
    assert spoiled.run()
    said += tap.messages
    return partial(Bench, hospitals=4), said, digest_in(bench)


def digest_in(bench):
    return bench.policy.digest


def test_10_000_bad_messages_are_refused_and_change_nothing(federation):
    make, said, digest = federation
    bench = make()
    fuzzer = Fuzzer(bench, said, seed=1)
    for round in (1, 2):
        for phase in PHASES:
            at = round, phase
            assert bench.run(lambda at=at: (bench.aggregator.round, bench.aggregator.phase) == at)
            fuzzer.throw_at_all(EACH)
    assert bench.run()
    fuzzer.throw_at_all(EACH)
    assert digest_in(bench) == digest
    assert not bench.driver.refused
    assert sum(fuzzer.thrown.values()) == 13 * 6 * EACH >= 10_000
    assert min(fuzzer.thrown.values()) > 100, fuzzer.thrown
    assert set(fuzzer.refused) == {'malformed', 'unsigned', 'replayed', 'misplaced', 'late'}


def test_bad_messages_take_no_memory(federation):
    make, said, _ = federation
    bench = make()
    bench.run_to(Phase.TRAIN)
    fuzzer = Fuzzer(bench, said, seed=2)
    fuzzer.throw_at_all(5)
    tracemalloc.start()
    fuzzer.throw_at_all(10)
    before, _ = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    fuzzer.throw_at_all(20)
    after, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    longest = max(len(message.to_bytes()) for message in said)
    assert after - before < 2**19 and peak - before < 2**20 + 20 * longest


def test_wrong_messages_of_insiders_let_nobody_fall(federation):
    make, said, _ = federation
    taken = 0
    for seed, phase in enumerate(PHASES):
        bench = make()
        assert bench.run(lambda bench=bench, phase=phase: bench.aggregator.phase is phase)
        fuzzer = Fuzzer(bench, said, seed)
        fuzzer.throw_as_insiders(50)
        bench.run(ticks=50)
        taken += fuzzer.thrown['taken']
        assert sum(fuzzer.thrown.values()) > 200
    assert taken > 100


@pytest.mark.parametrize('field', ['round', 'attempt', 'counter'])
@pytest.mark.parametrize('number', [-1, -(2**63), MOST_COUNT, 2**63 - 1])
def test_numbers_that_nobody_counts_to_are_refused_of_everybody(federation, field, number):
    bench = federation[0]()
    bench.run_to(Phase.SUM)
    for kind, name in (('DecryptRequest', 'key_authority'), ('RoundStatus', 'hospital_1')):
        real = next(each for each in federation[1] if type(each).__name__ == kind)
        envelope = replace(real.envelope, **{field: number})
        changed = replace(real, envelope=envelope).signed_by(bench.identities['aggregator'])
        before = state_of(bench.parties[name])
        with pytest.raises(RoundError, match='cannot be'):
            bench.parties[name].handle(changed, 0.0)
        assert state_of(bench.parties[name]) == before


def test_what_is_too_long_is_refused_before_it_takes_memory(monkeypatch):
    names = ('',) * 10**6
    data = Verdict(Envelope('f', 1, 1, 's', 1), True, '', True, True, b'', names, ()).to_bytes()
    tracemalloc.start()
    with pytest.raises(MessageError, match='1000000 of refused: at most 10000'):
        message_from_bytes(data)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10**5 < len(data)
    monkeypatch.setattr(encoding, 'MOST_BYTES', 1000)
    with pytest.raises(MessageError, match='at most 1000'):
        message_from_bytes(bytes(1001))


def values_of(kind, most=None):
    """Return a strategy of the values that a type can have in a message."""
    plain = {
        bool: strategies.booleans(),
        int: strategies.integers(-(2**63), 2**63 - 1),
        float: strategies.floats(allow_nan=False),
        str: strategies.text(max_size=20),
        bytes: strategies.binary(max_size=min(80, 80 if most is None else most)),
    }
    if kind in plain:
        return plain[kind]
    if get_origin(kind) is tuple:
        longest = 3 if most is None else min(3, most)
        return strategies.lists(values_of(get_args(kind)[0]), max_size=longest).map(tuple)
    assert is_dataclass(kind)
    hints = get_type_hints(kind)
    parts = {f.name: values_of(hints[f.name], f.metadata.get('most')) for f in fields(kind)}
    return strategies.builds(kind, **parts)


@pytest.mark.parametrize('name', KINDS)
def test_messages_of_every_kind_come_back_as_they_were(name):
    @given(message=values_of(KINDS[name]))
    @settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
    def comes_back(message):
        data = message.to_bytes()
        again = message_from_bytes(data)
        assert again == message and again.to_bytes() == data
        with pytest.raises(MessageError, match='after the end'):
            message_from_bytes(data + b'0')

    comes_back()


@given(number=strategies.floats(), bits=strategies.integers(0, 2**64 - 1))
@settings(max_examples=50, deadline=None)
def test_numbers_that_are_none_come_back_to_the_bit(number, bits):
    for data in (encode(number), b'f' + bits.to_bytes(8, 'little')):
        assert encode(encoding.Reader(data).read(float)) == data


def test_a_signature_that_was_checked_counts_for_that_message_and_key_alone(federation):
    mine, other = Identity.generate('somebody'), Identity.generate('somebody')
    message = federation[1][0].signed_by(mine)
    for _ in range(2):  # the second answer is the kept one
        assert message.is_signed_by(mine.public)
        assert not message.is_signed_by(other.public)
    later = replace(message.envelope, counter=message.envelope.counter + 1)
    assert not replace(message, envelope=later).is_signed_by(mine.public)


@pytest.mark.parametrize('name', sorted(set(KINDS) - {'HospitalPolicy'}))
def test_any_flipped_byte_is_refused_or_breaks_the_signature(federation, name):
    message = next(each for each in federation[1] if type(each).__name__ == name)
    identity = Identity.generate('somebody')
    data = message.signed_by(identity).to_bytes()
    # All of what is short, and of what is long the beginning, the end and some of the middle.
    places = {*range(min(len(data), 300)), *range(max(0, len(data) - 100), len(data))}
    places |= set(range(0, len(data), max(1, len(data) // 100)))
    survived = 0
    for place in sorted(places):
        flipped = bytearray(data)
        flipped[place] ^= 1 << place % 8
        try:
            read = message_from_bytes(bytes(flipped))
        except MessageError:
            continue
        survived += 1
        assert read.to_bytes() == bytes(flipped)
        assert not read.is_signed_by(identity.public)
    assert survived > 50


def test_texts_that_are_no_names_of_hospitals_are_not_kept():
    """Whoever has no key can send them: the signature is checked over what they are in."""
    before = encoding._write_short.cache_info().currsize
    encoding.encode(tuple(f'{number:064}' for number in range(100)))
    assert encoding._write_short.cache_info().currsize == before
    names = tuple(f'hospital_that_nobody_knows_{number}' for number in range(100))
    encoding.encode(names)
    assert encoding._write_short.cache_info().currsize == before + 100
