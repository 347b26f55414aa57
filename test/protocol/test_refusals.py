# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Bad messages are refused with a reason, change nothing, and the rounds go on."""

from dataclasses import replace

from fdrl_ros.errors import MessageError, RoundError
from fdrl_ros.federation.hospital.hospital import AHEAD
from fdrl_ros.federation.protocol.message import (
    DecryptRequest,
    Envelope,
    GlobalPolicy,
    LedgerHeads,
    MaskedUpdate,
    Phase,
    RoundKey,
    Settle,
)
from fdrl_ros.policy import digest_of, encode_weights
import numpy as np
import pytest
from support.federation_bench import Bench, SHAPE
from support.interception import Interception, resealed


def test_signatures_of_rounds_far_ahead_are_refused_and_not_kept(bench):
    bench.run_to(Phase.TRAIN)
    hospital = bench.parties['hospital_1']

    def of(round, attempt):
        counter = bench.stores['hospital_2'].next_counter()
        envelope = Envelope('test', round, attempt, 'hospital_2', counter)
        signed = Settle(envelope, settle_digest=bytes(32), update_hash=bytes(32))
        return signed.signed_by(bench.identities['hospital_2'])

    hospital.handle(of(1, 1 + AHEAD), bench.driver.now)
    hospital.handle(of(2, 1), bench.driver.now)
    for far in ((1, 2 + AHEAD), (1, 10**6), (2, 1 + AHEAD), (3, 1), (1000, 1)):
        with pytest.raises(RoundError, match='now at'):
            hospital.handle(of(*far), bench.driver.now)
    assert set(hospital.attempts) == {(1, 1), (1, 1 + AHEAD), (2, 1)}


def test_signed_update_of_the_wrong_form_is_refused():
    bench = Bench(rounds=1)
    held: list = []
    Interception(bench, MaskedUpdate, change=lambda message: held.append(message) or [])
    assert bench.run(lambda: len(held) == 3)
    ciphertext = held[0].ciphertext
    for changes in (
        {'ciphertext': ciphertext[:-1]},
        {'ciphertext': b''},
        {'ciphertext': ciphertext + b'x'},
        {'chunks': 2},
        {'chunk': 7},
        {'base_digest': bytes(32)},
    ):
        with pytest.raises(RoundError if 'base_digest' in changes else MessageError):
            bench.aggregator.handle(resealed(bench, held[0], **changes), 0.0)
    for update in held:
        bench.hear('aggregator', resealed(bench, update))
    assert bench.run()


def test_ciphertext_of_another_context_fails_the_attempt_and_the_next_succeeds():
    bench = Bench(rounds=1)
    spoilt: list = []

    def spoil(message):
        if message.envelope.sender == 'hospital_2' and not spoilt:
            spoilt.append(message)
            return [resealed(bench, message, ciphertext=b'\0' * len(message.ciphertext))]
        return [message]

    Interception(bench, MaskedUpdate, change=spoil)
    assert bench.run()
    assert spoilt
    assert all(learner.trained == [1] for learner in bench.learners.values())


def test_there_is_no_second_decryption_of_a_round():
    bench = Bench(rounds=1)
    tap = Interception(bench, DecryptRequest)
    assert bench.run()
    decrypted = bench.spy_on_decryption(really=False)
    again = resealed(bench, tap.messages[0])
    effects = bench.key_authority.handle(again, 0.0)
    assert not effects.jobs and not decrypted
    assert [type(m) for m in effects.messages] == [GlobalPolicy]


def policy_of(bench, **changes):
    weights = encode_weights(np.ones(SHAPE.n_parameters, dtype=np.float32))
    counter = bench.stores['key_authority'].next_counter()
    envelope = Envelope('test', 9, 1, 'key_authority', counter)
    digest = digest_of(np.ones(SHAPE.n_parameters, dtype=np.float32))
    policy = GlobalPolicy(envelope, weights, digest, (), b'', False, False, '')
    return replace(policy, **changes).signed_by(bench.identities['key_authority'])


def test_hospital_refuses_a_policy_that_is_not_what_it_says(bench):
    assert bench.run(lambda: bench.key_authority.round == 1)
    hospital = bench.parties['hospital_1']
    held, of_ours = hospital.policy, {'contributors': ('hospital_1',)}
    place = Envelope('test', 9, 1, 'key_authority', bench.stores['key_authority'].next_counter())
    heads = bench.driver.latched['key_authority', LedgerHeads, 'hospital_1']
    other = replace(heads, envelope=place, path=b'')
    hospital.handle(other.signed_by(bench.identities['key_authority']), 0.0)
    for changes, error in (
        ({'weights': bytes(8)}, MessageError),
        ({'digest': bytes(32)}, MessageError),
        ({'weights': np.full(SHAPE.n_parameters, np.nan, '<f4').tobytes()}, MessageError),
        (of_ours | {'updates_root': b'5' * 32}, RoundError),
        (of_ours, RoundError),
    ):
        with pytest.raises(error):
            hospital.handle(policy_of(bench, **changes), 0.0)
    assert hospital.policy is held


def test_hospital_takes_a_policy_with_the_path_of_its_own_update_alone(bench):
    held: list = []

    def hold(message):
        later = message.to == 'hospital_1' and message.id >= (1, 0)
        if later and message.sender == 'key_authority':
            held.append(message)
            return []
        return [message]

    Interception(bench, LedgerHeads, change=hold)
    assert bench.run(lambda: bench.key_authority.round == 1)
    bench.wait(3)
    hospital, (heads,) = bench.parties['hospital_1'], held
    assert hospital.policy.envelope.round == 0  # the newer one came before the path, and waits
    assert bench.parties['hospital_2'].policy.envelope.round == 1
    others = bench.driver.latched['key_authority', LedgerHeads, 'hospital_2'].path
    with pytest.raises(RoundError, match='an update that was never sent'):
        hospital.handle(resealed(bench, heads, path=others), 0.0)
    bench.restart('hospital_1')
    bench.wait(3)
    assert bench.parties['hospital_1'].policy is None
    bench.driver.deliver('hospital_1', resealed(bench, heads))
    bench.wait(3)
    assert bench.parties['hospital_1'].policy.envelope.round == 1


@pytest.mark.parametrize('field', ['mask_keys', 'sealing_keys'])
def test_round_key_that_makes_no_mask_is_refused_and_harms_nobody_else(field):
    bench = Bench(hospitals=4, rounds=1)

    def spoil(message):
        if message.envelope.sender != 'hospital_4':
            return [message]
        bad = getattr(message, field)[:64] + b'\1' + bytes(31)  # of small order, for one other
        spoilt = replace(message, **{field: bad})
        return [resealed(bench, spoilt, keys_root=spoilt.member_keys.root)]

    Interception(bench, RoundKey, change=spoil)
    assert bench.run()
    assert not bench.learners['hospital_4'].trained
    assert bench.learners['hospital_1'].trained == [1]
