# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Sealed shares: read by their holder alone, refused anywhere else, the same after a restart."""

import hashlib
import hmac
from itertools import permutations, product
import random

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from fdrl_ros.crypto.masking import share_sealing
from fdrl_ros.crypto.masking.round_secret import RoundSeed
from fdrl_ros.crypto.masking.share_sealing import (
    deal,
    KeyList,
    MemberKeys,
    open_shares,
    seal_shares,
    SEALED_BYTES,
    SealError,
)
from fdrl_ros.crypto.masking.sharing import PRIME, Recovery
from fdrl_ros.errors import CryptoError
import pytest

NAMES = [f'hospital_{number}' for number in range(1, 6)]
PLACE = {'federation': 'trial', 'round': 3, 'attempt': 1}


def secrets_of(name, *, salt=0, federation='trial', round=3, attempt=1):
    seed = hashlib.sha256(f'{name} {salt}'.encode()).digest()
    return RoundSeed(seed, federation, round, name).attempt(attempt)


def public(secrets):
    return MemberKeys(secrets.mask.public, secrets.sealing.public)


def list_of(parties, **changes):
    keys = {name: public(secrets) for name, secrets in parties.items()}
    return KeyList(**{**PLACE, 'threshold': 4, 'keys': keys, **changes})


PARTIES = {name: secrets_of(name) for name in NAMES}
KEYS = list_of(PARTIES)
SEALED = {name: seal_shares(secrets, KEYS) for name, secrets in PARTIES.items()}
ONE, TWO, THREE, FOUR, FIVE = NAMES


def opened(sealed, *, sender=ONE, holder=TWO, parties=PARTIES, keys=KEYS):
    return open_shares(parties[holder], keys, sender, sealed)


def test_every_member_opens_what_was_dealt_to_it():
    for sender in NAMES:
        dealt = deal(PARTIES[sender], KEYS)
        assert set(dealt) == set(NAMES) and set(SEALED[sender]) == set(NAMES) - {sender}
        for holder, sealed in SEALED[sender].items():
            assert len(sealed) == SEALED_BYTES == 82
            assert opened(sealed, sender=sender, holder=holder) == dealt[holder]


def test_opened_shares_restore_both_secrets():
    pairs = {name: opened(SEALED[ONE][name], holder=name) for name in NAMES[1:]}
    masks = [(name, pair.mask_secret) for name, pair in pairs.items()]
    seeds = [(name, pair.self_seed) for name, pair in pairs.items()]
    assert Recovery(4, NAMES, [*dict(masks)]).recover(dict(masks)) == PARTIES[ONE].mask.to_bytes()
    assert Recovery(4, NAMES, [*dict(seeds)]).recover(dict(seeds)) == PARTIES[ONE].self_seed


def test_sealing_again_after_a_restart_gives_the_same_bytes():
    # So the one key and nonce of a direction never seal two messages.
    assert seal_shares(secrets_of(ONE), KEYS) == SEALED[ONE]
    shuffled = dict(random.Random(1).sample([*PARTIES.items()], 5))
    assert seal_shares(secrets_of(ONE), list_of(shuffled)) == SEALED[ONE]


def test_sealed_bytes_never_change():
    # Frozen: both ends of a round under way may be of different versions of the program.
    digest = hashlib.sha256(b''.join(SEALED[ONE][name] for name in NAMES[1:])).hexdigest()
    assert digest == '8eb499da9faeb1de4c8965adb9c289358e8847e83cb0814684e6537a487519e6'
    assert KEYS.digest.hex() == 'a1b678059f03d74840fc3a70d10a3874f34541614551c67b8c5213ee7f6700d6'


def test_sealing_is_rfc_8439_under_a_key_of_rfc_5869():
    # The slow way round, with another HKDF.
    def part(data):
        return len(data).to_bytes(4, 'big') + data

    numbers = part((3).to_bytes(8, 'big')) + part((1).to_bytes(8, 'big'))
    rows = b''.join(
        part(name.encode()) + part(KEYS.keys[name].mask) + part(KEYS.keys[name].sealing)
        for name in NAMES
    )
    start = part(b'fdrl_ros list of keys 2') + part(b'trial') + numbers
    digest = hashlib.sha256(start + part((4).to_bytes(8, 'big')) + part(b'') + rows).digest()
    start = part(b'fdrl_ros sealed shares 1') + part(b'trial') + numbers
    context = start + part(ONE.encode()) + part(TWO.encode()) + part(digest)
    mine = X25519PrivateKey.from_private_bytes(PARTIES[TWO].sealing.to_bytes())
    shared = mine.exchange(X25519PublicKey.from_public_bytes(PARTIES[ONE].sealing.public))
    extracted = hmac.digest(bytes(32), shared, 'sha256')
    key = hmac.digest(extracted, context + b'\x01', 'sha256')
    message = ChaCha20Poly1305(key).decrypt(bytes(12), SEALED[ONE][TWO], context)
    pair = deal(PARTIES[ONE], KEYS)[TWO]
    assert message == pair.mask_secret + pair.self_seed


def test_message_of_another_size_or_with_a_changed_byte_is_refused():
    whole = SEALED[ONE][TWO]
    for message in (b'', whole[:-1], whole + b'\0', bytes(2**20), None, 'text', 82):
        with pytest.raises(SealError, match='expected 82 bytes'):
            opened(message)
    for place in range(SEALED_BYTES):
        changed = whole[:place] + bytes([whole[place] ^ 0x80]) + whole[place + 1 :]
        with pytest.raises(SealError, match='changed'):
            opened(changed)


def test_message_in_the_wrong_hands_is_refused():
    directions = list(permutations(NAMES, 2))
    for (sender, holder), (claimed, reader) in product(directions, directions):
        if (claimed, reader) != (sender, holder):
            with pytest.raises(SealError):
                opened(SEALED[sender][holder], sender=claimed, holder=reader)
    for own in NAMES:
        with pytest.raises(SealError):
            opened(SEALED[ONE][TWO], sender=own, holder=own)


@pytest.mark.parametrize(
    'change', [{'federation': 'trial_2'}, {'round': 4}, {'attempt': 0}], ids=str
)
def test_message_of_another_attempt_is_refused(change):
    # The very same seeds, so that only the binding differs.
    parties = {name: secrets_of(name, **change) for name in NAMES}
    keys = list_of(parties, **change)
    theirs = seal_shares(parties[ONE], keys)
    assert not set(theirs.values()) & set(SEALED[ONE].values())
    with pytest.raises(SealError):
        opened(theirs[TWO])
    with pytest.raises(SealError):
        opened(SEALED[ONE][TWO], parties=parties, keys=keys)
    with pytest.raises(CryptoError, match='of another attempt'):
        seal_shares(parties[ONE], KEYS)
    with pytest.raises(CryptoError, match='of another attempt'):
        opened(SEALED[ONE][TWO], keys=list_of(PARTIES, **change))


def other_lists():
    yield 'threshold', list_of(PARTIES, threshold=3)
    yield 'fewer', list_of({name: PARTIES[name] for name in NAMES[:4]})
    yield 'more', list_of({**PARTIES, 'hospital_9': secrets_of('hospital_9')})
    yield 'another key', list_of({**PARTIES, FIVE: secrets_of(FIVE, salt=1)})
    named = {name if name != FIVE else 'hospital_0': secrets for name, secrets in PARTIES.items()}
    yield 'another name', list_of(named)


@pytest.mark.parametrize(('what', 'keys'), list(other_lists()), ids=lambda each: str(each)[:12])
def test_shares_along_another_list_are_refused_and_unrelated(what, keys):
    # Were an aggregator to tell members of different lists, no polynomial would be seen twice.
    assert keys.digest != KEYS.digest, what
    theirs = seal_shares(PARTIES[ONE], keys)
    with pytest.raises(SealError):
        opened(theirs[TWO])
    with pytest.raises(SealError):
        opened(SEALED[ONE][TWO], keys=keys)
    shares = [
        share
        for pairs in (deal(PARTIES[ONE], KEYS), deal(PARTIES[ONE], keys))
        for pair in pairs.values()
        for share in (pair.mask_secret, pair.self_seed)
    ]
    assert len(set(shares)) == len(shares)


def test_share_beyond_the_field_is_refused():
    key, context = share_sealing.direction_key(PARTIES[ONE], KEYS, TWO, sender=ONE, addressee=TWO)
    fine = deal(PARTIES[ONE], KEYS)[TWO]
    for wrong in (PRIME.to_bytes(33, 'big'), b'\xff' * 33):
        for message in (wrong + fine.self_seed, fine.mask_secret + wrong):
            sealed = ChaCha20Poly1305(key).encrypt(bytes(12), message, context)
            with pytest.raises(SealError, match='beyond the field'):
                opened(sealed)


def test_who_is_not_in_the_list_neither_seals_nor_opens():
    stranger = secrets_of('hospital_9')
    impostor = secrets_of(TWO, salt=5)
    for secrets in (stranger, impostor):
        with pytest.raises(CryptoError, match='does not name us'):
            seal_shares(secrets, KEYS)
        with pytest.raises(CryptoError, match='does not name us'):
            open_shares(secrets, KEYS, ONE, SEALED[ONE][TWO])


@pytest.mark.parametrize(
    'key', [b'', bytes(32), b'\x01' + bytes(31), b'\x09' * 33, None, 'k' * 32]
)
def test_key_that_nobody_can_agree_with_is_refused_on_receipt(key):
    # In the list it would stop every other member.
    fine = public(PARTIES[ONE]).mask
    for keys in ((fine, key), (key, fine)):
        with pytest.raises(CryptoError, match='round key'):
            MemberKeys(*keys)


def test_list_with_a_key_twice_or_an_impossible_threshold_is_refused():
    first, second = public(PARTIES[ONE]), public(PARTIES[TWO])
    for mine, sealing in (
        (first.mask, second.sealing),
        (second.mask, first.sealing),
        (first.sealing, second.sealing),
        (second.mask, second.mask),
    ):
        with pytest.raises(CryptoError, match='comes twice'):
            list_of(PARTIES, keys={**KEYS.keys, TWO: MemberKeys(mine, sealing)})
    for threshold in (0, 1, 6, 4.0, True, None):
        with pytest.raises(CryptoError, match='threshold'):
            list_of(PARTIES, threshold=threshold)


def test_list_cannot_be_changed_once_it_is_digested():
    keys = dict(KEYS.keys)
    listed = list_of(PARTIES, keys=keys)
    before = listed.digest
    del keys[FIVE]
    assert listed.members == tuple(NAMES) and listed.digest == before
    with pytest.raises(TypeError):
        listed.keys[ONE] = keys[TWO]


def test_no_share_is_shown():
    pair = deal(PARTIES[ONE], KEYS)[TWO]
    texts = [repr(pair), repr(KEYS), repr({TWO: pair})]
    for message in (SEALED[ONE][THREE], pair.mask_secret + pair.self_seed + bytes(16)):
        with pytest.raises(SealError) as caught:
            opened(message)
        texts += [str(caught.value), repr(caught.value)]
    for share in (pair.mask_secret, pair.self_seed):
        assert all(share.hex() not in text and repr(share)[2:-1] not in text for text in texts)
