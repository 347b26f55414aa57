# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Masks: they cancel over all members, survive drop-outs, are uniform, and unrelated otherwise."""

import tracemalloc

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers import algorithms, Cipher, modes
from fdrl_ros.crypto.masking import masks
from fdrl_ros.crypto.masking.masks import (
    leftover_mask,
    mask,
    MaskContext,
    net_mask,
    pair_key,
    WrongSecretError,
)
from fdrl_ros.crypto.masking.round_secret import RoundSecret, RoundSeed
from fdrl_ros.errors import CryptoError
from hypothesis import given, settings, strategies
import numpy as np
import pytest
from scipy.stats import chi2

MODULUS = 68_719_484_929


def secret_of(data):
    return RoundSecret(X25519PrivateKey.from_private_bytes(data))


MINE, THEIRS = secret_of(b'\x11' * 32), secret_of(b'\x22' * 32)
PLACE = {'federation': 'trial', 'round': 3, 'attempt': 0}
MEMBERS = ('hospital_1', 'hospital_2', 'hospital_3')


def key(secret=MINE, public=THEIRS.public, *, mine='hospital_1', theirs='hospital_2', **changes):
    context = MaskContext(**{**PLACE, 'members': MEMBERS, **changes})
    return pair_key(context, secret, public, mine=mine, theirs=theirs)


def parties(names, federation='trial', round=3, attempt=0):
    """Return the secrets of hospitals in an attempt, from fixed seeds, and their public halves."""
    if isinstance(names, int):
        names = [f'hospital_{number}' for number in range(names)]
    secrets = {
        name: RoundSeed(bytes([number]) * 32, federation, round, name).attempt(attempt)
        for number, name in enumerate(names)
    }
    return secrets, {name: each.mask.public for name, each in secrets.items()}


def net(secrets, publics, mine, *, count=64, modulus=MODULUS, **setup):
    peers = {name: public for name, public in publics.items() if name != mine}
    return net_mask(secrets[mine], peers, count=count, modulus=modulus, **setup)


def pair_masks(secrets, publics, mine, *, modulus=MODULUS):
    """Return a hospital's net mask without its own."""
    own = mask(secrets[mine].self_seed, 64, modulus)
    return (net(secrets, publics, mine, modulus=modulus).astype(object) - own) % modulus


@settings(max_examples=25, deadline=None)
@given(
    strategies.sets(strategies.from_regex(r'\A[a-z][a-z0-9_]{0,8}\Z'), min_size=2, max_size=9),
    strategies.sampled_from([2, 3, MODULUS, 2**59 - 55, 2**62]),
    strategies.integers(0, 2**64 - 1),
)
def test_masks_of_all_members_cancel(names, modulus, round):
    secrets, publics = parties(names, round=round)
    drawn = [net(secrets, publics, name, modulus=modulus) for name in names]
    assert all(row.min() >= 0 and row.max() < modulus for row in drawn)
    pairs = [pair_masks(secrets, publics, name, modulus=modulus) for name in names]
    assert not (np.sum(pairs, axis=0) % modulus).any()


def test_masks_of_a_part_of_the_members_or_for_another_part_do_not_cancel():
    secrets, publics = parties('abcd')
    pairs = {name: pair_masks(secrets, publics, name) for name in secrets}
    for part in ('a', 'ab', 'bcd', 'acd'):
        total = np.sum([pairs[name] for name in part], axis=0) % MODULUS
        assert np.count_nonzero(total) > 60
    # A lying aggregator loses the sum, and learns no difference of two sums.
    alone = pair_masks(secrets, {name: publics[name] for name in 'ab'}, 'a')
    assert not np.array_equal(alone, pairs['a'])
    shared = key(secrets['a'].mask, publics['b'], mine='a', theirs='b', members='abc')
    assert not np.array_equal(mask(shared, 64, MODULUS), alone)


def test_both_ends_derive_one_key_whatever_the_order_of_members_and_no_other_secret_does():
    other = key(THEIRS, MINE.public, mine='hospital_2', theirs='hospital_1')
    assert other == key() == key(members=MEMBERS[::-1]) and len(other) == 32
    third = secret_of(b'\x33' * 32)
    assert len({key(), key(MINE, third.public), key(third, THEIRS.public)}) == 3


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


def test_rejection_is_what_makes_the_remainder_uniform():
    # 2^64 mod t is large here: without rejection the lowest third would be drawn 3/2 as
    # often as the rest. Chance of a false alarm 1e-6 (normal approximation).
    modulus, count = 2**64 * 3 // 20, 200_000
    low = np.count_nonzero(mask(b'\x08' * 32, count, modulus) < 2**64 % modulus)
    share = (2**64 % modulus) / modulus
    assert abs(low / count - share) < 4.9 * (share * (1 - share) / count) ** 0.5


@settings(deadline=None)
@given(strategies.binary(min_size=32, max_size=32), strategies.integers(2, 2**62))
def test_mask_is_what_a_slow_loop_draws_of_aes_256(seed, modulus):
    stream = Cipher(algorithms.AES(seed), modes.CTR(bytes(16))).encryptor()
    slow = []
    while len(slow) < 20:
        word = int.from_bytes(stream.update(bytes(8)), 'little')
        if word < 2**64 - 2**64 % modulus:
            slow.append(word % modulus)
    assert mask(seed, 20, modulus).tolist() == slow


def test_stream_and_agreement_are_those_published():
    # The first block under the zero key and counter (GCM specification, test case 13: H).
    words = np.frombuffer(bytes.fromhex('dc95c078a2408989ad48a21492842087'), '<u8')
    assert mask(bytes(32), 2, 2**62).tolist() == (words % 2**62).tolist()
    # RFC 7748, section 6.1: Bob's private key, Alice's public key, their shared secret.
    bob = secret_of(
        bytes.fromhex('5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb')
    )
    alice = bytes.fromhex('8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a')
    shared = '4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742'
    assert bob.agree(alice).hex() == shared


@pytest.mark.parametrize('public', [b'', b'\x09' * 31, b'\x09' * 33, None, MINE.public])
def test_key_that_is_no_peers_is_refused(public):
    with pytest.raises(CryptoError):
        key(MINE, public)


IMPOSSIBLE = {
    'nobody': lambda own: net_mask(own, {}, count=4, modulus=MODULUS),
    'itself': lambda own: net_mask(own, {'a': THEIRS.public}, count=4, modulus=MODULUS),
    'one key twice': lambda own: net_mask(
        own, dict.fromkeys('bc', THEIRS.public), count=4, modulus=MODULUS
    ),
    'short seed': lambda own: mask(b'short', 4, 100),
    'no seed': lambda own: mask(None, 4, 100),
    'negative count': lambda own: mask(bytes(32), -1, 100),
    'modulus 1': lambda own: mask(bytes(32), 4, 1),
}


@pytest.mark.parametrize('made', IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_mask_of_impossible_arguments_is_refused(made):
    with pytest.raises(CryptoError):
        made(parties('a')[0]['a'])


def leftover(secrets, listed, survivors, *, count=64, modulus=MODULUS, place=PLACE, **changes):
    fine = {
        'publics': listed,
        'self_seeds': {name: secrets[name].self_seed for name in survivors},
        'mask_secrets': {
            name: each.mask.to_bytes() for name, each in secrets.items() if name not in survivors
        },
        **changes,
    }
    context = MaskContext(**place, members=tuple(fine['publics']))
    return leftover_mask(context, **fine, count=count, modulus=modulus)


def test_leftover_is_what_a_slow_sum_of_every_mask_gives():
    secrets, publics = parties(6)
    survivors = list(secrets)[1:4]
    slow = np.zeros(64, dtype=object)
    for one in survivors:
        slow += mask(secrets[one].self_seed, 64, MODULUS)
        for other in secrets:
            if other != one:
                shared = key(
                    secrets[one].mask, publics[other], mine=one, theirs=other, members=[*secrets]
                )
                drawn = mask(shared, 64, MODULUS)
                slow += drawn.astype(object) if one < other else -drawn.astype(object)
    found = leftover(secrets, publics, survivors)
    assert found.tolist() == (slow % MODULUS).tolist()
    sent = np.sum([net(secrets, publics, name) for name in survivors], axis=0, dtype=object)
    assert found.tolist() == (sent % MODULUS).tolist()


def test_mask_secret_that_is_not_the_owners_is_refused():
    secrets, publics = parties(5)
    survivors = list(secrets)[:3]
    right = {name: secrets[name].mask.to_bytes() for name in ('hospital_3', 'hospital_4')}
    for wrong in (
        bytes(32),
        right['hospital_3'],
        secrets['hospital_4'].sealing.to_bytes(),
        secrets['hospital_4'].self_seed,
    ):
        with pytest.raises(WrongSecretError, match='hospital_4') as caught:
            leftover(secrets, publics, survivors, mask_secrets={**right, 'hospital_4': wrong})
        assert caught.value.owner == 'hospital_4'
        assert wrong.hex() not in str(caught.value)


def test_missing_or_surplus_secrets_are_refused():
    secrets, publics = parties(4)
    three = list(secrets)[:3]
    right = {'hospital_3': secrets['hospital_3'].mask.to_bytes()}
    for changes, words in (
        ({'mask_secrets': {}}, None),
        ({'publics': {name: publics[name] for name in three}}, None),
        ({'self_seeds': {}}, None),
        ({'publics': {**publics, 'hospital_3': publics['hospital_2']}}, None),
        ({'self_seeds': dict.fromkeys(three, bytes(31))}, None),
        ({'mask_secrets': {'hospital_3': bytes(31)}}, None),
        (
            {'mask_secrets': {**right, 'hospital_1': secrets['hospital_1'].mask.to_bytes()}},
            "both secrets of 'hospital_1'",
        ),
    ):
        with pytest.raises(CryptoError, match=words):
            leftover(secrets, publics, three, **changes)


@pytest.mark.parametrize('modulus', [2, MODULUS, 2**61 + 1, 2**62])
@pytest.mark.parametrize('signs', ['+', '-', '++-'])
def test_sums_of_many_masks_wrap_rightly(modulus, signs):
    # More masks than are added at a time.
    terms = [(bytes([number]) * 32, signs[number % len(signs)] == '+') for number in range(230)]
    slow = np.zeros(12, dtype=object)
    for seed, added in terms:
        drawn = mask(seed, 12, modulus).astype(object)
        slow += drawn if added else -drawn
    found = masks.sum_of_masks(terms, 12, modulus)
    assert found.tolist() == (slow % modulus).tolist()


@pytest.mark.parametrize('modulus', [MODULUS, 2**64 * 3 // 20, 281_463_380_458_315_777])
def test_mask_is_the_same_in_pieces(monkeypatch, modulus):
    keys = [(bytes([number]) * 32, number % 3 > 0) for number in range(7)]
    whole = masks.sum_of_masks(keys, 5000, modulus)
    assert masks.sum_of_masks(keys, 100, modulus).tolist() == whole[:100].tolist()
    monkeypatch.setattr(masks, 'CHUNK', 77)
    monkeypatch.setattr(masks, 'TOGETHER', 3)
    assert masks.sum_of_masks(keys, 5000, modulus).tolist() == whole.tolist()


def test_millions_of_integers_take_little_more_room_than_themselves():
    secrets, publics = parties(4)
    net(secrets, publics, 'hospital_0')
    tracemalloc.start()
    try:
        found = net(secrets, publics, 'hospital_0', count=1_667_072, modulus=2**53 + 5)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found.nbytes < peak < found.nbytes + 2**20


@pytest.mark.parametrize('what', ['net mask', 'leftover'])
def test_sums_of_masks_are_uniform(what):
    # Pearson's test over 64 equal parts, and on neighbours over 8 x 8. Fixed seeds; the chance
    # of a false alarm for fresh ones is 2e-6.
    secrets, publics = parties(5)
    count, modulus = 200_000, 281_463_380_458_315_777
    options = {'count': count, 'modulus': modulus}
    if what == 'net mask':
        drawn = net(secrets, publics, 'hospital_2', **options)
    else:
        drawn = leftover(secrets, publics, list(secrets)[:4], **options)
    parts = (drawn.astype(float) / modulus * 64).astype(int)
    rough = parts // 8
    for table in (parts, rough[:-1:2] * 8 + rough[1::2]):
        found, expected = np.bincount(table, minlength=64), table.size / 64
        assert ((found - expected) ** 2 / expected).sum() < chi2.isf(1e-6, 63)


def test_pair_masks_never_change():
    # Frozen: two ends of a round under way may be of different versions of the program.
    assert key().hex() == '0fe784681148be6797c0879be61fe7c20711b7987d77be9866e74856251dc2cf'
    assert mask(key(), 3, MODULUS).tolist() == [66639553745, 55047032077, 13788492893]
