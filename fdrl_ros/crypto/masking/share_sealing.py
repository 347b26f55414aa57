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

Two additions make dealers and holders accountable. The dealer signs each parcel, which also holds
a SHA-256 commitment to each of the two shares: a holder who later reveals another share is found.
Every pair of members has sealing keys of its own: a holder who cannot open a parcel reveals its
secret for that dealer, and everybody can check that the parcel is bad. This shows nothing of other
dealers' shares, but the holder's own two for that dealer: a hospital that complains sends no
update in that attempt, so nothing is masked by its secrets.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
import hashlib
import hmac
from types import MappingProxyType
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from fdrl_ros.crypto.keys.signing import SIGNATURE_BYTES, verify
from fdrl_ros.crypto.masking.round_secret import (
    AttemptSecrets,
    binding,
    check_public,
    derive,
    joined,
    KEY_BYTES,
    mask_secret_for,
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
_SIGNED_BYTES: Final = SEALED_BYTES + 2 * _DIGEST
PARCEL_BYTES: Final = _SIGNED_BYTES + SIGNATURE_BYTES
"""Sealed shares, commitments to the mask secret's and the self seed's share, signature."""

_KEYS = b'fdrl_ros list of keys 4'
_SEED_HASH = b'fdrl_ros self seed hash 1'
_SEALED = b'fdrl_ros sealed shares 2'
_PARCEL = b'fdrl_ros parcel of shares 1'
_COMMITMENTS = {
    'mask_secret': b'fdrl_ros commitment to a share of a mask secret 1',
    'self_seed': b'fdrl_ros commitment to a share of a self seed 1',
}
_NONCE = bytes(12)

Sign = Callable[[bytes], bytes]
"""Signs bytes with a hospital's long-term key, Ed25519."""


class SealError(CryptoError):
    """A parcel whose shares cannot be opened, or are not those that the dealer committed to."""


class ForgedParcelError(CryptoError):
    """A parcel that its dealer did not sign for this holder in this attempt."""


@dataclass(frozen=True)
class MemberKeys:
    """
    What a hospital publishes for one attempt.

    Keys of X25519 are joined, 32 bytes for each other hospital of the roster in the order of
    their names, so that each pair has keys of its own.

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
                f'{KEY_BYTES} for each other hospital'
            )
        if len(self.seed_hash) != _DIGEST:
            raise CryptoError(f'hash of the self seed: expected {_DIGEST} bytes')

    def check(self) -> None:
        """
        Refuse keys with which others could make no mask, or seal no shares.

        :raises CryptoError: if one is of small order.
        """
        for keys in (self.mask, self.sealing):
            for start in range(0, len(keys), KEY_BYTES):
                check_public(keys[start : start + KEY_BYTES])


@dataclass(frozen=True)
class KeyList:
    """
    All members who published keys for an attempt, and the threshold.

    :param federation: its name.
    :param round: round number, >= 0.
    :param attempt: attempt within the round, >= 0.
    :param threshold: t, how many members must agree, at least 2.
    :param hospitals: names of the roster's hospitals, whose order is that of the keys.
    :param keys: what each member published, from signed messages.
    :param terms: digest of everything else that members must agree on. A member with other terms
        has another list, and its shares and masks fit nobody's.
    :raises CryptoError: if they are fewer than the threshold, no hospitals of the roster, or one
        has not as many keys as there are other hospitals.
    """

    federation: str
    round: int
    attempt: int
    threshold: int
    hospitals: tuple[str, ...]
    keys: Mapping[str, MemberKeys]
    terms: bytes = b''

    def __post_init__(self) -> None:
        """Refuse a list that is too short for its threshold, or too long."""
        if type(self.threshold) is not int or not 2 <= self.threshold <= len(self.keys):
            raise CryptoError(f'{len(self.keys)} members for a threshold of {self.threshold!r}')
        if len({*self.hospitals}) != len(self.hospitals) or len(self.hospitals) > MOST_MEMBERS:
            raise CryptoError(
                f'{len(self.hospitals)} hospitals: at most {MOST_MEMBERS}, all different'
            )
        if strangers := sorted(self.keys.keys() - set(self.hospitals)):
            raise CryptoError(f'list of keys: {strangers[0]!r} is no hospital of the roster')
        for name, keys in self.keys.items():
            if len(keys.mask) != KEY_BYTES * (len(self.hospitals) - 1):
                raise CryptoError(f'list of keys: {name!r} has not one for each other hospital')
        # The digest must stay valid.
        object.__setattr__(self, 'keys', MappingProxyType(dict(self.keys)))
        object.__setattr__(self, 'hospitals', tuple(sorted(self.hospitals)))

    @cached_property
    def digest(self) -> bytes:
        """Return the SHA-256 digest of all fields."""
        every = ((name, self.keys[name]) for name in self.members)
        rows = (
            part
            for name, keys in every
            for part in (name.encode(), keys.mask, keys.sealing, keys.seed_hash)
        )
        names = joined(*(name.encode() for name in self.hospitals))
        threshold = self.threshold.to_bytes(8, 'big')
        data = binding(_KEYS, *self._place, threshold, names, self.terms, *rows)
        return hashlib.sha256(data).digest()

    @property
    def members(self) -> tuple[str, ...]:
        """Return the sorted names; a member's place is its position in them, from 1."""
        return tuple(sorted(self.keys))

    @cached_property
    def _places(self) -> dict[str, int]:
        return {name: place for place, name in enumerate(self.hospitals)}

    @property
    def _place(self) -> tuple[str, int, int]:
        return self.federation, self.round, self.attempt

    def mask_key(self, owner: str, peer: str) -> bytes:
        """Return a member's public key for the pair mask with a peer."""
        return self.keys[owner].mask[self._slice(owner, peer)]

    def sealing_key(self, owner: str, peer: str) -> bytes:
        """Return a member's public key for sealing and opening what goes to or from a peer."""
        return self.keys[owner].sealing[self._slice(owner, peer)]

    def _slice(self, owner: str, peer: str) -> slice:
        if owner == peer:
            raise CryptoError(f'{owner!r} has no key for itself')
        place = self._places[peer] - (self._places[peer] > self._places[owner])
        return slice(KEY_BYTES * place, KEY_BYTES * (place + 1))

    def check_owner(self, secrets: AttemptSecrets) -> None:
        """
        Check that the list names the public halves of these secrets.

        :raises CryptoError: if it does not.
        """
        place = (secrets.federation, secrets.round, secrets.attempt)
        ours = own_keys(secrets, self.hospitals)
        if place != self._place or self.keys.get(secrets.name) != ours:
            raise CryptoError(
                f'{secrets!r}: the list of keys is of another attempt, or does not name us'
            )

    def fits(self, owner: str, kind: str, secret: bytes) -> bool:
        """
        Tell whether a restored secret is the one behind what its owner published.

        :param kind: ``mask_secret`` or ``self_seed``.
        :param secret: 32 bytes.
        """
        if kind not in _COMMITMENTS:
            raise CryptoError(f'{kind!r} is no kind of secret')
        if len(secret) != KEY_BYTES:
            return False
        if kind == 'self_seed':
            return hmac.compare_digest(hash_of_seed(secret), self.keys[owner].seed_hash)
        peers = (name for name in self.hospitals if name != owner)
        halves = b''.join(mask_secret_for(secret, name).public for name in peers)
        return hmac.compare_digest(halves, self.keys[owner].mask)

    def bound(self, label: bytes, dealer: str, holder: str, *parts: bytes) -> bytes:
        """Bind something to this list and to one dealer's parcel for one holder."""
        start = self._starts.get(label)
        if start is None:
            start = self._starts[label] = binding(label, *self._place)
        ends = b''.join(
            self._named.get(each) or joined(each.encode()) for each in (dealer, holder)
        )
        bound = start + ends + self._own_digest
        return bound + joined(*parts) if parts else bound

    @cached_property
    def _starts(self) -> dict[bytes, bytes]:
        return {}

    @cached_property
    def _named(self) -> dict[str, bytes]:
        return {name: joined(name.encode()) for name in self.hospitals}

    @cached_property
    def _own_digest(self) -> bytes:
        return joined(self.digest)


def own_keys(secrets: AttemptSecrets, hospitals: Iterable[str]) -> MemberKeys:
    """
    Return what a hospital publishes of its secrets.

    :param hospitals: names of the roster's hospitals.
    """
    peers = sorted(name for name in hospitals if name != secrets.name)
    return MemberKeys(
        b''.join(secrets.mask(name).public for name in peers),
        b''.join(secrets.sealing(name).public for name in peers),
        hash_of_seed(secrets.self_seed),
    )


def hash_of_seed(seed: bytes) -> bytes:
    """Return the SHA-256 by which a self seed that was put together from shares is known."""
    return hashlib.sha256(_SEED_HASH + seed).digest()


def deal(secrets: AttemptSecrets, keys: KeyList) -> dict[str, SharePair]:
    """
    Split our two secrets among all members, ourselves included.

    :returns: each member's pair, in the order of the names.
    :raises CryptoError: if our keys are not in the list.
    """
    keys.check_owner(secrets)
    threshold, members = keys.threshold, keys.members
    masks, seeds = (
        share(secret, threshold, members, polynomial(threshold, keys.digest))
        for secret, polynomial in (
            (secrets.mask_secret, secrets.mask_polynomial),
            (secrets.self_seed, secrets.self_polynomial),
        )
    )
    return {name: SharePair(masks[name], seeds[name]) for name in members}


def seal_shares(secrets: AttemptSecrets, keys: KeyList, sign: Sign) -> dict[str, bytes]:
    """
    Split our two secrets among all members, and make a signed parcel for each holder.

    The parcel for ourselves holds commitments alone: nobody has to open it.

    :returns: :data:`PARCEL_BYTES` for every member, in the order of the names; equal lists give
        equal parcels.
    :raises CryptoError: if our keys are not in the list.
    """
    return {
        name: seal_pair(secrets, keys, name, pair, sign)
        for name, pair in deal(secrets, keys).items()
    }


def seal_pair(
    secrets: AttemptSecrets, keys: KeyList, holder: str, pair: SharePair, sign: Sign
) -> bytes:
    """
    Seal one holder's shares, commit to them, and sign both.

    Call :func:`seal_shares` instead: another pair under the same keys would repeat a nonce.
    """
    dealer, sealed = secrets.name, bytes(SEALED_BYTES)
    if holder != dealer:
        secret = secrets.sealing(holder)
        key, context = _direction_key(keys, dealer, holder, secret, at=holder)
        sealed = ChaCha20Poly1305(key).encrypt(_NONCE, pair.mask_secret + pair.self_seed, context)
    body = sealed + b''.join(_commitments(keys, dealer, holder, pair))
    return body + sign(keys.bound(_PARCEL, dealer, holder, body))


def check_parcel(keys: KeyList, dealer: str, holder: str, parcel: bytes, public: bytes) -> None:
    """
    Check that a parcel is the dealer's own.

    :param public: the dealer's long-term key, as the roster has it.
    :raises ForgedParcelError: if the dealer did not sign it for this holder and list of keys.
    """
    body, signature = parcel[:_SIGNED_BYTES], parcel[_SIGNED_BYTES:]
    signed = keys.bound(_PARCEL, dealer, holder, body)
    if len(parcel) != PARCEL_BYTES or not verify(public, signature, signed):
        raise ForgedParcelError(f'parcel of {dealer!r} for {holder!r}: not signed by its dealer')


def open_parcel(
    keys: KeyList, dealer: str, holder: str, parcel: bytes, secret: RoundSecret
) -> SharePair:
    """
    Open a parcel with the holder's secret for its dealer.

    :param parcel: of :func:`check_parcel`.
    :param secret: its public half is in the list of keys.
    :raises SealError: if the dealer sealed no valid shares, or others than it committed to.
    :raises CryptoError: if the secret is not the one in the list.
    """
    if secret.public != keys.sealing_key(holder, dealer):
        raise CryptoError(f'the secret of {holder!r} for {dealer!r} is not that of its key')
    sealed, commitments = parcel[:SEALED_BYTES], parcel[SEALED_BYTES:_SIGNED_BYTES]
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
