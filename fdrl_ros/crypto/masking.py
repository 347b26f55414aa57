# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Pair masks that cancel in the sum over all members (FDRL Eq. 6; Bonawitz et al. 2017).

Two members agree on a key by X25519 and HKDF-SHA256, stretch it with AES-256-CTR into
integers uniform modulo the plaintext modulus, and the one whose name sorts lower adds
them while the other subtracts them. The sum over all members is exact, and a proper part of it is
computationally indistinguishable from uniform noise.
"""

from collections.abc import Collection, Mapping
from typing import Final, Self

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from fdrl_ros.errors import CryptoError
import numpy as np
from numpy.typing import NDArray

KEY_BYTES: Final = 32

_PAIR_MASK = b'fdrl_ros pair mask 1'


class RoundSecret:
    """
    One hospital's X25519 secret of one round; its public half goes to all members.

    Drawn afresh each round and never reused: with it, whoever holds the other public
    halves can remove the hospital's pair masks of that round. It lives in memory only.
    """

    def __init__(self, private: X25519PrivateKey) -> None:
        """Take a key; :meth:`generate` is the usual way."""
        self._private = private
        self.public: bytes = private.public_key().public_bytes_raw()

    def __repr__(self) -> str:
        """Show the public half only."""
        return f'RoundSecret(public={self.public.hex()})'

    @classmethod
    def generate(cls) -> Self:
        """Draw a secret from the operating system's randomness."""
        return cls(X25519PrivateKey.generate())

    def agree(self, their_public: bytes) -> bytes:
        """
        Return the raw X25519 secret shared with a peer: input for a key derivation only.

        :raises CryptoError: on a malformed key, our own key sent back, or a key of small
            order, which would make the result known to everybody.
        """
        if not isinstance(their_public, bytes) or len(their_public) != KEY_BYTES:
            raise CryptoError(f'round key: expected {KEY_BYTES} bytes')
        if their_public == self.public:
            raise CryptoError('round key: a peer sent our own key back')
        try:
            shared = self._private.exchange(X25519PublicKey.from_public_bytes(their_public))
        except ValueError as error:
            raise CryptoError(
                'round key of small order: the shared secret would be zero'
            ) from error
        if not any(shared):
            raise CryptoError('round key of small order: the shared secret would be zero')
        return shared


def pair_key(
    secret: RoundSecret,
    their_public: bytes,
    *,
    federation: str,
    round: int,
    attempt: int,
    mine: str,
    theirs: str,
    members: Collection[str],
) -> bytes:
    """
    Derive the key of one pair's mask; both ends derive the same.

    Bound to the member set too: were two hospitals told of different members, their masks
    would not cancel, and the sum is lost instead of a difference of sums being leaked.

    :param their_public: the peer's :attr:`RoundSecret.public`, from a signed message.
    :param round: round number, >= 0.
    :param attempt: attempt within the round, >= 0.
    :param members: names of all members of this attempt, in any order.
    :returns: 32 bytes, for one call of :func:`mask`.
    :raises CryptoError: on a bad key, or names that are no pair of these members.
    """
    if mine == theirs:
        raise CryptoError(f'{mine!r} cannot make a pair with itself')
    if len(set(members)) != len(members) or not {mine, theirs} <= set(members):
        raise CryptoError(f'{mine!r} and {theirs!r}: expected two of the members {members!r}')
    if not (0 <= round < 2**64 and 0 <= attempt < 2**64):
        raise CryptoError(f'round {round!r}, attempt {attempt!r}: expected numbers from 0')
    shared = secret.agree(their_public)
    ends = sorted([(mine.encode(), secret.public), (theirs.encode(), their_public)])
    parts = [
        _PAIR_MASK,
        federation.encode(),
        round.to_bytes(8, 'big'),
        attempt.to_bytes(8, 'big'),
        *(part for end in ends for part in end),
        *sorted(name.encode() for name in members),
    ]
    # Each part is preceded by its length, so that no two lists of parts read the same.
    info = b''.join(len(part).to_bytes(4, 'big') + part for part in parts)
    derivation = HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=None, info=info)
    return derivation.derive(shared)


def mask(key: bytes, count: int, modulus: int) -> NDArray[np.int64]:
    """
    Stretch a key into integers uniform in [0, modulus).

    Words of 64 bits come from AES-256-CTR; those above the largest multiple of the modulus
    are rejected, so that the remainder is exactly uniform. A key is for one mask: a longer
    mask begins with the shorter one.

    :param key: 32 bytes, of :func:`pair_key` or a self-mask seed.
    :param count: how many integers.
    :param modulus: plaintext modulus t, 2 to 2^62.
    :returns: shape (count,).
    :raises CryptoError: if an argument does not fit.
    """
    if not isinstance(key, bytes) or len(key) != KEY_BYTES:
        raise CryptoError(f'mask key: expected {KEY_BYTES} bytes')
    if count < 0 or not 2 <= modulus <= 2**62:
        raise CryptoError(f'count {count!r}, modulus {modulus!r}: expected >= 0, 2 to 2^62')
    stream = Cipher(AES256(key), CTR(bytes(16))).encryptor()
    last_accepted = np.uint64(2**64 // modulus * modulus - 1)
    drawn = np.empty(0, dtype=np.uint64)
    while drawn.size < count:
        words = np.frombuffer(stream.update(bytes(8 * (count - drawn.size))), dtype='<u8')
        accepted = words[words <= last_accepted]
        drawn = np.concatenate([drawn, accepted]) if drawn.size else accepted
    return (drawn % np.uint64(modulus)).astype(np.int64)


def net_mask(
    secret: RoundSecret,
    peers: Mapping[str, bytes],
    *,
    federation: str,
    round: int,
    attempt: int,
    mine: str,
    count: int,
    modulus: int,
) -> NDArray[np.int64]:
    """
    Sum a member's pair masks: plus where its name sorts lower, minus where higher.

    The net masks of all members add up to zero modulo t. The caller uses a round and
    attempt for one update only.

    :param peers: the other members' names and public round keys, from signed messages.
    :param count: slots of the whole update.
    :param modulus: plaintext modulus t.
    :returns: integers in [0, t), shape (count,), to be added to the slots modulo t.
    :raises CryptoError: if there is no peer, one is ourselves, or two have the same key.
    """
    if not peers:
        raise CryptoError('no peers: without them nothing would be masked')
    if mine in peers:
        raise CryptoError(f'{mine!r} is in its own list of peers')
    if len(set(peers.values())) != len(peers):
        raise CryptoError('two peers have the same round key')
    members = [mine, *peers]
    total = np.zeros(count, dtype=np.int64)
    for theirs, public in peers.items():
        key = pair_key(
            secret,
            public,
            federation=federation,
            round=round,
            attempt=attempt,
            mine=mine,
            theirs=theirs,
            members=members,
        )
        drawn = mask(key, count, modulus)
        total = (total + drawn if mine < theirs else total - drawn) % modulus
    return total
