# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The encryption library behind plain arrays: Microsoft SEAL as TenSEAL ships it (FDRL Eq. 6).

:class:`Backend` is all that the schemes ask of a library: make keys, encrypt under the public key,
decrypt under the secret key, report the noise. Arrays of residues go in and out, whose shape and
range the caller has checked. Another library replaces TenSEAL by offering that class; choosing and
checking parameters, packing, masking, adding, the wire format and the flooding of CKKS lie above
it.

TenSEAL's own tensors cannot be used: they insist on relinearisation keys, print warnings, and pack
a whole context with every vector. Its lower interface, SEAL's, exchanges objects one coefficient
at a time or as a serialised stream. The stream is faster, so residues go in as an uncompressed
stream written here, and come out of the library's own stream, through an anonymous file in memory.
No bytes of another party ever reach a decompressor: they were parsed into residues before.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
import functools
import os
import struct
import sys
from typing import Any, ClassVar, Final, Protocol
import zlib

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

from fdrl_ros.crypto.he.bfv import BfvScheme
from fdrl_ros.crypto.he.parameters import Message, Parameters, Residues, Slots
from fdrl_ros.crypto.he.schemes import SCHEMES
from fdrl_ros.errors import CryptoError
import numpy as np
import tenseal.sealapi as seal


class Backend(Protocol):
    """
    A key pair of a scheme, or its public half, held by an encryption library.

    The form of a message depends on the scheme. BFV: the slots, integers in [0, t), shape (N,).
    CKKS: the coefficients of the polynomial itself, residues of shape (data primes, N), to which
    decryption adds the noise. Ciphertexts are coefficients, not in NTT form.

    A library raises :class:`~fdrl_ros.errors.CryptoError` on input that it refuses.
    """

    def __init__(
        self, scheme: Parameters, *, public_key: Residues, secret_key: Residues | None = None
    ) -> None:
        """
        Load keys that :meth:`generate` made.

        :param scheme: checked parameters.
        :param public_key: shape (2, primes, N).
        :param secret_key: shape (primes, N), or None for the public half.
        """

    @classmethod
    def generate(cls, scheme: Parameters) -> tuple[Residues, Residues]:
        """Return a fresh public key, shape (2, primes, N), and secret key, (primes, N)."""

    def encrypt(self, message: Message) -> Residues:
        """Encrypt one message under the public key; returns shape (2, data primes, N)."""

    def decrypt(self, residues: Residues) -> tuple[Message, int | None]:
        """
        Decrypt one ciphertext of shape (2, data primes, N).

        :returns: the message, and the bits of noise budget left where the scheme has one.
        """


# An object of SEAL: TenSEAL's bindings have no types.
SealObject = Any

# Exceptions of TenSEAL and SEAL on data that they refuse.
_REFUSALS = (RuntimeError, ValueError, TypeError, IndexError, OverflowError)

# SEAL's stream begins with magic number, header size, version, compression and whole size.
_HEADER_BYTES = 16
_PLAIN = 0
_DECOMPRESS: Final[dict[int, Callable[[bytes], bytes]]] = {
    _PLAIN: bytes,
    1: zlib.decompress,
    2: zstd.decompress,
}


class Seal:
    """
    A key pair of SEAL, or its public half; the common part of BFV and CKKS.

    :param scheme: checked parameters.
    :param public_key: residues, shape (2, primes, N).
    :param secret_key: residues, shape (primes, N), or None for the public half.
    :raises CryptoError: if the library refuses the keys.
    """

    scheme_type: ClassVar[SealObject]

    def __init__(
        self, scheme: Parameters, *, public_key: Residues, secret_key: Residues | None = None
    ) -> None:
        """Load the keys into the library."""
        self.scheme = scheme
        self._context = context = self._make_context(scheme)
        self._parms = context.first_parms_id()
        self.evaluator = seal.Evaluator(context)
        key_parms = context.key_parms_id()
        public = seal.PublicKey()
        load_stream(public, context, ciphertext_stream(public_key, key_parms, is_ntt_form=True))
        self.encryptor = call_library(seal.Encryptor, context, public)
        self.decryptor = None
        if secret_key is not None:
            secret = seal.SecretKey()
            load_stream(secret, context, plaintext_stream(secret_key, key_parms))
            self.decryptor = call_library(seal.Decryptor, context, secret)

    @classmethod
    def generate(cls, scheme: Parameters) -> tuple[Residues, Residues]:
        """Draw a key pair; the system's random device seeds SEAL's generator."""
        generator = seal.KeyGenerator(cls._make_context(scheme))
        public = seal.PublicKey()
        generator.create_public_key(public)
        shape = (len(scheme.key_moduli), scheme.poly_degree)
        return read_residues(public, (2, *shape)), read_residues(generator.secret_key(), shape)

    @classmethod
    def _make_context(cls, scheme: Parameters) -> SealObject:
        """Make a context of exactly these parameters; SEAL checks their security again."""
        parms = seal.EncryptionParameters(cls.scheme_type)
        parms.set_poly_modulus_degree(scheme.poly_degree)
        sizes = list(scheme.coefficient_bits)
        parms.set_coeff_modulus(call_library(seal.CoeffModulus.Create, scheme.poly_degree, sizes))
        cls._complete(parms, scheme)
        context = call_library(seal.SEALContext, parms, True, seal.SEC_LEVEL_TYPE.TC128)
        if not context.parameters_set():
            reason = context.parameters_error_message()
            raise CryptoError(f'the encryption library refused the parameters: {reason}')
        found = context.key_context_data().parms().coeff_modulus()
        if tuple(prime.value() for prime in found) != scheme.key_moduli:
            raise CryptoError('this SEAL chooses other primes than SEAL 4; use tenseal 0.3.18')
        return context

    @classmethod
    def _complete(cls, parms: SealObject, scheme: Parameters) -> None:
        """Set the parameters of this kind of scheme besides the ring."""

    def load(self, residues: Residues, *, is_ntt_form: bool = False) -> SealObject:
        """Load a ciphertext into the library."""
        ciphertext = seal.Ciphertext()
        stream = ciphertext_stream(residues, self._parms, is_ntt_form=is_ntt_form)
        load_stream(ciphertext, self._context, stream)
        return ciphertext

    def read_residues(self, ciphertext: SealObject) -> Residues:
        """Read the coefficients of a ciphertext from the library."""
        return read_residues(ciphertext, (2, len(self.scheme.moduli), self.scheme.poly_degree))

    def _open(self, ciphertext: SealObject) -> SealObject:
        """Decrypt into a plaintext of the library."""
        if self.decryptor is None:
            raise CryptoError('a public context cannot decrypt')
        plaintext = seal.Plaintext()
        call_library(self.decryptor.decrypt, ciphertext, plaintext)
        return plaintext


def call_library(function: Callable[..., SealObject], *arguments: object) -> SealObject:
    """Call the library and translate its exceptions."""
    try:
        return function(*arguments)
    except _REFUSALS as error:
        raise CryptoError(f'the encryption library refused: {error}') from error


@contextmanager
def _memory_file() -> Iterator[tuple[int, str]]:
    """Yield the descriptor and the path of an anonymous file in memory."""
    descriptor = os.memfd_create('fdrl_ros', os.MFD_CLOEXEC)
    try:
        yield descriptor, f'/proc/self/fd/{descriptor}'
    finally:
        os.close(descriptor)


def load_stream(target: SealObject, context: SealObject, stream: bytes) -> None:
    """Let an object of the library read a stream."""
    with _memory_file() as (descriptor, path):
        with open(descriptor, 'wb', closefd=False) as file:
            file.write(stream)
        call_library(target.load, context, path)


def read_residues(source: SealObject, shape: tuple[int, ...]) -> Residues:
    """Read the coefficients of a library object, which end its stream."""
    count = int(np.prod(shape))
    stream = _stream(source)
    body = _DECOMPRESS[stream[5]](stream[_HEADER_BYTES:])
    words = np.frombuffer(body, '<u8', count, len(body) - 8 * count)
    return words.astype(np.uint64).reshape(shape)


def _stream(source: SealObject) -> bytes:
    """Serialise an object by the library."""
    with _memory_file() as (descriptor, path):
        call_library(source.save, path)
        return os.pread(descriptor, os.fstat(descriptor).st_size, 0)


@functools.cache
def _version() -> bytes:
    """Return the start of every stream of this library: magic number, header size, version."""
    return _stream(seal.Plaintext('1'))[:5]


def _object(body: bytes) -> bytes:
    """Prepend a header: no compression, reserved zero, and the whole size."""
    return _version() + struct.pack('<BHQ', _PLAIN, 0, _HEADER_BYTES + len(body)) + body


def _array(residues: Residues) -> bytes:
    return _object(struct.pack('<Q', residues.size) + residues.astype('<u8').tobytes())


def ciphertext_stream(residues: Residues, parms: list[int], *, is_ntt_form: bool) -> bytes:
    """Write a ciphertext or a public key: parameters, form, shape, scale, correction."""
    size, primes, degree = residues.shape
    head = struct.pack('<4QBQQQdQ', *parms, is_ntt_form, size, degree, primes, 1.0, 1)
    return _object(head + _array(residues))


def plaintext_stream(residues: Residues, parms: list[int]) -> bytes:
    """Write a plaintext in NTT form, as secret keys are: parameters, count and scale."""
    head = struct.pack('<4QQd', *parms, residues.size, 1.0)
    return _object(head + _array(residues))


class Bfv(Seal):
    """One BFV key pair, or its public half, of a :class:`BfvScheme`."""

    scheme_type = seal.SCHEME_TYPE.BFV

    @functools.cached_property
    def encoder(self) -> SealObject:
        """Return what puts integers into slots."""
        return seal.BatchEncoder(self._context)

    @classmethod
    def _complete(cls, parms: SealObject, scheme: Parameters) -> None:
        if not isinstance(scheme, BfvScheme):
            raise CryptoError(f"scheme {type(scheme).__name__}: SEAL's BFV expects BfvScheme")
        parms.set_plain_modulus(scheme.plain_modulus)

    def encrypt(self, message: Slots) -> Residues:
        """
        Encrypt one slot vector under the public key.

        :param message: shape (slots,), each in [0, t).
        :returns: shape (2, data primes, N).
        """
        plaintext, ciphertext = seal.Plaintext(), seal.Ciphertext()
        call_library(self.encoder.encode, message.tolist(), plaintext)
        call_library(self.encryptor.encrypt, plaintext, ciphertext)
        return self.read_residues(ciphertext)

    def decrypt(self, residues: Residues) -> tuple[Slots, int]:
        """
        Decrypt one ciphertext.

        :param residues: shape (2, data primes, N), each below its prime.
        :returns: values in [0, t), shape (slots,), and the noise budget left, in bits.
        :raises CryptoError: without a secret key, or if the library refuses the residues.
        """
        ciphertext = self.load(residues)
        plaintext = self._open(ciphertext)
        assert self.decryptor is not None
        budget = call_library(self.decryptor.invariant_noise_budget, ciphertext)
        values = np.array(call_library(self.encoder.decode_uint64, plaintext), dtype=np.int64)
        return values, int(budget)


class Ckks(Seal):
    """One CKKS key pair, or its public half, of a :class:`CkksScheme`."""

    scheme_type = seal.SCHEME_TYPE.CKKS

    def encrypt(self, message: Residues) -> Residues:
        """
        Encrypt a polynomial under the public key: an encryption of zero plus the polynomial.

        :param message: shape (data primes, N).
        :returns: shape (2, data primes, N).
        """
        ciphertext = seal.Ciphertext()
        call_library(self.encryptor.encrypt_zero, ciphertext)
        call_library(self.evaluator.transform_from_ntt_inplace, ciphertext)
        residues = self.read_residues(ciphertext)
        residues[0] += message
        residues[0] %= np.array(self.scheme.moduli, dtype=np.uint64)[:, None]
        return residues

    def decrypt(self, residues: Residues) -> tuple[Residues, None]:
        """
        Decrypt one ciphertext; only :meth:`CkksScheme.release` may use the result.

        :param residues: shape (2, data primes, N), each below its prime.
        :returns: message plus noise, shape (data primes, N).
        :raises CryptoError: without a secret key, or if the library refuses the residues.
        """
        ciphertext = self.load(residues)
        call_library(self.evaluator.transform_to_ntt_inplace, ciphertext)
        opened = read_residues(self._open(ciphertext), residues.shape[1:])
        # The library transforms ciphertexts only, so the plaintext is loaded as one.
        wrapped = self.load(np.stack([opened, opened]), is_ntt_form=True)
        call_library(self.evaluator.transform_from_ntt_inplace, wrapped)
        return self.read_residues(wrapped)[0], None


def one_for_each_scheme(backends: dict[str, type[Backend]]) -> dict[str, type[Backend]]:
    """
    Return backends by kind of scheme.

    :raises CryptoError: if a scheme has none, or one has no scheme.
    """
    if backends.keys() != SCHEMES.keys():
        raise CryptoError(f'backends of {[*backends]}: expected one for each of {[*SCHEMES]}')
    return backends


BACKENDS: Final = one_for_each_scheme({'bfv': Bfv, 'ckks': Ckks})
"""The library behind each kind of scheme."""
