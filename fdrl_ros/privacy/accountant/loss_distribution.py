# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Epsilon from the privacy loss distribution (PLD), composed numerically or in closed form.

The distribution of log(P(o) / Q(o)) over the outputs o of a mechanism adds up over steps, and its
tail gives delta for every epsilon: delta = E max(0, 1 - exp(epsilon - loss)).
"""

from collections.abc import Mapping
import math

from fdrl_ros.privacy.accountant.composition import Composition, saddle_points, sampled, Step
from fdrl_ros.privacy.accountant.one_step import ends
import scipy

BLUR = 1e-3
"""Largest part of epsilon that may be due to the rounding to a grid."""

_FINENESS = 0.12  # of the grid, in standard deviations of the loss of a step
_WIDTH = 14.0  # of the grid, in standard deviations of the composed loss
_COARSER = 8.0  # how much, for finding that standard deviation
_POINTS = 2**20  # at most: bounds memory and time for histories of millions of steps
_PIECE = 15.0  # largest mu of the pieces that unsampled releases are cut into


def gaussian_delta(epsilon: float, mu: float) -> float:
    """
    Return delta of Gaussian releases with total sensitivity-to-noise ratio mu, exactly.

    delta = Phi(mu / 2 - epsilon / mu) - e^epsilon Phi(-mu / 2 - epsilon / mu) (Balle and Wang
    2018, Theorem 8), in logarithms so that large epsilons do not overflow.
    """
    upper = float(scipy.special.log_ndtr(mu / 2.0 - epsilon / mu))
    lower = epsilon + float(scipy.special.log_ndtr(-mu / 2.0 - epsilon / mu))
    return math.exp(upper) * -math.expm1(lower - upper) if lower < upper else 0.0


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Invert :func:`gaussian_delta` by bisection and return the upper, safe end."""
    if gaussian_delta(0.0, mu) <= delta:
        return 0.0
    low, high = 0.0, 1.0
    while gaussian_delta(high, mu) > delta:
        low, high = high, 2.0 * high
        if math.isinf(high):
            return math.inf
    while high - low > 1e-12 * high:
        middle = 0.5 * (low + high)
        if gaussian_delta(middle, mu) > delta:
            low = middle
        else:
            high = middle
    return high


class Composer:
    """Finds epsilon of a history that grows, and keeps what was composed for the next time."""

    def __init__(self) -> None:
        self._kept: dict[float, Composition] = {}

    def epsilon(
        self, sampled: Mapping[Step, int], mu: float, divergence: float, delta: float
    ) -> float:
        """
        Return an upper bound on epsilon that is too large by 0.1 % at most.

        By more only for histories of 10^7 steps and more, or where epsilon is tiny beside the
        spread of the loss.

        :param sampled: steps by kind, at least one.
        :param mu: sqrt(sum of steps / sigma^2) of the unsampled releases, 0 for none.
        :param divergence: Renyi divergence of the whole history at the least order, nats.
        :param delta: in (0, 1).
        """
        history = dict(sampled)
        if mu > 0.0:
            pieces = math.ceil((mu / _PIECE) ** 2)
            history[math.sqrt(pieces) / mu, 1.0, 1] = pieces
        # Of order about 1: twice that is the variance of small losses.
        interval = _power_of_two(_FINENESS * math.sqrt(2.0 * divergence / sum(history.values())))
        best, too_fine = math.inf, False
        for _ in range(6):
            composition = self._composed(history, interval, delta)
            found = composition.epsilon(delta)
            best = min(best, found.epsilon)
            if not found.clear:  # losses spread far beyond any grid as fine as this
                interval, too_fine = composition.interval * _COARSER**2, True
                if interval > best:
                    break
                continue
            excess = found.blur / (BLUR * found.epsilon) if found.epsilon > 0.0 else 0.0
            if excess <= 1.0 or too_fine or composition.interval > interval:
                break
            interval = _power_of_two(interval / math.sqrt(excess))
        return best

    def _composed(self, history: dict[Step, int], interval: float, delta: float) -> Composition:
        """Return the composition on a grid, out of the one that was kept if that serves."""
        asked = interval
        kept = self._kept.get(asked)
        if kept is not None and kept.may_become(history):
            kept.become(history)
            if kept.epsilon(delta).clear:
                return kept
        negligible = 1e-4 * delta / sum(history.values())
        sample = sampled(history)
        width = max(high - low for low, high in (ends(*step, negligible) for step in sample))
        interval = max(interval, 2.0 * _power_of_two(width / _POINTS))
        tilts, spread = saddle_points(sample, interval * _COARSER, negligible, delta)
        actual = max(interval, 2.0 * _power_of_two(_WIDTH * spread / _POINTS))
        points = max(256.0, _WIDTH * spread / actual)
        for composed in (sample, history):  # tilt and size are tried on the sample
            for _ in range(7):
                size = scipy.fft.next_fast_len(math.ceil(min(points, _POINTS)), real=True)
                composition = Composition(actual, tilts, size, negligible)
                composition.become(composed)
                found = composition.epsilon(delta)
                if found.clear:
                    break
                factor = 0.75 if found.narrow else 1.5
                tilts = (factor * tilts[0], factor * tilts[1])
                points *= 2.0 if found.narrow else 1.0
            if composed == history:
                break
        if len(self._kept) > 1:
            self._kept.clear()
        self._kept[asked] = composition
        return composition


def _power_of_two(most: float) -> float:
    """Return the largest power of two that is not above it."""
    return 2.0 ** math.floor(math.log2(max(most, 1e-300)))
