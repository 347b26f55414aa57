# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The parameters that all schemes share: a secure ring, its primes, and the packing of updates.

Updates are packed and unpacked whole or ciphertext by ciphertext, so that none need fit in memory.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
import itertools
import math
from typing import Any, ClassVar, Final, Self

from fdrl_ros.errors import CryptoError
import numpy as np
from numpy.typing import ArrayLike, NDArray


@cache
def is_prime(number: int) -> bool:
    """Return whether a number below 2^64 is prime (Miller-Rabin, deterministic bases)."""
    bases = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37)
    if number < 2 or any(number % base == 0 for base in bases):
        return number in bases
    twos = ((number - 1) & -(number - 1)).bit_length() - 1
    for base in bases:
        start = pow(base, number >> twos, number)
        squares = itertools.repeat(None, twos - 1)
        powers = itertools.accumulate(squares, lambda x, _: x * x % number, initial=start)
        if start != 1 and number - 1 not in powers:
            return False
    return True


@cache
def plain_prime(least: int, poly_degree: int) -> int:
    """Return the smallest prime p >= least with p = 1 mod 2N, which batching needs."""
    factor = 2 * poly_degree
    start = -(-(least - 1) // factor) * factor + 1
    return next(number for number in itertools.count(start, factor) if is_prime(number))


@cache
def coefficient_primes(bits: tuple[int, ...], poly_degree: int) -> tuple[int, ...]:
    """
    Return the largest distinct primes of the given sizes with p = 1 mod 2N.

    :raises CryptoError: if there are not enough of them.
    """
    factor = 2 * poly_degree
    primes: dict[int, list[int]] = {}
    for size in set(bits):
        numbers = range((2**size - 1) // factor * factor + 1, 2 ** (size - 1), -factor)
        primes[size] = list(itertools.islice(filter(is_prime, numbers), bits.count(size)))
        enough = len(primes[size]) == bits.count(size)
        if not enough:
            raise CryptoError(f'{bits.count(size)} primes of {size} bits: there are fewer')
    # SEAL assigns primes of one size in rising order.
    return tuple(primes[size].pop() for size in bits)


# Albrecht et al., Homomorphic Encryption Standard (2018), Table 1: ternary secret, classical
# attacks, 128 bits. Ring degree N -> most bits of the whole coefficient modulus.
SECURITY_128: Final = {2048: 54, 4096: 109, 8192: 218, 16384: 438}

# What a backend encrypts: the form depends on the scheme.
Message = NDArray[Any]
# Integers of an update, or modulo t as the slots of a ciphertext.
Slots = NDArray[np.int64]
# Residues of polynomials, shape (..., primes, N), each below its prime.
Residues = NDArray[np.uint64]

# A ciphertext begins with the SHA-256 digest of its public context.
DIGEST_BYTES: Final = 32

MISFIT: Final = 'masks did not cancel or an update is malformed'

# Largest error coefficient that SEAL draws: a centred binomial of 21 bit pairs.
_FRESH_ERROR = 21


def integers_of(what: str, values: ArrayLike, size: int, *, highest: int) -> Slots:
    """
    Refuse what is not a row of integers from 0 to the highest.

    :raises CryptoError: on another shape, type or range.
    """
    found = np.asarray(values)
    right = size > 0 and found.shape == (size,) and found.dtype.kind in 'iu'
    if not right or found.min() < 0 or found.max() > highest:
        raise CryptoError(f'{what} {found.shape}: expected {size} integers, 0 to {highest}')
    return found.astype(np.int64)


def pack_bits(numbers: ArrayLike, bits: int) -> bytes:
    """
    Join integers of so many bits each, the lowest first; what is left of the last byte is zero.

    :param numbers: each in [0, 2^bits), at most 64 bits.
    """
    words = np.ascontiguousarray(numbers, dtype='<u8').reshape(-1, 1).view(np.uint8)
    flags = np.unpackbits(words, axis=1, count=bits, bitorder='little')
    return np.packbits(flags, bitorder='little').tobytes()


def unpack_bits(data: bytes, bits: int) -> NDArray[np.uint64]:
    """
    Read what :func:`pack_bits` joined, as many integers as there is room for.

    :raises CryptoError: if what is left of the last byte is not zero.
    """
    flags = np.unpackbits(np.frombuffer(data, np.uint8), bitorder='little')
    count = flags.size // bits
    if flags[count * bits :].any():
        raise CryptoError('bits beyond the last number')
    words = np.zeros((count, 8), dtype=np.uint8)
    rows = flags[: count * bits].reshape(count, bits)
    words[:, : -(-bits // 8)] = np.packbits(rows, axis=1, bitorder='little')
    return words.view('<u8').ravel().astype(np.uint64, copy=False)


@dataclass(frozen=True)
class Parameters(ABC):
    """
    Parameters of every scheme: a secure ring, and the updates that are summed in it.

    A scheme states `kind`, `summary` and `dishonest_warning` in its own class, and has
    `plain_modulus`, t, as a field or property: slots and masks are integers modulo t.

    :param n_parameters: P, integers in one update.
    :param members: most updates in one sum.
    :param bits: bits of one integer.
    :param poly_degree: ring degree N, also the slots of one ciphertext.
    :param coefficient_bits: bits of each prime of the coefficient modulus; the last prime is
        for keys only and does not travel.
    """

    n_parameters: int
    members: int
    bits: int
    poly_degree: int
    coefficient_bits: tuple[int, ...]

    kind: ClassVar[str]
    """Name of the scheme in settings."""

    inspected: ClassVar[bool] = False
    """Whether each update can be looked at alone, masked, before it is added."""

    summary: ClassVar[str]
    """What distinguishes the scheme, for the help of the setting."""

    dishonest_warning: ClassVar[str]
    """What a hospital that departs from the protocol can do; empty if the scheme detects that."""

    ranges: ClassVar[dict[str, tuple[int, int]]] = {
        'n_parameters': (1, 10**9),
        'members': (1, 2**16),
        'bits': (1, 32),
        'poly_degree': (1, 2**15),
    }

    def __post_init__(self) -> None:
        """Refuse numbers out of range, and rings of less than 128-bit security."""
        for name, (low, high) in self.ranges.items():
            value = getattr(self, name)
            if type(value) is not int or not low <= value <= high:
                raise CryptoError(f'{name} = {value!r}: expected an integer, {low} to {high}')
        sizes, most = self.coefficient_bits, SECURITY_128.get(self.poly_degree, 0)
        right = isinstance(sizes, tuple) and all(type(size) is int for size in sizes)
        if not right or len(sizes) < 2 or not 20 <= min(sizes) <= max(sizes) <= 60:
            raise CryptoError(f'coefficient_bits = {sizes!r}: expected two or more, 20 to 60')
        if sum(sizes) > most:
            raise CryptoError(
                f'{sum(sizes)} bits of modulus at ring degree {self.poly_degree}: at most {most} '
                f'give 128-bit security'
            )

    @classmethod
    @abstractmethod
    def choose(cls, n_parameters: int, members: int, bits: int) -> Self:
        """
        Return the scheme with the fewest bytes on the wire that is secure.

        :param n_parameters: P, integers in one update.
        :param members: most hospitals in one sum.
        :param bits: bits of one quantised integer.
        :raises CryptoError: if none fits.
        """

    @property
    def most_rounds(self) -> float:
        """Return how many rounds one key pair serves before it must be replaced."""
        return math.inf

    def __str__(self) -> str:
        """Describe the parameters in one line."""
        primes = '+'.join(map(str, self.coefficient_bits))
        return (
            f'{self.kind.upper()}, N = {self.poly_degree}, {primes} bits, '
            f'{self.n_parameters} parameters of {self.bits} bits, {self.members} hospitals'
        )

    @property
    def levels(self) -> int:
        """Return the largest integer of one update, 2^bits - 1."""
        return 2**self.bits - 1

    @cached_property
    def key_moduli(self) -> tuple[int, ...]:
        """Return all primes of the coefficient modulus, as SEAL finds them."""
        return coefficient_primes(self.coefficient_bits, self.poly_degree)

    @property
    def moduli(self) -> tuple[int, ...]:
        """Return the primes q_j of ciphertexts: all but the last."""
        return self.key_moduli[:-1]

    @property
    def slots(self) -> int:
        """Return how many integers modulo t one ciphertext holds."""
        return self.poly_degree

    @property
    def checks(self) -> int:
        """Return how many slots of a ciphertext are sums of the others."""
        return 0

    @property
    def integers_per_ciphertext(self) -> int:
        """Return how many integers of an update one ciphertext holds."""
        return self.slots

    @property
    def ciphertexts(self) -> int:
        """Return how many ciphertexts one update takes."""
        return -(-self.n_parameters // self.integers_per_ciphertext)

    @property
    def residue_bits(self) -> tuple[int, ...]:
        """Return the bits of a residue of each prime q_j on the wire: whole bytes."""
        return tuple(-(-size // 8) * 8 for size in self.coefficient_bits[:-1])

    @property
    def dropped_bytes(self) -> int:
        """Return how many low bytes of the first polynomial's residues do not travel."""
        return 0

    @property
    def ciphertext_bytes(self) -> int:
        """Return the bytes of one ciphertext on the wire: a digest and two polynomials."""
        pair = 2 * sum(self.residue_bits) - 8 * self.dropped_bytes
        return DIGEST_BYTES + self.poly_degree * pair // 8

    @cached_property
    def fresh_noise(self) -> float:
        """
        Return the largest noise coefficient of one honest encryption.

        Under a public key it is (e u + e_1 + e_2 s) / p + rounding, with p the last prime, u and
        s ternary and SEAL's |e| <= 21. Rounding, of the message and after dividing by p, adds at
        most (N + 2) / 2. Every term counts at its worst.
        """
        degree = self.poly_degree
        return _FRESH_ERROR * (2 * degree + 1) / self.key_moduli[-1] + (degree + 2) / 2

    def pack(self, integers: ArrayLike) -> Slots:
        """
        Put the integers of an update into the slots of ciphertexts.

        :param integers: one update, shape (P,), each in [0, 2^bits - 1].
        :returns: shape (ciphertexts, slots), each below the plain modulus; padded with zeros.
        :raises CryptoError: on another shape, type or range.
        """
        integers, size = np.atleast_1d(integers), self.integers_per_ciphertext
        parts = (integers[start : start + size] for start in range(0, len(integers), size))
        return np.stack(list(self.pack_rows(parts)))

    def pack_rows(self, integers: Iterable[ArrayLike]) -> Iterator[Slots]:
        """
        Pack ciphertext by ciphertext, as :meth:`pack`, without holding the whole update.

        :param integers: parts of an update, shape (integers_per_ciphertext,) except the last.
        :returns: one row of shape (slots,) for each part.
        :raises CryptoError: on another shape, type or range, or if the parts are not an update.
        """
        left = self.n_parameters
        for part in integers:
            length = min(left, self.integers_per_ciphertext)
            row = np.zeros(self.integers_per_ciphertext, dtype=np.int64)
            row[:length] = integers_of('integers', part, length, highest=self.levels)
            yield self._pack(row)
            left -= length
        if left:
            raise CryptoError(f'{left} of {self.n_parameters} integers are missing')

    def unpack(self, sums: Iterable[ArrayLike], *, count: int | None = None) -> Slots:
        """
        Recover the sums of the integers from the sums of the slots.

        :param sums: sums modulo t, shape (ciphertexts, slots).
        :param count: how many members were summed; all unless given.
        :returns: shape (P,).
        :raises CryptoError: on another shape, or sums that these members cannot have made, as
            when masks do not cancel.
        """
        return np.concatenate(list(self.unpack_rows(sums, count=count)))

    def unpack_rows(
        self, sums: Iterable[ArrayLike], *, count: int | None = None
    ) -> Iterator[Slots]:
        """
        Unpack ciphertext by ciphertext, as :meth:`unpack`.

        :param sums: rows of sums modulo t, shape (slots,), of a whole update.
        :returns: parts of the sums of integers, which together have shape (P,).
        :raises CryptoError: as :meth:`unpack`.
        """
        count = self.members if count is None else count
        if not 1 <= count <= self.members:
            raise CryptoError(f'count = {count!r}: expected 1 to {self.members} members')
        left = self.n_parameters
        for row in sums:
            length = min(left, self.integers_per_ciphertext)
            if not length:
                raise CryptoError(f'more than {self.ciphertexts} rows of sums')
            row = integers_of('sums', row, self.slots, highest=2**62)
            yield self._unpack(row, length, count)
            left -= length
        if left:
            raise CryptoError(f'sums of {left} of {self.n_parameters} are missing')

    def completed(self, row: Slots) -> Slots:
        """Return a row, shape (slots,), whose check slots fit the others, if there are any."""
        return row

    def check(self, row: Slots) -> None:
        """
        Refuse a row of slots, masked or not, of one update or a sum, whose check slots do not fit.

        :raises CryptoError: if so.
        """
        assert len(row) == self.slots

    def encode(self, slots: Slots) -> Message:
        """Turn slots, shape (slots,), into the message that a backend encrypts."""
        return slots

    def decode(self, message: Message) -> Slots:
        """Turn a message that a backend decrypted into slots, shape (slots,)."""
        return message

    @abstractmethod
    def release(
        self,
        message: Message,
        budget: int | None,
        *,
        secret: bytes,
        ciphertext: bytes,
        fresh: bool = False,
    ) -> Slots:
        """
        Turn a decrypted message into slots that may be released.

        :param budget: bits of noise budget that the backend found left, where it finds that.
        :param fresh: whether one hospital encrypted it, so that it is no sum.
        :param secret: known to the holder of the secret key only.
        :param ciphertext: what was decrypted.
        :raises CryptoError: if no sum of the members decrypts to this.
        """

    @abstractmethod
    def _pack(self, row: Slots) -> Slots:
        """Turn the integers of one ciphertext into its slots."""

    @abstractmethod
    def _unpack(self, row: Slots, length: int, count: int) -> Slots:
        """Turn a row of sums into the first `length` sums of integers; the rest is padding."""
