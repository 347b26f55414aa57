# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The round seed: the same secrets after a restart, unrelated ones elsewhere, none in sight."""

import hashlib
import hmac
import os
import stat

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from fdrl_ros.crypto.masking import round_secret
from fdrl_ros.crypto.masking.round_secret import (
    binding,
    check_public,
    derive,
    mask_secret_for,
    RoundSecret,
    RoundSeed,
)
from fdrl_ros.crypto.masking.sharing import PRIME
from fdrl_ros.errors import CryptoError, KeyFileError
from fdrl_ros.runtime import durable
from fdrl_ros.runtime.durable import erase_secret
import numpy as np
import pytest

PLACE = {'federation': 'trial', 'round': 3, 'name': 'hospital_1'}
KEYS = hashlib.sha256(b'a list of keys').digest()
PEERS = [f'hospital_{number}' for number in range(2, 12)]


def for_peers(kind):
    """Return both halves of what a hospital has for each peer."""
    found = [kind(peer) for peer in PEERS]
    return [half for each in found for half in (each.to_bytes(), each.public)]


def everything(secrets, threshold=4, keys=KEYS):
    """Return all that a seed gives, as bytes and numbers."""
    return [
        secrets.mask_secret,
        *for_peers(secrets.mask),
        *for_peers(secrets.sealing),
        secrets.self_seed,
        *secrets.mask_polynomial(threshold, keys),
        *secrets.self_polynomial(threshold, keys),
    ]


@pytest.fixture
def path(tmp_path):
    return tmp_path / 'round_seed'


def test_derivation_is_rfc_5869():
    # Appendix A.3: SHA-256 with neither salt nor info.
    expected = (
        '8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8'
    )
    assert derive(b'\x0b' * 22, b'', 42).hex() == expected


def test_secrets_are_the_same_after_a_restart(path):
    before = RoundSeed.at(path, **PLACE)
    after = RoundSeed.at(path, **PLACE)
    for attempt in range(3):
        assert everything(before.attempt(attempt)) == everything(after.attempt(attempt))


def test_secrets_of_a_seed_never_change():
    # Frozen: a new version of the program must go on with the seed of a round under way.
    found = everything(RoundSeed(bytes(range(32)), **PLACE).attempt(2))
    digest = hashlib.sha256(repr(found).encode()).hexdigest()
    assert digest == 'b95e9ce671c87a9a7f41478193b67701e6a77691bce237b0787564deaf126a6d'


def test_keys_for_a_peer_are_those_of_rfc_5869():
    # Its two steps by hand: extract without a salt, expand to one block.
    def part(data):
        return len(data).to_bytes(4, 'big') + data

    def hkdf(material, *parts):
        extracted = hmac.digest(bytes(32), material, 'sha256')
        return hmac.digest(extracted, b''.join(map(part, parts)) + b'\x01', 'sha256')

    seed = bytes(range(32))
    secrets = RoundSeed(seed, **PLACE).attempt(2)
    place = b'trial', (3).to_bytes(8, 'big'), (2).to_bytes(8, 'big'), b'hospital_1'
    mask_secret = hkdf(seed, b'fdrl_ros mask secret 2', *place)
    assert secrets.mask_secret == mask_secret
    for peer in PEERS:
        name = peer.encode()
        mask = hkdf(mask_secret, b'fdrl_ros mask secret for one peer 1', name)
        sealing = hkdf(seed, b'fdrl_ros sealing secret 2', *place, name)
        for secret, data in ((secrets.mask(peer), mask), (secrets.sealing(peer), sealing)):
            assert secret.to_bytes() == data
            private = X25519PrivateKey.from_private_bytes(data)
            assert secret.public == private.public_key().public_bytes_raw()


def test_keys_for_one_peer_are_unrelated_to_those_for_another_and_remembered():
    secrets = RoundSeed(b'\x05' * 32, **PLACE).attempt(0)
    found = everything(secrets)
    assert len(set(found)) == len(found)
    for kind in (secrets.mask, secrets.sealing):
        halves = [kind(peer).to_bytes() for peer in PEERS]
        # Bits are the same as often as not; fixed seeds, as below.
        same = np.unpackbits(whole(halves[1:])) == np.unpackbits(whole(halves[:-1]))
        assert abs(same.mean() - 0.5) < 5 * 0.5 / same.size**0.5
        assert all(kind(peer) is kind(peer) for peer in PEERS)


def test_mask_keys_follow_from_the_mask_secret_alone_and_sealing_keys_do_not():
    # What restores a dropped hospital's pair masks opens no shares, and shows no self mask.
    secrets = RoundSeed(b'\x05' * 32, **PLACE).attempt(0)
    other = RoundSeed(b'\x06' * 32, 'trial_2', 7, 'hospital_9').attempt(1)
    other.__dict__['mask_secret'] = secrets.mask_secret
    assert for_peers(other.mask) == for_peers(secrets.mask)
    assert for_peers(other.mask) == for_peers(
        lambda peer: mask_secret_for(other.mask_secret, peer)
    )
    assert not {*for_peers(other.sealing)} & {*for_peers(secrets.sealing)}
    assert other.self_seed != secrets.self_seed


CHANGES = [
    {'federation': 'trial_2'},
    {'round': 4},
    {'name': 'hospital_2'},
    {'attempt': 1},
    {'round': 0, 'attempt': 3},
    {'federation': 'tria', 'name': 'lhospital_1'},
]


@pytest.mark.parametrize('change', CHANGES, ids=str)
def test_secrets_elsewhere_are_unrelated(change):
    first, second = (
        RoundSeed(b'\x05' * 32, **{k: v for k, v in place.items() if k != 'attempt'}).attempt(
            place['attempt']
        )
        for place in ({**PLACE, 'attempt': 0}, {**PLACE, 'attempt': 0, **change})
    )
    one, other = everything(first, 300), everything(second, 300)
    assert not set(one) & set(other)
    # Bits are the same as often as not. Fixed seeds; a false alarm for fresh ones: below 1e-6.
    same = np.unpackbits(whole(one)) == np.unpackbits(whole(other))
    assert abs(same.mean() - 0.5) < 5 * 0.5 / same.size**0.5


def whole(secrets):
    """Return secrets as one row of bytes; of a coefficient the lower 256 bits."""
    data = [each if isinstance(each, bytes) else (each % 2**256).to_bytes(32) for each in secrets]
    return np.frombuffer(b''.join(data), np.uint8)


def test_polynomials_change_with_the_list_and_the_threshold():
    # Else who stands at two places of two lists would hold two points of one polynomial.
    secrets = RoundSeed(b'\x05' * 32, **PLACE).attempt(0)
    lists = [
        polynomial(threshold, keys)
        for polynomial in (secrets.mask_polynomial, secrets.self_polynomial)
        for threshold in (4, 5)
        for keys in (KEYS, bytes(32))
    ]
    flat = [each for coefficients in lists for each in coefficients]
    assert len(set(flat)) == len(flat) == 2 * 2 * (3 + 4)
    assert all(0 <= each < PRIME for each in flat)


def test_seed_is_private_and_durable_before_it_is_used(path, monkeypatch):
    synced = []
    fsync = os.fsync
    monkeypatch.setattr(os, 'fsync', lambda file: (synced.append(file), fsync(file)))
    old = os.umask(0)
    try:
        seed = RoundSeed.at(path, **PLACE)
    finally:
        os.umask(old)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and len(synced) == 2
    assert seed.seed in path.read_bytes() and [*path.parent.iterdir()] == [path]


@pytest.mark.parametrize('step', ['fsync', 'link', 'sync_folder', 'unlink'])
def test_killed_while_storing_goes_on(path, monkeypatch, step):
    class Killed(BaseException):
        pass

    def killed(*_, **__):
        raise Killed

    with monkeypatch.context() as patch:
        owner = {'sync_folder': durable, 'unlink': type(path)}.get(step, os)
        patch.setattr(owner, step, killed)
        with pytest.raises(Killed):
            RoundSeed.at(path, **PLACE)
    left = path.read_bytes() if path.exists() else None
    seed = RoundSeed.at(path, **PLACE)
    assert [*path.parent.iterdir()] == [path]
    assert left in (None, path.read_bytes()) and seed.seed in path.read_bytes()


def test_seed_of_another_round_or_a_damaged_one_is_refused(path):
    RoundSeed.at(path, **PLACE)
    for change in ({'federation': 'trial_2'}, {'round': 4}, {'name': 'hospital_2'}):
        with pytest.raises(KeyFileError, match='another federation, round or hospital'):
            RoundSeed.at(path, **{**PLACE, **change})
    whole = path.read_bytes()
    flipped = [
        whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :]
        for place in range(len(whole))
    ]
    for data in (b'', whole[:-1], whole + b'x', whole[:30], bytes(len(whole)), *flipped):
        path.write_bytes(data)
        with pytest.raises(KeyFileError, match='damaged'):
            RoundSeed.at(path, **PLACE)


def test_erased_seed_is_gone_and_nothing_else_is_erased(path):
    first = RoundSeed.at(path, **PLACE)
    with path.open('rb') as still_open:
        erase_secret(path)
        assert not any(still_open.read())
    assert not [*path.parent.iterdir()]
    erase_secret(path)
    assert RoundSeed.at(path, **PLACE).seed != first.seed
    target, pipe = path.with_name('precious'), path.with_name('pipe')
    target.write_bytes(b'precious')
    path.unlink()
    path.symlink_to(target)
    os.mkfifo(pipe)
    for other in (path, pipe):
        with pytest.raises(KeyFileError):
            erase_secret(other)
    assert target.read_bytes() == b'precious'


@pytest.mark.parametrize('number', [-1, 2**64, 1.0, True, None])
def test_impossible_attempt_is_refused(number):
    for round, attempt in ((3, number), (number, 0)):
        with pytest.raises(CryptoError, match='expected numbers from 0'):
            _ = RoundSeed(bytes(32), 'trial', round, 'hospital_1').attempt(attempt).self_seed


@pytest.mark.parametrize('seed', [b'', bytes(31), bytes(33), '0' * 32, None])
def test_seed_of_another_size_is_refused(seed):
    with pytest.raises(CryptoError, match='32 bytes'):
        RoundSeed(seed, **PLACE)
    with pytest.raises(CryptoError, match='32 bytes'):
        RoundSecret.from_bytes(seed)
    with pytest.raises(CryptoError, match='mask secret: expected 32 bytes'):
        mask_secret_for(seed, 'hospital_2')


def test_parts_of_a_binding_cannot_be_shifted():
    assert binding(b'a', 'bc', 1, 2, b'd') != binding(b'ab', 'c', 1, 2, b'd')
    assert binding(b'a', 'b', 1, 2, b'cd', b'e') != binding(b'a', 'b', 1, 2, b'c', b'de')
    assert binding(b'a', 'b', 1, 2, b'c') != binding(b'a', 'b', 1, 2, b'c', b'')


def test_agreement_is_remembered_for_its_own_peer():
    secret, peers = RoundSecret.generate(), [RoundSecret.generate() for _ in range(3)]
    with pytest.raises(CryptoError, match='32 bytes'):
        secret.agree(b'')
    first = [secret.agree(peer.public) for peer in peers]
    assert first == [secret.agree(peer.public) for peer in peers]
    assert first == [peer.agree(secret.public) for peer in peers] and len(set(first)) == 3


def test_keys_of_small_order_are_all_that_agree_to_nothing():
    # Each residue in every form that 32 bytes have for it, and neighbours that are fine.
    curve = 2**255 - 19
    secret = X25519PrivateKey.generate()
    for residue in sorted(round_secret._SMALL_ORDER):
        for number in (residue, residue + curve, residue + 2**255, residue + curve + 2**255):
            if number < 2**256 and (number % 2**255) % curve == residue:
                with pytest.raises(CryptoError, match='small order'):
                    check_public(number.to_bytes(32, 'little'))
        for number in (residue + 3, residue + 7):
            public = (number % curve).to_bytes(32, 'little')
            check_public(public)
            assert any(secret.exchange(round_secret.X25519PublicKey.from_public_bytes(public)))


def test_no_secret_is_shown():
    seed = RoundSeed.draw(**PLACE)
    secrets = seed.attempt(0)
    mask, sealing = secrets.mask('hospital_2'), secrets.sealing('hospital_2')
    hidden = [seed.seed, secrets.mask_secret, secrets.self_seed]
    hidden += [mask.to_bytes(), sealing.to_bytes()]
    for text in (repr(seed), str(seed), repr(secrets), repr(mask), f'{sealing}'):
        for each in hidden:
            assert each.hex() not in text and repr(each)[2:-1] not in text
    assert mask.public.hex() in repr(mask) and 'hospital_1' in repr(secrets)
