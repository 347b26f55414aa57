# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Parcels of shares: read by their holder alone, refused elsewhere, and proof of who lies."""

from dataclasses import replace
import hashlib
import hmac
from itertools import permutations, product
import random

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from fdrl_ros.crypto.keys.signing import Identity
from fdrl_ros.crypto.masking.round_secret import RoundSecret, RoundSeed
from fdrl_ros.crypto.masking.share_sealing import (
    check_parcel,
    deal,
    ForgedParcelError,
    is_committed,
    KeyList,
    open_parcel,
    own_keys,
    PARCEL_BYTES,
    seal_shares,
    SEALED_BYTES,
    SealError,
)
from fdrl_ros.crypto.masking.sharing import MOST_MEMBERS, PRIME, Recovery
from fdrl_ros.errors import CryptoError
from hypothesis import given, settings, strategies
import pytest

NAMES = [f'hospital_{number}' for number in range(1, 6)]
# One hospital, in the middle of the names, publishes no keys.
ROSTER = (*NAMES, 'hospital_25')
PLACE = {'federation': 'trial', 'round': 3, 'attempt': 1}
KINDS = 'mask_secret', 'self_seed'


def secrets_of(name, *, salt=0, federation='trial', round=3, attempt=1):
    seed = hashlib.sha256(f'{name} {salt}'.encode()).digest()
    return RoundSeed(seed, federation, round, name).attempt(attempt)


def list_of(parties, *, hospitals=ROSTER, **changes):
    keys = {name: own_keys(secrets, hospitals) for name, secrets in parties.items()}
    fine = {**PLACE, 'threshold': 4, 'hospitals': hospitals, 'keys': keys}
    return KeyList(**{**fine, **changes})


def with_keys(keys, **changes):
    """Return a list in which some published other keys."""
    return replace(keys, keys={**keys.keys, **changes})


def long_term(name):
    return Ed25519PrivateKey.from_private_bytes(hashlib.sha256(f'{name}'.encode()).digest())


IDENTITIES = {name: Identity(name, long_term(name)) for name in (*ROSTER, 'hospital_0')}


def parcels_of(secrets, keys):
    return seal_shares(secrets, keys, IDENTITIES[secrets.name].sign)


PARTIES = {name: secrets_of(name) for name in NAMES}
KEYS = list_of(PARTIES)
PARCELS = {name: parcels_of(secrets, KEYS) for name, secrets in PARTIES.items()}
ONE, TWO, THREE, FOUR, FIVE = NAMES
DIRECTIONS = list(permutations(NAMES, 2))


def checked(parcel, *, dealer=ONE, holder=TWO, keys=KEYS, signer=None):
    check_parcel(keys, dealer, holder, parcel, IDENTITIES[signer or dealer].public)


def opened(parcel, *, dealer=ONE, holder=TWO, parties=PARTIES, keys=KEYS, secret=None):
    secret = parties[holder].sealing(dealer) if secret is None else secret
    return open_parcel(keys, dealer, holder, parcel, secret)


# The slow way round, from what the libraries offer.


def joined(*parts):
    return b''.join(len(part).to_bytes(4, 'big') + part for part in parts)


def digest_of(keys):
    names = joined(*(name.encode() for name in sorted(keys.hospitals)))
    rows = b''.join(
        joined(name.encode(), keys.keys[name].mask, keys.keys[name].sealing)
        + joined(keys.keys[name].seed_hash)
        for name in sorted(keys.keys)
    )
    place = [keys.federation.encode()]
    place += [each.to_bytes(8, 'big') for each in (keys.round, keys.attempt, keys.threshold)]
    return hashlib.sha256(
        joined(b'fdrl_ros list of keys 4', *place, names, keys.terms) + rows
    ).digest()


def bound(keys, label, dealer, holder):
    numbers = [each.to_bytes(8, 'big') for each in (keys.round, keys.attempt)]
    ends = dealer.encode(), holder.encode()
    return joined(label, keys.federation.encode(), *numbers, *ends, digest_of(keys))


def sealing_of(keys, dealer, holder, private, public):
    """Return the cipher of one direction, from one end's secret half, and its context."""
    secret = X25519PrivateKey.from_private_bytes(private)
    shared = secret.exchange(X25519PublicKey.from_public_bytes(public))
    context = bound(keys, b'fdrl_ros sealed shares 2', dealer, holder)
    extracted = hmac.digest(bytes(32), shared, 'sha256')
    cipher = ChaCha20Poly1305(hmac.digest(extracted, context + b'\x01', 'sha256'))
    return cipher, context


def committed(keys, dealer, holder, *shares):
    labels = b'mask secret', b'self seed'
    return b''.join(
        hashlib.sha256(
            bound(keys, b'fdrl_ros commitment to a share of a %s 1' % label, dealer, holder)
            + joined(share)
        ).digest()
        for label, share in zip(labels, shares, strict=True)
    )


def signed(body, *, dealer=ONE, holder=TWO, keys=KEYS, signer=None):
    told = bound(keys, b'fdrl_ros parcel of shares 1', dealer, holder) + joined(body)
    return body + long_term(signer or dealer).sign(told)


def parcel_by_hand(keys, dealer, holder, *shares, parties=PARTIES, commitments=None):
    """Return a parcel, its sealed part made with the secret of its holder."""
    private = parties[holder].sealing(dealer).to_bytes()
    public = parties[dealer].sealing(holder).public
    cipher, context = sealing_of(keys, dealer, holder, private, public)
    sealed = cipher.encrypt(bytes(12), b''.join(shares), context)
    commitments = commitments or committed(keys, dealer, holder, *shares)
    return signed(sealed + commitments, dealer=dealer, holder=holder, keys=keys)


def test_every_member_opens_what_was_dealt_to_it():
    for dealer in NAMES:
        dealt = deal(PARTIES[dealer], KEYS)
        assert list(dealt) == list(PARCELS[dealer]) == NAMES
        for holder, parcel in PARCELS[dealer].items():
            assert len(parcel) == PARCEL_BYTES == 82 + 2 * 32 + 64
            checked(parcel, dealer=dealer, holder=holder)
            if holder != dealer:
                assert opened(parcel, dealer=dealer, holder=holder) == dealt[holder]


def test_opened_shares_restore_both_secrets():
    pairs = {name: opened(PARCELS[ONE][name], holder=name) for name in NAMES[1:]}
    for kind in KINDS:
        shares = {name: getattr(pair, kind) for name, pair in pairs.items()}
        secret = Recovery(4, NAMES, [*shares]).recover(shares)
        assert secret == getattr(PARTIES[ONE], kind) and KEYS.fits(ONE, kind, secret)


def test_sealing_again_after_a_restart_gives_the_same_bytes():
    # So the one key and nonce of a direction never seal two messages.
    assert parcels_of(secrets_of(ONE), KEYS) == PARCELS[ONE]
    shuffled = dict(random.Random(1).sample([*PARTIES.items()], 5))
    keys = list_of(shuffled, hospitals=ROSTER[::-1])
    assert keys == KEYS and parcels_of(secrets_of(ONE), keys) == PARCELS[ONE]


def test_parcels_never_change():
    # Frozen: both ends of a round under way may be of different versions of the program.
    digest = hashlib.sha256(b''.join(PARCELS[ONE].values())).hexdigest()
    assert digest == 'c8b1e8be480527373872c7bab5affef957fc361f0cc9dfc81f86dd1f87462de2'
    assert KEYS.digest.hex() == '7dc6003ab9fabb0c6adda395d4d490164da70bdd27a1d53fdd603119e134d663'


def test_sealing_is_rfc_8439_under_a_key_of_rfc_5869_with_commitments_and_rfc_8032():
    keys = replace(KEYS, terms=b'terms')
    for listed in (KEYS, keys):
        assert listed.digest == digest_of(listed)
        for dealer, holder in DIRECTIONS:
            pair = deal(PARTIES[dealer], listed)[holder]
            shares = pair.mask_secret, pair.self_seed
            parcel = parcels_of(PARTIES[dealer], listed)[holder]
            assert parcel == parcel_by_hand(listed, dealer, holder, *shares)


def test_parcel_for_oneself_has_nothing_sealed_and_commits_to_ones_own_shares():
    for name in NAMES:
        pair, parcel = deal(PARTIES[name], KEYS)[name], PARCELS[name][name]
        own = committed(KEYS, name, name, pair.mask_secret, pair.self_seed)
        assert parcel == signed(bytes(SEALED_BYTES) + own, dealer=name, holder=name)
        for kind in KINDS:
            assert is_committed(KEYS, name, name, parcel, kind, getattr(pair, kind))


def test_published_keys_stand_in_the_order_of_the_other_hospitals():
    for owner in NAMES:
        others = [name for name in sorted(ROSTER) if name != owner]
        mine = PARTIES[owner]
        published = KEYS.keys[owner]
        assert published.mask == b''.join(mine.mask(name).public for name in others)
        assert published.sealing == b''.join(mine.sealing(name).public for name in others)
        own = hashlib.sha256(b'fdrl_ros self seed hash 1' + mine.self_seed).digest()
        assert published.seed_hash == own
        for name in others:
            assert KEYS.mask_key(owner, name) == mine.mask(name).public
            assert KEYS.sealing_key(owner, name) == mine.sealing(name).public


def test_no_two_pairs_have_a_key_in_common():
    halves = [
        key(owner, peer)
        for key in (KEYS.mask_key, KEYS.sealing_key)
        for owner, peer in product(NAMES, ROSTER)
        if owner != peer
    ]
    assert len(set(halves)) == len(halves) == 2 * 5 * 5


CHANGED = strategies.dictionaries(
    strategies.integers(0, PARCEL_BYTES - 1), strategies.integers(1, 255), min_size=1, max_size=9
)


@settings(max_examples=200, deadline=None)
@given(strategies.sampled_from([*DIRECTIONS, (ONE, ONE)]), CHANGED)
def test_parcel_with_any_changed_bytes_is_refused(direction, flips):
    dealer, holder = direction
    changed = bytes(
        byte ^ flips.get(place, 0) for place, byte in enumerate(PARCELS[dealer][holder])
    )
    with pytest.raises(ForgedParcelError, match='not signed by its dealer'):
        checked(changed, dealer=dealer, holder=holder)


def test_parcel_of_another_size_is_refused():
    whole = PARCELS[ONE][TWO]
    body = whole[:-64]
    # Also where the dealer signed it so.
    own = [signed(body[:size] + bytes(more)) for size, more in ((0, 0), (145, 0), (146, 1))]
    for parcel in (b'', whole[:-1], whole + b'\0', whole + whole, bytes(2**20), *own):
        with pytest.raises(ForgedParcelError):
            checked(parcel)


def test_parcel_in_the_wrong_hands_is_refused():
    everywhere = list(product(NAMES, NAMES))
    for (dealer, holder), (claimed, reader) in product(everywhere, everywhere):
        parcel = PARCELS[dealer][holder]
        if (claimed, reader) == (dealer, holder):
            checked(parcel, dealer=dealer, holder=holder)
            continue
        with pytest.raises(ForgedParcelError):
            checked(parcel, dealer=claimed, holder=reader)
        if claimed != reader:
            # Nor does it open without its signature.
            with pytest.raises(SealError, match='not sealed in this way'):
                opened(parcel, dealer=claimed, holder=reader)


def test_parcel_that_another_hospital_signed_is_refused():
    body = PARCELS[ONE][TWO][:-64]
    assert signed(body) == PARCELS[ONE][TWO]
    for signer in (*NAMES[1:], 'hospital_25'):
        forged = signed(body, signer=signer)
        assert opened(forged) == opened(PARCELS[ONE][TWO])
        with pytest.raises(ForgedParcelError):
            checked(forged)
        with pytest.raises(ForgedParcelError):
            checked(PARCELS[ONE][TWO], signer=signer)


@pytest.mark.parametrize('public', [b'', bytes(31), bytes(33), b'\xff' * 32, None])
def test_no_key_of_a_dealer_makes_a_parcel_its_own(public):
    with pytest.raises(ForgedParcelError):
        check_parcel(KEYS, ONE, TWO, PARCELS[ONE][TWO], public)


@pytest.mark.parametrize(
    'change', [{'federation': 'trial_2'}, {'round': 4}, {'attempt': 0}], ids=str
)
def test_parcel_of_another_attempt_is_refused(change):
    # The very same seeds, so that only the binding differs.
    parties = {name: secrets_of(name, **change) for name in NAMES}
    keys = list_of(parties, **change)
    theirs = parcels_of(parties[ONE], keys)
    assert not set(theirs.values()) & set(PARCELS[ONE].values())
    for parcel, listed, own in (
        (theirs[TWO], KEYS, PARTIES),
        (PARCELS[ONE][TWO], keys, parties),
        # Were the keys the same ones too.
        (PARCELS[ONE][TWO], list_of(PARTIES, **change), PARTIES),
    ):
        with pytest.raises(ForgedParcelError):
            checked(parcel, keys=listed)
        with pytest.raises(SealError):
            opened(parcel, keys=listed, parties=own)
    for secrets, listed in ((parties[ONE], KEYS), (PARTIES[ONE], list_of(PARTIES, **change))):
        with pytest.raises(CryptoError, match='of another attempt'):
            parcels_of(secrets, listed)


def other_lists():
    yield 'threshold', list_of(PARTIES, threshold=3)
    yield 'terms', list_of(PARTIES, terms=b'other')
    yield 'fewer', list_of({name: PARTIES[name] for name in NAMES[:4]})
    yield 'more', list_of({**PARTIES, 'hospital_25': secrets_of('hospital_25')})
    yield 'another key', list_of({**PARTIES, FIVE: secrets_of(FIVE, salt=1)})
    seed_hash = replace(KEYS.keys[FIVE], seed_hash=bytes(32))
    yield 'another hash', with_keys(KEYS, hospital_5=seed_hash)
    named = {name if name != FIVE else 'hospital_25': secrets for name, secrets in PARTIES.items()}
    keys = {name: KEYS.keys[FIVE if name == 'hospital_25' else name] for name in named}
    yield 'another name', replace(KEYS, keys=keys)
    yield 'another absent one', list_of(PARTIES, hospitals=(*NAMES, 'hospital_26'))
    yield 'nobody absent', list_of(PARTIES, hospitals=tuple(NAMES))


@pytest.mark.parametrize(('what', 'keys'), list(other_lists()), ids=lambda each: str(each)[:12])
def test_shares_along_another_list_are_refused_and_unrelated(what, keys):
    # Were an aggregator to tell members of different lists, no polynomial would be seen twice.
    assert keys.digest != KEYS.digest, what
    theirs = parcels_of(PARTIES[ONE], keys)
    for parcel, listed in ((theirs[TWO], KEYS), (PARCELS[ONE][TWO], keys)):
        with pytest.raises(ForgedParcelError):
            checked(parcel, keys=listed)
        with pytest.raises(SealError):
            opened(parcel, keys=listed)
    both = deal(PARTIES[ONE], KEYS), deal(PARTIES[ONE], keys)
    shares = [getattr(pair, kind) for pairs in both for pair in pairs.values() for kind in KINDS]
    assert len(set(shares)) == len(shares)
    # So neither what is revealed nor a commitment fits the other list.
    for kind in KINDS:
        ours = getattr(both[0][TWO], kind)
        assert not is_committed(KEYS, ONE, TWO, theirs[TWO], kind, ours)
        assert not is_committed(keys, ONE, TWO, PARCELS[ONE][TWO], kind, ours)


def test_another_secret_than_the_listed_one_proves_nothing_against_a_dealer():
    parcel, bad = PARCELS[ONE][TWO], signed(bytes(146))
    mine = PARTIES[TWO]
    for secret in (
        mine.sealing(THREE),
        mine.mask(ONE),
        PARTIES[ONE].sealing(TWO),
        secrets_of(TWO, salt=1).sealing(ONE),
        secrets_of(TWO, attempt=0).sealing(ONE),
        RoundSecret.from_bytes(bytes(32)),
    ):
        for each in (parcel, bad):
            with pytest.raises(CryptoError, match='is not that of its key') as caught:
                opened(each, secret=secret)
            assert not isinstance(caught.value, SealError)
    with pytest.raises(SealError):
        opened(bad)


def test_no_other_secret_of_the_same_key_makes_a_good_parcel_look_bad():
    # A holder may choose a secret near 2^254, whose negative modulo the group's order is one too,
    # and X25519 ignores five bits of each: 64 secrets of one key, with which a dealer whose key is
    # on the curve agrees to the same.
    order = 2**252 + 27742317777372353535851937790883648493
    some = 2**254 + 8 * 12345
    secrets = [
        (scalar & ~(2**254) | low | high << 254).to_bytes(32, 'little')
        for scalar, low, high in product((some, 8 * order - some), range(8), range(4))
    ]
    assert len(set(secrets)) == 64
    public = RoundSecret.from_bytes(secrets[0]).public
    sealing = public + KEYS.keys[TWO].sealing[32:]
    keys = with_keys(KEYS, hospital_2=replace(KEYS.keys[TWO], sealing=sealing))
    assert keys.sealing_key(TWO, ONE) == public
    parcel, pair = parcels_of(PARTIES[ONE], keys)[TWO], deal(PARTIES[ONE], keys)[TWO]
    for secret in map(RoundSecret.from_bytes, secrets):
        assert secret.public == public
        assert opened(parcel, keys=keys, secret=secret) == pair


FINE = deal(PARTIES[ONE], KEYS)[TWO]
COMMITTED = committed(KEYS, ONE, TWO, FINE.mask_secret, FINE.self_seed)


def bad_parcels():
    """Yield what a dealer can sign and its holder not use, and what is wrong in words."""
    fine = FINE.mask_secret, FINE.self_seed
    sealed = PARCELS[ONE][TWO][:SEALED_BYTES]
    for garbage in (bytes(82), b'\xff' * 82, sealed[::-1], PARCELS[ONE][THREE][:SEALED_BYTES]):
        yield signed(garbage + COMMITTED), 'not sealed in this way'
    yield signed(PARCELS[TWO][ONE][:SEALED_BYTES] + COMMITTED), 'not sealed in this way'
    for wrong in (PRIME.to_bytes(33, 'big'), b'\xff' * 33):
        for shares in ((wrong, fine[1]), (fine[0], wrong)):
            yield parcel_by_hand(KEYS, ONE, TWO, *shares), 'beyond the field'
    changed = (int.from_bytes(fine[0], 'big') ^ 1).to_bytes(33, 'big')
    for shares in ((changed, fine[1]), (fine[0], changed), fine[::-1], (bytes(33), bytes(33))):
        parcel = parcel_by_hand(KEYS, ONE, TWO, *shares, commitments=COMMITTED)
        yield parcel, 'others than it committed to'
    for commitments in (
        bytes(64),
        COMMITTED[32:] + COMMITTED[:32],
        COMMITTED[:32] + bytes(32),
        bytes(32) + COMMITTED[32:],
        committed(KEYS, ONE, THREE, *fine),
        committed(KEYS, TWO, ONE, *fine),
        committed(list_of(PARTIES, terms=b'other'), ONE, TWO, *fine),
        committed(KEYS, ONE, TWO, *fine[::-1]),
    ):
        yield signed(sealed + commitments), 'others than it committed to'


@pytest.mark.parametrize(('parcel', 'words'), list(bad_parcels()), ids=range(21))
def test_bad_parcel_that_its_dealer_signed_proves_its_guilt(parcel, words):
    checked(parcel)
    # The holder sees it, and so does everybody to whom the holder shows its secret.
    shown = RoundSecret.from_bytes(PARTIES[TWO].sealing(ONE).to_bytes())
    for secret in (PARTIES[TWO].sealing(ONE), shown):
        with pytest.raises(SealError, match=words) as caught:
            opened(parcel, secret=secret)
        assert not isinstance(caught.value, ForgedParcelError)


@settings(max_examples=50, deadline=None)
@given(strategies.binary(min_size=66, max_size=66), strategies.binary(min_size=64, max_size=64))
def test_any_shares_in_the_field_open_exactly_if_they_are_committed_to(message, commitments):
    shares = b'\0' + message[1:33], b'\0' + message[34:]
    pair = opened(parcel_by_hand(KEYS, ONE, TWO, *shares))
    assert (pair.mask_secret, pair.self_seed) == shares
    with pytest.raises(SealError):
        opened(parcel_by_hand(KEYS, ONE, TWO, *shares, commitments=commitments))


def test_exactly_the_dealt_share_of_its_kind_is_committed():
    dealt = {name: deal(PARTIES[name], KEYS) for name in NAMES}
    pairs = [pair for each in dealt.values() for pair in each.values()]
    every = {getattr(pair, kind) for pair in pairs for kind in KINDS}
    assert len(every) == 2 * 25
    for dealer, holder in product(NAMES, NAMES):
        for kind in KINDS:
            dealt_share = getattr(dealt[dealer][holder], kind)
            parcel = PARCELS[dealer][holder]
            true = {
                share
                for share in (*every, b'', dealt_share[1:], dealt_share + b'\0', bytes(33))
                if is_committed(KEYS, dealer, holder, parcel, kind, share)
            }
            assert true == {dealt_share}
    whole = PARCELS[ONE][TWO]
    for dealer, holder in ((TWO, ONE), (ONE, THREE), (THREE, TWO), (ONE, ONE)):
        assert not is_committed(KEYS, dealer, holder, whole, 'self_seed', FINE.self_seed)


@settings(deadline=None)
@given(strategies.integers(0, 263), strategies.sampled_from(KINDS))
def test_share_with_any_changed_bit_is_not_committed(bit, kind):
    share = int.from_bytes(getattr(FINE, kind), 'big') ^ 1 << bit
    assert not is_committed(KEYS, ONE, TWO, PARCELS[ONE][TWO], kind, share.to_bytes(33, 'big'))


def test_commitments_to_one_holders_shares_are_nobody_elses():
    # Nor do equal shares show as equal commitments.
    found = [
        parcel[start : start + 32]
        for parcels in PARCELS.values()
        for parcel in parcels.values()
        for start in (SEALED_BYTES, SEALED_BYTES + 32)
    ]
    found += [
        commitments[start : start + 32]
        for dealer, holder in product(NAMES, NAMES)
        for commitments in [committed(KEYS, dealer, holder, bytes(33), bytes(33))]
        for start in (0, 32)
    ]
    assert len(set(found)) == len(found) == 2 * 2 * 25


@pytest.mark.parametrize(('revealer', 'peer'), [(TWO, ONE), (ONE, FIVE), (FOUR, THREE)])
def test_revealed_sealing_secret_opens_the_parcels_of_its_pair_alone(revealer, peer):
    # By every key that was ever published, also for another hospital or for masks.
    revealed = PARTIES[revealer].sealing(peer).to_bytes()
    publics = {
        key(owner, other)
        for key in (KEYS.mask_key, KEYS.sealing_key)
        for owner, other in product(NAMES, ROSTER)
        if owner != other
    }
    found = []
    for (dealer, holder), public in product(DIRECTIONS, publics):
        cipher, context = sealing_of(KEYS, dealer, holder, revealed, public)
        try:
            cipher.decrypt(bytes(12), PARCELS[dealer][holder][:SEALED_BYTES], context)
        except InvalidTag:
            continue
        found.append((dealer, holder))
    assert sorted(found) == sorted([(revealer, peer), (peer, revealer)])


def test_only_what_is_behind_the_published_keys_fits():
    for owner, kind in product(NAMES, KINDS):
        secrets = PARTIES[owner]
        right = getattr(secrets, kind)
        candidates = {
            *(getattr(PARTIES[name], each) for name in NAMES for each in KINDS),
            *(secrets.mask(name).to_bytes() for name in NAMES if name != owner),
            *(secrets.sealing(name).to_bytes() for name in NAMES if name != owner),
            KEYS.keys[owner].seed_hash,
            getattr(secrets_of(owner, attempt=0), kind),
            bytes(32),
        }
        assert [each for each in candidates if KEYS.fits(owner, kind, each)] == [right]
    for kind, size in product(KINDS, (0, 31, 33)):
        assert not KEYS.fits(ONE, kind, bytes(size))
    with pytest.raises(CryptoError, match='no kind of secret'):
        KEYS.fits(ONE, 'another', bytes(32))
    with pytest.raises(CryptoError, match='no key for itself'):
        KEYS.mask_key(ONE, ONE)


def test_mask_secret_fits_only_if_all_published_mask_keys_are_its_own():
    fine = KEYS.keys[ONE]
    for place in range(5):
        start = 32 * place
        mask = fine.mask[:start] + PARTIES[TWO].mask(ONE).public + fine.mask[start + 32 :]
        listed = with_keys(KEYS, hospital_1=replace(fine, mask=mask))
        assert not listed.fits(ONE, 'mask_secret', PARTIES[ONE].mask_secret)
        assert listed.fits(ONE, 'self_seed', PARTIES[ONE].self_seed)
        assert listed.fits(TWO, 'mask_secret', PARTIES[TWO].mask_secret)
    # Sealing keys are no part of it.
    listed = with_keys(KEYS, hospital_1=replace(fine, sealing=KEYS.keys[TWO].sealing))
    assert listed.fits(ONE, 'mask_secret', PARTIES[ONE].mask_secret)


def copied_sealing_keys():
    """Yield what the fifth hospital may publish instead of sealing keys of its own."""
    yield KEYS.keys[ONE].sealing
    others = [name for name in sorted(ROSTER) if name != FIVE]
    members = [name if name in NAMES else ONE for name in others]
    yield b''.join(KEYS.sealing_key(name, FIVE) for name in members)
    yield KEYS.keys[ONE].mask


@pytest.mark.parametrize('sealing', list(copied_sealing_keys()), ids=['one', 'back', 'mask'])
def test_copied_sealing_keys_keep_only_the_copier_from_its_shares(sealing):
    keys = with_keys(KEYS, hospital_5=replace(KEYS.keys[FIVE], sealing=sealing))
    honest = NAMES[:4]
    parcels = {name: parcels_of(PARTIES[name], keys) for name in honest}
    for dealer, holder in permutations(honest, 2):
        pair = opened(parcels[dealer][holder], dealer=dealer, holder=holder, keys=keys)
        assert pair == deal(PARTIES[dealer], keys)[holder]
    with pytest.raises(CryptoError, match='does not name us'):
        parcels_of(PARTIES[FIVE], keys)
    mine = PARTIES[FIVE]
    for dealer in honest:
        parcel, public = parcels[dealer][FIVE], keys.sealing_key(dealer, FIVE)
        with pytest.raises(CryptoError, match='is not that of its key'):
            opened(parcel, dealer=dealer, holder=FIVE, keys=keys)
        for secret, peer in product((mine.sealing, mine.mask), honest):
            private = secret(peer).to_bytes()
            cipher, context = sealing_of(keys, dealer, FIVE, private, public)
            with pytest.raises(InvalidTag):
                cipher.decrypt(bytes(12), parcel[:SEALED_BYTES], context)


def test_who_is_not_in_the_list_deals_nothing():
    for secrets in (secrets_of('hospital_25'), secrets_of(TWO, salt=5), secrets_of('hospital_0')):
        with pytest.raises(CryptoError, match='does not name us'):
            parcels_of(secrets, KEYS)
        with pytest.raises(CryptoError, match='does not name us'):
            deal(secrets, KEYS)
    # One key that is another, or another hash, is enough.
    fine, other = KEYS.keys[TWO], own_keys(secrets_of(TWO, salt=5), ROSTER)
    for field in ('mask', 'sealing', 'seed_hash'):
        mixed = with_keys(KEYS, hospital_2=replace(fine, **{field: getattr(other, field)}))
        with pytest.raises(CryptoError, match='does not name us'):
            parcels_of(PARTIES[TWO], mixed)


@pytest.mark.parametrize('key', [bytes(32), b'\x01' + bytes(31), b'\xec' + b'\xff' * 31])
def test_key_that_nobody_can_agree_with_is_found_on_receipt(key):
    # In the list it would stop every other member.
    fine = KEYS.keys[ONE]
    fine.check()
    for place, kind in product(range(5), ('mask', 'sealing')):
        whole = getattr(fine, kind)
        keys = whole[: 32 * place] + key + whole[32 * place + 32 :]
        with pytest.raises(CryptoError, match='small order'):
            replace(fine, **{kind: keys}).check()


@pytest.mark.parametrize(
    'change',
    [
        {'mask': b''},
        {'mask': b'', 'sealing': b''},
        {'mask': bytes(32)},
        {'sealing': bytes(32)},
        {'mask': bytes(159), 'sealing': bytes(159)},
        {'mask': bytes(161), 'sealing': bytes(161)},
        *({'seed_hash': bytes(size)} for size in (0, 31, 33)),
    ],
    ids=str,
)
def test_keys_of_another_size_are_refused(change):
    with pytest.raises(CryptoError, match='bytes'):
        replace(KEYS.keys[ONE], **change)


def test_impossible_list_is_refused():
    for threshold in (0, 1, 6, 4.0, True, None):
        with pytest.raises(CryptoError, match='threshold'):
            list_of(PARTIES, threshold=threshold)
    for hospitals in (NAMES, (*ROSTER, 'hospital_6')):
        with pytest.raises(CryptoError, match='not one for each other hospital'):
            replace(KEYS, hospitals=tuple(hospitals))
    with pytest.raises(CryptoError, match="'hospital_1' is no hospital of the roster"):
        replace(KEYS, hospitals=(*NAMES[1:], 'hospital_6', 'hospital_7'))
    with pytest.raises(CryptoError, match='at most'):
        replace(KEYS, hospitals=(*ROSTER, *map(str, range(MOST_MEMBERS))))


def test_list_cannot_be_changed_once_it_is_digested():
    keys = dict(KEYS.keys)
    listed = list_of(PARTIES, keys=keys)
    before = listed.digest
    del keys[FIVE]
    assert listed.members == tuple(NAMES) and listed.digest == before
    with pytest.raises(TypeError):
        listed.keys[ONE] = keys[TWO]


def test_no_share_is_shown():
    texts = [repr(FINE), repr(KEYS), repr({TWO: FINE})]
    texts += [repr(parcel) for parcel in PARCELS[ONE].values()]
    for parcel, _ in bad_parcels():
        with pytest.raises(SealError) as caught:
            opened(parcel)
        texts += [str(caught.value), repr(caught.value)]
    for share in (FINE.mask_secret, FINE.self_seed):
        assert all(share.hex() not in text and repr(share)[2:-1] not in text for text in texts)
