# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Masks: they cancel over all members, are uniform, and are unrelated otherwise."""

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers import algorithms, Cipher, modes
from fdrl_ros.crypto.masking import mask, net_mask, pair_key, RoundSecret
from fdrl_ros.errors import CryptoError
from hypothesis import given, settings, strategies
import numpy as np
import pytest
from scipy.stats import chi2

MODULUS = 68_719_484_929


def secret_of(data):
    return RoundSecret(X25519PrivateKey.from_private_bytes(data))


MINE, THEIRS = secret_of(b'\x11' * 32), secret_of(b'\x22' * 32)
PAIR = {
    'federation': 'trial',
    'round': 3,
    'attempt': 0,
    'mine': 'hospital_1',
    'theirs': 'hospital_2',
    'members': ('hospital_1', 'hospital_2', 'hospital_3'),
}


def key(**changes):
    return pair_key(MINE, THEIRS.public, **{**PAIR, **changes})


def net(secrets, mine, *, count=64, modulus=MODULUS, **changes):
    place = {'federation': 'trial', 'round': 3, 'attempt': 0, **changes}
    peers = {name: secret.public for name, secret in secrets.items() if name != mine}
    return net_mask(secrets[mine], peers, mine=mine, count=count, modulus=modulus, **place)


@settings(max_examples=25, deadline=None)
@given(
    strategies.sets(strategies.from_regex(r'\A[a-z][a-z0-9_]{0,8}\Z'), min_size=2, max_size=9),
    strategies.sampled_from([2, 3, MODULUS, 2**59 - 55, 2**62]),
    strategies.integers(0, 2**64 - 1),
)
def test_masks_of_all_members_cancel(names, modulus, round):
    secrets = {name: RoundSecret.generate() for name in names}
    masks = [net(secrets, name, modulus=modulus, round=round) for name in names]
    assert all(row.min() >= 0 and row.max() < modulus for row in masks)
    assert not (np.sum(masks, axis=0, dtype=object) % modulus).any()


def test_masks_of_a_part_of_the_members_do_not_cancel():
    secrets = {name: RoundSecret.generate() for name in 'abcd'}
    masks = {name: net(secrets, name) for name in secrets}
    for part in ('a', 'ab', 'bcd', 'acd'):
        total = np.sum([masks[name] for name in part], axis=0, dtype=object) % MODULUS
        assert np.count_nonzero(total) > 60


def test_members_told_of_different_sets_do_not_cancel():
    # A lying aggregator loses the sum, and learns no difference of two sums.
    secrets = {name: RoundSecret.generate() for name in 'abc'}
    pair = {name: secrets[name] for name in 'ab'}
    honest = net(secrets, 'a')
    assert not np.array_equal(net(pair, 'a'), honest)
    shared = pair_key(
        secrets['a'],
        secrets['b'].public,
        **{**PAIR, 'mine': 'a', 'theirs': 'b', 'members': 'abc'},
    )
    assert not np.array_equal(mask(shared, 64, MODULUS), net(pair, 'a'))


def test_both_ends_derive_one_key():
    other = pair_key(THEIRS, MINE.public, **{**PAIR, 'mine': 'hospital_2', 'theirs': 'hospital_1'})
    assert other == key() and len(other) == 32


def test_key_does_not_depend_on_the_order_of_members():
    assert key(members=('hospital_3', 'hospital_2', 'hospital_1')) == key()


CHANGES = [
    {'federation': 'trial_2'},
    {'round': 4},
    {'round': 0, 'attempt': 3},
    {'attempt': 1},
    {'theirs': 'hospital_3'},
    {'mine': 'hospital_3'},
    {'members': ('hospital_1', 'hospital_2')},
    {'members': ('hospital_1', 'hospital_2', 'hospital_4')},
]


@pytest.mark.parametrize('change', CHANGES, ids=str)
def test_stream_changes_with_everything_that_it_is_bound_to(change):
    first, second = mask(key(), 4000, MODULUS), mask(key(**change), 4000, MODULUS)
    assert np.count_nonzero(first == second) == 0
    # Fixed keys: were they drawn afresh, |r| > 0.08 would come up once in 2 million runs.
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.08


def test_stream_changes_with_each_secret():
    third = secret_of(b'\x33' * 32)
    keys = {key(), pair_key(MINE, third.public, **PAIR), pair_key(third, THEIRS.public, **PAIR)}
    assert len(keys) == 3


def test_names_cannot_be_shifted_into_the_federation():
    names = {'mine': 'a', 'theirs': 'b'}
    one = key(federation='x', members=('a', 'b', 'c'), **names)
    two = key(federation='xa', members=('a', 'b', 'c'), **names)
    assert one != two != key(federation='x', members=('a', 'b', 'cc'), **names)


@pytest.mark.parametrize('modulus', [3, 1000, MODULUS, 2**62 - 57])
def test_mask_is_uniform(modulus):
    # Pearson's test over 100 equal parts. The key is fixed; the chance of a false alarm for
    # a fresh one is 1e-6.
    count = 300_000
    drawn = mask(b'\x07' * 32, count, modulus)
    parts = min(100, modulus)
    found = np.bincount((drawn.astype(object) * parts // modulus).astype(int), minlength=parts)
    widths = np.diff([-(-place * modulus // parts) for place in range(parts + 1)])
    expected = count * widths.astype(float) / modulus
    assert ((found - expected) ** 2 / expected).sum() < chi2.isf(1e-6, parts - 1)


def test_rejection_is_what_makes_the_remainder_uniform():
    # 2^64 mod t is large here: without rejection the lowest third would be drawn 3/2 as
    # often as the rest. Chance of a false alarm 1e-6 (normal approximation).
    modulus, count = 2**64 * 3 // 20, 200_000
    low = np.count_nonzero(mask(b'\x08' * 32, count, modulus) < 2**64 % modulus)
    share = (2**64 % modulus) / modulus
    assert abs(low / count - share) < 4.9 * (share * (1 - share) / count) ** 0.5


@settings(deadline=None)
@given(strategies.binary(min_size=32, max_size=32), strategies.integers(2, 2**62))
def test_mask_is_what_a_slow_loop_draws(seed, modulus):
    stream = Cipher(algorithms.AES(seed), modes.CTR(bytes(16))).encryptor()
    slow = []
    while len(slow) < 20:
        word = int.from_bytes(stream.update(bytes(8)), 'little')
        if word < 2**64 - 2**64 % modulus:
            slow.append(word % modulus)
    assert mask(seed, 20, modulus).tolist() == slow


def test_stream_is_aes_256_as_published():
    # The first block under the zero key and counter (GCM specification, test case 13: H).
    words = np.frombuffer(bytes.fromhex('dc95c078a2408989ad48a21492842087'), '<u8')
    assert mask(bytes(32), 2, 2**62).tolist() == (words % 2**62).tolist()


def test_agreement_is_rfc_7748():
    # Section 6.1: Bob's private key, Alice's public key, their shared secret.
    bob = secret_of(
        bytes.fromhex('5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb')
    )
    alice = bytes.fromhex('8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a')
    shared = '4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742'
    assert bob.agree(alice).hex() == shared


SMALL_ORDER = [
    '00' * 32,
    '01' + '00' * 31,
    'e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800',
    '5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157',
    'ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f',
    'edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f',
    'eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f',
]


@pytest.mark.parametrize('public', SMALL_ORDER)
def test_key_of_small_order_is_refused(public):
    with pytest.raises(CryptoError, match='small order'):
        pair_key(MINE, bytes.fromhex(public), **PAIR)


@pytest.mark.parametrize('public', [b'', b'\x09' * 31, b'\x09' * 33, None, MINE.public])
def test_key_that_is_no_peers_is_refused(public):
    with pytest.raises(CryptoError):
        pair_key(MINE, public, **PAIR)


@pytest.mark.parametrize(
    'change',
    [
        {'theirs': 'hospital_1'},
        {'theirs': 'hospital_9'},
        {'mine': 'hospital_9'},
        {'members': ('hospital_1', 'hospital_2', 'hospital_2')},
        {'round': -1},
        {'attempt': 2**64},
    ],
    ids=str,
)
def test_pair_that_is_none_is_refused(change):
    with pytest.raises(CryptoError):
        key(**change)


@pytest.mark.parametrize(
    'peers',
    [{}, {'a': THEIRS.public, 'b': THEIRS.public}, {'b': THEIRS.public, 'c': THEIRS.public}],
    ids=['nobody', 'itself', 'one key twice'],
)
def test_peers_that_are_none_are_refused(peers):
    with pytest.raises(CryptoError):
        net_mask(
            MINE, peers, federation='f', round=0, attempt=0, mine='a', count=4, modulus=MODULUS
        )


@pytest.mark.parametrize(
    'arguments',
    [(b'short', 4, 100), (None, 4, 100), (bytes(32), -1, 100), (bytes(32), 4, 1)],
)
def test_mask_of_impossible_arguments_is_refused(arguments):
    with pytest.raises(CryptoError):
        mask(*arguments)


def test_mask_of_nothing_is_empty():
    assert mask(bytes(32), 0, MODULUS).shape == (0,)


def test_round_secrets_are_fresh_and_hidden():
    secret = RoundSecret.generate()
    assert secret.public != RoundSecret.generate().public
    private = secret._private.private_bytes_raw().hex()
    assert private not in repr(secret) and secret.public.hex() in repr(secret)
