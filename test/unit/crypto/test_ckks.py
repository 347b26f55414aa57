# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""CKKS: what it shows does not give the key away, and is as precise as it says."""

from bisect import bisect_right
from dataclasses import replace
from fractions import Fraction
import math

from fdrl_ros.crypto.he import ckks
from fdrl_ros.crypto.he.ckks import CkksScheme, DiscreteGaussian
from fdrl_ros.crypto.he.encryption import PublicContext, SecretContext
from fdrl_ros.crypto.he.schemes import choose_scheme
from fdrl_ros.errors import CryptoError
from hypothesis import given, settings, strategies
import numpy as np
import pytest


@pytest.fixture(scope='module')
def secret():
    return SecretContext.generate(choose_scheme(18_180, 10, 16, 'ckks'))


@pytest.fixture(scope='module')
def public(secret):
    return PublicContext.from_bytes(secret.public_bytes())


def words_of(rng):
    """Draw words that anyone can repeat."""
    return lambda count: rng.integers(0, 2**64, count, dtype=np.uint64)


# The attack of Li and Micciancio (EUROCRYPT 2021). Ciphertexts and keys are taken in NTT form,
# where products go place by place.


def recover_from_ours(public, opened, ciphertext):
    """
    Solve a sum of ours, which shows every coefficient, for the secret key in NTT form.

    :param opened: what is taken for the decrypted polynomial, shape (data primes, N).
    """
    backend, scheme = public.backend, public.scheme
    residues = public.residues(ciphertext)
    primes = np.array(scheme.moduli, dtype=np.uint64)[:, None]
    known = (opened + primes - residues[0]) % primes
    pair = backend.load(np.stack([known, residues[1]]))
    backend.evaluator.transform_to_ntt_inplace(pair)
    # known = second * key, place by place.
    return [
        [int(k) * pow(int(c), -1, prime) % prime for k, c in zip(known, second, strict=True)]
        for known, second, prime in zip(*backend.read_residues(pair), scheme.moduli, strict=True)
    ]


def sum_of_ours(public, rng):
    """Return the sum of ten hospitals' first ciphertexts, and that of their integers."""
    updates = rng.integers(0, 2**16, (10, 4096))
    return public.add(map(public.encrypt, updates)), updates.sum(axis=0)


def test_attack_on_our_sums_would_succeed_without_flooding(secret, public):
    total, _ = sum_of_ours(public, np.random.default_rng(2))
    bare, _ = secret.backend.decrypt(public.residues(total))
    found = recover_from_ours(public, bare, total)
    assert np.array_equal(found, secret.secret_key[:2])


def test_attack_on_our_sums_fails(secret, public):
    # Of 4,096 numbers below 2^40 and as many below 2^48, none is right; in four trials one may be
    # by chance, of 2^-25.
    scheme, true = public.scheme, secret.secret_key[:2]
    for seed in range(2):
        total, exact = sum_of_ours(public, np.random.default_rng(seed))
        shown = secret.decrypt(total)
        for guess in (shown, exact):
            found = recover_from_ours(public, scheme.encode(guess), total)
            assert not (found == true).any()


def test_decrypting_again_shows_the_same_noise_and_another_sum_shows_other(secret, public):
    first, exact = sum_of_ours(public, np.random.default_rng(3))
    again = SecretContext.from_bytes(secret.to_bytes())
    assert np.array_equal(secret.decrypt(first), again.decrypt(first))
    second, _ = sum_of_ours(public, np.random.default_rng(3))
    errors = [secret.decrypt(each) - exact for each in (first, second)]
    # Of 4,096 independent pairs; beyond 0.1 once in ten billion runs.
    assert abs(np.corrcoef(errors)[0, 1]) < 0.1


@pytest.mark.parametrize(
    'shape', [(18_180, 10, 16), (18_180, 3, 16), (20_000, 50, 16), (18_180, 10, 4)]
)
def test_released_sums_are_as_precise_as_stated(shape):
    key_authority = SecretContext.generate(choose_scheme(*shape, 'ckks'))
    scheme, public = key_authority.scheme, key_authority.public
    rng, n_parameters = np.random.default_rng(4), scheme.n_parameters
    # Not so low that noise takes a sum below zero, which is t before it is unpacked.
    updates = rng.integers(scheme.slack, 2 ** (scheme.bits - 1), (scheme.members, n_parameters))
    rows = [scheme.pack(update)[0] for update in updates]
    shown = key_authority.decrypt(public.add(map(public.encrypt, rows)))
    size = scheme.integers_per_ciphertext
    errors = shown[:size] - updates.sum(axis=0)[:size]
    assert np.abs(errors).max() <= scheme.slack
    if scheme.sum_error > 1:
        # Rounding adds a variance of 1/12. The deviation of 4,096 draws is right to 7 %, and
        # the mean to 6.5 standard errors, but for one run in a billion.
        stated = math.hypot(scheme.sum_error, math.sqrt(1 / 12))
        assert errors.std() == pytest.approx(stated, rel=0.07)
        assert abs(errors.mean()) < 6.5 * stated / math.sqrt(size)
    else:
        # One half is so many deviations away.
        assert (errors != 0).mean() < 0.01 + math.erfc(0.5 / scheme.sum_error / math.sqrt(2))


def test_padding_and_edges_are_cut_to_what_members_can_have_sent(secret):
    scheme = secret.scheme
    sums = np.zeros((scheme.ciphertexts, scheme.slots), dtype=np.int64)
    sums[0, :4] = scheme.plain_modulus - scheme.slack, scheme.slack, 0, 10 * 65535 + scheme.slack
    assert scheme.unpack(sums)[:4].tolist() == [0, scheme.slack, 0, 655350]
    for place, value in (
        ((0, 0), 10 * 65535 + scheme.slack + 1),
        ((0, 0), scheme.plain_modulus - scheme.slack - 1),
        ((0, 0), scheme.plain_modulus),
        ((0, 0), -1),
        ((-1, -1), scheme.slack + 1),
    ):
        bad = sums.copy()
        bad[place] = value
        with pytest.raises(CryptoError):
            scheme.unpack(bad)
    sums[0, 0] = 7 * 65535 + scheme.slack + 1
    with pytest.raises(CryptoError, match='of 7 members'):
        scheme.unpack(sums, count=7)


def test_random_ciphertexts_are_refused_at_decryption(secret, public):
    # A fifth of all polynomials' coefficients means nothing: 4,096 pass by 2^-1300.
    rng = np.random.default_rng(6)
    primes = np.array(public.scheme.moduli, dtype=np.uint64)[:, None]
    for _ in range(3):
        residues = rng.integers(0, primes, (2, 2, 4096), dtype=np.uint64)
        with pytest.raises(CryptoError, match='out of range'):
            secret.decrypt(public.to_wire(residues))


def test_bound_of_the_noise_holds_and_covers_it(secret, public):
    scheme = public.scheme
    total, exact = sum_of_ours(public, np.random.default_rng(7))
    bare, _ = secret.backend.decrypt(public.residues(total))
    difference = (bare.astype(object) - scheme.encode(exact)) % np.array(scheme.moduli)[:, None]
    noise = np.where(
        difference[0] > scheme.moduli[0] // 2, difference[0] - scheme.moduli[0], difference[0]
    )
    assert 1 < np.abs(noise).max() <= scheme.noise


@pytest.mark.parametrize('members', [3, 1000])
@pytest.mark.parametrize('n_parameters', [100, 5_000_000])
def test_chosen_scheme_hides_as_stated_and_has_room_for_it(members, n_parameters):
    scheme = choose_scheme(n_parameters, members, 16, 'ckks')
    draws = scheme.ciphertexts * scheme.poly_degree * scheme.decryptions
    assert (scheme.decryptions, scheme.statistical_bits) == (10_000, 40)
    # 2^-s = B sqrt(n decryptions) / (2 sigma), by Pinsker's inequality.
    bound = members * scheme.fresh_noise * math.sqrt(draws) / (2 * scheme.flooding.deviation)
    assert bound <= 2**-40
    most = scheme.noise + scheme.flooding.bound
    highest = scheme.scale * members * (scheme.plain_modulus - 1)
    assert highest + 2 * most < math.prod(scheme.moduli)
    assert scheme.slack >= most / scheme.scale + 0.5
    assert scheme.plain_modulus > members * 65535 + 2 * scheme.slack
    assert scheme.mean_error <= 1


@pytest.mark.parametrize(
    ('change', 'words'),
    [
        ({'statistical_bits': 39}, 'statistical_bits'),
        ({'statistical_bits': 44}, 'expected at most 1'),
        ({'statistical_bits': 128}, 'no room'),
        ({'decryptions': 0}, 'decryptions'),
        ({'members': 50}, 'expected at most 1'),
        ({'coefficient_bits': (56, 53)}, 'at most 50'),
        ({'coefficient_bits': (50, 40, 21)}, '128-bit security'),
        ({'coefficient_bits': (40, 21)}, 'no room'),
    ],
)
def test_weak_or_useless_parameters_are_refused(change, words):
    with pytest.raises(CryptoError, match=words):
        replace(choose_scheme(18_180, 10, 16, 'ckks'), **change)


def test_what_no_scheme_can_hold_is_refused():
    with pytest.raises(CryptoError, match='expected one of'):
        choose_scheme(100, 3, 16, 'paillier')
    with pytest.raises(CryptoError, match='no CKKS scheme'):
        CkksScheme.choose(100, 3, 16, statistical_bits=128, decryptions=2**40)


def test_contexts_come_back_from_their_bytes_and_kinds_do_not_mix(secret, public):
    again = SecretContext.from_bytes(secret.to_bytes())
    assert again.public_bytes() == public.to_bytes() and again.scheme == public.scheme
    assert isinstance(public.scheme, CkksScheme)
    exact = SecretContext.generate(choose_scheme(18_180, 10, 16))
    renamed = public.to_bytes().replace(b'CKKS ', b'', 1)
    for data in (renamed, exact.public_bytes().replace(b'public ', b'public CKKS ', 1)):
        with pytest.raises(CryptoError):
            PublicContext.from_bytes(data)
    with pytest.raises(CryptoError):
        exact.decrypt(public.encrypt(np.zeros(4096, dtype=np.int64)))
    with pytest.raises(CryptoError, match='cannot decrypt'):
        public.backend.decrypt(public.residues(public.encrypt(np.zeros(4096, dtype=np.int64))))


# The flooding itself.


def test_table_is_that_of_a_discrete_gaussian():
    probabilities, highs, guide = ckks.base_table()
    shares = [math.exp(-(x**2) / (2 * 512**2)) for x in range(-7000, 7001)]
    total, below = math.fsum(shares), 0.0
    for place, x in enumerate(range(-6861, 6861)):
        below += shares[x + 7000] / total
        if place % 97 == 0 or abs(x) < 3:
            assert probabilities[place] / 2**128 == pytest.approx(below, rel=1e-9)
    assert probabilities == sorted(probabilities) and probabilities[-1] < 2**128
    # Symmetric to the last bit: P(x <= -1 - k) = 1 - P(x <= k).
    assert all(
        0 <= 2**128 - a - b <= 1 for a, b in zip(probabilities, probabilities[::-1], strict=True)
    )
    assert highs[:-1].tolist() == [each >> 64 for each in probabilities]
    assert Fraction(probabilities[0], 2**128) < Fraction(1, 2**128)


def test_narrow_draws_fall_where_128_bits_say():
    probabilities, _, _ = ckks.base_table()
    for place in (0, 1, 2, 3000, 6860, 6861, 6862, 10_000, 13_720, 13_721):
        high, low = divmod(probabilities[place], 2**64)
        # Just below a probability is the place itself, and at it the next one.
        for word, expected in ((low - 1, place), (low, place + 1)):
            if not 0 <= word < 2**64 or probabilities.count(probabilities[place]) > 1:
                continue
            feed = iter([np.array([high], np.uint64), np.array([word], np.uint64)])
            drawn = ckks.draw_base(lambda count, feed=feed: next(feed)[:count], 1)
            assert drawn.tolist() == [expected - 6861]


@settings(max_examples=20, deadline=None)
@given(seed=strategies.integers(0, 2**32))
def test_quick_search_in_the_table_finds_what_the_plain_one_does(seed):
    probabilities, _, _ = ckks.base_table()
    drawn = np.random.default_rng(seed).integers(0, 2**64, 500, dtype=np.uint64)
    drawn[:9] >>= np.arange(0, 63, 7, dtype=np.uint64)
    drawn[9:18] = ~drawn[:9]
    feed = iter([drawn, np.zeros(500, np.uint64)])
    found = ckks.draw_base(lambda count: next(feed)[:count], 500)
    plain = [bisect_right(probabilities, word << 64) for word in drawn.tolist()]
    assert (found + 6861).tolist() == plain


@pytest.mark.parametrize('deviation', [1, 70_000, 2**40 + 12345, 2**120 + 1])
def test_draws_have_the_deviation_and_every_bit(deviation):
    gaussian = DiscreteGaussian(deviation)
    least = max(deviation, 512)
    assert least * (1 - 1e-12) <= gaussian.deviation <= 1.01 * least + 1
    drawn = gaussian.draw(words_of(np.random.default_rng(8)), 20_000)
    assert max(abs(x) for x in drawn) <= gaussian.bound
    scaled = (drawn / gaussian.deviation).astype(float)
    # Five standard errors: two runs in a million for each.
    assert abs(scaled.mean()) < 5 / math.sqrt(20_000)
    assert abs(scaled.std() - 1) < 5 / math.sqrt(40_000)
    for k, share in ((1, 0.682689), (2, 0.954500), (3, 0.997300)):
        found = (np.abs(scaled) < k).mean()
        assert abs(found - share) < 5 * math.sqrt(share * (1 - share) / 20_000) + 0.8 / least
    # No step of a floating-point number: the lowest bits are even as often as not.
    for bit in range(6):
        assert abs(np.mean([x >> bit & 1 for x in drawn]) - 0.5) < 5 * 0.5 / math.sqrt(20_000)


def test_decrypted_sum_that_no_members_can_have_is_refused(public):
    scheme = public.scheme

    def filled(value):
        return np.array([[value % q] * scheme.slots for q in scheme.moduli], np.uint64)

    highest = scheme.scale * scheme.members * (scheme.plain_modulus - 1)
    released = {'secret': b'key', 'ciphertext': b'ciphertext'}
    assert scheme.release(filled(highest), None, **released).max() < scheme.plain_modulus
    with pytest.raises(CryptoError, match='out of range'):
        scheme.release(filled(highest + scheme.modulus // 10), None, **released)
