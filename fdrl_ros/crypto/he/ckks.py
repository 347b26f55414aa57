# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
CKKS, the approximate scheme: sums are flooded with noise before anybody sees them (FDRL Eq. 6).

A CKKS ciphertext decrypts to the message plus the noise of its encryption, and that noise reveals
the secret key (Li and Micciancio 2021). So decryption adds discrete Gaussian noise that drowns it
(Li, Micciancio, Schultz and Sorrell 2022). With e the noise of a sum, |e| <= B in each of n
coefficients at its worst, and sigma the deviation of the added noise, the released sum differs
from one without e by KL divergence n B^2 / (2 sigma^2) at most; `decryptions` rounds add up, and
Pinsker's inequality bounds the statistical distance of all that is ever released:

    2^-s = B sqrt(n decryptions) / (2 sigma),    s >= 40 or the scheme is refused.

Masks hide as well as with BFV. A message is an integer x in [0, t), masked modulo t, times a
scale; it lies in the coefficients, not in the slots of the canonical embedding that only products
need. Sums of x do not wrap modulo q, and the masked x of a round are uniform except for their sum
modulo t, so what a decryption shows depends on that sum alone: the statistical distance due to
masks is zero, and an attack must break the pseudo-random stream behind them.

None of this holds for ciphertexts that were not made as prescribed: a hospital that departs from
the protocol can move the key into the sum. The masks still hide the others.

Wide discrete Gaussian noise is a sum of narrow ones with growing weights (Micciancio and Walter
2017), drawn from a table of 128-bit probabilities. A floating-point Gaussian would not do: scaled
up, it leaves the low bits alone, which are the bits to be hidden.
"""

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from hashlib import sha256
import itertools
import math
from typing import Final, Self

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from fdrl_ros.crypto.he.parameters import MISFIT, Parameters, Residues, Slots
from fdrl_ros.errors import CryptoError
import numpy as np
from numpy.typing import NDArray

# Draws of unbounded integers, shape (count,), dtype object.
Integers = NDArray[np.object_]
# A function that draws that many uniform 64-bit words.
Words = Callable[[int], NDArray[np.uint64]]

# The base of the flooding: a discrete Gaussian of deviation 2^9, cut at 13.4 deviations, which
# leaves out less than 2^-128 of it. Each further term weighs 2^8 times as much.
_BASE_BITS = 9
_STEP_BITS = 8
_CUT = 6861
# So many terms add up within 64 bits.
_LIGHT = 6
_FRACTION_BITS = 256


class DiscreteGaussian:
    """
    Draws from a wide discrete Gaussian, P(x) ~ exp(-x^2 / 2 deviation^2).

    A weight w is at most half the deviation d of the sum that it is added to. The probabilities
    of the new sum are then those of a discrete Gaussian up to a factor of
    1 +- 4 exp(-2 pi^2 (d / w)^2), which is 1 +- 2^-111.

    :param deviation: least standard deviation; below 2^9 it is 2^9.
    """

    def __init__(self, deviation: int) -> None:
        """Choose the weights."""
        square, weights = 0, []
        wanted = -(-(deviation**2) // 4**_BASE_BITS)
        for exponent in itertools.count(step=_STEP_BITS):
            weight = min(1 << exponent, math.isqrt(max(wanted - square, 1) - 1) + 1)
            weights.append(weight)
            square += weight**2
            if square >= wanted:
                break
        self.deviation = math.ldexp(math.sqrt(square), _BASE_BITS)
        self.bound = _CUT * sum(weights)
        self._weights = weights

    def draw(self, words: Words, count: int) -> Integers:
        """Draw integers, shape (count,), none further from zero than :attr:`bound`."""
        narrow = draw_base(words, count * len(self._weights)).reshape(-1, count)
        # Terms of small weight add up in 64 bits.
        light = np.array(self._weights[:_LIGHT], dtype=np.int64)
        total: Integers = (light @ narrow[:_LIGHT]).astype(object)
        for weight, row in zip(self._weights[_LIGHT:], narrow[_LIGHT:], strict=True):
            total = total + row.astype(object) * weight
        return total


def draw_base(words: Words, count: int) -> Slots:
    """Draw from the base of the flooding by looking words up among the probabilities."""
    probabilities, highs, guide = base_table()
    drawn = words(count)
    # The first 16 bits nearly always lead to the place or the one before it.
    places = guide[(drawn >> np.uint64(48)).astype(np.int64)]
    places += highs[places] < drawn
    far = np.flatnonzero(highs[places] < drawn)
    places[far] = np.searchsorted(highs, drawn[far])
    # 64 more bits decide where the first 64 do not.
    unsure = np.flatnonzero(highs[places] == drawn)
    for place, low in zip(unsure, words(unsure.size), strict=True):
        places[place] = bisect_right(probabilities, int(drawn[place]) << 64 | int(low))
    return places - _CUT


@cache
def base_table() -> tuple[list[int], NDArray[np.uint64], Slots]:
    """
    Return the probabilities of the base.

    :returns: 2^128 P(x <= k) for every k except the last; their upper 64 bits, followed by the
        largest number; and for each 16 bits the first place whose upper 64 bits are not below.
    """
    # In fixed point: exp(-x), x = 1 / (2 deviation^2), by its series. Each weight follows from
    # the one before: exp(-(k+1)^2 x) = exp(-k^2 x) exp(-(2k+1) x).
    one = term = ratio = 1 << _FRACTION_BITS
    for number in itertools.count(1):
        term = (term >> (2 * _BASE_BITS + 1)) // number
        if term == 0:
            break
        ratio += term if number % 2 == 0 else -term
    square = ratio * ratio >> _FRACTION_BITS
    weights = [one]
    for _ in range(_CUT):
        weights.append(weights[-1] * ratio >> _FRACTION_BITS)
        ratio = ratio * square >> _FRACTION_BITS
    sums = list(itertools.accumulate(weights[:0:-1] + weights))
    probabilities = [(total << 128) // sums[-1] for total in sums[:-1]]
    highs = np.array([*(number >> 64 for number in probabilities), 2**64 - 1], dtype=np.uint64)
    guide = np.searchsorted(highs, np.arange(2**16, dtype=np.uint64) << np.uint64(48))
    return probabilities, highs, guide.astype(np.int64)


# Ring degree and bits of the primes, the last of them for keys only, as for BFV.
CKKS_CANDIDATES: Final = (
    (4096, (48, 40, 21)),
    (8192, (40, 40, 40, 29)),
    (8192, (40, 40, 40, 40, 29)),
)

# A weaker flooding is refused.
MIN_STATISTICAL_BITS: Final = 40

# Primes of at most so many bits, times 12 bits, fit into 64.
_PRIME_BITS = 50
_LIMB_BITS = 12

# Slots are integers modulo t in 64 bits, with room to add.
_PLAIN_BITS = 60

_FLOODING = b'fdrl_ros flooding 1'


@dataclass(frozen=True)
class CkksScheme(Parameters):
    """
    CKKS parameters for sums that are precise enough.

    See :class:`~fdrl_ros.crypto.he.parameters.Parameters` for the rest of the fields.

    :param decryptions: most rounds whose sums one key pair decrypts before it must be replaced.
    :param statistical_bits: s, where 2^-s bounds the statistical distance that the noise of all
        encryptions causes in all released sums.
    """

    decryptions: int
    statistical_bits: int

    kind = 'ckks'
    summary = 'floods its sums with noise'
    dishonest_warning = (
        'a hospital that makes up its ciphertexts can read the secret key out of a released '
        'policy; masks still hide updates. Take BFV where hospitals may be dishonest'
    )
    ranges = {
        **Parameters.ranges,
        'decryptions': (1, 2**40),
        'statistical_bits': (MIN_STATISTICAL_BITS, 128),
    }

    def __post_init__(self) -> None:
        """Refuse a scheme that is weak, or whose sums would drown in the flooding."""
        super().__post_init__()
        if max(self.coefficient_bits[:-1]) > _PRIME_BITS:
            raise CryptoError(f'primes of {self.coefficient_bits} bits: expected at most 50')
        if self.mean_error > 1:
            raise CryptoError(f'flooding errs by {self.mean_error:.3g} steps: expected at most 1')

    @classmethod
    def choose(
        cls,
        n_parameters: int,
        members: int,
        bits: int,
        *,
        decryptions: int = 10_000,
        statistical_bits: int = MIN_STATISTICAL_BITS,
    ) -> Self:
        """
        Return the scheme with the fewest bytes on the wire that is secure and precise enough.

        :param n_parameters: P, integers in one update.
        :param members: most hospitals in one sum.
        :param bits: bits of one quantised integer.
        :param decryptions: most rounds of one key pair.
        :param statistical_bits: of the flooding.
        :raises CryptoError: if none fits.
        """
        shape, reason = (n_parameters, members, bits), ''
        for degree, sizes in CKKS_CANDIDATES:
            try:
                return cls(*shape, degree, sizes, decryptions, statistical_bits)
            except CryptoError as error:
                reason = str(error)
        raise CryptoError(f'no CKKS scheme sums {bits} bits over {members} members: {reason}')

    @property
    def most_rounds(self) -> float:
        """Return how many rounds one key pair serves before it must be replaced."""
        return self.decryptions

    @cached_property
    def modulus(self) -> int:
        """Return q, the product of the primes that travel."""
        return math.prod(self.moduli)

    @cached_property
    def noise(self) -> int:
        """Return B, the largest coefficient that the noise of an honest sum can have."""
        return math.ceil(self.members * self.fresh_noise)

    @cached_property
    def flooding(self) -> DiscreteGaussian:
        """Return the noise that is added to a decrypted sum before it is rounded."""
        coefficients = self.ciphertexts * self.poly_degree * self.decryptions
        root = math.isqrt(coefficients - 1) + 1
        return DiscreteGaussian(self.noise * root << (self.statistical_bits - 1))

    @cached_property
    def _layout(self) -> tuple[int, int, int]:
        """Return the plaintext modulus t, the scale, and the slack: the most that noise adds."""
        most = self.noise + self.flooding.bound
        slack, needed = 0, 1
        while needed > slack:
            slack = needed
            # A quarter of all residues has no meaning, so that garbage is detected.
            t = (5 * (self.members * self.levels + 1 + 2 * slack)) // 4 + 1
            scale = (4 * self.modulus // 5 - 2 * most) // (self.members * (t - 1))
            if scale < 1 or t >= 2**_PLAIN_BITS:
                raise CryptoError(f'no room for flooding of {self.statistical_bits} bits')
            needed = -(-most // scale) + 1
        return t, scale, slack

    @property
    def plain_modulus(self) -> int:
        """Return t: slots and masks are integers modulo t."""
        return self._layout[0]

    @property
    def scale(self) -> int:
        """Return the factor of a slot before it is encrypted."""
        return self._layout[1]

    @property
    def slack(self) -> int:
        """Return the largest error of a released sum, in steps of one integer."""
        return self._layout[2]

    @property
    def sum_error(self) -> float:
        """Return the standard deviation of the flooding in a released sum, in steps of one."""
        return self.flooding.deviation / self.scale

    @property
    def mean_error(self) -> float:
        """Return the same for the mean over all members, in steps of one integer."""
        return self.sum_error / self.members

    def encode(self, slots: Slots) -> Residues:
        """Scale slots, shape (slots,), into a polynomial's residues, shape (primes, N)."""
        values = slots.astype(np.uint64)
        rows = [_times(values % np.uint64(q), self.scale % q, q) for q in self.moduli]
        return np.stack(rows)

    def decode(self, message: Residues, noise: Integers | int = 0) -> Slots:
        """
        Flood a decrypted polynomial, scale it down and round it.

        :param message: plus noise of the encryption, shape (primes, N).
        :param noise: of :attr:`flooding`, shape (N,).
        :returns: slots in [0, t), shape (slots,).
        :raises CryptoError: if no sum of the members decrypts to this.
        """
        q, most = self.modulus, self.noise + self.flooding.bound
        value = np.asarray(noise + most, dtype=object)
        for residues, prime in zip(message, self.moduli, strict=True):
            rest = q // prime
            value = value + residues.astype(object) * (rest * pow(rest, -1, prime) % q)
        value %= q
        if value.max() > 2 * most + self.scale * self.members * (self.plain_modulus - 1):
            raise CryptoError('a decrypted sum out of range: a ciphertext was malformed')
        slots = (value + (self.scale // 2 - most)) // self.scale % self.plain_modulus
        return np.asarray(slots, dtype=np.int64)

    def release(
        self,
        message: Residues,
        budget: int | None,
        *,
        secret: bytes,
        ciphertext: bytes,
        fresh: bool = False,
    ) -> Slots:
        """
        Flood a decrypted polynomial and decode it.

        The noise is a pseudo-random function of the ciphertext: decrypting it again, as after a
        crash, gives the same result, so the noise cannot be averaged away.
        """
        derivation = HKDF(SHA256(), 32, salt=None, info=_FLOODING + sha256(ciphertext).digest())
        stream = Cipher(AES256(derivation.derive(secret)), CTR(bytes(16))).encryptor()

        def words(count: int) -> NDArray[np.uint64]:
            return np.frombuffer(stream.update(bytes(8 * count)), '<u8').astype(np.uint64)

        return self.decode(message, self.flooding.draw(words, self.slots))

    def _pack(self, row: Slots) -> Slots:
        return row

    def _unpack(self, row: Slots, length: int, count: int) -> Slots:
        """Refuse sums that noise does not explain; move the rest to the nearest possible sum."""
        t, slack, highest = self.plain_modulus, self.slack, count * self.levels
        if row.max() >= t:
            raise CryptoError(f'sums: expected integers modulo {t}')
        row = (row + slack) % t - slack
        if row.max() > highest + slack or (row[length:] > slack).any():
            raise CryptoError(f'sums out of range of {count} members: {MISFIT}')
        return row[:length].clip(0, highest)


def _times(values: NDArray[np.uint64], constant: int, prime: int) -> NDArray[np.uint64]:
    """Multiply values below a prime of at most 50 bits by a constant below it."""
    modulus, shift = np.uint64(prime), np.uint64(_LIMB_BITS)
    product = np.zeros_like(values)
    for place in reversed(range(0, _PRIME_BITS, _LIMB_BITS)):
        limb = np.uint64(constant >> place & (1 << _LIMB_BITS) - 1)
        product = ((product << shift) + values * limb) % modulus
    return product
