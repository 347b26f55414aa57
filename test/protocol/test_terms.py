# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What a federation can agree on: personal layers, CKKS, another server step, a roll-back."""

from dataclasses import replace

from fdrl_ros.crypto.he.encryption import SecretContext
from fdrl_ros.crypto.he.schemes import EncryptionSettings
from fdrl_ros.errors import CryptoError, MessageError, PolicyError, RoundError
from fdrl_ros.federation.key_authority.state import Served
from fdrl_ros.federation.protocol.message import (
    EncryptionKey,
    HospitalPolicy,
    MaskedUpdate,
    Phase,
    RoundKey,
)
from fdrl_ros.policy import decode_weights
import numpy as np
import pytest
from support.federation_bench import Bench, SHAPE, START
from support.interception import Interception

PERSONAL = ('advantage',)
SHARED = SHAPE.shared(PERSONAL)
KEPT = np.setdiff1d(np.arange(SHAPE.n_parameters), SHARED)
CKKS = EncryptionSettings(limit=0.5, bits=16, scheme='ckks')


def test_personal_layers_stay_at_home_and_the_others_are_averaged():
    bench = Bench(rounds=3, personal=PERSONAL)
    own = Interception(bench, HospitalPolicy)
    assert bench.scheme.n_parameters == SHARED.size < SHAPE.n_parameters
    assert bench.run()
    weights = bench.weights
    np.testing.assert_allclose(weights[SHARED], bench.expected(3)[SHARED], atol=2e-3)
    np.testing.assert_array_equal(weights[KEPT], START[KEPT])
    # At home they go on from where they were, round after round, and differ between hospitals.
    last = {m.envelope.sender: m for m in own.messages if m.envelope.round == 3}
    for name in bench.names:
        mine = decode_weights(last[name].weights, SHAPE.n_parameters)[KEPT]
        moved = sum(bench.learners[name].delta(round)[KEPT] for round in (1, 2, 3))
        np.testing.assert_allclose(mine, START[KEPT] + moved, atol=1e-5)


def test_hospital_refuses_to_share_a_layer_that_is_personal_to_it():
    bench = Bench(rounds=1)
    tap = Interception(bench, EncryptionKey)
    bench.run(lambda: bool(tap.messages))
    bench.kill('hospital_2')
    bench.hospital_settings = replace(bench.hospital_settings, personal=PERSONAL)
    hospital = bench.make('hospital_2')
    with pytest.raises(MessageError, match='without'):
        hospital.handle(tap.messages[0], 0.0)


@pytest.mark.parametrize('names', [('value.0',), ('shared.0', 'value', 'advantage')])
def test_layers_that_are_none_and_all_layers_cannot_be_personal(names):
    with pytest.raises(PolicyError):
        SHAPE.shared(names)


def test_a_ckks_round_is_exact_about_who_dropped_out():
    bench = Bench(hospitals=4, rounds=1, encryption=CKKS)
    bench.run_to(Phase.TRAIN)
    bench.kill('hospital_3')
    assert bench.run()
    three = ['hospital_1', 'hospital_2', 'hospital_4']
    np.testing.assert_allclose(bench.weights, bench.expected(1, three), atol=1e-3)


@pytest.mark.parametrize('bits', [2, 8])
@pytest.mark.parametrize('scheme', ['bfv', 'ckks'])
def test_rounds_of_few_bits_end_within_their_steps_of_fedavg(scheme, bits):
    encryption = EncryptionSettings(limit=0.5, bits=bits, scheme=scheme)
    bench = Bench(hospitals=4, rounds=1, encryption=encryption)
    bench.run_to(Phase.TRAIN)
    bench.kill('hospital_3')
    assert bench.run() and not bench.policy.rolled_back
    three = ['hospital_1', 'hospital_2', 'hospital_4']
    # Each hospital's value is off by less than a step, a CKKS sum by its slack besides.
    steps = len(three) + (bench.scheme.slack if scheme == 'ckks' else 0)
    largest = bench.roster.n_max / sum(bench.roster.member(name).size for name in three)
    errors = np.abs(bench.weights - bench.expected(1, three))
    assert 0 < errors.max() <= steps * largest * 2 * 0.5 / (2**bits - 1) + 1e-6


def test_a_key_that_served_all_rounds_of_its_flooding_decrypts_no_more():
    bench = Bench(rounds=2, encryption=CKKS)
    state = bench.key_authority.state
    served = Served(bench.secret.public.digest, bench.scheme.decryptions - 1)
    state.record = replace(state.record, served=(served,))
    assert bench.run(lambda: bench.key_authority.round == 2)
    hospital = bench.parties['hospital_1']
    bench.run(lambda: hospital.policy.envelope.round == 2)
    assert hospital.policy.rolled_back
    np.testing.assert_allclose(bench.weights, bench.expected(1), atol=1e-3)


def test_the_operator_rolls_back_to_an_older_policy_and_rounds_go_on():
    bench = Bench(rounds=4)
    hospital = bench.parties['hospital_1']
    assert bench.run(lambda: hospital.policy and hospital.policy.envelope.round == 1)
    first = bench.weights
    bench.run_to(Phase.TRAIN, 3)
    authority = bench.key_authority
    for wrong in (2, 3, 99):
        with pytest.raises(RoundError):
            authority.handle(bench.signed_order('roll_back', to_round=wrong), 0.0)
    bench.order('roll_back', to_round=1)
    bench.run(lambda: hospital.policy.envelope.round == 3)
    assert hospital.policy.rolled_back and 'round 1 by operator' in hospital.policy.reason
    np.testing.assert_array_equal(bench.weights, first)
    assert bench.run()
    change = (bench.weights - first).astype(np.float64)
    deltas = np.stack([bench.learners[name].delta(4) for name in bench.names])
    np.testing.assert_allclose(change, np.array([10, 20, 30]) @ deltas / 60, atol=1e-3)


@pytest.mark.parametrize('phase', [Phase.TRAIN, Phase.SETTLE, Phase.REVEAL, Phase.SUM])
def test_a_new_key_of_the_key_authority_costs_an_attempt_or_a_round_and_no_more(phase):
    bench = Bench(rounds=2)
    assert bench.run(
        lambda: (
            bench.aggregator.phase is phase and bench.aggregator.state.updates.has('hospital_1', 0)
        )
    )
    bench.kill('key_authority')
    bench.secret = SecretContext.generate(bench.scheme)
    bench.join('key_authority')
    assert bench.run()
    assert all(learner.trained == [1, 2] for learner in bench.learners.values())
    policy = bench.policy
    assert not policy.rolled_back and len(policy.contributors) == 3
    with pytest.raises(CryptoError):
        bench.secret.decrypt(bytes(bench.scheme.ciphertext_bytes))


def test_parties_with_different_rosters_find_out_and_nothing_is_said(caplog):
    caplog.set_level('INFO')
    bench = Bench(hospitals=4, rounds=1)
    bench.kill('hospital_2')
    bench.roster = bench.roster.successor(disjoint_patients=False)
    bench.join('hospital_2')
    said = Interception(bench, RoundKey)
    bench.run_to(Phase.TRAIN)
    assert 'hospital_2' not in {each.envelope.sender for each in said.messages}
    reasons = [str(error) for name, error in bench.driver.refused if name == 'hospital_2']
    assert any('goes by roster' in reason for reason in reasons)
    serials = [each.serial for each in (bench.aggregator.channel.roster, bench.roster)]
    (told,) = [each for each in caplog.messages if 'aggregator: hospital_2 takes no part' in each]
    assert (
        f'goes by roster {serials[1]}, ' in told and f'aggregator by number {serials[0]}, ' in told
    )


class Expiring(Bench):
    """A federation whose roster expires."""

    def channel(self, name, store):
        self.roster = replace(self.roster, expires=10**9)
        return super().channel(name, store)


@pytest.mark.parametrize('name', ['hospital_1', 'aggregator', 'key_authority'])
def test_a_roster_that_expires_while_a_party_runs_ends_its_part(name):
    bench = Expiring(None, rounds=2)
    clock = bench.clocks
    assert bench.run(lambda: bench.key_authority.round == 1)
    clock[name] = 1e9 + 301.0
    assert not bench.run(ticks=60)
    assert bench.key_authority.round == 1
    clock[name] = 1e9 + 299.0  # within what clocks may differ by
    assert bench.run()


def test_an_older_encryption_key_that_is_replayed_is_not_encrypted_with():
    bench = Bench(rounds=1)
    old = Interception(bench, EncryptionKey)
    bench.run_to(Phase.OPEN)
    bench.kill('key_authority')
    bench.secret = SecretContext.generate(bench.scheme)
    bench.join('key_authority')
    bench.kill('hospital_1')
    hospital = bench.make('hospital_1')
    hospital.handle(old.messages[0], 0.0)  # before the new one, as after a restart
    bench.driver.join('hospital_1', hospital)
    sent = Interception(bench, MaskedUpdate)
    assert bench.run()
    for each in sent.messages:  # a ciphertext of another key is refused
        bench.secret.public.residues(each.ciphertext)
