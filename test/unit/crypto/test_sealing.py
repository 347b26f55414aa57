# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Parcels of shares: read by their holder alone, refused elsewhere, and proof of who lies."""

import contextlib
from dataclasses import replace
import hashlib
import hmac
from itertools import combinations, permutations, product
import random

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from fdrl_ros.crypto.masking import neighbourhoods
from fdrl_ros.crypto.masking.merkle import root_and_paths
from fdrl_ros.crypto.masking.neighbourhoods import Neighbourhoods
from fdrl_ros.crypto.masking.round_secret import RoundSecret, RoundSeed
from fdrl_ros.crypto.masking.share_sealing import (
    check_ends,
    check_parcel,
    deal,
    ForgedParcelError,
    is_committed,
    KeyList,
    open_parcel,
    own_keys,
    PAIR_BYTES,
    PARCEL_BYTES,
    seal_shares,
    SEALED_BYTES,
    SealError,
    tree_of_keys,
)
from fdrl_ros.crypto.masking.sharing import (
    MOST_MEMBERS,
    PRIME,
    Recovery,
    ShareError,
    TooFewSharesError,
)
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


def list_of(parties, *, hospitals=ROSTER, threshold=4, graph=None, **changes):
    graph = graph or Neighbourhoods(hospitals, threshold)
    keys = {name: own_keys(secrets, graph) for name, secrets in parties.items()}
    return KeyList.of(**{**PLACE, 'graph': graph, 'keys': keys, **changes})


def with_keys(keys, **changes):
    """Return a list in which some published other keys."""
    place = keys.federation, keys.round, keys.attempt
    return KeyList.of(*place, keys.graph, {**keys.keys, **changes}, keys.terms)


def parcels_of(secrets, keys):
    return seal_shares(secrets, keys)


PARTIES = {name: secrets_of(name) for name in NAMES}
KEYS = list_of(PARTIES)
PARCELS = {name: parcels_of(secrets, KEYS) for name, secrets in PARTIES.items()}
ONE, TWO, THREE, FOUR, FIVE = NAMES
DIRECTIONS = list(permutations(NAMES, 2))


def tree_over(parcels):
    """Return the root of a dealer's parcels, by hand, and the path of each holder."""
    root, paths = slow_tree([parcels[name] for name in sorted(parcels)])
    return root, dict(zip(sorted(parcels), paths, strict=True))


def checked(parcel, *, dealer=ONE, holder=TWO, keys=KEYS, dealt=None):
    """Check a parcel below the root of what a dealer dealt."""
    root, paths = tree_over(PARCELS[dealer] if dealt is None else dealt)
    check_parcel(keys, dealer, holder, parcel, paths[holder], root)


def checked_as_signed(parcel, *, dealer=ONE, holder=TWO):
    """Check a parcel that its dealer has put among its own."""
    checked(parcel, dealer=dealer, holder=holder, dealt={**PARCELS[dealer], holder: parcel})


def opened(parcel, *, dealer=ONE, holder=TWO, parties=PARTIES, keys=KEYS, secret=None):
    secret = parties[holder].sealing(dealer) if secret is None else secret
    return open_parcel(keys, dealer, holder, parcel, secret)


# The slow way round, from what the libraries offer.


def joined(*parts):
    return b''.join(len(part).to_bytes(4, 'big') + part for part in parts)


def slow_tree(leaves):
    """Return the root over leaves and their paths, node by node from the top."""
    height = next(number for number in range(99) if 2**number >= len(leaves))

    def node(level, place):
        if place << level >= len(leaves):
            return bytes(32)
        if not level:
            return hashlib.sha256(b'\0' + leaves[place]).digest()
        both = node(level - 1, 2 * place) + node(level - 1, 2 * place + 1)
        return hashlib.sha256(b'\1' + both).digest()

    paths = [
        b''.join(node(level, (place >> level) ^ 1) for level in range(height))
        for place in range(len(leaves))
    ]
    return node(height, 0), paths


def both_keys(keys, owner, peer):
    """Return the key for the mask and that for sealing, found among all that were published."""
    place = [name for name in sorted(keys.graph.hospitals) if name in keys.graph.peers(owner)]
    at = 32 * place.index(peer)
    published = keys.keys[owner]
    return published.mask[at : at + 32] + published.sealing[at : at + 32]


def keys_tree(keys):
    leaves = []
    for name in sorted(keys.keys):
        pairs = [both_keys(keys, name, peer) for peer in sorted(keys.graph.peers(name))]
        root, _ = slow_tree(pairs)
        leaves.append(joined(name.encode(), root, keys.keys[name].seed_hash))
    root, paths = slow_tree(leaves)
    return root, dict(zip(sorted(keys.keys), paths, strict=True))


def digest_of(keys):
    hospitals, members = (
        joined(*(name.encode() for name in sorted(names)))
        for names in (keys.graph.hospitals, keys.keys)
    )
    place = [keys.federation.encode()]
    place += [each.to_bytes(8, 'big') for each in (keys.round, keys.attempt, keys.graph.threshold)]
    agreed = hospitals, keys.terms, members, keys_tree(keys)[0]
    return hashlib.sha256(joined(b'fdrl_ros list of keys 5', *place, *agreed)).digest()


def ends_of(keys, dealer, holder):
    if dealer == holder:
        return bytes(32)
    both = both_keys(keys, dealer, holder) + both_keys(keys, holder, dealer)
    return hashlib.sha256(b'fdrl_ros keys of both ends of a parcel 1' + both).digest()


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


def whole(body, *, dealer=ONE, holder=TWO, keys=KEYS):
    """Return a parcel: what a dealer says, and by which keys."""
    return body + ends_of(keys, dealer, holder)


def refused_at_opening(parcel, *, dealer=ONE, holder=TWO, keys=KEYS, parties=PARTIES):
    """Check that a parcel does not open, also if it names the keys of its new ends."""
    ends = {'dealer': dealer, 'holder': holder, 'keys': keys}
    with pytest.raises((SealError, ForgedParcelError)):
        opened(parcel, parties=parties, **ends)
    with pytest.raises(SealError, match='not sealed in this way'):
        opened(whole(parcel[:-32], **ends), parties=parties, **ends)


def parcel_by_hand(keys, dealer, holder, *shares, parties=PARTIES, commitments=None):
    """Return a parcel, its sealed part made with the secret of its holder."""
    private = parties[holder].sealing(dealer).to_bytes()
    public = parties[dealer].sealing(holder).public
    cipher, context = sealing_of(keys, dealer, holder, private, public)
    sealed = cipher.encrypt(bytes(12), b''.join(shares), context)
    commitments = commitments or committed(keys, dealer, holder, *shares)
    return whole(sealed + commitments, dealer=dealer, holder=holder, keys=keys)


def test_every_member_opens_what_was_dealt_to_it():
    for dealer in NAMES:
        dealt = deal(PARTIES[dealer], KEYS)
        assert list(dealt) == list(PARCELS[dealer]) == NAMES
        for holder, parcel in PARCELS[dealer].items():
            assert len(parcel) == PARCEL_BYTES == 82 + 3 * 32
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
    assert keys.keys == KEYS.keys and keys.members == KEYS.members and keys.digest == KEYS.digest
    assert parcels_of(secrets_of(ONE), keys) == PARCELS[ONE]


def test_parcels_never_change():
    # Frozen: both ends of a round under way may be of different versions of the program.
    digest = hashlib.sha256(b''.join(PARCELS[ONE].values())).hexdigest()
    assert digest == '3c9624b64a43739e3c8eeef6c2a014470ffc60e54e6a38e09c6e43c7837a5125'
    assert KEYS.digest.hex() == '513e504979333b1070400d4613b9027fd438123133fd35122ce139b8de623496'


def test_sealing_is_rfc_8439_under_a_key_of_rfc_5869_with_commitments_and_the_keys_of_both_ends():
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
        assert parcel == bytes(SEALED_BYTES) + own + bytes(32)
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


@settings(max_examples=100, deadline=None)
@given(
    strategies.sampled_from([*DIRECTIONS, (ONE, ONE)]),
    strategies.dictionaries(
        strategies.integers(0, 95), strategies.integers(1, 255), min_size=1, max_size=9
    ),
)
def test_parcel_with_any_changed_bytes_of_its_path_or_root_is_refused(direction, flips):
    dealer, holder = direction
    root, paths = tree_over(PARCELS[dealer])
    path, parcel = paths[holder], PARCELS[dealer][holder]
    check_parcel(KEYS, dealer, holder, parcel, path, root)
    changed = bytes(byte ^ flips.get(place, 0) for place, byte in enumerate(path))
    other = bytes(byte ^ flips.get(place, 0) for place, byte in enumerate(root))
    assert len(path) == 96 and changed != path
    for wrong in ((changed, root), *([(path, other)] if other != root else [])):
        with pytest.raises(ForgedParcelError, match='not signed by its dealer'):
            check_parcel(KEYS, dealer, holder, parcel, *wrong)


def test_parcel_of_another_size_is_refused():
    fine = PARCELS[ONE][TWO]
    others = [fine[:size] + bytes(more) for size, more in ((0, 0), (177, 0), (178, 1), (82, 64))]
    for parcel in (b'', fine[:-1], fine + b'\0', fine + fine, bytes(2**20), *others):
        with pytest.raises(ForgedParcelError):
            checked(parcel)
        # Also where the dealer signed it so.
        with pytest.raises(ForgedParcelError):
            checked_as_signed(parcel)


def test_path_of_another_size_is_refused():
    root, paths = tree_over(PARCELS[ONE])
    path = paths[TWO]
    for wrong in (b'', path[:32], path[:64], path[:-1], path + b'\0', path + bytes(32)):
        with pytest.raises(ForgedParcelError):
            check_parcel(KEYS, ONE, TWO, PARCELS[ONE][TWO], wrong, root)
    # Also where the root is of a tree with paths so long.
    parcels = [*PARCELS[ONE].values()]
    for dealt in (parcels[:2], parcels[:4], [*parcels, *parcels], parcels * 99):
        other, found = slow_tree(dealt)
        with pytest.raises(ForgedParcelError):
            check_parcel(KEYS, ONE, TWO, parcels[1], found[1], other)


def test_parcel_in_the_wrong_hands_is_refused():
    everywhere = list(product(NAMES, NAMES))
    trees = {name: tree_over(PARCELS[name]) for name in NAMES}
    for (dealer, holder), (claimed, reader) in product(everywhere, everywhere):
        parcel, root = PARCELS[dealer][holder], trees[claimed][0]
        if (claimed, reader) == (dealer, holder):
            checked(parcel, dealer=dealer, holder=holder)
            continue
        for path in (trees[claimed][1][reader], trees[dealer][1][holder]):
            with pytest.raises(ForgedParcelError):
                check_parcel(KEYS, claimed, reader, parcel, path, root)
        if claimed != reader:
            # Nor does it open without its root.
            with pytest.raises(ForgedParcelError, match='sealed with other keys'):
                opened(parcel, dealer=claimed, holder=reader)
            refused_at_opening(parcel, dealer=claimed, holder=reader)


def test_who_is_no_holder_has_no_parcel():
    root, paths = tree_over(PARCELS[ONE])
    # Between and beyond the names of the holders, and one without keys.
    for holder in ('hospital_25', 'hospital_0', 'hospital_9', 'hospital_2_', ''):
        for path, parcel in zip(paths.values(), PARCELS[ONE].values(), strict=True):
            with pytest.raises(ForgedParcelError):
                check_parcel(KEYS, ONE, holder, parcel, path, root)


def test_parcel_below_another_root_is_refused():
    parcel = PARCELS[ONE][TWO]
    for other in NAMES[1:]:
        root, paths = tree_over(PARCELS[other])
        for path in (paths[TWO], tree_over(PARCELS[ONE])[1][TWO]):
            with pytest.raises(ForgedParcelError):
                check_parcel(KEYS, ONE, TWO, parcel, path, root)
    # What is dealt to the others changes the root too.
    root, paths = tree_over(PARCELS[ONE])
    for holder in NAMES:
        changed = {**PARCELS[ONE], holder: PARCELS[ONE][holder][::-1]}
        with pytest.raises(ForgedParcelError):
            check_parcel(KEYS, ONE, TWO, parcel, paths[TWO], tree_over(changed)[0])
    for wrong in (b'', root[:-1], root + b'\0', bytes(32), b'\xff' * 32, parcel, paths[TWO]):
        with pytest.raises(ForgedParcelError):
            check_parcel(KEYS, ONE, TWO, parcel, paths[TWO], wrong)


def test_tree_of_parcels_is_one_made_by_hand():
    for parcels in PARCELS.values():
        root, paths = root_and_paths([*parcels.values()])
        assert (root, dict(zip(parcels, paths, strict=True))) == tree_over(parcels)
        assert {len(path) for path in paths} == {96}


def with_other_keys(owner, kind, places):
    """Return a list in which some keys of one hospital are others."""
    fine, other = KEYS.keys[owner], own_keys(secrets_of(owner, salt=1), KEYS.graph)
    both = [getattr(each, kind) for each in (fine, other)]
    halves = [both[place in places][32 * place : 32 * place + 32] for place in range(5)]
    return with_keys(KEYS, **{owner: replace(fine, **{kind: b''.join(halves)})})


def other_ends():
    """Yield what a dealer may sign instead of the keys of both ends."""
    yield 'none', bytes(32)
    yield 'back', ends_of(KEYS, TWO, ONE)
    yield 'another holder', ends_of(KEYS, ONE, THREE)
    for owner, kind in product((ONE, TWO), ('mask', 'sealing')):
        # The first and the second hospital are each other's first peers.
        yield f'{owner} {kind}', ends_of(with_other_keys(owner, kind, [0]), ONE, TWO)


@pytest.mark.parametrize(('what', 'ends'), list(other_ends()), ids=lambda each: str(each)[:20])
def test_parcel_that_names_other_keys_of_its_ends_is_refused(what, ends):
    fine = PARCELS[ONE][TWO]
    check_ends(KEYS, ONE, TWO, fine)
    parcel = fine[:-32] + ends
    checked_as_signed(parcel)
    assert ends != fine[-32:], what
    with pytest.raises(ForgedParcelError, match='sealed with other keys'):
        check_ends(KEYS, ONE, TWO, parcel)
    with pytest.raises(ForgedParcelError, match='sealed with other keys'):
        opened(parcel)


def test_ends_are_of_the_keys_of_this_pair_alone_and_zeros_for_oneself():
    assert len({KEYS.ends(*pair) for pair in DIRECTIONS}) == 20
    for owner, kind in product((ONE, TWO), ('mask', 'sealing')):
        keys = with_other_keys(owner, kind, range(1, 5))
        assert keys.digest != KEYS.digest and keys.ends(ONE, TWO) == KEYS.ends(ONE, TWO)
    for dealer, holder in product(NAMES, NAMES):
        assert KEYS.ends(dealer, holder) == ends_of(KEYS, dealer, holder)
    own = PARCELS[ONE][ONE]
    check_ends(KEYS, ONE, ONE, own)
    with pytest.raises(ForgedParcelError):
        check_ends(KEYS, ONE, ONE, own[:-1] + b'\1')


@pytest.mark.parametrize(
    'change', [{'federation': 'trial_2'}, {'round': 4}, {'attempt': 0}], ids=str
)
def test_parcel_of_another_attempt_is_refused(change):
    # The very same seeds, so that only the binding differs.
    parties = {name: secrets_of(name, **change) for name in NAMES}
    keys = list_of(parties, **change)
    theirs = parcels_of(parties[ONE], keys)
    assert not set(theirs.values()) & set(PARCELS[ONE].values())
    for parcel, dealt, listed, own in (
        (theirs[TWO], PARCELS[ONE], KEYS, PARTIES),
        (PARCELS[ONE][TWO], theirs, keys, parties),
        # Were the keys the same ones too.
        (PARCELS[ONE][TWO], theirs, list_of(PARTIES, **change), PARTIES),
    ):
        with pytest.raises(ForgedParcelError):
            checked(parcel, keys=listed, dealt=dealt)
        refused_at_opening(parcel, keys=listed, parties=own)
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
    yield 'another name', list_of(PARTIES, keys=keys)
    yield 'another absent one', list_of(PARTIES, hospitals=(*NAMES, 'hospital_26'))
    yield 'nobody absent', list_of(PARTIES, hospitals=tuple(NAMES))


@pytest.mark.parametrize(('what', 'keys'), list(other_lists()), ids=lambda each: str(each)[:12])
def test_shares_along_another_list_are_refused_and_unrelated(what, keys):
    # Were an aggregator to tell members of different lists, no polynomial would be seen twice.
    assert keys.digest != KEYS.digest, what
    theirs = parcels_of(PARTIES[ONE], keys)
    for parcel, dealt, listed in (
        (theirs[TWO], PARCELS[ONE], KEYS),
        (PARCELS[ONE][TWO], theirs, keys),
    ):
        with pytest.raises(ForgedParcelError):
            checked(parcel, keys=listed, dealt=dealt)
        refused_at_opening(parcel, keys=listed)
    both = deal(PARTIES[ONE], KEYS), deal(PARTIES[ONE], keys)
    shares = [getattr(pair, kind) for pairs in both for pair in pairs.values() for kind in KINDS]
    assert len(set(shares)) == len(shares)
    # So neither what is revealed nor a commitment fits the other list.
    for kind in KINDS:
        ours = getattr(both[0][TWO], kind)
        assert not is_committed(KEYS, ONE, TWO, theirs[TWO], kind, ours)
        assert not is_committed(keys, ONE, TWO, PARCELS[ONE][TWO], kind, ours)


def test_another_secret_than_the_listed_one_proves_nothing_against_a_dealer():
    parcel, bad = PARCELS[ONE][TWO], whole(bytes(146))
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
        yield whole(garbage + COMMITTED), 'not sealed in this way'
    yield whole(PARCELS[TWO][ONE][:SEALED_BYTES] + COMMITTED), 'not sealed in this way'
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
        yield whole(sealed + commitments), 'others than it committed to'


@pytest.mark.parametrize(('parcel', 'words'), list(bad_parcels()), ids=range(21))
def test_bad_parcel_that_its_dealer_signed_proves_its_guilt(parcel, words):
    checked_as_signed(parcel)
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
    parcel = PARCELS[ONE][TWO]
    for dealer, holder in ((TWO, ONE), (ONE, THREE), (THREE, TWO), (ONE, ONE)):
        assert not is_committed(KEYS, dealer, holder, parcel, 'self_seed', FINE.self_seed)


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
    for owner, peer in ((ONE, ONE), (ONE, 'hospital_0'), ('hospital_0', ONE), (ONE, '')):
        for key in (KEYS.mask_key, KEYS.sealing_key, KEYS.pair):
            with pytest.raises(CryptoError, match='no peers|no hospital'):
                key(owner, peer)


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
        for make in (parcels_of, deal):
            with pytest.raises(CryptoError, match='does not name us|is no hospital'):
                make(secrets, KEYS)
    # One key that is another, or another hash, is enough.
    fine, other = KEYS.keys[TWO], own_keys(secrets_of(TWO, salt=5), KEYS.graph)
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
        halves = getattr(fine, kind)
        keys = halves[: 32 * place] + key + halves[32 * place + 32 :]
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
    with pytest.raises(CryptoError, match='without keys'):
        list_of({})
    for hospitals in (NAMES, (*ROSTER, 'hospital_6')):
        with pytest.raises(CryptoError, match='has not one for each peer'):
            replace(KEYS, graph=Neighbourhoods(hospitals, 4))
    for hospitals in ((*NAMES[1:], 'hospital_6', 'hospital_7'), NAMES[1:]):
        with pytest.raises(CryptoError, match="'hospital_1' is no hospital of the roster"):
            replace(KEYS, graph=Neighbourhoods(hospitals, 4))
    for hospitals in ((*ROSTER, *map(str, range(MOST_MEMBERS))), (*ROSTER, ONE)):
        with pytest.raises(CryptoError, match='at most'):
            replace(KEYS, graph=Neighbourhoods(hospitals, 4))
    # Names of members are checked also where nobody's keys are known.
    bare = {'keys_digest': bytes(32), 'graph': KEYS.graph, **PLACE}
    assert KeyList(members=(*NAMES[::-1], ONE), **bare).members == tuple(NAMES)
    for members, words in (
        (NAMES[:3], '3 members for a threshold of 4'),
        ((), '0 members'),
        ((ONE, ONE, TWO, TWO), '2 members'),
        ((*NAMES, 'hospital_7'), "'hospital_7' is no hospital"),
    ):
        with pytest.raises(CryptoError, match=words):
            KeyList(members=tuple(members), **bare)


def test_list_cannot_be_changed_once_it_is_digested():
    keys = dict(KEYS.keys)
    listed = list_of(PARTIES, keys=keys)
    before = listed.digest
    del keys[FIVE]
    assert listed.members == tuple(NAMES) and listed.digest == before
    with pytest.raises(TypeError):
        listed.keys[ONE] = keys[TWO]


def test_published_keys_are_found_below_the_root_that_all_agree_on():
    root, paths = keys_tree(KEYS)
    assert tree_of_keys(KEYS.keys) == (root, paths) and KEYS.keys_digest == root
    for name in NAMES:
        published = KEYS.keys[name]
        pairs = [both_keys(KEYS, name, peer) for peer in sorted(ROSTER) if peer != name]
        assert published.tree == slow_tree(pairs) and published.root == published.tree[0]
        assert [published.pair(place) for place in range(5)] == pairs
        assert {len(pair) for pair in pairs} == {PAIR_BYTES}
        KEYS.check_listed(name, paths[name])
        for wrong in (
            *(paths[other] for other in NAMES if other != name),
            b'',
            paths[name][:-32],
            paths[name] + bytes(32),
            paths[name][:-1],
            paths[name][::-1],
        ):
            with pytest.raises(CryptoError, match='does not name'):
                KEYS.check_listed(name, wrong)
    for stranger in ('hospital_25', 'hospital_0', 'hospital_9', ''):
        for path in paths.values():
            with pytest.raises(CryptoError):
                KEYS.check_listed(stranger, path)


@pytest.mark.parametrize('field', ['mask', 'sealing', 'seed_hash'])
def test_other_keys_than_all_agree_on_are_not_listed(field):
    _, paths = keys_tree(KEYS)
    fine, other = KEYS.keys[TWO], own_keys(secrets_of(TWO, salt=1), KEYS.graph)
    for at in range(0, len(getattr(fine, field)), 32):
        value = getattr(fine, field)
        value = value[:at] + getattr(other, field)[at : at + 32] + value[at + 32 :]
        keys = {**KEYS.keys, TWO: replace(fine, **{field: value})}
        shown = replace(KEYS, keys=keys)
        assert shown.digest == KEYS.digest
        for name in NAMES:
            if name != TWO:
                shown.check_listed(name, paths[name])
        with pytest.raises(CryptoError, match="does not name 'hospital_2' with its keys"):
            shown.check_listed(TWO, paths[TWO])
        with pytest.raises(CryptoError, match='does not name'):
            with_keys(KEYS, **keys).check_listed(ONE, paths[ONE])


# A ring of twelve hospitals, each with four neighbours, of whom one published no keys. So few are
# no law's: see test_neighbourhoods.py.
MANY = [f'hospital_{number}' for number in range(12)]


def ring_of(degree=4, threshold=3, seed=bytes(32)):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(neighbourhoods, 'share_threshold', lambda *_: (threshold, False))
        return Neighbourhoods(MANY, 9, degree, seed)


RING = ring_of()
KEYED = MANY[1:]
MANY_PARTIES = {name: secrets_of(name) for name in KEYED}
SPARSE = list_of(MANY_PARTIES, graph=RING)
SPARSE_PARCELS = {name: parcels_of(MANY_PARTIES[name], SPARSE) for name in KEYED}


def view_of(name):
    """Return the list of keys as one hospital knows it."""
    peers = [peer for peer in RING.peers(name) if peer in KEYED]
    pairs = {(peer, name): both_keys(SPARSE, peer, name) for peer in peers}
    known = {'keys': {name: SPARSE.keys[name]}, 'pairs': pairs, 'members': tuple(KEYED)}
    return KeyList(graph=RING, keys_digest=keys_tree(SPARSE)[0], **PLACE, **known)


def test_shares_go_to_neighbours_with_keys_and_to_nobody_else():
    assert SPARSE.digest == digest_of(SPARSE)
    for dealer in KEYED:
        holders = sorted({*RING.peers(dealer), dealer} & {*KEYED})
        dealt, parcels = deal(MANY_PARTIES[dealer], SPARSE), SPARSE_PARCELS[dealer]
        assert list(dealt) == list(parcels) == holders == list(SPARSE.holders(dealer))
        assert len(holders) == 5 - (MANY[0] in RING.peers(dealer))
        assert len(SPARSE.keys[dealer].mask) == 4 * 32
        root, paths = slow_tree([*parcels.values()])
        for holder, path in zip(holders, paths, strict=True):
            check_parcel(SPARSE, dealer, holder, parcels[holder], path, root)
            if holder == dealer:
                continue
            pair = dealt[holder]
            by_hand = parcel_by_hand(
                SPARSE, dealer, holder, pair.mask_secret, pair.self_seed, parties=MANY_PARTIES
            )
            assert parcels[holder] == by_hand
            secret = MANY_PARTIES[holder].sealing(dealer)
            assert open_parcel(SPARSE, dealer, holder, parcels[holder], secret) == pair
        for stranger in {*MANY} - {*holders}:
            for path, parcel in zip(paths, parcels.values(), strict=True):
                with pytest.raises(ForgedParcelError):
                    check_parcel(SPARSE, dealer, stranger, parcel, path, root)


def test_hospital_needs_to_know_only_what_its_neighbours_published_for_it():
    _, paths = keys_tree(SPARSE)
    for name in KEYED:
        view = view_of(name)
        assert view.digest == SPARSE.digest and view.holders(name) == SPARSE.holders(name)
        assert parcels_of(MANY_PARTIES[name], view) == SPARSE_PARCELS[name]
        view.check_listed(name, paths[name])
        for dealer in set(SPARSE.holders(name)) - {name}:
            secret = MANY_PARTIES[name].sealing(dealer)
            parcel = SPARSE_PARCELS[dealer][name]
            pair = open_parcel(view, dealer, name, parcel, secret)
            assert pair == deal(MANY_PARTIES[dealer], SPARSE)[name]
            assert view.mask_key(dealer, name) == SPARSE.mask_key(dealer, name)
            with pytest.raises(CryptoError, match=f"keys of '{dealer}' are not known"):
                view.check_listed(dealer, paths[dealer])
            for kind in KINDS:
                with pytest.raises(CryptoError, match='are not known'):
                    view.fits(dealer, kind, getattr(MANY_PARTIES[dealer], kind))
            for third in set(RING.peers(dealer)) - {name}:
                with pytest.raises(CryptoError, match='are not known'):
                    view.pair(dealer, third)


def test_pair_that_is_told_wrongly_is_found_when_a_parcel_is_opened():
    # So a lying aggregator makes no hospital mask, or deal, with keys that are nobody's.
    view = view_of(KEYED[0])
    name, dealer = KEYED[0], next(peer for peer in SPARSE.holders(KEYED[0]) if peer != KEYED[0])
    secret, parcel = MANY_PARTIES[name].sealing(dealer), SPARSE_PARCELS[dealer][name]
    fine = view.pairs[dealer, name]
    for wrong in (bytes([fine[0] ^ 1]) + fine[1:], fine[:-1] + bytes([fine[-1] ^ 1])):
        told = replace(view, pairs={**view.pairs, (dealer, name): wrong})
        assert told.digest == view.digest
        with pytest.raises(ForgedParcelError, match='sealed with other keys'):
            open_parcel(told, dealer, name, parcel, secret)


@pytest.mark.parametrize('kind', KINDS)
def test_as_many_neighbours_as_the_threshold_restore_a_secret_and_fewer_do_not(kind):
    for dealer in KEYED:
        secret = getattr(MANY_PARTIES[dealer], kind)
        holders = SPARSE.holders(dealer)
        dealt = deal(MANY_PARTIES[dealer], SPARSE)
        shares = {name: getattr(pair, kind) for name, pair in dealt.items()}
        for count in range(1, len(holders) + 1):
            for some in combinations(holders, count):
                part = {name: shares[name] for name in some}
                if count >= 3:
                    found = Recovery(3, holders, some).recover(part)
                    assert found == secret and SPARSE.fits(dealer, kind, found)
                    continue
                with pytest.raises(TooFewSharesError):
                    Recovery(3, holders, some)
                if count == 2:
                    # Along a line instead of a parabola they give another number.
                    with contextlib.suppress(ShareError):
                        found = Recovery(2, holders, some).recover(part)
                        assert found != secret and not SPARSE.fits(dealer, kind, found)


def test_hospital_without_enough_neighbours_deals_nothing():
    name = KEYED[0]
    for away in range(5):
        gone = RING.peers(name)[:away]
        keyed = {each: MANY_PARTIES[each] for each in KEYED if each not in gone}
        keys = list_of(keyed, graph=RING)
        holders = sorted(({*RING.peers(name)} - {*gone} | {name}) & {*keyed})
        assert list(keys.holders(name)) == holders
        if len(holders) >= 3:
            assert list(deal(MANY_PARTIES[name], keys)) == holders
            continue
        with pytest.raises(CryptoError, match=f'{len(holders)} members: expected 2 to'):
            deal(MANY_PARTIES[name], keys)


def test_shares_along_another_ring_are_refused_where_the_neighbours_differ():
    other = list_of(MANY_PARTIES, graph=ring_of(seed=b'\1' * 32))
    assert other.digest != SPARSE.digest
    changed = [name for name in KEYED if other.graph.peers(name) != RING.peers(name)]
    assert len(changed) > 5
    for name in changed:
        # What it published were keys for other peers.
        mixed = replace(other, keys={**other.keys, name: SPARSE.keys[name]})
        with pytest.raises(CryptoError, match='does not name us'):
            parcels_of(MANY_PARTIES[name], mixed)
        theirs = parcels_of(MANY_PARTIES[name], other)
        assert not {*theirs.values()} & {*SPARSE_PARCELS[name].values()}
        root, paths = slow_tree([*theirs.values()])
        for holder, path in zip(theirs, paths, strict=True):
            if holder not in SPARSE.holders(name):
                with pytest.raises(ForgedParcelError):
                    check_parcel(SPARSE, name, holder, theirs[holder], path, root)


def test_no_share_is_shown():
    texts = [repr(FINE), repr(KEYS), repr({TWO: FINE})]
    texts += [repr(parcel) for parcel in PARCELS[ONE].values()]
    for parcel, _ in bad_parcels():
        with pytest.raises(SealError) as caught:
            opened(parcel)
        texts += [str(caught.value), repr(caught.value)]
    for share in (FINE.mask_secret, FINE.self_seed):
        assert all(share.hex() not in text and repr(share)[2:-1] not in text for text in texts)
