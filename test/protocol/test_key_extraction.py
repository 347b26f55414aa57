# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
A hospital signs a made-up ciphertext as its update, to read the secret key in the next policy.

It adds (0, q p / t) to an honest encryption, which decrypts to its update plus p times the secret
key, slot by slot. Masks and signatures are in order. The check slots are not: the key authority
names it before anything is summed, and takes nothing of it any more.
"""

from dataclasses import replace
from math import prod

from fdrl_ros.crypto.he.bfv import check_sums
from fdrl_ros.errors import CryptoError
from fdrl_ros.federation.aggregator.aggregator import Aggregator
from fdrl_ros.federation.protocol.blame import WORDS
from fdrl_ros.federation.protocol.message import Fault, Phase, Verdict
import numpy as np
import pytest
from support.federation_bench import Bench, ENCRYPTION
from support.interception import Interception
from support.lying_hospitals import send_garbage
import tenseal.sealapi as seal

LIAR = 'hospital_3'


class MadeUp:
    """A public context that adds the secret key to the first row that it encrypts."""

    def __init__(self, bench, public, slots, constants=()):
        self.backend = bench.secret.backend
        self._public, self._slots, self._constants = public, slots, constants
        self.made = 0

    def encrypt(self, row):
        if self.made:
            return self._public.encrypt(row)
        self.made += 1
        scheme = self._public.scheme
        row = (row + sum(self._constants, np.zeros_like(row))) % scheme.plain_modulus
        residues = self._public.residues(self._public.encrypt(row))
        plaintext = seal.Plaintext()
        self.backend.encoder.encode(self._slots.tolist(), plaintext)
        coefficients = [plaintext[i] for i in range(plaintext.coeff_count())]
        modulus, t = prod(scheme.moduli), scheme.plain_modulus
        for place, coefficient in enumerate(coefficients):
            query = (modulus * coefficient + t // 2) // t
            for row_of, prime in zip(residues[1], scheme.moduli, strict=True):
                row_of[place] = (int(row_of[place]) + query) % prime
        return self._public.to_wire(residues)

    def encrypt_rows(self, rows):
        return map(self.encrypt, rows)


def key_in_slots(bench):
    """Return the secret key as the slots that the query makes of it."""
    public, scheme = bench.secret.public, bench.scheme
    made = MadeUp(bench, public, np.ones(scheme.slots, dtype=np.int64))
    found = bench.secret.decrypt(made.encrypt(np.zeros(scheme.slots, dtype=np.int64)))
    # It is a key indeed: small coefficients, which slots hide.
    plaintext = seal.Plaintext()
    bench.secret.backend.encoder.encode(found.tolist(), plaintext)
    coefficients = {plaintext[i] for i in range(plaintext.coeff_count())}
    assert coefficients <= {0, 1, scheme.plain_modulus - 1}
    return found


def lie(bench, slots, constants=()):
    """Let a hospital send its made-up update, and run the round."""
    hospital = bench.parties[LIAR]
    assert bench.run(lambda: hospital.terms is not None)
    made_up = MadeUp(bench, hospital.terms.public, slots, constants)
    hospital.terms = replace(hospital.terms, public=made_up)
    bench.run(lambda: bench.key_authority.round == 1 or bench.aggregator.exhausted)
    bench.run(lambda: hospital.policy.envelope.round == 1, ticks=100)
    hospital.terms = replace(hospital.terms, public=made_up._public)
    assert made_up.made == 1
    return bench.policy


@pytest.mark.parametrize('wanted', [1, 20, 4096])
def test_a_query_for_the_secret_key_is_named_and_left_out(wanted):
    bench = Bench(None, 4, 5)
    decrypted = bench.spy_on_decryption()
    slots = np.zeros(bench.scheme.slots, dtype=np.int64)
    slots[:wanted] = 1
    policy = lie(bench, slots)
    assert not policy.rolled_back and LIAR not in policy.contributors
    assert len(decrypted) == bench.scheme.ciphertexts  # one sum, of the others
    assert bench.aggregator.orders.guilty == {LIAR: WORDS[Fault.UPDATE]}
    # An operator who admits it does not make the key authority take its updates.
    bench.order('admit', LIAR)
    assert bench.run(lambda: bench.aggregator.orders.guilty)
    bench.order('admit', LIAR)
    bench.order('forgive', LIAR)
    assert bench.run()
    assert LIAR in bench.policy.contributors


def test_with_three_hospitals_a_query_ends_the_federation():
    bench = Bench(None, 3, 1)
    decrypted = bench.spy_on_decryption()
    slots = np.zeros(bench.scheme.slots, dtype=np.int64)
    slots[0] = 1
    lie(bench, slots)
    assert bench.run(lambda: bench.aggregator.phase is Phase.FINISHED)
    assert LIAR in bench.aggregator.exhausted and not decrypted


def test_noise_that_no_honest_encryption_has_is_refused_before_it_is_added():
    """Noise near the limit would make the sum fail or not by the bits of the secret key."""
    bench = Bench(None, 4, 1)
    public, scheme = bench.secret.public, bench.scheme
    genuine = public.residues(public.encrypt(np.zeros(scheme.slots, dtype=np.int64)))
    bench.secret.inspect(public.to_wire(genuine))
    honest = scheme.fresh_noise + 256**scheme.dropped_bytes / 2
    genuine[0] = (genuine[0] + np.uint64(4 * honest)) % np.uint64(scheme.moduli[0])
    with pytest.raises(CryptoError, match='less noise budget'):
        bench.secret.inspect(public.to_wire(genuine))


@pytest.mark.parametrize('missing', [1, 0])
def test_it_has_to_know_every_sum_of_what_it_asks_for(missing):
    """With all sums but one it learns nothing; who has all knows the key already."""
    # With projections even such an update would be found: it is longer than any honest one.
    bench = Bench(None, 4, 1, encryption=replace(ENCRYPTION, projections=0))
    scheme, key = bench.scheme, key_in_slots(bench)
    slots = np.zeros(scheme.slots, dtype=np.int64)
    slots[0] = 1
    sums = check_sums((slots * key)[None, : -scheme.checks], scheme.plain_modulus)
    known = np.zeros(scheme.slots, dtype=np.int64)
    known[-scheme.checks : scheme.slots - missing] = sums[0, : scheme.checks - missing]
    policy = lie(bench, slots, [known])
    named = LIAR in bench.aggregator.orders.guilty
    assert named == bool(missing) and not (missing and LIAR in policy.contributors)


def test_an_honest_update_is_none_of_this():
    bench = Bench(None, 3, 1)
    policy = lie(bench, np.zeros(bench.scheme.slots, dtype=np.int64))
    assert not policy.rolled_back and len(policy.contributors) == 3


def test_an_aggregator_that_has_nothing_inspected_gains_no_free_guess(monkeypatch):
    """The answer about a sum tells as much as that about each update, at the same cost."""

    def uninspected(self, now, in_time):
        members = set(self.state.record.members)
        self._sent = self._gathered(now, self.state.updates.whole() & members, members, in_time)
        return self._fix_survivors(now) if isinstance(self._sent, tuple) else self._sent

    monkeypatch.setattr(Aggregator, '_end_train', uninspected)
    bench = Bench(hospitals=5, rounds=1)
    verdicts = Interception(bench, Verdict)
    send_garbage(bench, LIAR)
    assert bench.run(lambda: any(not each.accepted for each in verdicts.messages))
    assert LIAR in verdicts.messages[-1].reason
    assert bench.key_authority.state.refused == {LIAR}


def test_beside_one_that_is_refused_for_good_the_others_are_looked_at_too():
    bench = Bench(hospitals=7, rounds=2)
    send_garbage(bench, LIAR)
    assert bench.run(lambda: bench.policy and bench.policy.envelope.round == 1)
    bench.order('admit', LIAR)  # and not forgiven by the key authority
    send_garbage(bench, 'hospital_4')
    assert bench.run()
    assert not bench.policy.rolled_back
    assert set(bench.policy.contributors) == {*bench.names} - {LIAR, 'hospital_4'}
