# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The BFV backend: Microsoft SEAL as TenSEAL brings it, behind plain arrays (FDRL Eq. 6).

TenSEAL's own tensors cannot be used here: they refuse to do without relinearisation keys, print
warnings, and pack a whole context beside every vector. Its lower interface, SEAL's, takes and
gives objects one coefficient at a time or as a serialised stream. The stream is the quick way,
so residues go in as an uncompressed stream that is written here, and come out of the library's
own, through an anonymous file in memory. No bytes of another party ever reach a decompressor:
they were read as residues before.
"""

from collections.abc import Callable
import functools
import os
import struct
from typing import Any, ClassVar
import zlib

from fdrl_ros.crypto.he.backend import Residues
from fdrl_ros.crypto.he.parameters import Parameters
from fdrl_ros.crypto.he.scheme import Scheme
from fdrl_ros.errors import CryptoError
import numpy as np
from numpy.typing import NDArray
import tenseal.sealapi as seal

try:
    from backports import zstd
except ImportError:  # then coefficients are read one by one, which takes twice the time
    zstd = None  # type: ignore[assignment]

# What TenSEAL and SEAL raise on data that they refuse.
_REFUSALS = (RuntimeError, ValueError, TypeError, IndexError, OverflowError)

# SEAL's stream begins with magic number, header size, version, compression and whole size.
_HEADER_BYTES = 16
_PLAIN, _ZLIB, _ZSTD = 0, 1, 2


class Seal:
    """
    A key pair of SEAL, or its public half: what the schemes have in common.

    :param scheme: checked parameters.
    :param public_key: residues, shape (2, primes, N).
    :param secret_key: residues, shape (primes, N), or nothing for the public half.
    :raises CryptoError: if the library refuses the keys.
    """

    scheme_type: ClassVar[Any]

    def __init__(
        self, scheme: Any, *, public_key: Residues, secret_key: Residues | None = None
    ) -> None:
        """Hand the keys to the library."""
        self.scheme = scheme
        self._context = context = self._make_context(scheme)
        self._parms = context.first_parms_id()
        self._evaluator = seal.Evaluator(context)
        key_parms = context.key_parms_id()
        public = seal.PublicKey()
        _put(public, context, _ciphertext(public_key, key_parms, is_ntt_form=True))
        self._encryptor = refuse(seal.Encryptor, context, public)
        self._decryptor = None
        if secret_key is not None:
            secret = seal.SecretKey()
            _put(secret, context, _plaintext(secret_key, key_parms))
            self._decryptor = refuse(seal.Decryptor, context, secret)

    @classmethod
    def generate(cls, scheme: Any) -> tuple[Residues, Residues]:
        """Draw a key pair; SEAL's generator is seeded by the system's random device."""
        generator = seal.KeyGenerator(cls._make_context(scheme))
        public = seal.PublicKey()
        generator.create_public_key(public)
        shape = (len(scheme.key_moduli), scheme.poly_degree)
        return take(public, (2, *shape)), take(generator.secret_key(), shape)

    @classmethod
    def _make_context(cls, scheme: Parameters) -> Any:
        """Make a context of exactly these parameters; SEAL checks their security once more."""
        parms = seal.EncryptionParameters(cls.scheme_type)
        parms.set_poly_modulus_degree(scheme.poly_degree)
        sizes = list(scheme.coefficient_bits)
        parms.set_coeff_modulus(refuse(seal.CoeffModulus.Create, scheme.poly_degree, sizes))
        cls._complete(parms, scheme)
        context = refuse(seal.SEALContext, parms, True, seal.SEC_LEVEL_TYPE.TC128)
        if not context.parameters_set():
            reason = context.parameters_error_message()
            raise CryptoError(f'the encryption library refused the parameters: {reason}')
        found = context.key_context_data().parms().coeff_modulus()
        if tuple(prime.value() for prime in found) != scheme.key_moduli:
            raise CryptoError('this SEAL chooses other primes than SEAL 4; use tenseal 0.3.18')
        return context

    @classmethod
    def _complete(cls, parms: Any, scheme: Any) -> None:
        """Set what this kind of scheme needs besides the ring."""

    def _load(self, residues: Residues, *, is_ntt_form: bool = False) -> Any:
        """Hand a ciphertext to the library."""
        ciphertext = seal.Ciphertext()
        stream = _ciphertext(residues, self._parms, is_ntt_form=is_ntt_form)
        _put(ciphertext, self._context, stream)
        return ciphertext

    def _residues(self, ciphertext: Any) -> Residues:
        """Take the coefficients of a ciphertext out of the library."""
        return take(ciphertext, (2, len(self.scheme.moduli), self.scheme.poly_degree))

    def _open(self, ciphertext: Any) -> Any:
        """Decrypt into a plaintext of the library."""
        if self._decryptor is None:
            raise CryptoError('a public context cannot decrypt')
        plaintext = seal.Plaintext()
        refuse(self._decryptor.decrypt, ciphertext, plaintext)
        return plaintext


class Bfv(Seal):
    """One BFV key pair, or its public half, of a :class:`Scheme`."""

    scheme_type = seal.SCHEME_TYPE.BFV

    def __init__(
        self, scheme: Scheme, *, public_key: Residues, secret_key: Residues | None = None
    ) -> None:
        """Hand the keys to the library."""
        super().__init__(scheme, public_key=public_key, secret_key=secret_key)
        self._encoder = seal.BatchEncoder(self._context)

    @classmethod
    def _complete(cls, parms: Any, scheme: Scheme) -> None:
        parms.set_plain_modulus(scheme.plain_modulus)

    def encrypt(self, message: NDArray[np.int64]) -> Residues:
        """
        Encrypt one slot vector under the public key.

        :param message: shape (slots,), each in [0, t).
        :returns: shape (2, data primes, N).
        """
        plaintext, ciphertext = seal.Plaintext(), seal.Ciphertext()
        refuse(self._encoder.encode, message.tolist(), plaintext)
        refuse(self._encryptor.encrypt, plaintext, ciphertext)
        return self._residues(ciphertext)

    def decrypt(self, residues: Residues) -> tuple[NDArray[np.int64], int]:
        """
        Decrypt one ciphertext.

        :param residues: shape (2, data primes, N), each below its prime.
        :returns: values in [0, t), shape (slots,), and the noise budget left, in bits.
        :raises CryptoError: without a secret key, or if the library refuses the residues.
        """
        ciphertext = self._load(residues)
        plaintext = self._open(ciphertext)
        assert self._decryptor is not None
        budget = refuse(self._decryptor.invariant_noise_budget, ciphertext)
        values = np.array(refuse(self._encoder.decode_uint64, plaintext), dtype=np.int64)
        return values, int(budget)


def refuse(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call the library and turn what it raises into our error."""
    try:
        return function(*arguments)
    except _REFUSALS as error:
        raise CryptoError(f'the encryption library refused: {error}') from error


def _put(target: Any, context: Any, stream: bytes) -> None:
    """Let an object of the library read a stream."""
    descriptor = os.memfd_create('fdrl_ros', os.MFD_CLOEXEC)
    try:
        with open(descriptor, 'wb', closefd=False) as file:
            file.write(stream)
        refuse(target.load, context, f'/proc/self/fd/{descriptor}')
    finally:
        os.close(descriptor)


def take(source: Any, shape: tuple[int, ...]) -> Residues:
    """Read the coefficients of an object of the library; they are the end of its stream."""
    count = int(np.prod(shape))
    body = _body(_stream(source))
    if body is None:
        held = source
        while not hasattr(held, '__getitem__'):
            held = held.data()  # a key, which must outlive it, holds a ciphertext or a plaintext
        words = np.fromiter(map(held.__getitem__, range(count)), np.uint64, count)
    else:
        words = np.frombuffer(body, '<u8', count, len(body) - 8 * count).astype(np.uint64)
    return words.reshape(shape)


def _stream(source: Any) -> bytes:
    """Let the library write an object."""
    descriptor = os.memfd_create('fdrl_ros', os.MFD_CLOEXEC)
    try:
        refuse(source.save, f'/proc/self/fd/{descriptor}')
        return os.pread(descriptor, os.fstat(descriptor).st_size, 0)
    finally:
        os.close(descriptor)


@functools.cache
def _version() -> bytes:
    """Return how every stream of this library begins: magic number, header size, version."""
    return _stream(seal.Plaintext('1'))[:5]


def _body(stream: bytes) -> bytes | None:
    """Return what follows the header of a stream, or nothing if it cannot be decompressed."""
    compression, body = stream[5], stream[_HEADER_BYTES:]
    if compression == _ZLIB:
        return zlib.decompress(body)
    if compression == _ZSTD:
        return zstd.decompress(body) if zstd else None
    return body if compression == _PLAIN else None


def _object(body: bytes) -> bytes:
    """Put a header in front: no compression, reserved zero, and the whole size."""
    return _version() + struct.pack('<BHQ', _PLAIN, 0, _HEADER_BYTES + len(body)) + body


def _array(residues: Residues) -> bytes:
    return _object(struct.pack('<Q', residues.size) + residues.astype('<u8').tobytes())


def _ciphertext(residues: Residues, parms: list[int], *, is_ntt_form: bool) -> bytes:
    """Write a ciphertext or a public key: parameters, form, shape, scale, correction."""
    size, primes, degree = residues.shape
    head = struct.pack('<4QBQQQdQ', *parms, is_ntt_form, size, degree, primes, 1.0, 1)
    return _object(head + _array(residues))


def _plaintext(residues: Residues, parms: list[int]) -> bytes:
    """Write a plaintext in NTT form, as secret keys are: parameters, count and scale."""
    head = struct.pack('<4QQd', *parms, residues.size, 1.0)
    return _object(head + _array(residues))
