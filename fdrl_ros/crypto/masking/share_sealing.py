# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Seal shares so that only their holder can read them (Bonawitz et al. 2017, round 1).

X25519 and HKDF-SHA256 give two members one key for each direction, and ChaCha20-Poly1305 seals the
pair of shares under it. The key is bound to federation, round, attempt, sender, addressee and the
list of all keys with the threshold. The sender's shares follow from its seed alone, whose public
halves are in that list. So each key seals one message only, and sealing it again, as after a
restart, gives the same bytes. That makes the fixed nonce safe; a random nonce would only add
bytes. For this reason the module deals and seals in one step and does not seal other messages.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
import hashlib
from types import MappingProxyType
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from fdrl_ros.crypto.masking.round_secret import AttemptSecrets, binding, check_public, derive
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

_KEYS = b'fdrl_ros list of keys 2'
_SEALED = b'fdrl_ros sealed shares 1'
_NONCE = bytes(12)


class SealError(CryptoError):
    """Sealed shares that this sender did not seal for us in this attempt."""


@dataclass(frozen=True)
class MemberKeys:
    """
    The public keys that a member publishes for one attempt.

    :param mask: X25519 key for pair masks, 32 bytes.
    :param sealing: X25519 key for sealing shares, 32 bytes.
    :raises CryptoError: if one is malformed or of small order.
    """

    mask: bytes
    sealing: bytes

    def __post_init__(self) -> None:
        """Refuse keys on which other members would fail."""
        check_public(self.mask)
        check_public(self.sealing)


@dataclass(frozen=True)
class KeyList:
    """
    All members who published keys for an attempt, and the threshold.

    :param federation: its name.
    :param round: round number, >= 0.
    :param attempt: attempt within the round, >= 0.
    :param threshold: t, how many members must agree, at least 2.
    :param keys: names and public halves, from signed messages.
    :param terms: digest of everything else that members must agree on. A member with other terms
        has another list, and its shares and masks fit nobody's.
    :raises CryptoError: if they are fewer than the threshold, or a key comes twice.
    """

    federation: str
    round: int
    attempt: int
    threshold: int
    keys: Mapping[str, MemberKeys]
    terms: bytes = b''

    def __post_init__(self) -> None:
        """Refuse a list that is too short for its threshold, too long, or repeats a key."""
        if type(self.threshold) is not int or not 2 <= self.threshold <= len(self.keys):
            raise CryptoError(f'{len(self.keys)} members for a threshold of {self.threshold!r}')
        if len(self.keys) > MOST_MEMBERS:
            raise CryptoError(f'{len(self.keys)} members: expected at most {MOST_MEMBERS}')
        every = {key for pair in self.keys.values() for key in (pair.mask, pair.sealing)}
        if len(every) != 2 * len(self.keys):
            raise CryptoError('list of keys: a key comes twice')
        # The digest must stay valid.
        object.__setattr__(self, 'keys', MappingProxyType(dict(self.keys)))

    @cached_property
    def digest(self) -> bytes:
        """Return the SHA-256 digest of all fields."""
        rows = (
            part
            for name in self.members
            for part in (name.encode(), self.keys[name].mask, self.keys[name].sealing)
        )
        threshold = self.threshold.to_bytes(8, 'big')
        place = (self.federation, self.round, self.attempt)
        data = binding(_KEYS, *place, threshold, self.terms, *rows)
        return hashlib.sha256(data).digest()

    @property
    def members(self) -> tuple[str, ...]:
        """Return the sorted names; a member's place is its position in them, from 1."""
        return tuple(sorted(self.keys))

    def check_owner(self, secrets: AttemptSecrets) -> None:
        """
        Check that the list names the public halves of these secrets.

        :raises CryptoError: if it does not.
        """
        place = (secrets.federation, secrets.round, secrets.attempt)
        listed = self.keys.get(secrets.name)
        ours = (secrets.mask.public, secrets.sealing.public)
        names_us = listed is not None and (listed.mask, listed.sealing) == ours
        if place != (self.federation, self.round, self.attempt) or not names_us:
            raise CryptoError(
                f'{secrets!r}: the list of keys is of another attempt, or does not name us'
            )


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
            (secrets.mask.to_bytes(), secrets.mask_polynomial),
            (secrets.self_seed, secrets.self_polynomial),
        )
    )
    return {name: SharePair(masks[name], seeds[name]) for name in members}


def seal_shares(secrets: AttemptSecrets, keys: KeyList) -> dict[str, bytes]:
    """
    Split our two secrets among all members, and seal each pair of shares for its holder.

    :returns: a message of :data:`SEALED_BYTES` for every other member; equal lists give equal
        messages.
    :raises CryptoError: if our keys are not in the list.
    """
    sealed = {}
    for name, pair in deal(secrets, keys).items():
        if name != secrets.name:
            key, context = direction_key(secrets, keys, name, sender=secrets.name, addressee=name)
            message = pair.mask_secret + pair.self_seed
            sealed[name] = ChaCha20Poly1305(key).encrypt(_NONCE, message, context)
    return sealed


def open_shares(secrets: AttemptSecrets, keys: KeyList, sender: str, sealed: bytes) -> SharePair:
    """
    Open the shares that another member sealed for us.

    :param sender: its name, from the signed message.
    :param sealed: untrusted bytes.
    :raises SealError: if these are not shares that the sender sealed for us.
    :raises CryptoError: if our keys are not in the list.
    """
    keys.check_owner(secrets)
    if sender not in keys.keys or sender == secrets.name:
        raise SealError(f'sealed shares from {sender!r}: expected another member of the list')
    if not isinstance(sealed, bytes) or len(sealed) != SEALED_BYTES:
        raise SealError(f'sealed shares from {sender!r}: expected {SEALED_BYTES} bytes')
    key, context = direction_key(secrets, keys, sender, sender=sender, addressee=secrets.name)
    try:
        message = ChaCha20Poly1305(key).decrypt(_NONCE, sealed, context)
        pair = SharePair(message[:SHARE_BYTES], message[SHARE_BYTES:])
        share_value(secrets.name, pair.mask_secret)
        share_value(secrets.name, pair.self_seed)
    except InvalidTag as error:
        raise SealError(
            f'sealed shares from {sender!r}: changed, or not sealed for us in this attempt'
        ) from error
    except ShareError as error:
        raise SealError(f'sealed shares from {sender!r}: {error}') from error
    return pair


def direction_key(
    secrets: AttemptSecrets, keys: KeyList, peer: str, *, sender: str, addressee: str
) -> tuple[bytes, bytes]:
    """Return the key of one direction and its context, which is authenticated too."""
    place = (keys.federation, keys.round, keys.attempt)
    context = binding(_SEALED, *place, sender.encode(), addressee.encode(), keys.digest)
    return derive(secrets.sealing.agree(keys.keys[peer].sealing), context), context
