# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Quantise a hospital's weighted update to integers, and convert their sum back (FDRL Eq. 6).

The update (n_i / n_max) (theta_i - theta) is clipped to a stated range, offset so that every
integer is positive, and rounded up with a probability equal to the remainder, so that the
rounding error has mean zero.
"""

from dataclasses import dataclass
import math

from fdrl_ros.crypto.he.parameters import MISFIT
from fdrl_ros.errors import CryptoError
import numpy as np
from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True)
class Quantisation:
    """
    Stochastic rounding of [-limit, limit] to the integers 0 .. 2^bits - 1.

    One value is off by less than :attr:`step`, a sum of ``count`` values by less than
    ``count`` steps, and neither has a bias.

    :param limit: values are clipped to [-limit, limit].
    :param bits: bits of one integer.
    :param members: most hospitals whose integers are summed.
    """

    limit: float
    bits: int
    members: int

    def __post_init__(self) -> None:
        """Refuse values that are not exact in float64 and int64."""
        limit, bits, members = self.limit, self.bits, self.members
        if not 0 < limit < math.inf:
            raise CryptoError(f'limit = {limit!r}: expected above 0, finite')
        if not 1 <= bits <= 32:
            raise CryptoError(f'bits = {bits!r}: expected 1 to 32')
        if not 1 <= members <= 2**16:
            raise CryptoError(f'members = {members!r}: expected 1 to 65536')

    @property
    def levels(self) -> int:
        """Return the largest integer, 2^bits - 1."""
        return 2**self.bits - 1

    @property
    def step(self) -> float:
        """Return the distance of two neighbouring values: the error bound of one value."""
        return 2 * self.limit / self.levels

    def quantise(self, values: ArrayLike, uniforms: ArrayLike) -> NDArray[np.int64]:
        """
        Clip the values and round each to one of its two neighbours.

        :param values: the weighted delta, shape (P,), float64.
        :param uniforms: one uniform number of [0, 1) per value, shape (P,), drawn by the
            caller from its randomness source.
        :returns: integers in [0, 2^bits - 1], shape (P,).
        :raises CryptoError: if a value is not finite, or the shapes or uniforms do not fit.
        """
        values = np.asarray(values, dtype=np.float64)
        uniforms = np.asarray(uniforms, dtype=np.float64)
        if values.ndim != 1 or values.shape != uniforms.shape:
            raise CryptoError(f'values {values.shape}, uniforms {uniforms.shape}: expected (P,)')
        if not np.isfinite(values).all():
            raise CryptoError('a value is not finite; nothing was sent')
        if not ((uniforms >= 0) & (uniforms < 1)).all():
            raise CryptoError('uniforms: expected numbers in [0, 1)')
        scaled = (np.clip(values, -self.limit, self.limit) + self.limit) / self.step
        lower = np.floor(scaled)
        rounded = lower + (uniforms < scaled - lower)
        # The division may land one unit in the last place above the top level.
        return np.minimum(rounded, self.levels).astype(np.int64)

    def dequantise_sum(self, sums: ArrayLike, count: int) -> NDArray[np.float64]:
        """
        Turn sums of integers back into sums of values.

        :param sums: sums of ``count`` hospitals' integers, shape (P,).
        :param count: how many hospitals were summed.
        :returns: sums of the clipped values, shape (P,).
        :raises CryptoError: if that many hospitals cannot have made these sums.
        """
        if not 1 <= count <= self.members:
            raise CryptoError(f'count = {count!r}: expected 1 to {self.members} members')
        sums = np.asarray(sums)
        if sums.size and not (sums.min() >= 0 and sums.max() <= count * self.levels):
            raise CryptoError(f'sums beyond 0 to {count * self.levels}: {MISFIT}')
        return sums.astype(np.float64) * self.step - count * self.limit
