# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Ed25519 identities: sign, verify, and shorten a public key to a fingerprint."""

import base64
import hashlib
import threading
from typing import Final, Self

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

PUBLIC_KEY_BYTES: Final = 32
SIGNATURE_BYTES: Final = 64

_KEPT: Final = 2**14
"""Signatures known to be good: more than a round of 1,000 hospitals has messages."""

_SHORT: Final = 2**16
"""Bytes up to which a message is hashed to be known again."""


class Identity:
    """A party's long-term signing key; ``public`` is its public half."""

    def __init__(self, name: str, private: Ed25519PrivateKey) -> None:
        """Wrap a key; usually :meth:`generate` or the key store does so."""
        self.name = name
        self.private = private
        self.public: bytes = private.public_key().public_bytes_raw()

    def __repr__(self) -> str:
        """Show name and fingerprint only."""
        return f'Identity({self.name!r}, {fingerprint(self.public)})'

    @classmethod
    def generate(cls, name: str) -> Self:
        """Draw a key from the operating system's randomness."""
        return cls(name, Ed25519PrivateKey.generate())

    def sign(self, message: bytes) -> bytes:
        """
        Sign a message, 64 bytes.

        Every kind of message begins with a prefix of its own, so that a signature on one kind
        cannot pass as a signature on another.
        """
        return self.private.sign(message)


def verify(public: bytes, signature: bytes, message: bytes) -> bool:
    """
    Return whether the key signed the message; malformed input gives False.

    A process verifies a short message once: a list repeats the keys that hospitals sent before,
    and in one process all parties get the same messages.
    """
    if not all(isinstance(part, bytes) for part in (public, signature, message)):
        return False
    if len(public) != PUBLIC_KEY_BYTES or len(signature) != SIGNATURE_BYTES:
        return False
    short = len(message) <= _SHORT
    digest = hashlib.sha256(public + signature + message).digest() if short else b''
    if digest in _verified:
        return True
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    if short:
        with _lock:
            _verified[digest] = None
            if len(_verified) > _KEPT:
                del _verified[next(iter(_verified))]
    return True


_verified: dict[bytes, None] = {}  # hashes of key, signature and message, the oldest first
_lock = threading.Lock()


def fingerprint(public: bytes) -> str:
    """
    Shorten a public key to 100 bits that two people can compare.

    :returns: five groups of four letters and digits, as ``k3fq-...``.
    """
    text = base64.b32encode(hashlib.sha256(public).digest()).decode().lower()
    return '-'.join(text[start : start + 4] for start in range(0, 20, 4))
