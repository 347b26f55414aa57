# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
A hospital signs a made-up ciphertext as its update, to read the secret key in the next policy.

It adds (0, q p / t) to an honest encryption, which decrypts to its update plus p times the secret
key, slot by slot. Masks and signatures are in order. The check slots are not: the round ends with
the older policy, and nothing that was decrypted leaves the key authority.
"""

from dataclasses import replace
from math import prod

from fdrl_ros.crypto.he.bfv import check_sums
from fdrl_ros.policy import digest_of
import numpy as np
import pytest
from support.federation_bench import Bench, START
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
    bench.run(lambda: bench.key_authority.round == 1)
    bench.run(lambda: hospital.policy.envelope.round == 1)
    assert made_up.made == 1
    return bench.policy


@pytest.mark.parametrize('hospitals', [3, 4])
@pytest.mark.parametrize('wanted', [1, 20, 4096])
def test_a_query_for_the_secret_key_ends_with_the_older_policy(hospitals, wanted):
    bench = Bench(None, hospitals, 1)
    slots = np.zeros(bench.scheme.slots, dtype=np.int64)
    slots[:wanted] = 1
    policy = lie(bench, slots)
    assert policy.rolled_back and policy.digest == digest_of(START)
    assert 'check slots do not fit' in policy.reason
    assert not policy.contributors


@pytest.mark.parametrize('missing', [1, 0])
def test_it_has_to_know_every_sum_of_what_it_asks_for(missing):
    """With all sums but one it learns nothing; who has all knows the key already."""
    bench = Bench(None, 3, 1)
    scheme, key = bench.scheme, key_in_slots(bench)
    slots = np.zeros(scheme.slots, dtype=np.int64)
    slots[0] = 1
    sums = check_sums((slots * key)[None, : -scheme.checks], scheme.plain_modulus)
    known = np.zeros(scheme.slots, dtype=np.int64)
    known[-scheme.checks : scheme.slots - missing] = sums[0, : scheme.checks - missing]
    policy = lie(bench, slots, [known])
    assert policy.rolled_back == bool(missing)
    assert (policy.digest == digest_of(START)) == bool(missing)


def test_an_honest_update_is_none_of_this():
    bench = Bench(None, 3, 1)
    policy = lie(bench, np.zeros(bench.scheme.slots, dtype=np.int64))
    assert not policy.rolled_back and len(policy.contributors) == 3
