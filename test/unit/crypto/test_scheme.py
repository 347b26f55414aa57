# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Schemes: secure, roomy enough for every carry, and packing that loses nothing."""

from dataclasses import replace
import math

from fdrl_ros.crypto.he.bfv import BfvScheme, CANDIDATES, check_sums, checks_for
from fdrl_ros.crypto.he.ckks import CKKS_CANDIDATES
from fdrl_ros.crypto.he.parameters import (
    coefficient_primes,
    is_prime,
    Parameters,
    plain_prime,
    SECURITY_128,
)
from fdrl_ros.crypto.he.schemes import register
from fdrl_ros.errors import CryptoError
from hypothesis import given, settings, strategies
import numpy as np
import pytest
from support.sample_size import sampled
import tenseal.sealapi as seal


def test_prime_test_agrees_with_trial_division_and_no_strong_pseudoprime_passes():
    obvious = [n > 1 and all(n % d for d in range(2, math.isqrt(n) + 1)) for n in range(5000)]
    assert [is_prime(n) for n in range(5000)] == obvious
    assert not any(map(is_prime, (2047, 3215031751, 3825123056546413051)))


def test_plain_prime_is_the_smallest_that_batches():
    # 12289 = 3 * 4096 + 1 and 40961 are the first primes of these forms.
    assert plain_prime(2, 2048) == 12289
    assert plain_prime(8194, 4096) == 40961
    assert plain_prime(40961, 4096) == 40961


@pytest.mark.parametrize(('degree', 'sizes'), [*CANDIDATES, *CKKS_CANDIDATES])
def test_coefficient_primes_are_those_that_seal_takes(degree, sizes):
    primes = coefficient_primes(sizes, degree)
    assert primes == tuple(p.value() for p in seal.CoeffModulus.Create(degree, list(sizes)))


def test_more_primes_than_there_are_is_an_error_and_not_an_endless_search():
    with pytest.raises(CryptoError, match='there are fewer'):
        coefficient_primes((20,) * 21, 16384)


@pytest.mark.parametrize('degree', SECURITY_128)
def test_security_table_is_seals_too(degree):
    assert SECURITY_128[degree] == seal.CoeffModulus.MaxBitCount(degree, seal.SEC_LEVEL_TYPE.TC128)


@pytest.mark.parametrize('members', [3, 10, 50, 1000])
@pytest.mark.parametrize('bits', [2, 8, 16, 20, 24, 32])
def test_chosen_scheme_is_secure_exact_and_small(members, bits):
    scheme = BfvScheme.choose(26_000, members, bits)
    assert sum(scheme.coefficient_bits) <= SECURITY_128[scheme.poly_degree]
    assert scheme.plain_modulus > (members * (2**bits - 1) + 1) ** scheme.values_per_slot - 1
    assert scheme.noise_margin >= 1
    assert scheme.ciphertexts * scheme.ciphertext_bytes < 26_000 * 27


@pytest.mark.parametrize(
    'n_parameters, members, ciphertexts, ciphertext_bytes',
    [(6_500, 3, 1, 32 + 4096 * (5 + 7)), (18_180, 10, 3, 32 + 4096 * (6 + 7))],
)
def test_an_update_takes_the_stated_bytes(n_parameters, members, ciphertexts, ciphertext_bytes):
    scheme = BfvScheme.choose(n_parameters, members, 16)
    assert (scheme.values_per_slot, scheme.residue_bits) == (2, (56,))
    assert (scheme.ciphertexts, scheme.ciphertext_bytes) == (ciphertexts, ciphertext_bytes)
    large = BfvScheme.choose(1_000_000, members, 16)
    assert large.ciphertexts * large.ciphertext_bytes < 7 * 1_000_000


@pytest.mark.parametrize(
    'bits, values_per_slot, most_bytes', [(16, 2, 6.6), (12, 2, 6.1), (8, 5, 4.1), (4, 6, 2.6)]
)
def test_fewer_bits_share_a_slot_and_take_fewer_bytes(bits, values_per_slot, most_bytes):
    scheme = BfvScheme.choose(1_000_000, 10, bits)
    assert scheme.values_per_slot == values_per_slot
    assert (10 * (2**bits - 1) + 1) ** values_per_slot <= scheme.plain_modulus
    assert scheme.ciphertexts * scheme.ciphertext_bytes < most_bytes * 1_000_000


@pytest.mark.parametrize('members', [3, 10, 24])
def test_bytes_that_do_not_travel_are_counted_as_noise(members):
    scheme = BfvScheme.choose(18_180, members, 16)
    dropped = 256**scheme.dropped_bytes / 2
    noise = members * (scheme.fresh_noise + dropped) + dropped
    assert scheme.dropped_bytes >= 1
    assert 2 * noise < scheme.moduli[0] / (2 * scheme.plain_modulus)
    assert scheme.noise_margin == pytest.approx(
        math.log2(scheme.moduli[0] / (2 * scheme.plain_modulus) / noise)
    )


@pytest.mark.parametrize(
    'change, words',
    [
        ({'coefficient_bits': (60, 50)}, '128-bit security'),
        ({'members': 5}, 'do not fit'),
        ({'plain_modulus': plain_prime(2**44, 4096)}, 'noise margin'),
        *(({'plain_modulus': modulus}, None) for modulus in (2**40, 2**70)),
        ({'poly_degree': 4000}, None),
        ({'n_parameters': 0}, None),
        ({'members': True}, None),
        ({'bits': 16.0}, None),
        ({'values_per_slot': 0}, None),
        *(({'coefficient_bits': bits}, None) for bits in ((56,), [56, 53], (56, 19))),
    ],
)
def test_weak_or_impossible_scheme_is_refused(change, words):
    with pytest.raises(CryptoError, match=words):
        replace(BfvScheme.choose(100, 3, 16), **change)


def test_integers_of_more_bits_than_any_scheme_holds_are_refused():
    with pytest.raises(CryptoError):
        BfvScheme.choose(100, 3, 40)


@settings(max_examples=sampled(15, 8), deadline=None)
@given(
    strategies.integers(1, 40_000),
    strategies.sampled_from([(3, 2), (10, 8), (3, 16), (3, 24), (12, 16), (100, 32)]),
    strategies.integers(0, 2**32),
)
def test_unpacked_sum_of_slots_is_the_sum_of_integers(n_parameters, shape, seed):
    members, bits = shape
    scheme = BfvScheme.choose(n_parameters, members, bits)
    rng = np.random.default_rng(seed)
    integers = rng.integers(0, 2**bits, (3, n_parameters))
    integers[:, :: rng.integers(1, 9)] = 2**bits - 1
    sums = sum(scheme.pack(row) for row in integers)
    assert sums.shape == (scheme.ciphertexts, scheme.slots)
    assert np.array_equal(scheme.unpack(sums), integers.sum(axis=0))


@pytest.mark.parametrize('shape', [(3, 2), (1000, 3), (10, 8), (3, 16), (16, 16), (100, 32)])
def test_all_members_at_the_top_level_do_not_overflow(shape):
    members, bits = shape
    scheme = BfvScheme.choose(20_000, members, bits)
    top = scheme.pack(np.full(20_000, 2**bits - 1))
    assert members * int(top[:, : -scheme.checks].max()) < scheme.plain_modulus
    assert (scheme.unpack(members * top) == members * (2**bits - 1)).all()


def test_integers_that_do_not_fit_are_refused():
    scheme = BfvScheme.choose(4, 3, 16)
    for bad in ([0, 0, 0], [0, 0, 0, 65536], [0, 0, 0, -1], [0.0, 0.0, 0.0, 0.0]):
        with pytest.raises(CryptoError):
            scheme.pack(bad)


def test_sums_that_members_cannot_have_made_are_refused():
    scheme = BfvScheme.choose(100, 3, 16)
    sums = scheme.pack(np.arange(100))
    for place, value, words in (
        ((0, 0), scheme.radix**scheme.values_per_slot, 'sums out of range'),
        ((0, -scheme.checks - 1), 1, 'padding'),
    ):
        bad = sums.copy()
        bad[place] = value
        with pytest.raises(CryptoError, match='check slots do not fit'):
            scheme.check(bad[0])
        with pytest.raises(CryptoError, match=rf'^{words}\D*$'):  # no number of the sum
            scheme.unpack(bad)
    with pytest.raises(CryptoError):
        scheme.unpack(sums[:, :-1])


@pytest.mark.parametrize('members', [3, 1000])
def test_check_slots_are_the_weighted_sums_of_the_others(members):
    scheme = BfvScheme.choose(9000, members, 16)
    modulus, size = scheme.plain_modulus, scheme.slots - scheme.checks
    rows = np.random.default_rng(6).integers(0, modulus, (2, size))
    rows[0] = modulus - 1
    units = np.zeros((8, size), dtype=np.int64)
    slots = np.arange(8) * 997 % size
    units[np.arange(8), slots] = 1
    # What each slot alone adds are the weights; the rest follows in whole numbers.
    weights = np.array([check_sums(unit[None], modulus)[0] for unit in units]).astype(object)
    for row in rows:
        few = np.zeros((1, size), dtype=np.int64)
        few[0, slots] = row[slots]
        expected = (weights * row[slots].astype(object)[:, None]).sum(axis=0) % modulus
        assert check_sums(few, modulus)[0].tolist() == expected.tolist()
    for column in weights.T:
        assert len(set(column)) == len(column) and min(column) > 0
    both = check_sums(rows.sum(axis=0)[None] % modulus, modulus)
    assert np.array_equal(both[0], check_sums(rows, modulus).sum(axis=0) % modulus)


def test_slots_are_found_wrong_wherever_and_with_all_but_one_sum_made_up():
    scheme = BfvScheme.choose(8000, 3, 16)
    rng = np.random.default_rng(7)
    for _ in range(50):
        sums = scheme.pack(rng.integers(0, 2**16, 8000))
        sums[0, rng.integers(scheme.slots)] += rng.integers(1, scheme.plain_modulus)
        sums %= scheme.plain_modulus
        completed = scheme.completed(sums[0])
        scheme.check(completed)
        assert np.array_equal(completed[: -scheme.checks], sums[0, : -scheme.checks])
        right = check_sums(sums[:, : -scheme.checks], scheme.plain_modulus)
        wrong = rng.integers(scheme.checks)
        if (right[0, wrong] - sums[0, wrong - scheme.checks]) % scheme.plain_modulus:
            right[0, wrong] = sums[0, wrong - scheme.checks]
            sums[:, -scheme.checks :] = right
        with pytest.raises(CryptoError, match='check slots do not fit'):
            scheme.check(sums[0])


@pytest.mark.parametrize('bits', [2, 8, 16, 24])
@pytest.mark.parametrize('members', [3, 10, 200])
def test_masks_that_did_not_cancel_are_found_in_a_sum(bits, members):
    scheme = BfvScheme.choose(4000, members, bits)
    assert 16 * scheme.plain_modulus >= 17 * scheme.radix**scheme.values_per_slot
    masked = np.random.default_rng(bits).integers(0, scheme.plain_modulus, scheme.slots)
    with pytest.raises(CryptoError, match='out of range|padding'):
        scheme.unpack([masked])


@pytest.mark.parametrize('modulus', [40961, 2654209, 2**37, 2**59])
def test_a_guess_of_all_sums_but_one_has_a_chance_of_one_in_2_to_64(modulus):
    assert modulus ** (checks_for(modulus) - 1) >= 2**64


def test_sums_of_fewer_members_are_held_against_their_number():
    scheme = BfvScheme.choose(100, 5, 16)
    sums = scheme.pack(np.full(100, 65535)) * 4
    assert (scheme.unpack(sums, count=4) == 4 * 65535).all()
    with pytest.raises(CryptoError, match='of 3 members'):
        scheme.unpack(sums, count=3)
    for count in (0, 6):
        with pytest.raises(CryptoError, match='expected 1 to 5 members'):
            scheme.unpack(sums, count=count)


def test_rows_are_those_of_the_whole():
    scheme = BfvScheme.choose(20_000, 3, 16)
    integers = np.random.default_rng(4).integers(0, 2**16, 20_000)
    size = scheme.integers_per_ciphertext
    parts = [integers[at : at + size] for at in range(0, 20_000, size)]
    assert np.array_equal(list(scheme.pack_rows(parts)), scheme.pack(integers))
    assert np.array_equal(
        np.concatenate(list(scheme.unpack_rows(scheme.pack(integers)))), integers
    )


def test_parts_that_are_no_update_are_refused():
    scheme = BfvScheme.choose(20_000, 3, 16)
    size = scheme.integers_per_ciphertext
    whole, rest = np.zeros(size, dtype=int), np.zeros(20_000 - 2 * size, dtype=int)
    for parts in ([whole, whole], [whole, whole, rest, rest], [rest, whole, whole], [whole] * 3):
        with pytest.raises(CryptoError):
            list(scheme.pack_rows(parts))
    rows = scheme.pack(np.zeros(20_000, dtype=int))
    for sums in (rows[:2], [*rows, rows[0]], rows[:, :-1], rows.astype(float)):
        with pytest.raises(CryptoError):
            list(scheme.unpack_rows(sums))


CONTRACT = {
    'kind': 'lean',
    'summary': 'sums',
    'dishonest_warning': '',
    'plain_modulus': 17,
    'choose': None,
    'release': None,
    '_pack': None,
    '_unpack': None,
}


@pytest.mark.parametrize('left_out', CONTRACT)
def test_a_scheme_that_leaves_something_out_is_refused_when_it_is_registered(left_out):
    assert list(register(BfvScheme, type('Lean', (Parameters,), CONTRACT))) == ['bfv', 'lean']
    parts = {name: part for name, part in CONTRACT.items() if name != left_out}
    with pytest.raises(CryptoError, match=f'scheme Lean lacks {left_out}$'):
        register(BfvScheme, type('Lean', (Parameters,), parts))


def test_a_kind_that_is_taken_replaces_no_scheme():
    other = type('Lean', (Parameters,), {**CONTRACT, 'kind': 'bfv'})
    with pytest.raises(CryptoError, match='BfvScheme and Lean have the same kind'):
        register(BfvScheme, other)
