# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""A request that is too long for one message comes in parts, and proves as much as a whole one."""

from dataclasses import replace
import random
import re

from fdrl_ros.errors import LateError, MessageError
from fdrl_ros.federation.protocol import request_parts
from fdrl_ros.federation.protocol.message import (
    DecryptRequest,
    MOST_PARTS,
    Relay,
    Verdict,
    Wanted,
)
from fdrl_ros.federation.protocol.request_parts import LISTS, PROOFS, RequestParts, split_request
from hypothesis import given, settings, strategies
import pytest
from support.federation_bench import Bench, names_of
from support.interception import Interception, resealed

PART = 800  # bytes: one message or two
HOSPITALS = 5


@pytest.fixture
def bench(tmp_path, monkeypatch):
    monkeypatch.setattr(request_parts, 'PART_BYTES', PART)
    return Bench(tmp_path, hospitals=HOSPITALS, rounds=1)


def ends_well(bench, attempts=1):
    assert bench.run()
    policy = bench.parties['hospital_1'].policy
    assert not policy.rolled_back and policy.contributors == tuple(names_of(HOSPITALS))
    assert policy.envelope.attempt == attempts
    return bench.weights.tobytes()


def asked_for_parts(message):
    return isinstance(message, Wanted) and message.part > 0


def test_parts_end_with_the_policy_of_whole_requests(tmp_path, monkeypatch):
    (tmp_path / 'whole').mkdir()
    bench = Bench(tmp_path / 'whole', hospitals=HOSPITALS, rounds=1)
    whole = Interception(bench, DecryptRequest, Wanted)
    policy = ends_well(bench)
    requests = [each for each in whole.messages if isinstance(each, DecryptRequest)]
    assert requests and all(each.parts == 1 for each in requests)
    assert not any(map(asked_for_parts, whole.messages))

    monkeypatch.setattr(request_parts, 'PART_BYTES', PART)
    (tmp_path / 'parts').mkdir()
    bench = Bench(tmp_path / 'parts', hospitals=HOSPITALS, rounds=1)
    parts = Interception(bench, DecryptRequest, Wanted)
    assert ends_well(bench) == policy
    assert not bench.driver.refused
    sent = [each for each in parts.messages if isinstance(each, DecryptRequest)]
    numbers = [(each.part, each.parts) for each in sent]
    assert len(sent) > len(requests) and all(most > 1 for _, most in numbers)
    asked = [each.part for each in parts.messages if asked_for_parts(each)]
    assert asked == [number for number, _ in numbers if number]  # each once, one after the other
    for each in sent:
        found = [message for name in PROOFS for message in getattr(each, name)]
        assert len(found) == 1 or sum(len(one.to_bytes()) for one in found) <= PART
        if each.part:
            assert not each.members and not each.survivors and not each.update_hashes
            assert not each.sum_hash


@pytest.mark.parametrize('seed', range(3))
def test_lost_parts_are_asked_for_again(bench, seed):
    chance = random.Random(seed)
    lost = []

    def lose(message):
        is_part = isinstance(message, DecryptRequest) or asked_for_parts(message)
        if is_part and len(lost) < 6 and chance.random() < 0.3:
            lost.append(message)
            return []
        return [message]

    Interception(bench, DecryptRequest, Wanted, change=lose)
    ends_well(bench)
    assert lost


@pytest.mark.parametrize('name', ['key_authority', 'aggregator'])
@pytest.mark.parametrize('number', [0, 1, 2])
def test_a_server_that_starts_again_between_parts_goes_on(bench, name, number):
    parts = Interception(bench, DecryptRequest)
    assert bench.run(
        lambda: parts.messages and parts.messages[-1].sum_hash and parts.messages[-1].parts > 3
    )
    first = parts.messages[-1]
    assert bench.run(
        lambda: (parts.messages[-1].id, parts.messages[-1].part) == (first.id, number)
    )
    bench.restart(name)
    ends_well(bench)


def test_parts_that_come_twice_or_late_change_nothing(bench):
    sent: list = []

    def again(message):
        old = sent[-3:]
        sent.append(message)
        return [message, *(resealed(bench, each) for each in (message, *old))]

    Interception(bench, DecryptRequest, change=again)
    ends_well(bench)
    assert not bench.driver.refused


def unsigned(message):
    return replace(message, envelope=replace(message.envelope, signature=bytes(64)))


@pytest.mark.parametrize(
    ('lie', 'words'),
    [
        (lambda b, m: resealed(b, m, part=m.parts), 'part .* of a request'),
        (lambda b, m: resealed(b, m, parts=MOST_PARTS + 1), 'of a request'),
        (lambda b, m: resealed(b, m, **dict.fromkeys(PROOFS, ())), 'has no proofs'),
        (lambda b, m: resealed(b, m, survivors=('hospital_1',)), 'or more than proofs'),
        (lambda b, m: resealed(b, m, sum_hash=bytes(10**6)), 'or more than proofs'),
        (lambda b, m: resealed(b, m, keys=(unsigned(m.keys[0]),)), 'bad signature on RoundKey'),
        (lambda b, m: resealed(b, m, keys=m.keys * 6), 'not those of one request'),
    ],
    ids=['beyond', 'too many', 'empty', 'a list', 'a long field', 'unsigned', 'too long'],
)
def test_parts_that_do_not_fit_are_refused_and_nothing_is_decrypted(bench, lie, words):
    lied: list = []

    def change(message):
        if lied or message.parts < 3 or not message.keys or message.part == 0:
            return [message]
        lied.append(message)
        return [lie(bench, message)]

    Interception(bench, DecryptRequest, change=change)
    verdicts, seen = Interception(bench, Verdict), bench.spy_on_decryption()
    assert bench.run(lambda: any(not each.accepted for each in verdicts.messages))
    assert lied and not seen
    refused = next(each for each in verdicts.messages if not each.accepted)
    assert re.search(words, refused.reason)


def test_whoever_asks_for_a_part_that_is_not_there_gets_nothing(bench):
    parts = Interception(bench, DecryptRequest, Wanted)
    assert bench.run(lambda: any(map(asked_for_parts, parts.messages)))
    ask = next(filter(asked_for_parts, parts.messages))
    before = len([each for each in parts.messages if isinstance(each, DecryptRequest)])
    for part in (1000, -1):
        bench.hear('aggregator', resealed(bench, ask, part=part))
        assert f'wants part {part} ' in str(bench.driver.refused[-1][1])
    assert before == len([each for each in parts.messages if isinstance(each, DecryptRequest)])
    ends_well(bench)


@pytest.fixture(scope='module')
def request_of_one_message(tmp_path_factory):
    bench = Bench(tmp_path_factory.mktemp('request'), hospitals=HOSPITALS, rounds=1)
    asked = Interception(bench, DecryptRequest)
    assert bench.run(lambda: asked.messages and asked.messages[-1].sum_hash)
    return asked.messages[-1], bench.roster


@settings(deadline=None)
@given(
    most=strategies.integers(1, 30_000),
    order=strategies.lists(strategies.integers(0, 40), max_size=60),
)
def test_parts_join_to_what_was_split_whatever_comes_between(request_of_one_message, most, order):
    whole, roster = request_of_one_message
    fields = {name: getattr(whole, name) for name in FIELDS}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(request_parts, 'PART_BYTES', most)
        parts = [replace(whole, **each) for each in split_request(fields)]
    joined, taken = RequestParts(), None
    # Whatever was taken in whatever order before, asking for what is missing ends with the whole.
    for number in order:
        taken = joined.take(parts[number % len(parts)], roster)
        assert taken is None or isinstance(taken, int | DecryptRequest)
    number = 0
    while not isinstance(taken := joined.take(parts[number], roster), DecryptRequest):
        number = taken
    for name, value in fields.items():
        assert getattr(taken, name) == value


FIELDS = (*PROOFS, *LISTS)


def parts_of(whole, **changes):
    """Return a request, with some fields changed, in parts of one message or two."""
    fields = {name: getattr(whole, name) for name in FIELDS} | changes
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(request_parts, 'PART_BYTES', PART)
        return [replace(whole, **each) for each in split_request(fields)]


@pytest.mark.parametrize('other', ['sum_hash', 'survivors', 'parts'])
def test_parts_of_two_requests_are_not_joined(request_of_one_message, other):
    """Though they are of one attempt, as those of an inspection and of a sum are."""
    whole, roster = request_of_one_message
    joined, parts = RequestParts(), parts_of(whole)
    others = {
        'sum_hash': parts_of(whole, sum_hash=bytes(32)),
        'survivors': parts_of(whole, survivors=whole.survivors[1:]),
        'parts': [replace(each, parts=each.parts + 1) for each in parts],
    }[other]
    assert joined.take(parts[0], roster) == 1
    assert joined.take(others[1], roster) is None
    assert joined.take(others[0], roster) == 1  # the newer request takes its place
    assert joined.take(parts[1], roster) is None
    assert joined.take(others[1], roster) == 2


def test_a_first_part_whose_lists_are_others_than_its_digest_says_is_refused(
    request_of_one_message,
):
    whole, roster = request_of_one_message
    joined, parts = RequestParts(), parts_of(whole)
    parts[0] = replace(parts[0], survivors=whole.survivors[1:])
    for each in parts[:-1]:
        joined.take(each, roster)
    with pytest.raises(MessageError, match='not those of one request'):
        joined.take(parts[-1], roster)


def test_a_request_whose_updates_are_fetched_does_not_travel_again(bench):
    requests = Interception(bench, DecryptRequest)

    def numbers(digest):
        return [each.part for each in requests.messages if each.request_digest == digest]

    def lose(message):  # until the aggregator, whose time for an answer is over, asks again
        newest = requests.messages[-1].request_digest
        return [message] if numbers(newest).count(0) > 1 else []

    Interception(bench, Relay, change=lose)
    ends_well(bench)
    for digest in {each.request_digest for each in requests.messages}:
        further = [number for number in numbers(digest) if number]
        assert len(further) == len(set(further)) > 0
    assert max(numbers(each.request_digest).count(0) for each in requests.messages) > 1


def test_a_sum_is_asked_for_while_an_inspection_is_collected(bench):
    inspections, mixed = [], []

    def both(message):
        if message.part == 0 and not message.sum_hash:
            inspections.append(message)
        elif message.sum_hash and not mixed:
            mixed.append(message)
            return [resealed(bench, inspections[0]), message]
        return [message]

    Interception(bench, DecryptRequest, change=both)
    ends_well(bench)
    assert inspections[0].parts > 2 and mixed[0].parts > 2


def test_a_part_of_an_older_attempt_is_not_sent(tmp_path, monkeypatch):
    monkeypatch.setattr(request_parts, 'PART_BYTES', PART)
    bench = Bench(tmp_path, hospitals=HOSPITALS, rounds=1)
    parts = Interception(bench, DecryptRequest, Wanted)
    assert bench.run(lambda: any(map(asked_for_parts, parts.messages)))
    ask = next(filter(asked_for_parts, parts.messages))
    bench.order('pause')
    bench.order('resume')
    second = (1, 2)
    assert bench.run(
        lambda: parts.messages[-1].id == second and asked_for_parts(parts.messages[-1])
    )
    before = len(parts.messages)
    with pytest.raises(LateError, match=r'wants updates of \(1, 1\), now at \(1, 2\)'):
        bench.aggregator.handle(resealed(bench, ask), 0.0)
    assert len(parts.messages) == before
    ends_well(bench, attempts=2)


def test_parts_of_a_round_that_an_operator_ends_are_dropped(tmp_path, monkeypatch):
    monkeypatch.setattr(request_parts, 'PART_BYTES', PART)
    bench = Bench(tmp_path, hospitals=HOSPITALS, rounds=2)
    at = bench.key_authority
    assert bench.run(lambda: at.round == 1 and at._parts._parts)
    bench.order('roll_back', to_round=0)
    assert at.round == 2 and not at._parts._parts


def test_more_messages_than_hospitals_are_not_kept(request_of_one_message):
    whole, roster = request_of_one_message
    joined = RequestParts()
    keys = {**dict.fromkeys(PROOFS, ()), **dict.fromkeys(LISTS, ()), 'keys': whole.keys}
    part = replace(whole, part=0, parts=9, request_digest=bytes(32), **keys)
    assert joined.take(part, roster) == 1
    with pytest.raises(MessageError, match='not those of one request'):
        joined.take(replace(part, part=1, keys=whole.keys[:1]), roster)
    assert joined.take(replace(part, part=1), roster) is None  # what was held is gone
