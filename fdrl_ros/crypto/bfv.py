# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The BFV backend: TenSEAL behind plain arrays of residues (FDRL Eq. 6).

Another library takes its place by offering the same class. Keys and ciphertexts go in and out
as residues, arrays whose shape and range the caller has checked, so that no byte of another
party ever reaches a decompressor or a protocol-buffer parser. TenSEAL can only be handed
its own serialised form, which is therefore written here: around residues, uncompressed.
"""

from collections.abc import Callable
import struct
from typing import Any

from fdrl_ros.crypto.scheme import Scheme
from fdrl_ros.errors import CryptoError
import numpy as np
from numpy.typing import NDArray
import tenseal as ts
import tenseal.sealapi as seal

Residues = NDArray[np.uint64]

# What TenSEAL and SEAL raise on data that they refuse.
_REFUSALS = (RuntimeError, ValueError, TypeError, IndexError, OverflowError)


class Bfv:
    """
    One BFV key pair, or its public half, of a scheme.

    :param scheme: checked parameters.
    :param public_key: residues, shape (2, primes, N).
    :param secret_key: residues, shape (primes, N), or nothing for the public half.
    :raises CryptoError: if the library refuses the keys.
    """

    def __init__(
        self, scheme: Scheme, *, public_key: Residues, secret_key: Residues | None = None
    ) -> None:
        """Hand the keys to the library."""
        blank = _generate(scheme)
        data = blank.serialize(
            save_public_key=False,
            save_secret_key=False,
            save_galois_keys=False,
            save_relin_keys=False,
        )
        start = data.index(b'\x5e\xa1\x10')
        self._stream = _SealStream(prefix=data[start : start + 5])
        inner = blank.seal_context().data
        self._first_parms, key_parms = inner.first_parms_id(), inner.key_parms_id()
        # Protocol buffers merge a message with the fields that follow it.
        data += _field(
            2, _field(1, self._stream.ciphertext(public_key, key_parms, is_ntt_form=True))
        )
        if secret_key is not None:
            data += _field(3, _field(1, self._stream.secret_key(secret_key, key_parms)))
        self.scheme = scheme
        self._context = _refuse(ts.context_from, data, n_threads=1)
        self._decryptor = None
        if secret_key is not None:
            self._decryptor = seal.Decryptor(
                self._context.seal_context().data, self._context.secret_key().data
            )

    @classmethod
    def generate(cls, scheme: Scheme) -> tuple[Residues, Residues]:
        """Return a fresh public key (2, primes, N) and secret key (primes, N)."""
        context = _generate(scheme)
        shape = (len(scheme.key_moduli), scheme.poly_degree)
        public = _residues(context.public_key().data.data(), (2, *shape))
        return public, _residues(context.secret_key().data.data(), shape)

    def encrypt(self, values: NDArray[np.int64]) -> Residues:
        """
        Encrypt one slot vector under the public key.

        :param values: shape (slots,), each in [0, t).
        :returns: shape (2, data primes, N).
        """
        t = self.scheme.plain_modulus
        centred = np.where(values > t // 2, values - t, values)
        vector = _refuse(ts.bfv_vector, self._context, centred.tolist())
        shape = (2, len(self.scheme.moduli), self.scheme.poly_degree)
        return _residues(vector.ciphertext()[0], shape)

    def decrypt(self, residues: Residues) -> tuple[NDArray[np.int64], int]:
        """
        Decrypt one ciphertext.

        :param residues: shape (2, data primes, N), each below its prime.
        :returns: values in [0, t), shape (slots,), and the noise budget left, in bits.
        :raises CryptoError: without a secret key, or if the library refuses the residues.
        """
        if self._decryptor is None:
            raise CryptoError('a public context cannot decrypt')
        stream = self._stream.ciphertext(residues, self._first_parms, is_ntt_form=False)
        sizes = _varint(self.scheme.slots)
        data = _field(1, sizes) + _field(2, stream)
        vector = _refuse(ts.bfv_vector_from, self._context, data)
        budget = _refuse(self._decryptor.invariant_noise_budget, vector.ciphertext()[0])
        values = np.array(_refuse(vector.decrypt), dtype=np.int64)
        return values % self.scheme.plain_modulus, int(budget)


class _SealStream:
    """SEAL 4 serialised objects, uncompressed, in the version that the library writes."""

    def __init__(self, *, prefix: bytes) -> None:
        """Keep the magic number, header size and version."""
        self._prefix = prefix

    def _object(self, body: bytes) -> bytes:
        """Put a header in front: compression 'none', reserved zero, and the whole size."""
        return self._prefix + struct.pack('<BHQ', 0, 0, 16 + len(body)) + body

    def _array(self, residues: Residues) -> bytes:
        return self._object(struct.pack('<Q', residues.size) + residues.astype('<u8').tobytes())

    def ciphertext(self, residues: Residues, parms: list[int], *, is_ntt_form: bool) -> bytes:
        """Write a ciphertext or a public key: parameters, form, shape, scale, correction."""
        size, primes, degree = residues.shape
        head = struct.pack('<4QBQQQdQ', *parms, is_ntt_form, size, degree, primes, 1.0, 1)
        return self._object(head + self._array(residues))

    def secret_key(self, residues: Residues, parms: list[int]) -> bytes:
        """Write a secret key: parameters, coefficient count and scale."""
        head = struct.pack('<4QQd', *parms, residues.size, 1.0)
        return self._object(head + self._array(residues))


def _generate(scheme: Scheme) -> Any:
    """Make a TenSEAL context with fresh keys and make sure it is of this scheme."""
    context = _refuse(
        ts.context,
        ts.SCHEME_TYPE.BFV,
        scheme.poly_degree,
        scheme.plain_modulus,
        list(scheme.coefficient_bits),
        n_threads=1,
    )
    found = context.seal_context().data.key_context_data().parms().coeff_modulus()
    if tuple(prime.value() for prime in found) != scheme.key_moduli:
        raise CryptoError('this TenSEAL chooses other primes than SEAL 4; install tenseal 0.3.18')
    return context


def _residues(source: Any, shape: tuple[int, ...]) -> Residues:
    """Read the coefficients of a SEAL ciphertext or plaintext, the only way the binding has."""
    count = int(np.prod(shape))
    return np.fromiter(map(source.__getitem__, range(count)), np.uint64, count).reshape(shape)


def _refuse(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Call the library and turn what it raises into our error."""
    try:
        return function(*arguments, **options)
    except _REFUSALS as error:
        raise CryptoError(f'the encryption library refused: {error}') from error


def _varint(number: int) -> bytes:
    """Encode a number as protocol buffers do, seven bits a byte."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded, number])


def _field(number: int, payload: bytes) -> bytes:
    """Encode a length-delimited protocol-buffer field."""
    return _varint(number << 3 | 2) + _varint(len(payload)) + payload
