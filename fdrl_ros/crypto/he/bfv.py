# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
BFV, the exact scheme: parameters, packing, check slots and key pair (FDRL Eq. 6; spec section 4).

A scheme is refused unless three things are certain: 128-bit security by the table of the
homomorphic encryption standard, room for the carries of all members' sum in every packed value,
and a noise that cannot reach the message even if each of its terms is the worst. So an honest sum
always decrypts exactly; there is no failure probability to state.

Check slots defend the secret key. Anybody can add (0, q p / t) to a BFV ciphertext, which then
decrypts to its message plus the product of p with the secret key, slot by slot. A hospital that
signs such an update as its own would find the key in the released policy, whatever the masks. So
each row ends with sums of its other slots, each with different public weights. Sums of honest rows
keep that property. An attacker who adds an unknown value must guess as many sums of it: one of
them can be made easy to guess, the others are then dense in the coefficients of the key, and a
wrong guess reveals only that it was wrong. Masks that did not cancel are found in the same way.
"""

from dataclasses import dataclass
from functools import cache, cached_property
import hashlib
import math
from typing import Any, Final

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR
from fdrl_ros.crypto.he.parameters import is_prime, Parameters, plain_prime
from fdrl_ros.crypto.he.seal import refuse, Residues, Seal
from fdrl_ros.errors import CryptoError
import numpy as np
from numpy.typing import NDArray
import tenseal.sealapi as seal

_WEIGHTS = b'fdrl_ros weights of check slots 1'
_GUESS_BITS: Final = 64

# Slots and weights are split into parts of so many bits; thousands of products fit in 63 bits.
_SLOT_BITS, _WEIGHT_BITS = 30, 16


def checks_for(modulus: int) -> int:
    """Return how many check slots limit a guess to a chance of 2^-64, if one is easy."""
    return 1 + math.ceil(_GUESS_BITS / math.log2(modulus))


def check_sums(slots: NDArray[np.int64], modulus: int) -> NDArray[np.int64]:
    """
    Return the check slots of rows.

    :param slots: shape (rows, slots), each in [0, modulus).
    :param modulus: plaintext modulus t, below 2^60.
    :returns: shape (rows, checks), each in [0, modulus).
    """
    checks = checks_for(modulus)
    low, high = _weights(slots.shape[1], checks)
    sums = np.zeros((len(slots), checks), dtype=np.int64)
    for row, into in zip(slots, sums, strict=True):
        parts = row & 2**_SLOT_BITS - 1, row >> _SLOT_BITS
        into[:] = [
            sum(
                int(part @ weights[:, check]) << slot_shift + weight_shift
                for part, slot_shift in zip(parts, (0, _SLOT_BITS), strict=True)
                for weights, weight_shift in ((low, 0), (high, _WEIGHT_BITS))
            )
            % modulus
            for check in range(checks)
        ]
    return sums


@cache
def _weights(slots: int, checks: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return low and high halves of the public weights, shape (slots, checks)."""
    key = hashlib.sha256(_WEIGHTS).digest()
    data = Cipher(AES256(key), CTR(bytes(16))).encryptor().update(bytes(4 * slots * checks))
    halves = np.frombuffer(data, '<u2').astype(np.int64).reshape(2, checks, slots)
    low, high = halves.transpose(0, 2, 1)
    return np.asfortranarray(low), np.asfortranarray(high)


# Ring degree and bits of the primes. The last prime serves key generation only and rounds away the
# noise of fresh ciphertexts. Residues of the others travel and fill whole bytes, or nearly.
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

    def _margin(self, dropped_bytes: int) -> float:
        """Return the margin if each ciphertext and the sum drop so many bytes."""
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
            # Which check failed, and how, would reveal the secret key; see the module.
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


def choose_bfv_scheme(n_parameters: int, members: int, bits: int) -> Scheme:
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


class Bfv(Seal):
    """One BFV key pair, or its public half, of a :class:`Scheme`."""

    scheme_type = seal.SCHEME_TYPE.BFV

    def __init__(
        self, scheme: Scheme, *, public_key: Residues, secret_key: Residues | None = None
    ) -> None:
        """Hand the keys to the library."""
        super().__init__(scheme, public_key=public_key, secret_key=secret_key)
        self.encoder = seal.BatchEncoder(self._context)

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
        refuse(self.encoder.encode, message.tolist(), plaintext)
        refuse(self.encryptor.encrypt, plaintext, ciphertext)
        return self.read_residues(ciphertext)

    def decrypt(self, residues: Residues) -> tuple[NDArray[np.int64], int]:
        """
        Decrypt one ciphertext.

        :param residues: shape (2, data primes, N), each below its prime.
        :returns: values in [0, t), shape (slots,), and the noise budget left, in bits.
        :raises CryptoError: without a secret key, or if the library refuses the residues.
        """
        ciphertext = self.load(residues)
        plaintext = self._open(ciphertext)
        assert self.decryptor is not None
        budget = refuse(self.decryptor.invariant_noise_budget, ciphertext)
        values = np.array(refuse(self.encoder.decode_uint64, plaintext), dtype=np.int64)
        return values, int(budget)
