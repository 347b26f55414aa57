# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Seal shares so that only their holder can read them, and everybody can judge a complaint.

As in round 1 of Bonawitz et al. (2017), X25519 and HKDF-SHA256 give two members one key for each
direction, and ChaCha20-Poly1305 seals the pair of shares under it. The key is bound to federation,
round, attempt, dealer, holder and the list of all keys with the threshold. The dealer's shares
follow from its seed alone, whose public halves are in that list. So each key seals one message
only, and sealing it again, as after a restart, gives the same bytes. That makes the fixed nonce
safe; a random nonce would only add bytes. For this reason the module deals and seals in one step
and does not seal other messages.

Two additions make dealers and holders accountable. A parcel also holds a SHA-256 commitment to
each of the two shares: a holder who later reveals another share is found. The dealer signs the
root of a hash tree over its parcels, so that each of them is its word. Every pair of members has
sealing keys of its own: a holder who cannot open a parcel reveals its secret for that dealer, and
everybody can check that the parcel is bad. This shows nothing of other dealers' shares, but the
holder's own two for that dealer: a hospital that complains sends no update in that attempt, so
nothing is masked by its secrets.
"""

from bisect import bisect_left
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
import hashlib
import hmac
from types import MappingProxyType
from typing import Final, Self

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from fdrl_ros.crypto.masking.buckets import Buckets
from fdrl_ros.crypto.masking.merkle import path_bytes, root_and_paths, root_of
from fdrl_ros.crypto.masking.neighbourhoods import Neighbourhoods
from fdrl_ros.crypto.masking.round_secret import (
    AttemptSecrets,
    binding,
    check_public,
    derive,
    joined,
    joined_names,
    KEY_BYTES,
    mask_secret_for,
    prefixed,
    RoundSecret,
)
from fdrl_ros.crypto.masking.sharing import (
    MOST_MEMBERS,
    share,
    SHARE_BYTES,
    share_value,
    ShareError,
    SharePair,
)
from fdrl_ros.errors import CryptoError

# Two shares and the authenticator: every sealed message has this size.
SEALED_BYTES: Final = 2 * SHARE_BYTES + 16
_DIGEST: Final = 32
PARCEL_BYTES: Final = SEALED_BYTES + 3 * _DIGEST
"""Sealed shares, commitments to the mask secret's and the self seed's share, digest of keys."""
PAIR_BYTES: Final = 2 * KEY_BYTES
"""A member's two public keys for one peer: for the mask, and for sealing."""

_KEYS = b'fdrl_ros list of keys 5'
_ENDS = b'fdrl_ros keys of both ends of a parcel 1'
_SEED_HASH = b'fdrl_ros self seed hash 1'
_SEALED = b'fdrl_ros sealed shares 2'
_COMMITMENTS = {
    'mask_secret': b'fdrl_ros commitment to a share of a mask secret 1',
    'self_seed': b'fdrl_ros commitment to a share of a self seed 1',
}
_NONCE = bytes(12)


class SealError(CryptoError):
    """A parcel whose shares cannot be opened, or are not those that the dealer committed to."""


class ForgedParcelError(CryptoError):
    """A parcel that its dealer did not sign for this holder in this attempt."""


@dataclass(frozen=True)
class MemberKeys:
    """
    What a hospital publishes for one attempt.

    Keys of X25519 are joined, 32 bytes for each peer in the order of their names, so that each
    pair has keys of its own. Peers are the other hospitals of the roster, or the neighbours.

    :param mask: keys for pair masks.
    :param sealing: keys for sealing shares.
    :param seed_hash: SHA-256 of its self seed, 32 bytes.
    :raises CryptoError: if they are of other sizes.
    """

    mask: bytes
    sealing: bytes
    seed_hash: bytes

    def __post_init__(self) -> None:
        """Refuse other sizes."""
        if len(self.mask) != len(self.sealing) or len(self.mask) % KEY_BYTES or not self.mask:
            raise CryptoError(
                f'round keys: {len(self.mask)} and {len(self.sealing)} bytes, expected '
                f'{KEY_BYTES} for each peer'
            )
        if len(self.seed_hash) != _DIGEST:
            raise CryptoError(f'hash of the self seed: expected {_DIGEST} bytes')

    @cached_property
    def tree(self) -> tuple[bytes, list[bytes]]:
        """Return root and paths of the hash tree over the pairs of keys, one leaf a peer."""
        peers = len(self.mask) // KEY_BYTES
        return root_and_paths([self.pair(place) for place in range(peers)])

    @property
    def root(self) -> bytes:
        """Return the root of that tree, which the member signs, 32 bytes."""
        return self.tree[0]

    def leaf(self, name: str) -> bytes:
        """Return what stands for these keys in the hash tree over those of all members."""
        return joined(name.encode(), self.root, self.seed_hash)

    def pair(self, place: int) -> bytes:
        """Return the two keys for the peer at a place, :data:`PAIR_BYTES`."""
        at = slice(KEY_BYTES * place, KEY_BYTES * (place + 1))
        return self.mask[at] + self.sealing[at]

    def check(self) -> None:
        """
        Refuse keys with which others could make no mask, or seal no shares.

        :raises CryptoError: if one is of small order.
        """
        for keys in (self.mask, self.sealing):
            for start in range(0, len(keys), KEY_BYTES):
                check_public(keys[start : start + KEY_BYTES])


def tree_of_keys(keys: Mapping[str, MemberKeys]) -> tuple[bytes, dict[str, bytes]]:
    """
    Return root and paths of the hash tree over what all members published.

    :param keys: of all members.
    :returns: the digest of all keys that members agree on, and by name what shows that a
        member's own keys are in it.
    """
    names = sorted(keys)
    root, paths = root_and_paths([keys[name].leaf(name) for name in names])
    return root, dict(zip(names, paths, strict=True))


@dataclass(frozen=True)
class KeyList:
    """
    All members who published keys for an attempt, and who of them masks with whom.

    The servers know the keys of all members, a hospital those that its peers made for it.

    :param federation: its name.
    :param round: round number, >= 0.
    :param attempt: attempt within the round, >= 0.
    :param graph: peers of each hospital of the roster, in the order of whose names its keys are.
    :param members: names of who published keys, sorted.
    :param keys_digest: of all their keys, the root of :func:`tree_of_keys`.
    :param terms: digest of everything else that members must agree on. A member with other terms
        has another list, and its shares and masks fit nobody's.
    :param keys: what members published, of whom it is known.
    :param pairs: by owner and peer the two keys that are known besides, :data:`PAIR_BYTES`.
    :param buckets: members mask with those peers alone that are in the same one; all if empty.
    :raises CryptoError: if members are fewer than the threshold, no hospitals of the roster, or
        one has not as many keys as it has peers.
    """

    federation: str
    round: int
    attempt: int
    graph: Neighbourhoods
    members: tuple[str, ...]
    keys_digest: bytes
    terms: bytes = b''
    keys: Mapping[str, MemberKeys] = field(default_factory=dict)
    pairs: Mapping[tuple[str, str], bytes] = field(default_factory=dict)
    buckets: Buckets = ()

    def __post_init__(self) -> None:
        """Refuse a list that is too short for its threshold, or too long."""
        graph, threshold, members = self.graph, self.graph.threshold, set(self.members)
        if type(threshold) is not int or not 2 <= threshold <= len(members):
            raise CryptoError(f'{len(members)} members for a threshold of {threshold!r}')
        if len({*graph.hospitals}) != len(graph.hospitals) or len(graph.hospitals) > MOST_MEMBERS:
            raise CryptoError(
                f'{len(graph.hospitals)} hospitals: at most {MOST_MEMBERS}, all different'
            )
        if strangers := sorted((members | self.keys.keys()) - set(graph.hospitals)):
            raise CryptoError(f'list of keys: {strangers[0]!r} is no hospital of the roster')
        for name, keys in self.keys.items():
            if len(keys.mask) != KEY_BYTES * graph.degree:
                raise CryptoError(f'list of keys: {name!r} has not one for each peer')
        # The digest must stay valid.
        object.__setattr__(self, 'keys', MappingProxyType(dict(self.keys)))
        object.__setattr__(self, 'members', tuple(sorted(members)))

    @classmethod
    def of(
        cls,
        federation: str,
        round: int,
        attempt: int,
        graph: Neighbourhoods,
        keys: Mapping[str, MemberKeys],
        terms: bytes = b'',
        buckets: Buckets = (),
    ) -> Self:
        """Put the list together from what all members published."""
        if not keys:
            raise CryptoError('a list without keys')
        root, _ = tree_of_keys(keys)
        agreed = tuple(keys), root, terms
        return cls(federation, round, attempt, graph, *agreed, keys, buckets=buckets)

    @cached_property
    def digest(self) -> bytes:
        """Return the SHA-256 digest of all that the members agree on."""
        hospitals, members = joined_names(self.graph.hospitals), joined_names(self.members)
        threshold = self.threshold.to_bytes(8, 'big')
        agreed = (threshold, hospitals, self.terms, members, self.keys_digest)
        return hashlib.sha256(binding(_KEYS, *self._place, *agreed)).digest()

    @property
    def threshold(self) -> int:
        """Return t, how many shares restore a secret, at least 2."""
        return self.graph.threshold

    def holders(self, dealer: str) -> tuple[str, ...]:
        """
        Return who has shares of a member's secrets: its peers with keys, and itself, in order.

        A holder's place is its position in them, from 1. Who holds shares of a member is also
        whose shares that member holds.
        """
        if dealer not in self._holders:
            self._holders[dealer] = self.graph.holders(dealer, self._named_members)
        return self._holders[dealer]

    @cached_property
    def rooms(self) -> dict[str, int]:
        """Return how many holders each hospital has."""
        return self.graph.holder_counts(self._named_members)

    def masking(self, name: str, among: Collection[str]) -> tuple[str, ...]:
        """
        Return who masks with a member, and itself, in order: its peers that are in its bucket.

        :param among: a set of hospitals to which all of them belong.
        """
        peers = self.graph.holders(name, among)
        if not self.buckets:
            return peers
        bucket = next((each for each in self.buckets if name in each), (name,))
        return tuple(each for each in peers if each in bucket)

    @cached_property
    def _named_members(self) -> frozenset[str]:
        return frozenset(self.members)

    @cached_property
    def _holders(self) -> dict[str, tuple[str, ...]]:
        return {}

    @property
    def _place(self) -> tuple[str, int, int]:
        return self.federation, self.round, self.attempt

    def mask_key(self, owner: str, peer: str) -> bytes:
        """
        Return a member's public key for the pair mask with a peer.

        :raises CryptoError: if they are no peers, or it is not known.
        """
        return self.pair(owner, peer)[:KEY_BYTES]

    def sealing_key(self, owner: str, peer: str) -> bytes:
        """Return a member's public key for sealing and opening what goes to or from a peer."""
        return self.pair(owner, peer)[KEY_BYTES:]

    def ends(self, dealer: str, holder: str) -> bytes:
        """
        Return the SHA-256 over the keys with which a parcel is sealed, those of both its ends.

        It is a part of the parcel, so that a dealer signs whose keys it took for the holder's.

        :returns: zeros for the parcel of a dealer for itself, which is not sealed.
        """
        if dealer == holder:
            return bytes(_DIGEST)
        both = self.pair(dealer, holder) + self.pair(holder, dealer)
        return hashlib.sha256(_ENDS + both).digest()

    def check_listed(self, owner: str, path: bytes) -> None:
        """
        Check that what a member published is what all agree on.

        :param path: of the member in the hash tree over all keys.
        :raises CryptoError: if it is not, or it is not known what it published.
        """
        place = bisect_left(self.members, owner)
        if (
            self.members[place : place + 1] != (owner,)
            or len(path) != path_bytes(len(self.members))
            or root_of(self._published(owner).leaf(owner), place, path) != self.keys_digest
        ):
            raise CryptoError(f'the list of keys does not name {owner!r} with its keys')

    def pair(self, owner: str, peer: str) -> bytes:
        """Return both keys that a member published for a peer, :data:`PAIR_BYTES`."""
        place = self.graph.place(owner, peer)
        if owner in self.keys:
            return self.keys[owner].pair(place)
        if (owner, peer) not in self.pairs:
            raise CryptoError(f'the keys of {owner!r} for {peer!r} are not known')
        return self.pairs[owner, peer]

    def _published(self, owner: str) -> MemberKeys:
        if owner not in self.keys:
            raise CryptoError(f'the keys of {owner!r} are not known')
        return self.keys[owner]

    def check_owner(self, secrets: AttemptSecrets) -> None:
        """
        Check that the list names the public halves of these secrets.

        :raises CryptoError: if it does not.
        """
        place = (secrets.federation, secrets.round, secrets.attempt)
        ours = own_keys(secrets, self.graph)
        if place != self._place or self.keys.get(secrets.name) != ours:
            raise CryptoError(
                f'{secrets!r}: the list of keys is of another attempt, or does not name us'
            )

    def fits(self, owner: str, kind: str, secret: bytes) -> bool:
        """
        Tell whether a restored secret is the one behind what its owner published.

        :param kind: ``mask_secret`` or ``self_seed``.
        :param secret: 32 bytes.
        :raises CryptoError: if it is not known what the owner published.
        """
        if kind not in _COMMITMENTS:
            raise CryptoError(f'{kind!r} is no kind of secret')
        if len(secret) != KEY_BYTES:
            return False
        if kind == 'self_seed':
            return hmac.compare_digest(hash_of_seed(secret), self._published(owner).seed_hash)
        peers = self.graph.peers(owner)
        halves = b''.join(mask_secret_for(secret, name).public for name in peers)
        return hmac.compare_digest(halves, self._published(owner).mask)

    def bound(self, label: bytes, dealer: str, holder: str, *parts: bytes) -> bytes:
        """Bind something to this list and to one dealer's parcel for one holder."""
        start = self._starts.get(label)
        if start is None:
            start = self._starts[label] = binding(label, *self._place)
        bound = start + prefixed(dealer) + prefixed(holder) + self._own_digest
        return bound + joined(*parts) if parts else bound

    @cached_property
    def _starts(self) -> dict[bytes, bytes]:
        return {}

    @cached_property
    def _own_digest(self) -> bytes:
        return joined(self.digest)


def own_keys(secrets: AttemptSecrets, graph: Neighbourhoods) -> MemberKeys:
    """Return what a hospital publishes of its secrets: keys for each of its peers."""
    peers = graph.peers(secrets.name)
    return MemberKeys(
        b''.join(secrets.mask(name).public for name in peers),
        b''.join(secrets.sealing(name).public for name in peers),
        hash_of_seed(secrets.self_seed),
    )


def hash_of_seed(seed: bytes) -> bytes:
    """Return the SHA-256 by which a self seed that was put together from shares is known."""
    return hashlib.sha256(_SEED_HASH + seed).digest()


def deal(secrets: AttemptSecrets, keys: KeyList, only: str | None = None) -> dict[str, SharePair]:
    """
    Split our two secrets among our holders, ourselves included.

    :param only: the holder whose pair is wanted; those of all unless given.
    :returns: each holder's pair, in the order of the names.
    :raises CryptoError: if our keys are not in the list, or there are too few holders.
    """
    keys.check_owner(secrets)
    threshold, members = keys.threshold, keys.holders(secrets.name)
    masks, seeds = (
        share(secret, threshold, members, polynomial(threshold, keys.digest), only)
        for secret, polynomial in (
            (secrets.mask_secret, secrets.mask_polynomial),
            (secrets.self_seed, secrets.self_polynomial),
        )
    )
    return {name: SharePair(masks[name], seeds[name]) for name in masks}


def seal_shares(secrets: AttemptSecrets, keys: KeyList) -> dict[str, bytes]:
    """
    Split our two secrets among our holders, and make a parcel for each of them.

    The parcel for ourselves holds commitments alone: nobody has to open it.

    :returns: :data:`PARCEL_BYTES` for every holder, in the order of the names; equal lists give
        equal parcels.
    :raises CryptoError: if our keys are not in the list.
    """
    return {
        name: seal_pair(secrets, keys, name, pair) for name, pair in deal(secrets, keys).items()
    }


def seal_pair(secrets: AttemptSecrets, keys: KeyList, holder: str, pair: SharePair) -> bytes:
    """
    Seal one holder's shares, and commit to them.

    Call :func:`seal_shares` instead: another pair under the same keys would repeat a nonce.
    """
    dealer, sealed = secrets.name, bytes(SEALED_BYTES)
    if holder != dealer:
        secret = secrets.sealing(holder)
        key, context = _direction_key(keys, dealer, holder, secret, at=holder)
        sealed = ChaCha20Poly1305(key).encrypt(_NONCE, pair.mask_secret + pair.self_seed, context)
    ends = keys.ends(dealer, holder)
    return sealed + b''.join(_commitments(keys, dealer, holder, pair)) + ends


def check_parcel(
    keys: KeyList, dealer: str, holder: str, parcel: bytes, path: bytes, root: bytes
) -> None:
    """
    Check that a parcel is the dealer's own.

    :param path: of the parcel in the hash tree over the dealer's parcels.
    :param root: of that tree, which the dealer signed for this list of keys, 32 bytes.
    :raises ForgedParcelError: if the tree has another parcel for this holder.
    """
    holders = keys.holders(dealer)
    place = bisect_left(holders, holder)
    if (
        holders[place : place + 1] != (holder,)
        or len(parcel) != PARCEL_BYTES
        or len(path) != path_bytes(len(holders))
        or not hmac.compare_digest(root_of(parcel, place, path), root)
    ):
        raise ForgedParcelError(f'parcel of {dealer!r} for {holder!r}: not signed by its dealer')


def check_ends(keys: KeyList, dealer: str, holder: str, parcel: bytes) -> None:
    """
    Check that a parcel says that it was sealed with the keys in the list.

    :raises ForgedParcelError: if not.
    """
    if parcel[-_DIGEST:] != keys.ends(dealer, holder):
        raise ForgedParcelError(f'parcel of {dealer!r} for {holder!r}: sealed with other keys')


def open_parcel(
    keys: KeyList, dealer: str, holder: str, parcel: bytes, secret: RoundSecret
) -> SharePair:
    """
    Open a parcel with the holder's secret for its dealer.

    :param parcel: of :func:`check_parcel`.
    :param secret: its public half is in the list of keys.
    :raises SealError: if the dealer sealed no valid shares, or others than it committed to.
    :raises ForgedParcelError: if it was sealed with other keys than those in the list.
    :raises CryptoError: if the secret is not the one in the list.
    """
    check_ends(keys, dealer, holder, parcel)
    if secret.public != keys.sealing_key(holder, dealer):
        raise CryptoError(f'the secret of {holder!r} for {dealer!r} is not that of its key')
    sealed, commitments = parcel[:SEALED_BYTES], parcel[SEALED_BYTES:-_DIGEST]
    key, context = _direction_key(keys, dealer, holder, secret, at=dealer)
    try:
        message = ChaCha20Poly1305(key).decrypt(_NONCE, sealed, context)
        pair = SharePair(message[:SHARE_BYTES], message[SHARE_BYTES:])
        share_value(holder, pair.mask_secret)
        share_value(holder, pair.self_seed)
    except InvalidTag as error:
        raise SealError(f'shares of {dealer!r} for {holder!r}: not sealed in this way') from error
    except ShareError as error:
        raise SealError(f'shares of {dealer!r} for {holder!r}: {error}') from error
    if b''.join(_commitments(keys, dealer, holder, pair)) != commitments:
        raise SealError(f'shares of {dealer!r} for {holder!r}: others than it committed to')
    return pair


def is_committed(
    keys: KeyList, dealer: str, holder: str, parcel: bytes, kind: str, revealed: bytes
) -> bool:
    """
    Tell whether a revealed share is the one that its dealer committed to.

    :param parcel: of :func:`check_parcel`.
    :param kind: ``mask_secret`` or ``self_seed``.
    """
    start = SEALED_BYTES + _DIGEST * list(_COMMITMENTS).index(kind)
    told = parcel[start : start + _DIGEST]
    return hmac.compare_digest(told, _commitment(keys, dealer, holder, kind, revealed))


def _commitments(keys: KeyList, dealer: str, holder: str, pair: SharePair) -> list[bytes]:
    return [_commitment(keys, dealer, holder, kind, getattr(pair, kind)) for kind in _COMMITMENTS]


def _commitment(keys: KeyList, dealer: str, holder: str, kind: str, data: bytes) -> bytes:
    """Return the SHA-256 over a share, which hides it: a share has 256 bits of entropy."""
    return hashlib.sha256(keys.bound(_COMMITMENTS[kind], dealer, holder, data)).digest()


def _direction_key(
    keys: KeyList, dealer: str, holder: str, secret: RoundSecret, *, at: str
) -> tuple[bytes, bytes]:
    """
    Return the key of one direction and its context, which is authenticated too.

    :param secret: of one end, for the other one.
    :param at: the other end.
    """
    context = keys.bound(_SEALED, dealer, holder)
    own = holder if at == dealer else dealer
    return derive(secret.agree(keys.sealing_key(at, own)), context), context
