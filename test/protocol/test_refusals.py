# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Bad messages are refused with a reason, change nothing, and the rounds go on."""

from dataclasses import dataclass, replace

from fdrl_ros.crypto.keys.signing import Identity, verify
from fdrl_ros.errors import (
    MessageError,
    ReplayError,
    RoundError,
    SignatureError,
)
from fdrl_ros.federation.hospital.hospital import AHEAD
from fdrl_ros.federation.protocol.message import (
    DecryptRequest,
    Delivery,
    Envelope,
    GlobalPolicy,
    MaskedUpdate,
    Message,
    Phase,
    Reveal,
    RoundKey,
    RoundStatus,
    Settle,
    Shares,
)
from fdrl_ros.policy import digest_of, encode_weights
from hypothesis import given, settings, strategies
import numpy as np
import pytest
from support.federation_bench import Bench, SHAPE, START
from support.tap import resealed, Tap


@dataclass(frozen=True)
class RoundKeyLike(Message):
    """Another kind with the fields of a round key."""

    mask_key: bytes
    sealing_key: bytes
    seed_hash: bytes


def ends_with_the_older_policy(bench):
    """Run to the end of a round that nothing can be decrypted of: the start is released again."""
    hospital = bench.federation.parties['hospital_1']
    over = bench.run(lambda: hospital.policy and hospital.policy.envelope.round == 1, ticks=60)
    return over and hospital.policy.rolled_back and hospital.policy.digest == digest_of(START)


def run_to(bench, phase):
    assert bench.run(lambda: bench.aggregator.phase is phase)


@given(position=strategies.integers(0, 10_000), bit=strategies.integers(0, 7))
@settings(max_examples=60, deadline=None)
def test_any_changed_bit_of_what_is_signed_breaks_the_signature(position, bit):
    identity = Identity.generate('hospital_1')
    message = MaskedUpdate(
        Envelope('f', 1, 2, 'hospital_1', 3),
        0,
        1,
        b'',
        b'setup',
        b'cipher',
        4,
        b'head',
        3,
        b'base',
        b'links',
    ).signed_by(identity)
    data = bytearray(message.canonical())
    data[position % len(data)] ^= 1 << bit
    assert verify(identity.public, message.envelope.signature, message.canonical())
    assert not verify(identity.public, message.envelope.signature, bytes(data))


def test_canonical_bytes_tell_apart_where_fields_end():
    one = Settle(Envelope('f', 1, 1, 's', 1), b'ab', b'c')
    two = Settle(Envelope('f', 1, 1, 's', 1), b'a', b'bc')
    assert one.canonical() != two.canonical()


def test_one_kind_cannot_pass_for_another():
    envelope = Envelope('f', 1, 1, 's', 1)
    fields = (b'm', b's', b'h')
    assert RoundKey(envelope, *fields).canonical() != RoundKeyLike(envelope, *fields).canonical()


@pytest.mark.parametrize(
    ('changes', 'error'),
    [
        ({'signature': b''}, SignatureError),
        ({'signature': b'\0' * 64}, SignatureError),
        ({'federation': 'other'}, RoundError),
        ({'sender': 'hospital_2'}, SignatureError),
        ({'sender': 'nobody'}, SignatureError),
        ({'sender': 'aggregator'}, SignatureError),
        ({'round': 2}, SignatureError),
        ({'attempt': 2}, SignatureError),
        ({'counter': 10**6}, SignatureError),
    ],
)
def test_update_with_another_envelope_is_refused(bench, changes, error):
    tap = Tap(bench, MaskedUpdate)
    run_to(bench, Phase.SETTLE)
    update = tap.messages[0]
    bad = replace(update, envelope=replace(update.envelope, **changes))
    with pytest.raises(error):
        bench.aggregator.handle(bad, bench.federation.now)
    assert bench.run()


def test_replayed_messages_of_every_kind_are_refused_and_the_round_goes_on(tmp_path):
    bench = Bench(tmp_path, rounds=2)
    kinds = (
        RoundStatus,
        RoundKey,
        Shares,
        Delivery,
        MaskedUpdate,
        Settle,
        Reveal,
        GlobalPolicy,
        DecryptRequest,
    )
    Tap(bench, *kinds, change=lambda message: [message, message])
    assert bench.run()
    reasons = {type(error) for _, error in bench.federation.refused}
    assert ReplayError in reasons
    assert all(learner.trained == [1, 2] for learner in bench.learners.values())


def test_messages_of_an_earlier_round_are_refused_in_the_next(tmp_path):
    bench = Bench(tmp_path, rounds=2)
    tap = Tap(bench, RoundKey, Shares, MaskedUpdate, Settle, Reveal)
    assert bench.run(lambda: bench.aggregator.round == 2 and bench.aggregator.phase is Phase.TRAIN)
    for message in [m for m in tap.messages if m.envelope.round == 1]:
        with pytest.raises(RoundError):
            bench.aggregator.handle(resealed(bench, message), bench.federation.now)
    assert bench.run()


def test_round_keys_of_rounds_far_ahead_are_refused_and_not_kept(tmp_path):
    bench = Bench(tmp_path, rounds=2)
    tap = Tap(bench, RoundKey)
    run_to(bench, Phase.TRAIN)
    message = next(m for m in tap.messages if m.envelope.sender == 'hospital_2')
    hospital = bench.federation.parties['hospital_1']

    def of(round, attempt):
        counter = bench.stores['hospital_2'].next_counter()
        envelope = replace(message.envelope, round=round, attempt=attempt, counter=counter)
        return replace(message, envelope=envelope).signed_by(bench.identities['hospital_2'])

    hospital.handle(of(1, 1 + AHEAD), bench.federation.now)
    hospital.handle(of(2, 1), bench.federation.now)
    for far in ((1, 2 + AHEAD), (1, 10**6), (2, 1 + AHEAD), (3, 1), (1000, 1)):
        with pytest.raises(RoundError, match='now at'):
            hospital.handle(of(*far), bench.federation.now)
    assert set(hospital.attempts) == {(1, 1), (1, 1 + AHEAD), (2, 1)}


@pytest.mark.parametrize(
    ('name', 'changes', 'error'),
    [
        ('truncated', lambda u: {'ciphertext': u.ciphertext[:-1]}, MessageError),
        ('empty', lambda u: {'ciphertext': b''}, MessageError),
        ('too long', lambda u: {'ciphertext': u.ciphertext + b'x'}, MessageError),
        ('another chunk count', lambda u: {'chunks': 2}, MessageError),
        ('a chunk that does not exist', lambda u: {'chunk': 7}, MessageError),
        ('another base', lambda u: {'base_digest': b'\1' * 32}, RoundError),
    ],
)
def test_signed_update_of_the_wrong_form_is_refused(tmp_path, name, changes, error):
    bench = Bench(tmp_path, rounds=1)
    held: list = []
    Tap(bench, MaskedUpdate, change=lambda message: held.append(message) or [])
    assert bench.run(lambda: len(held) == 3)
    with pytest.raises(error):
        bench.aggregator.handle(resealed(bench, held[0], **changes(held[0])), 0.0)
    for update in held:
        good = resealed(bench, update)
        bench.federation.apply('aggregator', lambda u=good: bench.aggregator.handle(u, 0.0))
    assert bench.run()


def test_ciphertext_of_another_context_fails_the_attempt_and_the_next_succeeds(tmp_path):
    bench = Bench(tmp_path, rounds=1)
    spoilt: list = []

    def spoil(message):
        if message.envelope.sender == 'hospital_2' and not spoilt:
            spoilt.append(message)
            return [resealed(bench, message, ciphertext=b'\0' * len(message.ciphertext))]
        return [message]

    Tap(bench, MaskedUpdate, change=spoil)
    assert bench.run()
    assert spoilt
    assert all(learner.trained == [1] for learner in bench.learners.values())


@pytest.mark.parametrize(
    ('changes', 'complaint'),
    [
        ({'ledger_base_entries': 0}, 'shrank'),
        ({'ledger_base_entries': 0, 'ledger_entries': 99}, 'shrank'),
        ({'ledger_base_head': b'\3' * 32}, 'rewritten'),
        ({'ledger_head': b'\3' * 32}, 'rewritten'),
        ({'ledger_links': b'\3' * 128}, 'rewritten'),
        ({'ledger_links': b''}, 'has links from entry 5 on'),
        ({'ledger_links': b'\3' * 127}, '127 bytes of links'),
    ],
)
def test_ledger_that_does_not_go_on_from_the_last_one_seen_is_refused(
    tmp_path, changes, complaint
):
    """As after restoring a backup, however many entries it has grown by since."""
    bench = Bench(tmp_path, rounds=2)
    learner = bench.learners['hospital_1']
    train = learner.train

    def forgetful(weights, round, **options):
        result = train(weights, round, **options)
        return result if round == 1 else replace(result, **changes)

    learner.train = forgetful
    assert bench.run(lambda: bench.aggregator.left_out)
    assert bench.aggregator.left_out.keys() == {'hospital_1'}
    assert complaint in bench.aggregator.left_out['hospital_1']
    assert not bench.run(ticks=50)
    assert bench.key_authority.round == 1


def test_key_authority_decrypts_no_sum_that_leaves_a_survivor_out(tmp_path):
    bench = Bench(tmp_path, hospitals=4, rounds=1)
    decrypted: list = []
    decrypt = bench.secret.decrypt
    bench.secret.decrypt = lambda each: decrypted.append(each) or decrypt(each)

    def cheat(request):
        three, hashes = request.survivors[:3], request.update_hashes[: 3 * 32]
        settles = tuple(s for s in request.settles if s.envelope.sender != 'hospital_4')
        changes = {'survivors': three, 'update_hashes': hashes, 'settles': settles}
        return [resealed(bench, request, **changes)]

    Tap(bench, DecryptRequest, change=cheat)
    assert ends_with_the_older_policy(bench)
    assert not decrypted


def test_key_authority_decrypts_no_single_update(tmp_path):
    bench = Bench(tmp_path, rounds=1)
    decrypted: list = []
    bench.secret.decrypt = decrypted.append

    def cheat(request):
        hashes, settles = request.update_hashes[:32], request.settles[:1]
        first = {'survivors': request.survivors[:1], 'update_hashes': hashes, 'settles': settles}
        return [resealed(bench, request, **first)]

    Tap(bench, DecryptRequest, change=cheat)
    assert ends_with_the_older_policy(bench)
    assert not decrypted


def test_key_authority_refuses_a_sum_that_is_not_the_sum(tmp_path):
    bench = Bench(tmp_path, rounds=1)
    decrypted: list = []
    bench.secret.decrypt = decrypted.append
    Tap(
        bench,
        DecryptRequest,
        change=lambda request: [resealed(bench, request, sum_hash=b'\7' * 32)],
    )
    assert ends_with_the_older_policy(bench)
    assert not decrypted


def test_there_is_no_second_decryption_of_a_round(tmp_path):
    bench = Bench(tmp_path, rounds=1)
    tap = Tap(bench, DecryptRequest)
    assert bench.run()
    decrypted: list = []
    bench.secret.decrypt = decrypted.append
    again = resealed(bench, tap.messages[0])
    outcome = bench.key_authority.handle(again, 0.0)
    assert not outcome.jobs and not decrypted
    assert [type(m) for m in outcome.messages] == [GlobalPolicy]


def policy_of(bench, **changes):
    weights = np.ones(SHAPE.n_parameters, dtype=np.float32)
    fields = {
        'weights': encode_weights(weights),
        'digest': digest_of(weights),
        'contributors': (),
        'update_hashes': b'',
        'rolled_back': False,
        'secure': False,
        'reason': '',
    }
    message = GlobalPolicy(Envelope('test', 9, 1, 'key_authority', 10**9), **{**fields, **changes})
    return message.signed_by(bench.identities['key_authority'])


@pytest.mark.parametrize(
    ('changes', 'error'),
    [
        ({'weights': b'\0' * 8}, MessageError),
        ({'digest': b'\0' * 32}, MessageError),
        (
            {'weights': np.full(SHAPE.n_parameters, np.nan, dtype='<f4').tobytes()},
            MessageError,
        ),
        ({'contributors': ('hospital_1',), 'update_hashes': b'\5' * 32}, RoundError),
        ({'contributors': ('hospital_1',), 'update_hashes': b''}, MessageError),
    ],
)
def test_hospital_refuses_a_policy_that_is_not_what_it_says(bench, changes, error):
    assert bench.run(lambda: bench.key_authority.round == 1)
    hospital = bench.federation.parties['hospital_1']
    held = hospital.policy
    with pytest.raises(error):
        hospital.handle(policy_of(bench, **changes), 0.0)
    assert hospital.policy is held


def test_hospital_refuses_an_older_policy(bench):
    tap = Tap(bench, GlobalPolicy)
    assert bench.run()
    first = tap.messages[0]
    with pytest.raises(RoundError):
        bench.federation.parties['hospital_1'].handle(resealed(bench, first), 0.0)


def test_hospital_takes_no_part_below_the_quorum(tmp_path):
    bench = Bench(tmp_path, rounds=1)

    def shrink(status):
        if status.phase != Phase.TRAIN:
            return [status]
        return [resealed(bench, status, members=('hospital_1', 'hospital_2'))]

    Tap(bench, RoundStatus, change=shrink)
    assert not bench.run(ticks=30)
    assert all(not learner.trained for learner in bench.learners.values())


def test_different_member_sets_lose_the_sum_and_reveal_nothing(tmp_path):
    """A lying aggregator tells hospitals different members: their masks do not cancel."""
    bench = Bench(tmp_path, hospitals=4, rounds=1)
    federation = bench.federation
    deliver = federation.deliver

    def lie(name, message):
        if isinstance(message, RoundStatus) and message.phase != Phase.OPEN:
            three = ('hospital_1', 'hospital_2', 'hospital_3')
            if name in three[:2]:
                message = resealed(
                    bench,
                    message,
                    members=three,
                    survivors=three if message.survivors else (),
                )
        deliver(name, message)

    federation.deliver = lie
    assert not federation.run(bench.is_over, ticks=40)
    assert bench.key_authority.round == 0


def test_every_attempt_has_new_keys_and_seeds(tmp_path):
    bench = Bench(tmp_path, rounds=2)
    tap = Tap(bench, RoundKey)
    assert bench.run()
    every = [(m.mask_key, m.sealing_key, m.seed_hash) for m in tap.messages]
    assert len({each for three in every for each in three}) == 3 * len(every) == 18


@pytest.mark.parametrize('key', [b'', b'\0' * 32, b'\1' + b'\0' * 31, 'copied'])
def test_round_key_that_makes_no_mask_is_refused_and_harms_nobody_else(tmp_path, key):
    bench = Bench(tmp_path, hospitals=4, rounds=1)
    seen: dict = {}

    def spoil(message):
        if message.envelope.sender != 'hospital_4':
            seen.setdefault('key', message.mask_key)
            return [message]
        bad = seen['key'] if key == 'copied' else key
        return [resealed(bench, message, mask_key=bad)]

    Tap(bench, RoundKey, change=spoil)
    assert bench.run()
    assert not bench.learners['hospital_4'].trained
    assert bench.learners['hospital_1'].trained == [1]


def test_start_policy_is_announced_as_round_zero(bench):
    hospital = bench.federation.parties['hospital_1']
    assert bench.run(lambda: hospital.policy is not None)
    assert hospital.policy.envelope.round == 0
    assert hospital.policy.digest == digest_of(START)
