# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The parameters that all schemes share: a secure ring, its primes, and the packing of updates.

Updates are packed and unpacked whole or ciphertext by ciphertext, so that none need fit in memory.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from fdrl_ros.errors import CryptoError
import numpy as np
from numpy.typing import ArrayLike, NDArray


def is_prime(number: int) -> bool:
    """Return whether a number below 2^64 is prime (Miller-Rabin, deterministic bases)."""
    bases = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37)
    if number < 2:
        return False
    for base in bases:
        if number % base == 0:
            return number == base
    odd, twos = number - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for base in bases:
        power = pow(base, odd, number)
        if power in (1, number - 1):
            continue
        for _ in range(twos - 1):
            power = power * power % number
            if power == number - 1:
                break
        else:
            return False
    return True


def plain_prime(least: int, poly_degree: int) -> int:
    """Return the smallest prime p >= least with p = 1 mod 2N, which batching needs."""
    factor = 2 * poly_degree
    number = -(-(least - 1) // factor) * factor + 1
    while not is_prime(number):
        number += factor
    return number


def coefficient_primes(bits: tuple[int, ...], poly_degree: int) -> tuple[int, ...]:
    """
    Return the largest distinct primes of the given sizes with p = 1 mod 2N.

    :raises CryptoError: if there are not enough of them.
    """
    factor = 2 * poly_degree
    primes: dict[int, list[int]] = {}
    for size in sorted(set(bits)):
        number = (2**size - 1) // factor * factor + 1
        found = primes.setdefault(size, [])
        while len(found) < bits.count(size):
            if number < 2 ** (size - 1):
                raise CryptoError(f'{bits.count(size)} primes of {size} bits: there are fewer')
            if is_prime(number):
                found.append(number)
            number -= factor
    # SEAL assigns primes of one size in rising order.
    return tuple(primes[size].pop() for size in bits)


# Albrecht et al., Homomorphic Encryption Standard (2018), Table 1: ternary secret, classical
# attacks, 128 bits. Ring degree N -> most bits of the whole coefficient modulus.
SECURITY_128: Final = {2048: 54, 4096: 109, 8192: 218, 16384: 438}

# A ciphertext begins with the SHA-256 digest of its public context.
DIGEST_BYTES: Final = 32

# Largest error coefficient that SEAL draws: a centred binomial of 21 bit pairs.
_FRESH_ERROR = 21


@dataclass(frozen=True)
class Parameters(ABC):
    """
    Parameters of every scheme: a secure ring, and the updates that are summed in it.

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

    def __post_init__(self) -> None:
        """Refuse numbers out of range, and rings of less than 128-bit security."""
        self._check_range('n_parameters', 1, 10**9)
        self._check_range('members', 1, 2**16)
        self._check_range('bits', 1, 32)
        self._check_range('poly_degree', 1, 2**15)
        if self.poly_degree not in SECURITY_128:
            raise CryptoError(f'ring degree {self.poly_degree}: expected {list(SECURITY_128)}')
        sizes = self.coefficient_bits
        if (
            not isinstance(sizes, tuple)
            or len(sizes) < 2
            or not all(type(size) is int and 20 <= size <= 60 for size in sizes)
        ):
            raise CryptoError(f'coefficient_bits = {sizes!r}: expected two or more, 20 to 60 each')
        if sum(sizes) > SECURITY_128[self.poly_degree]:
            raise CryptoError(
                f'{sum(sizes)} bits of modulus at ring degree {self.poly_degree}: at most '
                f'{SECURITY_128[self.poly_degree]} give 128-bit security'
            )

    def _check_range(self, name: str, low: int, high: int) -> None:
        value = getattr(self, name)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise CryptoError(f'{name} = {value!r}: expected an integer, {low} to {high}')

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
    def integers_per_ciphertext(self) -> int:
        """Return how many integers of an update one ciphertext holds."""
        return self.slots

    @property
    def ciphertexts(self) -> int:
        """Return how many ciphertexts one update takes."""
        return -(-self.n_parameters // self.integers_per_ciphertext)

    @property
    def residue_bytes(self) -> tuple[int, ...]:
        """Return the bytes of a residue of each prime q_j."""
        return tuple(-(-size // 8) for size in self.coefficient_bits[:-1])

    @property
    def dropped_bytes(self) -> int:
        """Return how many low bytes of the first polynomial's residues do not travel."""
        return 0

    @property
    def ciphertext_bytes(self) -> int:
        """Return the bytes of one ciphertext on the wire: a digest and two polynomials."""
        pair = 2 * sum(self.residue_bytes) - self.dropped_bytes
        return DIGEST_BYTES + self.poly_degree * pair

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

    def pack(self, integers: ArrayLike) -> NDArray[np.int64]:
        """
        Put the integers of an update into the slots of ciphertexts.

        :param integers: one update, shape (P,), each in [0, 2^bits - 1].
        :returns: shape (ciphertexts, slots), each below the plain modulus; padded with zeros.
        :raises CryptoError: on another shape, type or range.
        """
        return self._pack(self._checked(integers, self.n_parameters))

    def pack_rows(self, integers: Iterable[ArrayLike]) -> Iterator[NDArray[np.int64]]:
        """
        Pack ciphertext by ciphertext, as :meth:`pack`, without holding the whole update.

        :param integers: parts of an update, shape (integers_per_ciphertext,) except the last.
        :returns: one row of shape (slots,) for each part.
        :raises CryptoError: on another shape, type or range, or if the parts are not an update.
        """
        left = self.n_parameters
        for part in integers:
            wanted = min(left, self.integers_per_ciphertext)
            yield self._pack(self._checked(part, wanted))[0]
            left -= wanted
        if left:
            raise CryptoError(f'{left} of {self.n_parameters} integers are missing')

    def unpack(
        self, sums: ArrayLike, n_parameters: int | None = None, *, count: int | None = None
    ) -> NDArray[np.int64]:
        """
        Recover the sums of the integers from the sums of the slots.

        :param sums: sums modulo t, shape (ciphertexts, slots).
        :param n_parameters: P, to be checked if given.
        :param count: how many members were summed; all unless given.
        :returns: shape (P,).
        :raises CryptoError: on another shape, or sums that these members cannot have made, as
            when masks do not cancel.
        """
        if n_parameters not in (None, self.n_parameters):
            raise CryptoError(f'{n_parameters} parameters: this scheme is for {self.n_parameters}')
        sums = np.asarray(sums)
        if sums.shape != (self.ciphertexts, self.slots):
            raise CryptoError(
                f'sums {sums.dtype} {sums.shape}: expected integers '
                f'({self.ciphertexts}, {self.slots})'
            )
        return np.concatenate(list(self.unpack_rows(sums, count=count)))

    def unpack_rows(
        self, sums: Iterable[ArrayLike], *, count: int | None = None
    ) -> Iterator[NDArray[np.int64]]:
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
            row = np.asarray(row)
            if left < 1 or row.shape != (self.slots,) or row.dtype.kind not in 'iu':
                raise CryptoError(
                    f'sums {row.dtype} {row.shape}: expected {self.ciphertexts} rows of integers '
                    f'({self.slots},)'
                )
            length = min(left, self.integers_per_ciphertext)
            yield self._unpack(row.astype(np.int64), length, count)
            left -= length
        if left:
            raise CryptoError(f'the sums of {left} of {self.n_parameters} integers are missing')

    def _checked(self, integers: ArrayLike, length: int) -> NDArray[np.int64]:
        """Check a part of an update of that length, and pad it to whole ciphertexts."""
        integers = np.asarray(integers)
        if length < 1 or integers.shape != (length,) or integers.dtype.kind not in 'iu':
            raise CryptoError(
                f'integers {integers.dtype} {integers.shape}: expected integers ({length},)'
            )
        if integers.min() < 0 or integers.max() > self.levels:
            raise CryptoError(f'integers beyond [0, {self.levels}] would spill into others')
        rows = -(-length // self.integers_per_ciphertext)
        padded = np.zeros((rows, self.integers_per_ciphertext), dtype=np.int64)
        padded.reshape(-1)[:length] = integers
        return padded

    def encode(self, slots: NDArray[np.int64]) -> NDArray[Any]:
        """Turn slots, shape (slots,), into the message that a backend encrypts."""
        return slots

    @abstractmethod
    def _pack(self, integers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Turn rows of integers into rows of slots."""

    @abstractmethod
    def _unpack(self, row: NDArray[np.int64], length: int, count: int) -> NDArray[np.int64]:
        """Turn a row of sums into the first `length` sums of integers; the rest is padding."""
