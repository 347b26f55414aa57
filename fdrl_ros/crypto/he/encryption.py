# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Encrypt, add and decrypt packed updates: sum Enc = Enc sum (FDRL Eq. 6).

A ciphertext on the wire has one form and one size: the digest of the public context, then the
residues of its two polynomials. Bytes of another party are checked against that size and digest,
and every residue against its prime, before any other use. Adding is adding residues modulo their
primes, without an encryption library.

Methods work on one ciphertext at a time, so an update of any length needs the memory of one.

Encryption does not authenticate: a changed ciphertext is still a ciphertext. Signatures over every
ciphertext and the key authority's rules protect the sum.
"""

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from functools import cached_property
import hashlib
import json
from typing import Final, Self

from fdrl_ros.crypto.he.parameters import (
    DIGEST_BYTES,
    integers_of,
    pack_bits,
    Residues,
    Slots,
    unpack_bits,
)
from fdrl_ros.crypto.he.schemes import AnyScheme, SCHEMES
from fdrl_ros.crypto.he.tenseal_backend import BACKENDS
from fdrl_ros.errors import CryptoError
import numpy as np
from numpy.typing import ArrayLike

_PUBLIC: Final = 'public'
_SECRET: Final = 'secret'
# Longest scheme in a context, as JSON.
_SCHEME_BYTES: Final = 1024


class PublicContext:
    """The public key, as hospitals and the aggregator hold it: encrypts, adds, cannot decrypt."""

    def __init__(self, scheme: AnyScheme, public_key: Residues) -> None:
        """Wrap a public key of a scheme; usually :meth:`from_bytes` does so."""
        self.scheme = scheme
        self.public_key = public_key
        self._data = _write(_PUBLIC, scheme, _to_bytes(public_key, 64))
        self._digest = hashlib.sha256(self._data).digest()
        self.backend = BACKENDS[scheme.kind](scheme, public_key=public_key)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """
        Read what :meth:`SecretContext.public_bytes` wrote.

        The caller checks the key authority's signature before, and afterwards that the scheme
        equals its own choice.

        :raises CryptoError: if the bytes are not exactly a public context.
        """
        scheme, start = _read(_PUBLIC, data)
        return cls(scheme, _read_keys(scheme, data, start, len(data), 2))

    def to_bytes(self) -> bytes:
        """Return the bytes to publish."""
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
        scheme = self.scheme
        row = integers_of('slots', slots, scheme.slots, highest=scheme.plain_modulus - 1)
        return self.to_wire(self.backend.encrypt(scheme.encode(row)))

    def add(self, ciphertexts: Iterable[bytes]) -> bytes:
        """
        Add ciphertexts of one place in the update, one per member.

        :returns: a ciphertext of the sum modulo t.
        :raises CryptoError: if there are none or too many, or one is malformed.
        """
        primes = np.array(self.scheme.moduli, dtype=np.uint64)[:, None]
        # So many residues add up within 64 bits.
        room = 2**64 // max(self.scheme.moduli) - 1
        total = np.zeros((2, len(self.scheme.moduli), self.scheme.poly_degree), dtype=np.uint64)
        count = 0
        for count, ciphertext in enumerate(ciphertexts, 1):
            if count > self.scheme.members:
                break
            total += self.residues(ciphertext)
            if count % room == 0:
                total %= primes
        if not 1 <= count <= self.scheme.members:
            raise CryptoError(f'{count} ciphertexts: expected 1 to {self.scheme.members} members')
        return self.to_wire(total % primes)

    def residues(self, ciphertext: bytes) -> Residues:
        """
        Read an untrusted ciphertext into residues, shape (2, data primes, N).

        :raises CryptoError: on another size or context, a residue out of range, or a
            ciphertext that hides nothing.
        """
        scheme = self.scheme
        if not isinstance(ciphertext, bytes) or len(ciphertext) != scheme.ciphertext_bytes:
            raise CryptoError(f'ciphertext: expected {scheme.ciphertext_bytes} bytes')
        if ciphertext[:DIGEST_BYTES] != self._digest:
            raise CryptoError('ciphertext of another encryption context')
        residues = np.empty((2, len(scheme.moduli), scheme.poly_degree), dtype=np.uint64)
        start = DIGEST_BYTES
        for row, prime, width, shift in self._rows(residues):
            row[:] = _from_bytes(ciphertext, start, row.size, width)
            highest = prime - 1 + (1 << shift >> 1) >> shift
            if int(row.max()) > highest:
                raise CryptoError('a residue is not below its prime')
            if shift:
                row <<= np.uint64(shift)
                row %= np.uint64(prime)
            start += width * row.size // 8
        if not residues[1].any():
            raise CryptoError('ciphertext of nothing: its second half is zero')
        return residues

    def to_wire(self, residues: Residues) -> bytes:
        """Serialise residues as a ciphertext, without the low bytes that do not travel."""
        parts = [self._digest]
        for row, _, width, shift in self._rows(residues):
            if shift:
                row = (row + np.uint64(1 << shift >> 1)) >> np.uint64(shift)
            parts.append(_to_bytes(row, width))
        return b''.join(parts)

    def _rows(self, residues: Residues) -> Iterator[tuple[Residues, int, int, int]]:
        """Yield each polynomial modulo each prime, the prime, bits of a residue, and not sent."""
        for polynomial, dropped in zip(residues, (8 * self.scheme.dropped_bytes, 0), strict=True):
            widths = self.scheme.residue_bits
            for row, prime, width in zip(polynomial, self.scheme.moduli, widths, strict=True):
                yield row, prime, width - dropped, dropped


class SecretContext:
    """The key pair, which only the key authority holds: decrypts."""

    def __init__(self, scheme: AnyScheme, *, public_key: Residues, secret_key: Residues) -> None:
        """Wrap a key pair of a scheme, and test it on one ciphertext."""
        self.public = PublicContext(scheme, public_key)
        self.secret_key = secret_key
        self.backend = BACKENDS[scheme.kind](scheme, public_key=public_key, secret_key=secret_key)
        trial = np.arange(scheme.slots, dtype=np.int64) % scheme.plain_modulus
        message, _ = self.backend.decrypt(self.backend.encrypt(scheme.encode(trial)))
        if not np.array_equal(scheme.decode(message), trial):
            raise CryptoError('the secret key does not belong to the public key')

    def __repr__(self) -> str:
        """Show the public digest only."""
        return f'SecretContext(public={self.public.digest})'

    @property
    def scheme(self) -> AnyScheme:
        """Return the parameters of the key pair."""
        return self.public.scheme

    @classmethod
    def generate(cls, scheme: AnyScheme) -> Self:
        """Draw a key pair from SEAL's generator, which the system's random device seeds."""
        public_key, secret_key = BACKENDS[scheme.kind].generate(scheme)
        return cls(scheme, public_key=public_key, secret_key=secret_key)

    def to_bytes(self) -> bytes:
        """Return the secret bytes, which decrypt everything: store them encrypted."""
        keys = _to_bytes(self.public.public_key, 64) + _to_bytes(self.secret_key, 64)
        data = _write(_SECRET, self.scheme, keys)
        return data + hashlib.sha256(data).digest()

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """
        Read what :meth:`to_bytes` wrote.

        :raises CryptoError: if the bytes are not exactly a secret context whose keys fit.
        """
        scheme, start = _read(_SECRET, data)
        end = len(data) - DIGEST_BYTES
        if hashlib.sha256(data[:end]).digest() != data[end:]:
            raise CryptoError('the secret context is damaged: its checksum is wrong')
        keys = _read_keys(scheme, data, start, end, 3)
        return cls(scheme, public_key=keys[:2], secret_key=keys[2])

    def public_bytes(self) -> bytes:
        """Return the public context: scheme and public key, nothing else."""
        return self.public.to_bytes()

    def decrypt(self, ciphertext: bytes) -> Slots:
        """
        Decrypt one ciphertext, normally a sum.

        With CKKS the result is already flooded; the raw decryption never leaves this method.

        :returns: integers in [0, t), shape (slots,).
        :raises CryptoError: if it is malformed, or has more noise than honest members' sums
            can have.
        """
        message, budget = self.backend.decrypt(self.public.residues(ciphertext))
        secret = self._flood_secret
        return self.scheme.release(message, budget, secret=secret, ciphertext=ciphertext)

    def inspect(self, ciphertext: bytes) -> Slots:
        """
        Decrypt one hospital's masked ciphertext, and refuse what no honest hospital encrypts.

        :returns: integers in [0, t), shape (slots,), which the masks hide.
        :raises CryptoError: if it has too much noise, or its check slots do not fit.
        """
        message, budget = self.backend.decrypt(self.public.residues(ciphertext))
        secret = self._flood_secret
        slots = self.scheme.release(
            message, budget, secret=secret, ciphertext=ciphertext, fresh=True
        )
        self.scheme.check(slots)
        return slots

    @cached_property
    def _flood_secret(self) -> bytes:
        """Derive the key of the flooding from the secret key."""
        return hashlib.sha256(b'fdrl_ros flooding key 1' + _to_bytes(self.secret_key, 64)).digest()


def _to_bytes(residues: Residues, width: int) -> bytes:
    """Write residues in `width` bits each, little-endian."""
    if width % 8:
        return pack_bits(residues, width)
    words = np.ascontiguousarray(residues, dtype='<u8')
    return np.ndarray((words.size,), f'V{width // 8}', words, 0, (8,)).tobytes()


def _from_bytes(data: bytes, start: int, count: int, width: int) -> Residues:
    """Read `count` residues of `width` bits each from byte `start` (at least 8) on."""
    size = width // 8
    if width % 8:
        return unpack_bits(data[start : start + count * width // 8], width)
    # Words of 8 bytes that end where a residue ends; the bytes before it are shifted out.
    words = np.ndarray((count,), '<u8', data, start + size - 8, (size,))
    return (words >> np.uint64(64 - width)).astype(np.uint64, copy=False)


def _read_keys(scheme: AnyScheme, data: bytes, start: int, end: int, count: int) -> Residues:
    """Read `count` polynomials, each residue below its prime, from data[start:end]."""
    shape = (count, len(scheme.key_moduli), scheme.poly_degree)
    size = int(np.prod(shape))
    if end - start != 8 * size:
        raise CryptoError(f'{end - start} bytes of residues: expected {8 * size}')
    residues = _from_bytes(data, start, size, 64).reshape(shape)
    primes = np.array(scheme.key_moduli, dtype=np.uint64)[:, None]
    if not (residues < primes).all():
        raise CryptoError('a residue is not below its prime')
    return residues


def _magic(half: str, kind: str) -> bytes:
    """Return the first line of a context; that of BFV, the first kind, does not name it."""
    return f'fdrl_ros {half} {"" if kind == "bfv" else kind.upper() + " "}context 1\n'.encode()


def _write(half: str, scheme: AnyScheme, body: bytes) -> bytes:
    """Prepend the magic line and the scheme, a line of JSON, to the keys."""
    line = json.dumps(asdict(scheme), sort_keys=True).encode() + b'\n'
    return _magic(half, scheme.kind) + line + body


def _read(half: str, data: bytes) -> tuple[AnyScheme, int]:
    """Read magic line and scheme, which checks itself; also return where the keys begin."""
    if not isinstance(data, bytes):
        raise CryptoError(f'{half} context: expected bytes')
    kinds = [kind for kind in SCHEMES if data.startswith(_magic(half, kind))]
    if not kinds:
        raise CryptoError(f'not a fdrl_ros {half} context')
    start = len(_magic(half, kinds[0]))
    end = data.find(b'\n', start, start + _SCHEME_BYTES)
    try:
        fields = json.loads(data[start:end])
        sizes = tuple(fields.pop('coefficient_bits'))
        scheme = SCHEMES[kinds[0]](coefficient_bits=sizes, **fields)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise CryptoError(f'{half} context: its scheme cannot be read: {error}') from error
    if not data.startswith(_write(half, scheme, b'')):
        raise CryptoError(f'{half} context: its scheme is not in canonical form')
    return scheme, end + 1
