# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Choose BFV parameters for exact sums, and pack integers into slots (FDRL Eq. 6).

A scheme is refused unless three things are certain: 128-bit security by the table of the
homomorphic encryption standard, room for the carries of all members' sum in every packed
value, and a noise that cannot reach the message even if each of its terms is the worst.
So an honest sum always decrypts exactly: there is no failure probability to state.
"""

from dataclasses import dataclass
from functools import cached_property
import math
from typing import Final

from fdrl_ros.crypto.primes import coefficient_primes, is_prime, plain_prime
from fdrl_ros.errors import CryptoError
import numpy as np
from numpy.typing import ArrayLike, NDArray

# Albrecht et al., Homomorphic Encryption Standard (2018), Table 1: ternary secret, classical
# attacks, 128 bits. Ring degree N -> most bits of the whole coefficient modulus.
SECURITY_128: Final = {2048: 54, 4096: 109, 8192: 218, 16384: 438}

# Ring degree and bits of the primes. The last prime serves key generation only and rounds the
# noise of fresh ciphertexts away; the others are what travels, filling whole bytes (7 and 5).
CANDIDATES: Final = ((4096, (56, 53)), (4096, (40, 40, 29)))

# A ciphertext begins with the SHA-256 digest of the public context that it belongs to.
DIGEST_BYTES: Final = 32

# SEAL allows plaintext moduli up to 60 bits.
_PLAIN_BITS = 60
# Largest error coefficient that SEAL draws: a centred binomial of 21 bit pairs.
_FRESH_ERROR = 21


@dataclass(frozen=True)
class Scheme:
    """
    BFV parameters for exact sums of ``members`` updates of ``n_parameters`` integers.

    :param n_parameters: P, integers in one update.
    :param members: most updates in one sum.
    :param bits: bits of one integer.
    :param poly_degree: ring degree N, also the slots of one ciphertext.
    :param coefficient_bits: bits of each prime of the coefficient modulus; the last prime is
        for keys only and does not travel.
    :param plain_modulus: prime t = 1 mod 2N; slots and masks are integers modulo t.
    :param values_per_slot: how many integers share a slot.
    """

    n_parameters: int
    members: int
    bits: int
    poly_degree: int
    coefficient_bits: tuple[int, ...]
    plain_modulus: int
    values_per_slot: int

    def __post_init__(self) -> None:
        """Refuse a scheme that is weak, or whose sums might not be exact."""
        for name, low, high in (
            ('n_parameters', 1, 10**9),
            ('members', 1, 2**16),
            ('bits', 1, 32),
            ('poly_degree', 1, 2**15),
            ('plain_modulus', 2, 2**_PLAIN_BITS),
            ('values_per_slot', 1, 60),
        ):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
                raise CryptoError(f'{name} = {value!r}: expected an integer, {low} to {high}')
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
        t = self.plain_modulus
        if t % (2 * self.poly_degree) != 1 or not is_prime(t) or t in self.key_moduli:
            raise CryptoError(f'plain modulus {t}: expected another prime, 1 modulo 2N')
        if self.radix**self.values_per_slot > t:
            raise CryptoError(
                f'{self.values_per_slot} sums of {self.members} x {self.bits} bits do not fit '
                f'below the plain modulus {t}'
            )
        if self.noise_margin < 1:
            raise CryptoError(
                f'noise margin {self.noise_margin:.1f} bits with {self.members} members: '
                f'expected at least 1; a sum could decrypt wrongly'
            )

    @property
    def radix(self) -> int:
        """Return one more than the largest sum of one integer over all members."""
        return self.members * (2**self.bits - 1) + 1

    @cached_property
    def key_moduli(self) -> tuple[int, ...]:
        """Return all primes of the coefficient modulus, as SEAL finds them."""
        return coefficient_primes(self.coefficient_bits, self.poly_degree)

    @property
    def moduli(self) -> tuple[int, ...]:
        """Return the primes q_j that ciphertexts are reduced by: all but the last."""
        return self.key_moduli[:-1]

    @property
    def slots(self) -> int:
        """Return how many integers modulo t one ciphertext holds."""
        return self.poly_degree

    @property
    def ciphertexts(self) -> int:
        """Return how many ciphertexts one update takes."""
        return -(-self.n_parameters // (self.slots * self.values_per_slot))

    @property
    def residue_bytes(self) -> int:
        """Return the bytes of one residue on the wire."""
        return -(-max(self.coefficient_bits[:-1]) // 8)

    @property
    def ciphertext_bytes(self) -> int:
        """Return the bytes of one ciphertext on the wire: a digest and two polynomials."""
        return DIGEST_BYTES + 2 * len(self.moduli) * self.poly_degree * self.residue_bytes

    @cached_property
    def noise_margin(self) -> float:
        """
        Return the bits between the worst noise of a full sum and the first that hurts.

        A fresh public-key ciphertext has the noise (e u + e_1 + e_2 s) / p + rounding, with p
        the last prime, u and s ternary and SEAL's |e| <= 21; rounding, dividing by p and
        scaling the message, adds at most (N + 2) / 2. Decryption is right below q / 2t.
        """
        degree = self.poly_degree
        fresh = _FRESH_ERROR * (2 * degree + 1) / self.key_moduli[-1] + (degree + 2) / 2
        q = math.prod(self.moduli)
        return math.log2(q) - math.log2(2 * self.plain_modulus * self.members * fresh)

    def pack(self, integers: ArrayLike) -> NDArray[np.int64]:
        """
        Put the integers into slots, ``values_per_slot`` neighbours in each.

        :param integers: one update, shape (P,), each in [0, 2^bits - 1].
        :returns: shape (ciphertexts, slots), each below the plain modulus; padded with zeros.
        :raises CryptoError: on another shape, type or range.
        """
        integers = np.asarray(integers)
        if integers.shape != (self.n_parameters,) or integers.dtype.kind not in 'iu':
            raise CryptoError(
                f'integers {integers.dtype} {integers.shape}: expected integers '
                f'({self.n_parameters},)'
            )
        if integers.min() < 0 or integers.max() > 2**self.bits - 1:
            raise CryptoError(f'integers beyond [0, {2**self.bits - 1}] would spill into others')
        padded = np.zeros(self.ciphertexts * self.slots * self.values_per_slot, dtype=np.int64)
        padded[: integers.size] = integers
        powers = self.radix ** np.arange(self.values_per_slot, dtype=np.int64)
        return padded.reshape(self.ciphertexts, self.slots, self.values_per_slot) @ powers

    def unpack(self, sums: ArrayLike, n_parameters: int | None = None) -> NDArray[np.int64]:
        """
        Take the sums of the integers out of the sums of the slots.

        :param sums: sums modulo t, shape (ciphertexts, slots).
        :param n_parameters: P, if the caller wants it checked.
        :returns: shape (P,).
        :raises CryptoError: on another shape, or sums that no members can have made, as when
            masks do not cancel.
        """
        if n_parameters not in (None, self.n_parameters):
            raise CryptoError(f'{n_parameters} parameters: this scheme is for {self.n_parameters}')
        sums = np.asarray(sums)
        if sums.shape != (self.ciphertexts, self.slots) or sums.dtype.kind not in 'iu':
            raise CryptoError(
                f'sums {sums.dtype} {sums.shape}: expected integers '
                f'({self.ciphertexts}, {self.slots})'
            )
        if sums.min() < 0 or sums.max() >= self.radix**self.values_per_slot:
            raise CryptoError('sums out of range: masks did not cancel or an update is malformed')
        rest = sums.astype(np.int64)
        values = np.empty((*rest.shape, self.values_per_slot), dtype=np.int64)
        for place in range(self.values_per_slot):
            rest, values[..., place] = np.divmod(rest, self.radix)
        flat = values.reshape(-1)
        if flat[self.n_parameters :].any():
            raise CryptoError(
                'padding is not zero: masks did not cancel or an update is malformed'
            )
        return flat[: self.n_parameters]


def choose_scheme(n_parameters: int, members: int, bits: int) -> Scheme:
    """
    Return the scheme with the fewest bytes on the wire that is secure and exact.

    :param n_parameters: P, integers in one update.
    :param members: most hospitals in one sum.
    :param bits: bits of one quantised integer.
    :raises CryptoError: if none fits.
    """
    schemes = []
    for degree, sizes in CANDIDATES:
        for values_per_slot in (3, 2, 1):
            least = (members * (2**bits - 1) + 1) ** values_per_slot
            if least.bit_length() > _PLAIN_BITS - 1:
                continue
            prime = plain_prime(max(least, 2 * degree + 1), degree)
            try:
                scheme = Scheme(n_parameters, members, bits, degree, sizes, prime, values_per_slot)
            except CryptoError:
                continue
            schemes.append(scheme)
    if not schemes:
        raise CryptoError(
            f'no 128-bit secure scheme sums {n_parameters} integers of {bits} bits over '
            f'{members} members exactly; take fewer bits'
        )
    return min(schemes, key=lambda scheme: scheme.ciphertexts * scheme.ciphertext_bytes)
