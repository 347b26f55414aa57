# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Keyed noise: the N(0, 1) draws of FDRL Eq. 5, 12 and 21 from a cryptographic stream.

A stream is named by (purpose, round, step), and the same name always gives the same draws. A block
that a power cut interrupted therefore redraws the noise that its budget was reserved for. Fresh
noise for the same gradients would release them twice, and averaging would remove the noise.
"""

import functools
import hashlib
import math
import os
from pathlib import Path
import struct

from cryptography.hazmat.primitives.ciphers import algorithms, Cipher, CipherContext, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand
from fdrl_ros.errors import KeyFileError
from fdrl_ros.runtime import kernels
from fdrl_ros.runtime.durable import create_once, read_secret
import numpy as np
from numpy.typing import NDArray

_KEY_BYTES = 32
_KEPT_KEYS = 256  # stream keys in memory, so that a step does not derive them again
_BELOW_ONE = math.nextafter(1.0, 0.0)


class NoiseSource:
    """
    Random draws from AES-256 in counter mode, one key for each stream.

    HKDF-SHA256 derives a stream's key from the root key and (kind, purpose, round), and the step
    is the upper half of the counter, so no two of them share a keystream. Make one with
    :meth:`secure` or :meth:`seeded`.
    """

    def __init__(self, key: bytes, *, private: bool) -> None:
        self._key = key
        self.private = private
        """Whether the key is secret; if not, every report must say NOT PRIVATE."""
        self._streams: dict[tuple[str, str, int], CipherContext] = {}

    @classmethod
    def secure(cls, path: str | os.PathLike[str]) -> 'NoiseSource':
        """
        Read the key in a file, or draw one from the operating system's secure source.

        :param path: key file of 32 bytes, mode 0600, created if missing. Never copy it to a
            second trainer, and never restore an old one without its ledger.
        :raises KeyFileError: if the file is damaged, not ours, or open to others.
        """
        create_once(Path(path), lambda: os.urandom(_KEY_BYTES))
        key = read_secret(Path(path))
        if len(key) != _KEY_BYTES:
            raise KeyFileError(f'noise key {path} is damaged: expected {_KEY_BYTES} bytes')
        return cls(key, private=True)

    @classmethod
    def seeded(cls, seed: int) -> 'NoiseSource':
        """Make a reproducible source for tests and reproductions, NOT PRIVATE."""
        text = f'fdrl_ros seeded noise {int(seed)}'
        return cls(hashlib.sha256(text.encode()).digest(), private=False)

    @property
    def fingerprint(self) -> bytes:
        """
        Identify the key without revealing it, 16 bytes.

        The `inputs` of a ledger reservation include it, so that a block cannot be drawn again
        under another key.
        """
        return self._derive(b'fingerprint', 16)

    def for_ledger(self, ledger: bytes) -> 'NoiseSource':
        """
        Derive the noise of one ledger, which no other ledger shares.

        If two ledgers used one stream, each would release it with gradients of its own. A seeded
        source stays unchanged, so that anyone can repeat it.

        :param ledger: its birth, :attr:`fdrl_ros.privacy.ledger.chain.Owner.birth`.
        """
        if not self.private:
            return self
        return NoiseSource(self._derive(b'ledger' + ledger, _KEY_BYTES), private=True)

    def uniform(self, purpose: str, round: int, step: int, size: int) -> NDArray[np.float64]:
        """Draw from the open interval (0, 1), 64 bits a draw, shape (size,)."""
        return to_unit(self.uniform_words(purpose, round, step, size))

    def uniform_words(self, purpose: str, round: int, step: int, size: int) -> NDArray[np.uint64]:
        """Draw the words behind :meth:`uniform`, shape (size,)."""
        return self._keystream('uniform', purpose, round, step, size)

    def gaussian(self, purpose: str, round: int, step: int, size: int) -> NDArray[np.float64]:
        """
        Draw from N(0, 1), shape (size,).

        Box and Muller (1958) from pairs of 64-bit uniforms in double precision. A draw ends at
        9.5 sigma, where the Gaussian leaves 2e-21. Its low bits are not those of a real Gaussian
        (Mironov 2012), so it must not be added to data directly:
        :func:`fdrl_ros.privacy.mechanism.noisy_mean` rounds it to a grid first.

        :raises PrivacyError: if the compiled arithmetic is not built.
        """
        stream = self._keystream('gaussian', purpose, round, step, 2 * ((size + 1) // 2))
        return kernels.gaussian(stream)[:size]

    def _keystream(
        self, kind: str, purpose: str, round: int, step: int, words: int
    ) -> NDArray[np.uint64]:
        """Return little-endian words of the named stream."""
        name = (kind, purpose, round)
        stream = self._streams.get(name)
        if stream is None:
            names = [part.encode() for part in (kind, purpose)]
            info = b''.join(struct.pack('<I', len(part)) + part for part in names)
            info += struct.pack('<Q', round)
            if len(self._streams) >= _KEPT_KEYS:
                self._streams.clear()
            key = algorithms.AES(self._derive(b'stream' + info, 32))
            stream = self._streams[name] = Cipher(key, modes.CTR(bytes(16))).encryptor()
        # Steps of a stream are 2^64 blocks apart: no two of them share a block.
        stream.reset_nonce(struct.pack('>QQ', step, 0))
        return np.frombuffer(stream.update(_zeros(8 * words)), dtype='<u8')

    def _derive(self, info: bytes, length: int) -> bytes:
        # The root key is uniform already, so HKDF needs its second half only.
        return HKDFExpand(SHA256(), length, b'fdrl_ros noise 2 ' + info).derive(self._key)


_zeros = functools.lru_cache(maxsize=8)(bytes)


def to_unit(words: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Map 64-bit words into the open interval (0, 1), keeping full relative precision near 0."""
    unit = words.astype(np.float64)
    unit += 0.5
    unit *= 2.0**-64
    return np.minimum(unit, _BELOW_ONE, out=unit)
