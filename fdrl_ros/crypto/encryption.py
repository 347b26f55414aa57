# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Encrypt, add and decrypt packed updates under BFV: sum Enc = Enc sum (FDRL Eq. 6).

A ciphertext on the wire has one form and one size: the digest of the public context, then
the residues of its two polynomials. Bytes of another party are compared with that size and
digest and every residue with its prime, before anything else sees them. Adding is adding
residues modulo their primes, in which no encryption library takes part.

Encryption does not say who encrypted: a changed ciphertext is still one. Signatures (over
every ciphertext) and the key authority's rules (spec section 4) are what protects the sum.
"""

from collections.abc import Sequence
from dataclasses import asdict
import hashlib
import json
from typing import Any, Self

from fdrl_ros.crypto.bfv import Bfv, Residues
from fdrl_ros.crypto.scheme import choose_scheme, DIGEST_BYTES, Scheme
from fdrl_ros.errors import CryptoError
import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ['PublicContext', 'Scheme', 'SecretContext', 'choose_scheme']

_PUBLIC = b'fdrl_ros public context 1\n'
_SECRET = b'fdrl_ros secret context 1\n'
# Longest scheme in a context, as JSON.
_SCHEME_BYTES = 1024


class PublicContext:
    """What hospitals and the aggregator hold: encrypts and adds, cannot decrypt."""

    def __init__(self, scheme: Scheme, public_key: Residues) -> None:
        """Take a public key of a scheme; :meth:`from_bytes` is the usual way."""
        self.scheme = scheme
        self.public_key = public_key
        self._data = _write(_PUBLIC, scheme, _to_bytes(public_key, 8))
        self._digest = hashlib.sha256(self._data).digest()
        self._bfv = Bfv(scheme, public_key=public_key)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """
        Read what :meth:`SecretContext.public_bytes` wrote.

        The caller checks the key authority's signature first, and the scheme afterwards:
        it must equal its own choice.

        :raises CryptoError: if the bytes are not exactly a public context.
        """
        scheme, body = _read(_PUBLIC, data)
        shape = (2, len(scheme.key_moduli), scheme.poly_degree)
        return cls(scheme, _from_bytes(body, shape, scheme.key_moduli, 8))

    def to_bytes(self) -> bytes:
        """Return the bytes that are published."""
        return self._data

    @property
    def digest(self) -> str:
        """Return the SHA-256 digest of the context's bytes, in hexadecimal."""
        return self._digest.hex()

    def encrypt(self, slots: ArrayLike) -> bytes:
        """
        Encrypt one row of slots.

        :param slots: integers modulo t, shape (slots,), each in [0, t): packed and masked.
        :raises CryptoError: on another shape, type or range.
        """
        slots = np.asarray(slots)
        if slots.shape != (self.scheme.slots,) or slots.dtype.kind not in 'iu':
            raise CryptoError(
                f'slots {slots.dtype} {slots.shape}: expected integers ({self.scheme.slots},)'
            )
        if slots.min() < 0 or slots.max() >= self.scheme.plain_modulus:
            raise CryptoError(f'slots beyond [0, {self.scheme.plain_modulus}) cannot be encrypted')
        return self._wire(self._bfv.encrypt(slots.astype(np.int64)))

    def add(self, ciphertexts: Sequence[bytes]) -> bytes:
        """
        Add ciphertexts of one place in the update, one per member.

        :returns: a ciphertext of the sum modulo t.
        :raises CryptoError: if there are none or too many, or one is malformed.
        """
        if not 1 <= len(ciphertexts) <= self.scheme.members:
            raise CryptoError(
                f'{len(ciphertexts)} ciphertexts: expected 1 to {self.scheme.members} members'
            )
        primes = np.array(self.scheme.moduli, dtype=np.uint64)[:, None]
        total = self.residues(ciphertexts[0])
        for ciphertext in ciphertexts[1:]:
            total += self.residues(ciphertext)
            total -= primes * (total >= primes)
        return self._wire(total)

    def residues(self, ciphertext: bytes) -> Residues:
        """
        Read an untrusted ciphertext into residues, shape (2, data primes, N).

        :raises CryptoError: on another size or context, a residue out of range, or a
            ciphertext that hides nothing.
        """
        scheme = self.scheme
        if not isinstance(ciphertext, bytes) or len(ciphertext) != scheme.ciphertext_bytes:
            found = f'{len(ciphertext)} bytes' if isinstance(ciphertext, bytes) else 'no bytes'
            raise CryptoError(f'ciphertext: {found}, expected {scheme.ciphertext_bytes} bytes')
        if ciphertext[:DIGEST_BYTES] != self._digest:
            raise CryptoError('ciphertext of another encryption context')
        shape = (2, len(scheme.moduli), scheme.poly_degree)
        body = ciphertext[DIGEST_BYTES:]
        residues = _from_bytes(body, shape, scheme.moduli, scheme.residue_bytes)
        if not residues[1].any():
            raise CryptoError('ciphertext with a zero second polynomial: it is not encrypted')
        return residues

    def _wire(self, residues: Residues) -> bytes:
        return self._digest + _to_bytes(residues, self.scheme.residue_bytes)


class SecretContext:
    """What the key authority alone holds: decrypts."""

    def __init__(self, scheme: Scheme, *, public_key: Residues, secret_key: Residues) -> None:
        """Take a key pair of a scheme and try it on one ciphertext."""
        self.public = PublicContext(scheme, public_key)
        self._secret_key = secret_key
        self._bfv = Bfv(scheme, public_key=public_key, secret_key=secret_key)
        trial = np.arange(scheme.slots, dtype=np.int64)
        values, _ = self._bfv.decrypt(self._bfv.encrypt(trial))
        if not np.array_equal(values, trial):
            raise CryptoError('the secret key does not belong to the public key')

    def __repr__(self) -> str:
        """Show the public digest only."""
        return f'SecretContext(public={self.public.digest})'

    @property
    def scheme(self) -> Scheme:
        """Return the parameters of the key pair."""
        return self.public.scheme

    @classmethod
    def generate(cls, scheme: Scheme) -> Self:
        """Draw a key pair from SEAL's generator, which the system's random device seeds."""
        public_key, secret_key = Bfv.generate(scheme)
        return cls(scheme, public_key=public_key, secret_key=secret_key)

    def to_bytes(self) -> bytes:
        """Return the secret bytes; whoever has them can decrypt, so store them encrypted."""
        keys = _to_bytes(self.public.public_key, 8) + _to_bytes(self._secret_key, 8)
        data = _write(_SECRET, self.scheme, keys)
        return data + hashlib.sha256(data).digest()

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """
        Read what :meth:`to_bytes` wrote.

        :raises CryptoError: if the bytes are not exactly a secret context whose keys fit.
        """
        scheme, body = _read(_SECRET, data)
        if hashlib.sha256(data[:-DIGEST_BYTES]).digest() != data[-DIGEST_BYTES:]:
            raise CryptoError('the secret context is damaged: its checksum is wrong')
        primes = scheme.key_moduli
        shape = (3, len(primes), scheme.poly_degree)
        keys = _from_bytes(body[:-DIGEST_BYTES], shape, primes, 8)
        return cls(scheme, public_key=keys[:2], secret_key=keys[2])

    def public_bytes(self) -> bytes:
        """Return the public context: scheme and public key, nothing else."""
        return self.public.to_bytes()

    def decrypt(self, ciphertext: bytes) -> NDArray[np.int64]:
        """
        Decrypt one ciphertext, which ought to be a sum.

        :returns: integers in [0, t), shape (slots,).
        :raises CryptoError: if it is malformed, or has more noise than honest members' sums
            can have.
        """
        values, budget = self._bfv.decrypt(self.public.residues(ciphertext))
        if budget < int(self.scheme.noise_margin):
            raise CryptoError(
                f'{budget} bits of noise budget left, an honest sum leaves at least '
                f'{int(self.scheme.noise_margin)}: a ciphertext was malformed'
            )
        return values


def _to_bytes(residues: Residues, width: int) -> bytes:
    """Write residues in `width` bytes each, little-endian."""
    octets = residues.astype('<u8').view(np.uint8).reshape(-1, 8)
    return octets[:, :width].tobytes()


def _from_bytes(
    data: bytes, shape: tuple[int, ...], primes: tuple[int, ...], width: int
) -> Residues:
    """Read residues of that shape (..., primes, N), each below its prime."""
    count = int(np.prod(shape))
    if len(data) != count * width:
        raise CryptoError(f'{len(data)} bytes of residues: expected {count * width}')
    octets = np.zeros((count, 8), dtype=np.uint8)
    octets[:, :width] = np.frombuffer(data, dtype=np.uint8).reshape(count, width)
    residues = octets.view('<u8').astype(np.uint64).reshape(shape)
    if (residues >= np.array(primes, dtype=np.uint64)[:, None]).any():
        raise CryptoError('a residue is not below its prime')
    return residues


def _write(magic: bytes, scheme: Scheme, body: bytes) -> bytes:
    """Put magic line and scheme, a line of JSON, in front of keys."""
    return magic + json.dumps(asdict(scheme), sort_keys=True).encode() + b'\n' + body


def _read(magic: bytes, data: bytes) -> tuple[Scheme, bytes]:
    """Take magic line and scheme off; the scheme checks itself."""
    kind = magic.decode().strip()
    if not isinstance(data, bytes) or not data.startswith(magic):
        raise CryptoError(f'not a {kind}')
    end = data.find(b'\n', len(magic), len(magic) + _SCHEME_BYTES)
    if end < 0:
        raise CryptoError(f'{kind}: no scheme in it')
    try:
        fields: dict[str, Any] = json.loads(data[len(magic) : end])
        fields['coefficient_bits'] = tuple(fields['coefficient_bits'])
        scheme = Scheme(**fields)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise CryptoError(f'{kind}: its scheme cannot be read: {error}') from error
    if not data.startswith(_write(magic, scheme, b'')):
        raise CryptoError(f'{kind}: its scheme is not written in the one form')
    return scheme, data[end + 1 :]
