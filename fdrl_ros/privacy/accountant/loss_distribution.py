# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Epsilon from the privacy loss distribution (PLD), composed numerically or in closed form.

The loss log(P(o) / Q(o)) over the outputs o of a mechanism adds up over steps, and the tail of its
distribution gives delta for every epsilon: delta = E max(0, 1 - exp(epsilon - loss)).

Fourier transforms multiply when losses add. Here their logarithms add up, so a growing history
costs only its new steps. Each distribution is first tilted by exp(t loss) so that the sum lies
around epsilon: rounding errors of the transform, relative to its highest point, are then relative
to delta and not to 1 (Wilson and Keich 2016 call this sisFFT).
"""

from collections.abc import Mapping
import math
from typing import NamedTuple

from fdrl_ros.privacy.accountant.one_step import Array, ends, Losses, one_step
import numpy as np
import scipy

Step = tuple[float, float, int]
"""Noise multiplier, sampling probability and group of one step."""

# Tilts, as multiples of t, whose moments bound the mass beyond the grid.
_OUTWARDS = np.array([1.1, 1.3, 1.8, 3.0, 6.0])
_INWARDS = np.array([0.6, 0.0, -1.5, -6.0])
_TILTS = np.concatenate((_OUTWARDS, _INWARDS, [1.0]))
_SILENT = -60.0  # logarithm below which a transform counts as 0
_SAMPLE = 32  # kinds of steps that choose the tilt


class Solution(NamedTuple):
    """
    Epsilon, an upper bound, and roughly how much of it the rounding to a grid causes.

    The bound may be loose if it is `narrow`, since the grid ends too early, or `noisy`, since the
    tilt is too small to hide rounding errors.
    """

    epsilon: float
    blur: float = 0.0
    narrow: bool = False
    noisy: bool = False

    @property
    def clear(self) -> bool:
        """Return whether the bound is tight except for the blur."""
        return not (self.narrow or self.noisy)


class _Side:
    """One direction: a unit removed, or a unit added."""

    def __init__(self, tilt: float, points: int) -> None:
        self.tilt = tilt
        self.log_sizes = np.zeros(points // 2 + 1)
        self.angles = np.zeros(points // 2 + 1)
        self.loud = points // 2 + 1
        self.moments = np.zeros(len(_TILTS))
        self.mean = self.blur = self.lost = 0.0

    def add(self, losses: Losses, count: int, interval: float, points: int) -> None:
        tilt = self.tilt
        first, masses, blurs, lost = losses
        at, _, moments = _tilted(losses, interval, tilt * _TILTS)
        tilted = np.exp(_log_masses(masses) + tilt * at - moments[-1])
        folded = np.zeros(-(-len(masses) // points) * points)
        folded[: len(masses)] = tilted
        folded = np.roll(folded.reshape(-1, points).sum(axis=0), first % points)
        transform = scipy.fft.rfft(folded)[: self.loud]
        with np.errstate(divide='ignore'):
            log_sizes = 0.5 * np.log(transform.real**2 + transform.imag**2)
        self.log_sizes[: self.loud] += count * np.maximum(log_sizes, 10.0 * _SILENT)
        self.angles[: self.loud] += count * np.arctan2(transform.imag, transform.real)
        # No size is above 1, so a size that counts as 0 stays 0 in any composition.
        self.loud = int(np.flatnonzero(self.log_sizes > _SILENT)[-1]) + 1
        self.moments += count * moments
        self.mean += count * float(tilted @ at)
        with np.errstate(over='ignore'):
            self.blur += count * float(blurs @ np.exp(tilt * at - moments[-1]))
        self.lost += count * lost


class Composition:
    """
    The composed loss of a growing history.

    :param interval: of the grid, nats.
    :param tilts: t, > 0, of each direction; best where the tilted loss has its mean at epsilon.
    :param points: of the grid.
    :param negligible: mass of a step that may be moved to an infinite loss.
    """

    def __init__(
        self, interval: float, tilts: tuple[float, float], points: int, negligible: float
    ) -> None:
        self.interval = interval
        self.points = points
        self.negligible = negligible
        self._counts: dict[Step, int] = {}
        self._sides = (_Side(tilts[0], points), _Side(tilts[1], points))
        self._found: dict[float, Solution] = {}

    def extend_to(self, history: Mapping[Step, int]) -> None:
        """Add the new steps of a history."""
        for step, total in history.items():
            count = total - self._counts.get(step, 0)
            if count:
                for side, losses in zip(
                    self._sides, one_step(*step, self.interval, self.negligible), strict=True
                ):
                    side.add(losses, count, self.interval, self.points)
                self._found.clear()
        self._counts = dict(history)

    def can_extend_to(self, history: Mapping[Step, int]) -> bool:
        """Return whether a history equals or extends the present one."""
        return all(history.get(step, 0) >= count for step, count in self._counts.items())

    def epsilon(self, delta: float) -> Solution:
        """Return epsilon of the worse direction."""
        if delta not in self._found:
            steps = sum(self._counts.values())
            self._found[delta] = max(self._solve(side, delta, steps) for side in self._sides)
        return self._found[delta]

    def _solve(self, side: _Side, delta: float, steps: int) -> Solution:
        h, n = self.interval, self.points
        start = round(side.mean / h) - n // 2
        low, high = start * h, (start + n) * h
        log_mgf = float(side.moments[-1])
        tilt = side.tilt
        outwards, inwards = tilt * _OUTWARDS, tilt * _INWARDS
        # Chernoff: mass above the grid wraps to its lower end, and is charged here.
        above = math.exp(min(0.0, float(np.min(side.moments[: len(outwards)] - outwards * high))))
        # Mass below the grid wraps to its upper end, and makes epsilon larger than necessary.
        below = float(np.min(side.moments[len(outwards) : -1] - log_mgf + (tilt - inwards) * low))
        composed = scipy.fft.irfft(
            np.exp(np.maximum(side.log_sizes, -745.0) + 1j * side.angles), n
        )
        # Each transform has a rounding error, and that many of them were multiplied.
        noise = 5e-16 * (steps + 64) * float(composed.max())
        composed = np.roll(np.maximum(composed, 0.0) + noise, -(start % n))
        index = start + np.arange(n)
        masses = np.minimum(1.0, composed * np.exp(np.minimum(log_mgf - tilt * index * h, 700)))
        if start < 0:
            masses, start = masses[-start:], 0
        base = side.lost + above
        if not len(masses):
            return Solution(0.0 if base <= delta else math.inf, narrow=base > 1e-3 * delta)
        # Sums over all losses above each point: of masses, and of masses times exp(point - loss).
        tails = np.append(np.cumsum(masses[:0:-1])[::-1], 0.0)
        decay = math.exp(-h)
        weighted = _decaying_sums(masses, decay)
        fine = tails - weighted + base <= delta
        if not fine.any():
            return Solution(math.inf, narrow=True)
        i = int(np.argmax(fine))
        if i == 0:
            return Solution(start * h, narrow=start > 0 or base > 1e-3 * delta)
        left = i - 1
        over, weight = float(tails[left] + base - delta), float(weighted[left])
        rest = math.log(max(1.0, over / weight)) if over < weight * math.exp(min(h, 700.0)) else h
        epsilon = (start + left) * h + rest
        # Blur moves delta by half its variance times the density of the loss.
        deltas = tails[left : i + 1] - weighted[left : i + 1]
        blur = 0.5 * side.blur * float(masses[i] / (deltas[0] - deltas[1]))
        scale = log_mgf - tilt * epsilon
        little = math.log(1e-3 * delta)
        narrow = base > 1e-3 * delta or below + scale > little
        return Solution(
            epsilon, blur, narrow, math.log(noise / -math.expm1(-tilt * h)) + scale > little
        )


def _decaying_sums(masses: Array, decay: float) -> Array:
    """Return the sums over all j > i of masses[j] decay^(j - i), shape as `masses`, by BLAS."""
    # They solve sums[i] - decay sums[i + 1] = decay masses[i + 1].
    band = np.empty((2, len(masses)), order='F')
    band[0], band[1] = -decay, 1.0
    ends = np.append(decay * masses[1:], 0.0)
    sums: Array = scipy.linalg.blas.dtbsv(1, band, ends, diag=1, overwrite_x=True)
    return sums


def saddle_points(
    sample: Mapping[Step, int], interval: float, negligible: float, delta: float
) -> tuple[tuple[float, float], float]:
    """
    Return a good tilt for each direction, and the larger spread of the losses tilted so.

    At the t that minimises Chernoff's bound on epsilon, (log E exp(t loss) - log delta) / t, the
    tilted loss has its mean at that bound. A coarse grid and a sample are good enough.

    :returns: tilts, and a standard deviation in nats.
    """
    tilts = np.geomspace(1e-5, 1e6, 110)
    moments, variances = np.zeros((2, len(tilts))), np.zeros((2, len(tilts)))
    for step, count in sample.items():
        for side, losses in enumerate(one_step(*step, interval, negligible)):
            at, tilted, logs = _tilted(losses, interval, tilts)
            totals = tilted.sum(axis=1)
            moments[side] += count * logs
            means = tilted @ at / totals
            variances[side] += count * np.maximum(0.0, tilted @ at**2 / totals - means**2)
    # Half of that also hides rounding errors, and rare large losses spread the sum less.
    best = np.argmin((moments - math.log(delta)) / tilts, axis=1)
    best = np.searchsorted(tilts, 0.5 * tilts[best])
    spread = math.sqrt(max(variances[0, best[0]], variances[1, best[1]]))
    return (float(tilts[best[0]]), float(tilts[best[1]])), spread


def sampled(history: Mapping[Step, int]) -> dict[Step, int]:
    """Return a few kinds of steps that represent all."""
    kinds = sorted(history.items())
    size = -(-len(kinds) // _SAMPLE)
    parts = [kinds[start : start + size] for start in range(0, len(kinds), size)]
    return {part[len(part) // 2][0]: sum(count for _, count in part) for part in parts}


def _tilted(losses: Losses, interval: float, tilts: Array) -> tuple[Array, Array, Array]:
    """
    Tilt the finite losses by exp(tilt loss).

    :returns: the losses, shape (points,); for each tilt their masses up to a factor, shape
        (tilts, points), and log E exp(tilt loss), shape (tilts,).
    """
    at = (losses.first + np.arange(len(losses.masses), dtype=np.float64)) * interval
    logs = _log_masses(losses.masses) + tilts[:, None] * at
    most = logs.max(axis=1)
    tilted: Array = np.exp(logs - most[:, None])
    return at, tilted, most + np.log(tilted.sum(axis=1))


def _log_masses(masses: Array) -> Array:
    with np.errstate(divide='ignore'):
        return np.log(masses)


BLUR = 1e-3
"""Largest part of epsilon that the rounding to a grid may cause."""

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
    """Computes epsilon of a growing history; keeps compositions for the next question."""

    def __init__(self) -> None:
        self._kept: dict[float, Composition] = {}

    def epsilon(
        self, sampled: Mapping[Step, int], mu: float, divergence: float, delta: float
    ) -> float:
        """
        Return an upper bound on epsilon, at most 0.1 % too large.

        The error is larger only for 10^7 steps and more, or where epsilon is tiny beside the
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
        # At an order near 1, twice the divergence is the variance of small losses.
        interval = _power_of_two(_FINENESS * math.sqrt(2.0 * divergence / sum(history.values())))
        best, too_fine = math.inf, False
        for _ in range(6):
            composition = self._composed(history, interval, delta)
            found = composition.epsilon(delta)
            best = min(best, found.epsilon)
            if not found.clear:  # the losses spread far beyond a grid this fine
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
        """Return the composition on a grid, extending the stored one if possible."""
        asked = interval
        kept = self._kept.get(asked)
        if kept is not None and kept.can_extend_to(history):
            kept.extend_to(history)
            if kept.epsilon(delta).clear:
                return kept
        negligible = 1e-4 * delta / sum(history.values())
        sample = sampled(history)
        width = max(high - low for low, high in (ends(*step, negligible) for step in sample))
        interval = max(interval, 2.0 * _power_of_two(width / _POINTS))
        tilts, spread = saddle_points(sample, interval * _COARSER, negligible, delta)
        actual = max(interval, 2.0 * _power_of_two(_WIDTH * spread / _POINTS))
        points = max(256.0, _WIDTH * spread / actual)
        for composed in (sample, history):  # the sample finds tilt and size
            for _ in range(7):
                size = scipy.fft.next_fast_len(math.ceil(min(points, _POINTS)), real=True)
                composition = Composition(actual, tilts, size, negligible)
                composition.extend_to(composed)
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
