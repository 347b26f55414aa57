# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Ed25519 identities: who signed a message, and a short fingerprint to read aloud."""

import base64
import hashlib
from typing import Final, Self

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)

PUBLIC_KEY_BYTES: Final = 32
SIGNATURE_BYTES: Final = 64


class Identity:
    """A party's long-term key, which only signs; ``public`` is its other half."""

    def __init__(self, name: str, private: Ed25519PrivateKey) -> None:
        """Take a key; :meth:`generate` or the key store is the usual way."""
        self.name = name
        self.private = private
        self.public: bytes = private.public_key().public_bytes_raw()

    def __repr__(self) -> str:
        """Show the name and the fingerprint only."""
        return f'Identity({self.name!r}, {fingerprint(self.public)})'

    @classmethod
    def generate(cls, name: str) -> Self:
        """Draw a key from the operating system's randomness."""
        return cls(name, Ed25519PrivateKey.generate())

    def sign(self, message: bytes) -> bytes:
        """
        Sign a message, shape 64 bytes.

        The message says what it is: every kind begins with its own words, so that a
        signature on one kind can never be shown as one on another.
        """
        return self.private.sign(message)


def verify(public: bytes, signature: bytes, message: bytes) -> bool:
    """Tell whether the holder of the public key signed the message; malformed is False."""
    if not all(isinstance(part, bytes) for part in (public, signature, message)):
        return False
    if len(public) != PUBLIC_KEY_BYTES or len(signature) != SIGNATURE_BYTES:
        return False
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


def fingerprint(public: bytes) -> str:
    """
    Shorten a public key to 100 bits that two people can compare.

    :returns: five groups of four letters and digits, as ``k3fq-...``.
    """
    text = base64.b32encode(hashlib.sha256(public).digest()).decode().lower()
    return '-'.join(text[start : start + 4] for start in range(0, 20, 4))
