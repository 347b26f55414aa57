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

from fdrl_ros.crypto.he.checksum import check_sums, checks_for
from fdrl_ros.crypto.he.parameters import Parameters
from fdrl_ros.crypto.he.primes import is_prime, plain_prime
from fdrl_ros.errors import CryptoError
import numpy as np
from numpy.typing import NDArray

# Ring degree and bits of the primes. The last prime serves key generation only and rounds the
# noise of fresh ciphertexts away; the others are what travels, filling whole bytes or nearly.
CANDIDATES: Final = ((4096, (56, 53)), (4096, (60, 49)), (4096, (40, 40, 29)))

# SEAL allows plaintext moduli up to 60 bits.
_PLAIN_BITS = 60


@dataclass(frozen=True)
class Scheme(Parameters):
    """
    BFV parameters for exact sums.

    See :class:`~fdrl_ros.crypto.he.parameters.Parameters` for the rest of the fields.

    :param plain_modulus: prime t = 1 mod 2N; slots and masks are integers modulo t.
    :param values_per_slot: how many integers share a slot.
    """

    plain_modulus: int
    values_per_slot: int

    def __post_init__(self) -> None:
        """Refuse a scheme that is weak, or whose sums might not be exact."""
        super().__post_init__()
        self._check_range('plain_modulus', 2, 2**_PLAIN_BITS)
        self._check_range('values_per_slot', 1, 60)
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
        return self.members * self.levels + 1

    @property
    def integers_per_ciphertext(self) -> int:
        """Return how many integers of an update one ciphertext holds."""
        return (self.slots - self.checks) * self.values_per_slot

    @cached_property
    def checks(self) -> int:
        """Return how many slots of a ciphertext are sums of the others."""
        return checks_for(self.plain_modulus)

    @cached_property
    def dropped_bytes(self) -> int:
        """
        Return how many low bytes of the first polynomial's residues do not travel.

        They hold noise alone, so a hospital rounds them away as far as the noise margin of the
        full sum stays a bit or more. Residues of several primes have no low bytes.
        """
        if len(self.moduli) > 1:
            return 0
        return max(number for number in range(3) if not number or self._margin(number) >= 1)

    @cached_property
    def noise_margin(self) -> float:
        """Return the bits between the worst noise of a full sum and the first that hurts."""
        return self._margin(self.dropped_bytes)

    def _margin(self, dropped_bytes: int) -> float:
        """Return the margin if so many bytes are rounded away, of each ciphertext and the sum."""
        rounding = 256**dropped_bytes // 2
        noise = self.members * (self.fresh_noise + rounding) + rounding
        # Decryption is right below q / 2t.
        return math.log2(math.prod(self.moduli)) - math.log2(2 * self.plain_modulus * noise)

    def _pack(self, integers: NDArray[np.int64]) -> NDArray[np.int64]:
        powers = self.radix ** np.arange(self.values_per_slot, dtype=np.int64)
        rows = integers.reshape(-1, self.slots - self.checks, self.values_per_slot) @ powers
        return np.hstack((rows, check_sums(rows, self.plain_modulus)))

    def _unpack(self, row: NDArray[np.int64], length: int, count: int) -> NDArray[np.int64]:
        row, sums = row[: -self.checks], row[-self.checks :]
        if ((check_sums(row[None], self.plain_modulus)[0] - sums) % self.plain_modulus).any():
            # In what way tells of the secret key: see there.
            raise CryptoError('check slots do not fit: masks did not cancel, or made-up updates')
        if row.min() < 0 or row.max() >= self.radix**self.values_per_slot:
            raise CryptoError('sums out of range: masks did not cancel or an update is malformed')
        values = np.empty((row.size, self.values_per_slot), dtype=np.int64)
        for place in range(self.values_per_slot):
            row, values[:, place] = np.divmod(row, self.radix)
        flat = values.reshape(-1)
        if flat[length:].any():
            raise CryptoError(
                'padding is not zero: masks did not cancel or an update is malformed'
            )
        if flat.max() > count * self.levels:
            raise CryptoError(
                f'sums out of range of {count} members: masks did not cancel or an update is '
                f'malformed'
            )
        return flat[:length]


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
