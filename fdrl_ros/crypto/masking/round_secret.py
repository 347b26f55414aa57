# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Derive all secrets of a hospital in a round from one stored seed (Bonawitz et al. 2017).

The seed comes from the operating system and is on disk before anything derived from it is sent, so
that a hospital which is killed and restarted sends the same messages again. HKDF-SHA256 derives
each secret under a label of its own, bound to federation, round, attempt and name: knowing one
secret reveals nothing about another, even of the same seed. Only the keys for pair masks follow
from another one, the mask secret, and none of them reveals it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
import hmac
import os
from pathlib import Path
from typing import Final, Self

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from fdrl_ros.crypto.masking.sharing import PRIME
from fdrl_ros.errors import CryptoError, KeyFileError
from fdrl_ros.runtime.durable import create_once, read_secret

KEY_BYTES: Final = 32

# Points of small order have these coordinates modulo 2^255 - 19: every agreement with them is
# zero (D. J. Bernstein, cr.yp.to/ecdh.html, "How do I validate Curve25519 public keys?").
_CURVE_PRIME = 2**255 - 19
_SMALL_ORDER = {
    0,
    1,
    _CURVE_PRIME - 1,
    325606250916557431795983626356110631294008115727848805560023387167927233504,
    39382357235489614581723060781553021112529911719440698176882885853963445705823,
}
_STORED = b'fdrl_ros round seed 1'
_MASK = b'fdrl_ros mask secret 2'
_PAIR = b'fdrl_ros mask secret for one peer 1'
_SEALING = b'fdrl_ros sealing secret 2'
_SELF = b'fdrl_ros self seed 1'
_MASK_POLYNOMIAL = b'fdrl_ros polynomial of the mask secret 1'
_SELF_POLYNOMIAL = b'fdrl_ros polynomial of the self seed 1'
# 128 bits more than the field, so that reduced values are uniform up to 2^-127.
_COEFFICIENT_BYTES = 48


def binding(label: bytes, federation: str, round: int, attempt: int, *parts: bytes) -> bytes:
    """
    Encode what a key or a digest is bound to.

    :raises CryptoError: if round or attempt is not in [0, 2^64).
    """
    for number in (round, attempt):
        if type(number) is not int or not 0 <= number < 2**64:
            raise CryptoError(f'round {round!r}, attempt {attempt!r}: expected numbers from 0')
    numbers = (round.to_bytes(8, 'big'), attempt.to_bytes(8, 'big'))
    return joined(label, federation.encode(), *numbers, *parts)


def joined(*parts: bytes) -> bytes:
    """Prefix each part with its length, so that different lists never encode the same."""
    return b''.join([len(part).to_bytes(4, 'big') + part for part in parts])


@lru_cache(2**15)
def prefixed(name: str) -> bytes:
    """Return a name as :func:`joined` writes it; names come in many lists."""
    return joined(name.encode())


def joined_names(names: Iterable[str]) -> bytes:
    """Join names, in their order."""
    return b''.join(map(prefixed, sorted(names)))


def derive(material: bytes, info: bytes, length: int = KEY_BYTES) -> bytes:
    """Derive a key by HKDF-SHA256 without a salt (RFC 5869)."""
    return HKDF(algorithm=SHA256(), length=length, salt=None, info=info).derive(material)


def check_public(public: bytes) -> None:
    """
    Refuse an unusable X25519 key; cheap enough for every received message.

    :raises CryptoError: on another size, or a point of small order.
    """
    if not isinstance(public, bytes) or len(public) != KEY_BYTES:
        raise CryptoError(f'round key: expected {KEY_BYTES} bytes')
    # X25519 ignores the highest bit.
    if int.from_bytes(public, 'little') % 2**255 % _CURVE_PRIME in _SMALL_ORDER:
        raise CryptoError('round key of small order: the shared secret would be zero')


class RoundSecret:
    """An X25519 secret of one hospital for one peer; all others know its public half."""

    __slots__ = ('_agreed', '_private', 'public')

    def __init__(self, private: X25519PrivateKey) -> None:
        """Wrap a key; usually :meth:`AttemptSecrets.mask` does so."""
        self._private = private
        self.public: bytes = private.public_key().public_bytes_raw()
        # Sealing and opening need the same agreement, the most expensive step of a round.
        self._agreed: tuple[bytes, bytes] | None = None

    def __repr__(self) -> str:
        """Show the public half only."""
        return f'RoundSecret(public={self.public.hex()})'

    @classmethod
    def generate(cls) -> Self:
        """Draw a secret from the operating system's randomness."""
        return cls(X25519PrivateKey.generate())

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """
        Read 32 bytes, as derived, or as revealed to prove something.

        :raises CryptoError: on another size.
        """
        if not isinstance(data, bytes) or len(data) != KEY_BYTES:
            raise CryptoError(f'round secret: expected {KEY_BYTES} bytes')
        return cls(X25519PrivateKey.from_private_bytes(data))

    def to_bytes(self) -> bytes:
        """Return the secret half, 32 bytes: sent only to prove something about one pair."""
        return self._private.private_bytes_raw()

    def agree(self, their_public: bytes) -> bytes:
        """
        Return the raw X25519 secret shared with a peer, as input of a key derivation.

        :raises CryptoError: on a malformed key, or a key of small order, with which anybody would
            know the result.
        """
        if self._agreed and self._agreed[0] == their_public:
            return self._agreed[1]
        check_public(their_public)
        # The library also refuses a result of zero.
        shared = self._private.exchange(X25519PublicKey.from_public_bytes(their_public))
        self._agreed = their_public, shared
        return shared


@dataclass(frozen=True, repr=False)
class RoundSeed:
    """
    The seed of all secrets of a hospital in a round; drawn once, erased after the round.

    Make one with :meth:`at`, or with :meth:`draw` where nothing must survive a restart.

    :param seed: 32 bytes of the operating system's randomness.
    :param federation: its name.
    :param round: round number, >= 0.
    :param name: the hospital's.
    """

    seed: bytes
    federation: str
    round: int
    name: str

    def __post_init__(self) -> None:
        """Refuse a seed of another size."""
        if not isinstance(self.seed, bytes) or len(self.seed) != KEY_BYTES:
            raise CryptoError(f'round seed: expected {KEY_BYTES} bytes')

    def __repr__(self) -> str:
        """Hide the seed."""
        return f'RoundSeed({self.federation!r}, round {self.round}, {self.name!r})'

    @classmethod
    def draw(cls, *, federation: str, round: int, name: str) -> Self:
        """Draw a seed from the operating system's randomness."""
        return cls(os.urandom(KEY_BYTES), federation, round, name)

    @classmethod
    def at(cls, path: Path, *, federation: str, round: int, name: str) -> Self:
        """
        Read the seed in a file, or draw one and store it durably before its first use.

        Never copy the file, and never restore an old one.

        :param path: private file of this hospital and round.
        :raises KeyFileError: if it is damaged, of another federation, round or hospital, not
            ours, open to others, or cannot be written.
        """
        fresh = cls.draw(federation=federation, round=round, name=name)
        create_once(path, fresh._stored)
        data = read_secret(path)
        start = len(_STORED)
        seed = cls(data[start : start + KEY_BYTES].ljust(KEY_BYTES), federation, round, name)
        if not hmac.compare_digest(data, seed._stored()):
            raise KeyFileError(
                f'{path} is damaged, or holds the seed of another federation, round or hospital '
                f'than {federation!r}, {round}, {name!r}'
            )
        return seed

    def attempt(self, attempt: int) -> 'AttemptSecrets':
        """Return the secrets of one attempt at the round, a number from 0."""
        return AttemptSecrets(self, attempt)

    def _stored(self) -> bytes:
        """Serialise the seed with a tag that binds it to federation, round and hospital."""
        info = binding(_STORED, self.federation, self.round, 0, self.name.encode())
        return _STORED + self.seed + derive(self.seed, info)


class AttemptSecrets:
    """
    The secrets of one hospital in one attempt at a round; see :meth:`RoundSeed.attempt`.

    :param seed: the round's.
    :param attempt: attempt within the round, >= 0.
    """

    def __init__(self, seed: RoundSeed, attempt: int) -> None:
        """Bind a seed to an attempt."""
        self._seed = seed
        self.federation, self.round, self.attempt = seed.federation, seed.round, attempt
        self.name = seed.name
        self._masks: dict[str, RoundSecret] = {}
        self._sealing: dict[str, RoundSecret] = {}

    def __repr__(self) -> str:
        """Hide the secrets."""
        return f'AttemptSecrets({self._seed!r}, attempt {self.attempt})'

    @cached_property
    def mask_secret(self) -> bytes:
        """
        Return the secret behind all pair masks, 32 bytes, which is split among the holders.

        With it and the peers' public halves anybody can remove the hospital's pair masks.
        """
        return self._derive(_MASK)

    def mask(self, peer: str) -> RoundSecret:
        """
        Return the X25519 secret behind the pair mask with one peer.

        It is revealed only to prove what that pair's mask is, when the two ends contradict each
        other; the secrets for other peers stay hidden then.
        """
        if peer not in self._masks:
            self._masks[peer] = mask_secret_for(self.mask_secret, peer)
        return self._masks[peer]

    def sealing(self, peer: str) -> RoundSecret:
        """
        Return the X25519 secret that seals shares for one peer, and opens those of that peer.

        It is revealed only to prove that this peer sealed no valid shares; the secrets for other
        peers stay hidden then.
        """
        if peer not in self._sealing:
            secret = RoundSecret.from_bytes(self._derive(_SEALING, peer.encode()))
            self._sealing[peer] = secret
        return self._sealing[peer]

    @cached_property
    def self_seed(self) -> bytes:
        """Return the seed of the hospital's own mask, 32 bytes."""
        return self._derive(_SELF)

    def mask_polynomial(self, threshold: int, keys: bytes) -> list[int]:
        """
        Return the t - 1 coefficients of the polynomial that shares the mask secret.

        They depend on the list of members: otherwise a holder at different places of two lists
        would see two points of one polynomial.

        :param keys: digest of the list of keys,
            :attr:`fdrl_ros.crypto.masking.share_sealing.KeyList.digest`.
        """
        return self._polynomial(_MASK_POLYNOMIAL, threshold, keys)

    def self_polynomial(self, threshold: int, keys: bytes) -> list[int]:
        """Return the t - 1 coefficients of the polynomial that shares the self seed."""
        return self._polynomial(_SELF_POLYNOMIAL, threshold, keys)

    def _derive(self, label: bytes, *parts: bytes) -> bytes:
        name = self.name.encode()
        info = binding(label, self.federation, self.round, self.attempt, name, *parts)
        return derive(self._seed.seed, info)

    def _polynomial(self, label: bytes, threshold: int, keys: bytes) -> list[int]:
        key = self._derive(label, threshold.to_bytes(8, 'big'), keys)
        size = (threshold - 1) * _COEFFICIENT_BYTES
        stream = Cipher(AES256(key), CTR(bytes(16))).encryptor().update(bytes(size))
        return [
            int.from_bytes(stream[start : start + _COEFFICIENT_BYTES], 'big') % PRIME
            for start in range(0, size, _COEFFICIENT_BYTES)
        ]


def mask_secret_for(mask_secret: bytes, peer: str) -> RoundSecret:
    """
    Derive the X25519 secret of one pair's mask from a hospital's mask secret.

    :param mask_secret: 32 bytes of :attr:`AttemptSecrets.mask_secret`, also as restored.
    :raises CryptoError: on another size.
    """
    if not isinstance(mask_secret, bytes) or len(mask_secret) != KEY_BYTES:
        raise CryptoError(f'mask secret: expected {KEY_BYTES} bytes')
    return RoundSecret.from_bytes(derive(mask_secret, joined(_PAIR, peer.encode())))
