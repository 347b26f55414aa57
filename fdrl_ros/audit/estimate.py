# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
What the releases themselves show of a Gaussian mechanism: its shift, its noise, and so epsilon.

The release of a step along a canary's direction, less what patients added, is N(j s, sigma^2) in
units of C, with j whether the canary joined and s what clipping left of it. Over all steps and
canaries that gives confidence limits of s, of sigma, and of the probability of joining, and the
accountant composes them over the steps that were seen (after Nasr et al. 2023). It takes for
granted that the mechanism is the claimed kind: Gaussian, isotropic, the same at every step, of
independent coins. :mod:`fdrl_ros.audit.distribution` tests just that.
"""

from dataclasses import dataclass
import math
from typing import Self

from fdrl_ros.audit.bound import MOST
from fdrl_ros.privacy.accountant.accountant import Charge, epsilon_pld
import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta, chi2, norm

SHARES = (0.8, 0.1, 0.1)
"""Of the chance of failure: for the shift, for sigma, for the probability of joining."""

_LEAST_NOISE = 1e-3  # over the shift; less gives no epsilon below MOST


@dataclass(frozen=True)
class Projections:
    """
    Sums over projections of releases on canaries, in units of C, of one run or of several.

    ``joined``: projections on canaries that joined, and ``shift``: their sum. ``rest``: those on
    others, and ``square``: the sum of their squares. ``joins``: of ``coins`` that were thrown.
    ``steps``: of a run.
    """

    joined: int
    shift: float
    rest: int
    square: float
    joins: int
    coins: int
    steps: int

    @classmethod
    def of(
        cls,
        along: NDArray[np.float64],
        joined: NDArray[np.bool_],
        joins: NDArray[np.bool_],
    ) -> Self:
        """
        Add up a run.

        :param along: projections, shape (steps, canaries).
        :param joined: which canary joined as a member, same shape.
        :param joins: which unit joined, shape (steps, units).
        """
        count = int(joined.sum())
        return cls(
            count,
            float(along[joined].sum()),
            along.size - count,
            float(np.square(along[~joined]).sum()),
            int(joins.sum()),
            joins.size,
            len(along),
        )

    def __add__(self, other: 'Projections') -> 'Projections':
        """Put two runs of as many steps together."""
        return Projections(
            self.joined + other.joined,
            self.shift + other.shift,
            self.rest + other.rest,
            self.square + other.square,
            self.joins + other.joins,
            self.coins + other.coins,
            self.steps,
        )

    @property
    def mean_shift(self) -> float:
        """Return what clipping left of a canary, in units of C."""
        return self.shift / max(1, self.joined)

    @property
    def sigma(self) -> float:
        """Return the noise multiplier."""
        return math.sqrt(self.square / max(1, self.rest))

    def noise_over_shift(self, failure: float) -> float:
        """Return an upper confidence limit of sigma / s; infinite if no shift is shown."""
        if not self.joined or not self.rest:
            return math.inf
        variance = self.square / float(chi2.ppf(SHARES[1] * failure, self.rest))
        margin = float(norm.isf(SHARES[0] * failure)) * math.sqrt(variance / self.joined)
        least = self.mean_shift - margin
        return math.sqrt(variance) / least if least > 0.0 else math.inf

    def epsilon(self, claimed: Charge, *, delta: float, failure: float) -> float:
        """
        Return a lower confidence limit of epsilon over the steps that were seen; at most 64.

        :param claimed: for the probability of joining, unless coins show that it is higher.
        :param failure: one minus the confidence.
        """
        sigma = self.noise_over_shift(failure)
        if math.isinf(sigma):
            return 0.0
        least = 0.0
        if self.joins:
            left = self.coins - self.joins + 1
            least = float(beta.ppf(SHARES[2] * failure, self.joins, left))
        q = max(claimed.sampling_probability, least)
        charge = Charge(max(sigma, _LEAST_NOISE), q, self.steps)
        return min(MOST, epsilon_pld([charge], delta))
