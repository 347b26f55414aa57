# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
BFV, the exact scheme: parameters, packing and check slots (FDRL Eq. 6).

A scheme is refused unless three things are certain: 128-bit security by the table of the
homomorphic encryption standard, room for the carries of all members' sum in every packed value,
and a noise that cannot reach the message even if each of its terms is the worst. So an honest sum
always decrypts exactly; there is no failure probability to state.

Check slots defend the secret key. Anybody can add (0, q p / t) to a BFV ciphertext, which then
decrypts to its message plus the product of p with the secret key, slot by slot. A hospital that
signs such an update as its own would find the key in the released policy, whatever the masks. So
each masked row ends with sums of its other slots, each with different public weights, and sums of
such rows keep that property. An attacker who adds an unknown value must guess as many sums of it:
one of them can be made easy to guess, the others are then dense in the coefficients of the key.
The key authority looks at each update alone, by its check slots and its noise, before anything is
added: a wrong guess costs its hospital the membership, and tells one bit.

Masks that did not cancel leave uniform integers in every slot. The modulus is above all possible
sums by a sixteenth, so that some slot of thousands is out of range.
"""

from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property
import hashlib
import itertools
import math
from typing import Final, Self

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR
from fdrl_ros.crypto.he.parameters import is_prime, Message, MISFIT, Parameters, plain_prime, Slots
from fdrl_ros.errors import CryptoError
import numpy as np
from numpy.typing import NDArray

_WEIGHTS = b'fdrl_ros weights of check slots 1'
_GUESS_BITS: Final = 64

# Slots and weights are split into parts of so many bits: sums of the products over the slots of
# any ring are exact in float64.
_SLOT_BITS, _WEIGHT_BITS = 20, 16


def checks_for(modulus: int) -> int:
    """Return how many check slots limit a guess to a chance of 2^-64, if one is easy."""
    return 1 + math.ceil(_GUESS_BITS / math.log2(modulus))


def check_sums(slots: Slots, modulus: int) -> Slots:
    """
    Return the check slots of rows.

    :param slots: shape (rows, slots), each in [0, modulus).
    :param modulus: plaintext modulus t, below 2^60.
    :returns: shape (rows, checks), each in [0, modulus).
    """
    checks = checks_for(modulus)
    weights, shifts = _weights(slots.shape[1], checks), range(0, modulus.bit_length(), _SLOT_BITS)
    sums = np.zeros((len(slots), checks), dtype=np.int64)
    for row, into in zip(slots, sums, strict=True):
        parts = [row >> shift & 2**_SLOT_BITS - 1 for shift in shifts]
        products = (np.array(parts, dtype=np.float64) @ weights).astype(np.int64).tolist()
        totals = [0] * checks
        for part, shift in zip(products, shifts, strict=True):
            for check in range(checks):
                low, high = part[check], part[checks + check]
                totals[check] += (low + (high << _WEIGHT_BITS)) << shift
        into[:] = [total % modulus for total in totals]
    return sums


@cache
def _weights(slots: int, checks: int) -> NDArray[np.float64]:
    """Return low and high halves of the public weights, shape (slots, 2 checks)."""
    key = hashlib.sha256(_WEIGHTS).digest()
    data = Cipher(AES256(key), CTR(bytes(16))).encryptor().update(bytes(4 * slots * checks))
    return np.frombuffer(data, '<u2').reshape(2 * checks, slots).T.astype(np.float64)


# Ring degree and bits of the primes. The last prime serves key generation only and rounds away the
# noise of fresh ciphertexts. Residues of the others travel.
CANDIDATES: Final = ((4096, (56, 53)), (4096, (60, 49)), (4096, (40, 40, 29)))

# SEAL allows plaintext moduli up to 60 bits.
_PLAIN_BITS = 60


@dataclass(frozen=True)
class BfvScheme(Parameters):
    """
    BFV parameters for exact sums.

    See :class:`~fdrl_ros.crypto.he.parameters.Parameters` for the rest of the fields.

    :param plain_modulus: prime t = 1 mod 2N; slots and masks are integers modulo t.
    :param values_per_slot: how many integers share a slot.
    """

    plain_modulus: int
    values_per_slot: int

    kind = 'bfv'
    summary = 'sums exactly and is smaller'
    dishonest_warning = ''
    inspected = True
    ranges = {
        **Parameters.ranges,
        'plain_modulus': (2, 2**_PLAIN_BITS),
        'values_per_slot': (1, 60),
    }

    def __post_init__(self) -> None:
        """Refuse a scheme that is weak, or whose sums might not be exact."""
        super().__post_init__()
        t = self.plain_modulus
        if t % (2 * self.poly_degree) != 1 or not is_prime(t) or t in self.key_moduli:
            raise CryptoError(f'plain modulus {t}: expected another prime, 1 modulo 2N')
        if self.radix**self.values_per_slot > t:
            raise CryptoError(f'sums of {self.members} members do not fit below the modulus {t}')
        if self.noise_margin < 1:
            raise CryptoError(f'noise margin {self.noise_margin:.1f} bits: expected at least 1')

    @classmethod
    def choose(
        cls, n_parameters: int, members: int, bits: int, *, projected: bool = False
    ) -> Self:
        """
        Return the scheme with the fewest bytes on the wire that is secure and exact.

        With room for projections each integer has a slot of its own, and the modulus is the
        largest power of two, about, that the noise leaves.

        :param n_parameters: P, integers in one update.
        :param members: most hospitals in one sum.
        :param bits: bits of one quantised integer.
        :param projected: whether there is room for projections of updates.
        :raises CryptoError: if none fits.
        """
        schemes = []
        radix = members * (2**bits - 1) + 1
        fit = range(1 if projected else _PLAIN_BITS // (radix.bit_length() - 1), 0, -1)
        room = range(_PLAIN_BITS - radix.bit_length(), 0, -1) if projected else (0,)
        for (degree, sizes), values_per_slot, more in itertools.product(CANDIDATES, fit, room):
            least = radix**values_per_slot << more
            if least.bit_length() < _PLAIN_BITS:
                prime = plain_prime(max(least + least // 16, 2 * degree + 1), degree)
                with suppress(CryptoError):
                    schemes.append(
                        cls(n_parameters, members, bits, degree, sizes, prime, values_per_slot)
                    )
        if not schemes:
            raise CryptoError(f'no secure scheme sums {bits} bits over {members} members exactly')
        bytes_of = [scheme.ciphertexts * scheme.ciphertext_bytes for scheme in schemes]
        fewest = [x for x, size in zip(schemes, bytes_of, strict=True) if size == min(bytes_of)]
        return max(fewest, key=lambda scheme: scheme.plain_modulus) if projected else fewest[0]

    @property
    def radix(self) -> int:
        """Return one more than the largest sum of one integer over all members."""
        return self.members * self.levels + 1

    @property
    def integers_per_ciphertext(self) -> int:
        """Return how many integers of an update one ciphertext holds."""
        return (self.slots - self.checks) * self.values_per_slot

    @property
    def residue_bits(self) -> tuple[int, ...]:
        """Return the bits of a residue of each prime q_j on the wire."""
        return self.coefficient_bits[:-1]

    @cached_property
    def checks(self) -> int:
        """Return how many slots of a ciphertext are sums of the others."""
        return checks_for(self.plain_modulus)

    @cached_property
    def dropped_bytes(self) -> int:
        """
        Return how many low bytes of the first polynomial's residues do not travel.

        They hold noise alone, so a hospital rounds them away as long as the noise margin of the
        full sum stays at least one bit. Residues of several primes have no low bytes.
        """
        if len(self.moduli) > 1:
            return 0
        return max(number for number in range(3) if not number or self._margin(number) >= 1)

    @cached_property
    def noise_margin(self) -> float:
        """Return the bits between the worst noise of a full sum and the least harmful noise."""
        return self._margin(self.dropped_bytes)

    @cached_property
    def fresh_margin(self) -> float:
        """Return the bits between the worst noise of one update and the least harmful noise."""
        return self._margin(self.dropped_bytes, 1)

    def _margin(self, dropped_bytes: int, updates: int = 0) -> float:
        """Return the margin if each ciphertext and a sum drop so many bytes."""
        rounding = 256**dropped_bytes // 2
        noise = (updates or self.members) * (self.fresh_noise + rounding)
        if updates != 1:  # nothing is rounded off a single one again
            noise += rounding
        # Decryption is right below q / 2t.
        return math.log2(math.prod(self.moduli)) - math.log2(2 * self.plain_modulus * noise)

    def release(
        self,
        message: Message,
        budget: int | None,
        *,
        secret: bytes,
        ciphertext: bytes,
        fresh: bool = False,
    ) -> Slots:
        """Refuse a message with more noise than honest members' updates, or sums, have."""
        # How much budget is left would reveal the secret key to who malformed the ciphertext.
        if budget is None or budget < int(self.fresh_margin if fresh else self.noise_margin):
            raise CryptoError('less noise budget than honest members leave: malformed ciphertext')
        return message

    def completed(self, row: Slots) -> Slots:
        """Return a row whose last slots are sums of the others."""
        row = row[: -self.checks]
        return np.append(row, check_sums(row[None], self.plain_modulus))

    def check(self, row: Slots) -> None:
        """Refuse a row whose last slots are not sums of the others."""
        # Which check failed, and how, would reveal the secret key; see the module.
        if not np.array_equal(self.completed(row), row):
            raise CryptoError(f'check slots do not fit: {MISFIT}')

    def _pack(self, row: Slots) -> Slots:
        values = row.reshape(-1, self.values_per_slot)
        slots = values[:, -1].copy()
        for place in reversed(range(self.values_per_slot - 1)):
            slots *= self.radix
            slots += values[:, place]
        return self.completed(np.append(slots, np.zeros(self.checks, dtype=np.int64)))

    def _unpack(self, row: Slots, length: int, count: int) -> Slots:
        row = row[: -self.checks]
        if row.max() >= self.radix**self.values_per_slot:
            raise CryptoError(f'sums out of range: {MISFIT}')
        values = np.empty((row.size, self.values_per_slot), dtype=np.int64)
        for place in range(self.values_per_slot):
            row, values[:, place] = np.divmod(row, self.radix)
        flat = values.reshape(-1)
        if flat[length:].any():
            raise CryptoError(f'padding is not zero: {MISFIT}')
        if flat.max() > count * self.levels:
            raise CryptoError(f'sums out of range of {count} members: {MISFIT}')
        return flat[:length]
