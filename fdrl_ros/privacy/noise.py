# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Keyed noise: the N(0, 1) draws of FDRL Eq. 5, 12 and 21 from a cryptographic stream.

A stream is named by (purpose, round, step), and the same name always gives the same draws. A block
that a power cut interrupted therefore redraws the noise that its budget was reserved for. Fresh
noise for the same gradients would release them twice, and averaging would remove the noise. Once a
round is over, its noise is erased: nobody can draw it again.
"""

import functools
import hashlib
import math
import os
from pathlib import Path
import struct

from cryptography.hazmat.primitives.ciphers import algorithms, Cipher, CipherContext, modes
from fdrl_ros.crypto.keys.key_file import Passphrase
from fdrl_ros.privacy.ledger.ledger import Ledger
from fdrl_ros.privacy.noise_key import derive, NoiseKey
from fdrl_ros.runtime import kernels
import numpy as np
from numpy.typing import NDArray

_KEPT_KEYS = 256  # stream keys in memory, so that a step does not derive them again
_BELOW_ONE = math.nextafter(1.0, 0.0)


class NoiseSource:
    """
    Random draws from AES-256 in counter mode, one key for each stream.

    HKDF-SHA256 derives a stream's key from the secret of its round and (kind, purpose, round), and
    the step is the upper half of the counter, so no two of them share a keystream. Make one with
    :meth:`secure` or :meth:`seeded`.
    """

    def __init__(self, key: bytes | NoiseKey, *, private: bool) -> None:
        self._key = key
        self.private = private
        """Whether the key is secret; if not, every report must say NOT PRIVATE."""
        self._streams: dict[tuple[str, str, int], CipherContext] = {}

    @classmethod
    def secure(
        cls, path: str | os.PathLike[str], passphrase: Passphrase | None = None
    ) -> 'NoiseSource':
        """
        Read the key in a file, or draw one from the operating system's secure source.

        :param path: key file, mode 0600, created if missing. Never copy it to a second trainer.
        :param passphrase: seals the file; None leaves the key in clear.
        :raises PassphraseError: if the passphrase is missing, wrong, or not needed.
        :raises KeyFileError: if the file is damaged, of an older version, not ours, or open to
            others.
        """
        return cls(NoiseKey(Path(path), passphrase), private=True)

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
        key = self._key
        return key.name if isinstance(key, NoiseKey) else derive(key, b'fingerprint', 16)

    def bind(self, ledger: Ledger) -> None:
        """
        Make this the noise of a ledger, durably, or check that it is.

        If two ledgers used one stream, each would release it with gradients of its own. A seeded
        source stays unchanged, so that anyone can repeat it.

        :raises KeyFileError: if it is that of another ledger.
        """
        if isinstance(self._key, NoiseKey):
            self._key.bind(ledger)
            self._streams.clear()

    @property
    def erased(self) -> int:
        """How many links of the key are erased, for :meth:`check_erased`; none if seeded."""
        return self._key.first if isinstance(self._key, NoiseKey) else 0

    def check_erased(self, first: int, by: str) -> None:
        """
        Refuse a key that is older than a checkpoint; see :meth:`NoiseKey.check_erased`.

        :raises KeyFileError: if it is.
        """
        if isinstance(self._key, NoiseKey):
            self._key.check_erased(first, by)

    def check_newest(self, ledger: Ledger) -> None:
        """
        Refuse a key that is older than its ledger; see :meth:`NoiseKey.check_newest`.

        :raises KeyFileError: if it is.
        """
        if isinstance(self._key, NoiseKey):
            self._key.check_newest(ledger)

    def check_drawable(self, round: int) -> None:
        """
        Check that a round can be drawn, before it is charged.

        :raises NoiseErasedError: if it is erased.
        """
        self._secret(round)

    def forget(self, round: int) -> None:
        """
        Erase a round, and all before it, durably: nobody can draw them again.

        To be called when nothing of the round is asked for any more. A seeded source stays
        unchanged.

        :raises KeyFileError: if that cannot be written.
        """
        if isinstance(self._key, NoiseKey):
            self._key.forget(round)
            self._streams.clear()

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
            key = algorithms.AES(derive(self._secret(round), b'stream' + info))
            stream = self._streams[name] = Cipher(key, modes.CTR(bytes(16))).encryptor()
        # Steps of a stream are 2^64 blocks apart: no two of them share a block.
        stream.reset_nonce(struct.pack('>QQ', step, 0))
        return np.frombuffer(stream.update(_zeros(8 * words)), dtype='<u8')

    def _secret(self, round: int) -> bytes:
        return self._key.secret(round) if isinstance(self._key, NoiseKey) else self._key


_zeros = functools.lru_cache(maxsize=8)(bytes)


def to_unit(words: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Map 64-bit words into the open interval (0, 1), keeping full relative precision near 0."""
    unit = words.astype(np.float64)
    unit += 0.5
    unit *= 2.0**-64
    return np.minimum(unit, _BELOW_ONE, out=unit)
