# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Bound what one masked update adds to the sum, by a few random projections of it.

R has k rows over {-1, 0, 1}, drawn with probability 1/4, 1/2, 1/4 after every update was sent. Who
decrypts a masked update y = x + masks alone computes R y. Hospitals say what R times each mask is,
both ends of a pair of the pair's mask. What is left is R x: its k numbers are small if x is.

An honest update x has |x| <= B, in units of half a quantum. Entries of R have moments of at most
those of a Gaussian of variance 1/2, so each number of R x is beyond B sqrt(ln(2k / p)) with a
chance of p at most, all k together, and |R x|^2 beyond (k/2) B^2 (1 + e) with one of
exp(-(k/2) (e - ln(1 + e))) (Achlioptas 2003). Both are below 2^-41.

Who passes: if any number of x is further than 2 T from 0, with T the bound of one number of R x,
then each row is within T with a chance of 1/2 at most, whatever the other numbers are, and also
modulo t > 8 T. So all pass with 2^-k at most. If x is spread over many numbers, R x is Gaussian:
|x| above `slack` times B passes with a chance of 2^-40 at most.

Hospitals that agree on false projections of their pair's mask shift any k numbers from one to the
other. R is linear, so c of them together add at most c times the bound, as long as t > 4 c T.

Who does not sign once R is known is left out and not refused: it may try its luck once a round.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
import hashlib
import math
from typing import Final

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR
from fdrl_ros.crypto.he.parameters import pack_bits, unpack_bits
from fdrl_ros.crypto.he.quantisation import Quantisation
from fdrl_ros.crypto.he.schemes import AnyScheme
from fdrl_ros.crypto.masking.masks import mask_pieces
from fdrl_ros.crypto.masking.round_secret import joined
from fdrl_ros.errors import CryptoError
import numpy as np
from numpy.typing import NDArray

NONCE_BYTES: Final = 32
VALUE_BYTES: Final = 8
"""Of a projection, at most."""

MOST_ROWS: Final = 1024

ERROR_BITS: Final = 40
"""An honest update fails with a chance of 2^-40 at most."""

_SEED = b'fdrl_ros projections 1'
# Numbers of so many bits add up exactly in float64 over the slots of any ring.
_LIMB_BITS = 38

_TOGETHER = 64  # masks at a time: those of many hospitals that dropped out take no more memory


@dataclass(frozen=True)
class NormBound:
    """
    How large an update may be, and what that means for its projections.

    :param norm: largest L2 norm of the scaled update that honest hospitals send.
    :param rows: k, projections of each update.
    :param quantisation: of one number.
    :param scheme: one number a slot, and room in its modulus for projections.
    :raises CryptoError: if the modulus has no room.
    """

    norm: float
    rows: int
    quantisation: Quantisation
    scheme: AnyScheme

    def __post_init__(self) -> None:
        """Refuse projections that would wrap."""
        if not (0 < self.norm < math.inf and 1 <= self.rows <= MOST_ROWS):
            raise CryptoError(f'norm {self.norm!r}, {self.rows!r} projections of an update')
        if 8 * self.highest >= self.scheme.plain_modulus:
            raise CryptoError(
                f'a norm of {self.norm:g} in steps of {self.quantisation.step:g} leaves no room '
                'for projections: use a smaller encryption.norm, fewer encryption.bits, or '
                'encryption.projections = 0'
            )

    @property
    def length(self) -> float:
        """Return B: the largest norm of an honest x, whose rounding adds up to 2 to a number."""
        return 2.0 * (self.norm / self.quantisation.step + math.sqrt(self.scheme.n_parameters))

    @cached_property
    def highest(self) -> float:
        """Return T: no number of an honest R x is further from 0."""
        return self.length * math.sqrt(math.log(2 * self.rows) + self._error)

    @cached_property
    def longest(self) -> float:
        """Return the largest norm of an honest R x."""
        low, high = 0.0, 1.0 + 4.0 * self._error / self.rows * 2.0
        while high - math.log1p(high) < 2.0 * self._error / self.rows:
            high *= 2.0
        for _ in range(100):
            middle = (low + high) / 2.0
            enough = middle - math.log1p(middle) >= 2.0 * self._error / self.rows
            low, high = (low, middle) if enough else (middle, high)
        return self.length * math.sqrt(self.rows / 2.0 * (1.0 + high))

    @property
    def _error(self) -> float:
        return (ERROR_BITS + 1) * math.log(2.0)

    @cached_property
    def slack(self) -> float:
        """Return how many times B a spread update has to be to pass with a chance of 2^-40."""
        low, high = 0.0, 1.0  # the shares of the mean of |R x|^2 below which that chance lies
        for _ in range(200):
            middle = (low + high) / 2.0
            rare = math.log(middle) + 1.0 - middle <= -2.0 * ERROR_BITS * math.log(2) / self.rows
            low, high = (middle, high) if rare else (low, middle)
        return self.longest / self.length / math.sqrt(self.rows / 2.0 * low)

    def holds(self, projected: Sequence[int]) -> bool:
        """Tell whether R x, k integers around 0, is one of an honest update."""
        squares = math.fsum(float(number) ** 2 for number in projected)
        return max(map(abs, projected)) <= self.highest and squares <= self.longest**2


class Sketch:
    """R, for one attempt: drawn when all its updates are there."""

    def __init__(self, nonce: bytes, setup: bytes, bound: NormBound) -> None:
        """
        Draw R.

        :param nonce: that nobody knew before, 32 bytes.
        :param setup: digest of the attempt's keys and members.
        :raises CryptoError: if the nonce is of another size.
        """
        if len(nonce) != NONCE_BYTES:
            raise CryptoError(f'nonce of the projections: expected {NONCE_BYTES} bytes')
        self._key = hashlib.sha256(joined(_SEED, nonce, setup)).digest()
        self.nonce, self.bound = nonce, bound
        self._scheme = bound.scheme
        self._drawn: tuple[int, NDArray[np.float64]] | None = None

    def rows(self, number: int) -> NDArray[np.float64]:
        """Return the part of R for the slots of one ciphertext, shape (k, slots)."""
        if self._drawn is None or self._drawn[0] != number:
            scheme, count = self._scheme, self.bound.rows
            cipher = Cipher(AES256(self._key), CTR(number.to_bytes(8, 'big') + bytes(8)))
            stream = cipher.encryptor().update(bytes(count * scheme.slots // 4))
            bits = np.unpackbits(np.frombuffer(stream, np.uint8)).view(np.int8)
            ones, others = bits.reshape(2, count, scheme.slots)
            drawn = (ones - others).astype(np.float64)
            drawn[:, scheme.slots - scheme.checks :] = 0.0  # sums of the others
            self._drawn = number, drawn
        return self._drawn[1]

    def of_slots(self, number: int, slots: NDArray[np.int64]) -> NDArray[np.int64]:
        """
        Project slots of one ciphertext.

        :param slots: integers in [0, t), shape (..., slots).
        :returns: integers in [0, t), shape (..., k).
        """
        rows, t = self.rows(number).T, self._scheme.plain_modulus
        total = np.zeros((*slots.shape[:-1], self.bound.rows), dtype=np.int64)
        for shift in range(0, t.bit_length(), _LIMB_BITS):
            limb = (slots >> shift & (1 << _LIMB_BITS) - 1).astype(np.float64)
            part = (limb @ rows).astype(np.int64)
            if shift:  # what follows does not fit in 64 bits
                part = (part.astype(object) * (1 << shift) % t).astype(np.int64)
            total = (total + part) % t
        return total

    def of_masks(self, keys: Sequence[bytes]) -> list[list[int]]:
        """
        Project the masks of keys: of pairs, or self seeds.

        :returns: k integers in [0, t) for each key.
        """
        scheme, t = self._scheme, self._scheme.plain_modulus
        found: list[list[int]] = []
        for start in range(0, len(keys), _TOGETHER):
            some = keys[start : start + _TOGETHER]
            total = np.zeros((len(some), self.bound.rows), dtype=np.int64)
            pieces = mask_pieces(some, scheme.ciphertexts, scheme.slots, t)
            for number, slots in enumerate(pieces):
                total = (total + self.of_slots(number, slots)) % t
            found += total.tolist()
        return found

    def unmasked(self, projected: Sequence[int], masks: Sequence[int]) -> list[int]:
        """
        Return R x of an update, k integers around 0.

        :param projected: R y.
        :param masks: R times the sum of its masks.
        """
        t, levels = self._scheme.plain_modulus, self._scheme.levels
        found = []
        for number, mask, centre in zip(projected, masks, self._centre, strict=True):
            value = (2 * (number - mask) - levels * centre) % t
            found.append(value if value <= t // 2 else value - t)
        return found

    @cached_property
    def _centre(self) -> list[int]:
        """Return the sum of each row over the slots that hold numbers."""
        scheme, left = self._scheme, self._scheme.n_parameters
        total = np.zeros(self.bound.rows)
        for number in range(scheme.ciphertexts):
            held = min(left, scheme.integers_per_ciphertext)
            total += self.rows(number)[:, :held].sum(axis=1)
            left -= held
        return [int(each) for each in total]


def values_bytes(count: int, modulus: int) -> int:
    """Return the bytes of so many projections."""
    return -(-count * (modulus - 1).bit_length() // 8)


def write_values(values: Sequence[Sequence[int]], modulus: int) -> bytes:
    """Serialise projections, each with as many bits as the modulus takes."""
    return pack_bits(values, (modulus - 1).bit_length())


def read_values(data: bytes, rows: int, modulus: int) -> Iterator[list[int]]:
    """
    Read what :func:`write_values` wrote, k numbers at a time.

    :raises CryptoError: if there are bits beyond the last number.
    """
    numbers = unpack_bits(data, (modulus - 1).bit_length()).tolist()
    for start in range(0, len(numbers), rows):
        yield numbers[start : start + rows]
