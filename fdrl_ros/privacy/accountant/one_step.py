# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The privacy loss of one sampled Gaussian step, on a grid, rounded so that epsilon can only grow.

The loss at an output z is l(z) = log(P(z) / Q(z)), with Q = N(0, sigma^2) and P the mixture of
N(j, sigma^2) over the number j of a unit's records that join. l grows with z. The masses of P and
Q between two points of the grid are moved to these points so that each keeps its total: "connect
the dots" (Doroshenko et al. 2022), which bounds delta from above at every epsilon, in both
directions.

Each of a unit's k records joins by its own coin of probability q and is clipped to C, so the unit
moves the sum by at most C times a Binomial(k, q) number (group privacy of Poisson sampling, Ganesh
2024): with the unit the output is a mixture of Gaussians, without it one Gaussian. A
stochastically larger number costs at least as much, since every best test is a threshold.
Therefore the number is rounded upwards.
"""

from functools import lru_cache
import math
from typing import NamedTuple

from fdrl_ros.errors import PrivacyError
import numpy as np
from numpy.typing import NDArray
import scipy  # loads its parts on first use, so that a node starts faster

Array = NDArray[np.float64]

LARGEST_GROUP = 2**20
"""Most records of a privacy unit."""

_FORGOTTEN = 1e-20  # chance of numbers above the list, charged to delta
_NUMBERS = 512  # at most in the list; more are merged upwards


class Inclusions(NamedTuple):
    """
    Distribution of the number of joining records.

    ``numbers`` rise, shape (numbers,); ``log_chances`` are their log-probabilities. ``forgotten``
    is the chance that more records join than the last number; such steps count as leaked.
    """

    numbers: Array
    log_chances: Array
    forgotten: float


@lru_cache(maxsize=64)
def inclusions(group: int, q: float) -> Inclusions:
    """
    Return the distribution of the number of a unit's records in a step, rounded upwards.

    :param group: k, the most records that a unit owns.
    :param q: chance of each to join, in (0, 1].
    """
    if q == 1.0:
        return Inclusions(np.array([float(group)]), np.array([0.0]), 0.0)
    j = np.arange(group + 1)
    log_chances = (
        scipy.special.gammaln(group + 1)
        - scipy.special.gammaln(j + 1)
        - scipy.special.gammaln(group - j + 1)
    )
    log_chances += scipy.special.xlogy(j, q) + scipy.special.xlog1py(group - j, -q)
    if group == 1:
        return Inclusions(j.astype(np.float64), log_chances, 0.0)
    log_chances -= scipy.special.logsumexp(log_chances)  # gammaln of a million is rounded by 1e-9
    chances = np.exp(log_chances)
    below, above = np.cumsum(chances), np.cumsum(chances[::-1])[::-1]
    least = int(np.searchsorted(below, _FORGOTTEN))
    most = int(np.searchsorted(-above, -_FORGOTTEN)) - 1
    stride = -(-(most - least) // _NUMBERS) or 1
    last = np.arange(least, most + stride, stride)
    last[-1] = min(last[-1], group)
    starts = np.concatenate(([0], last[:-1] + 1))
    joined = np.logaddexp.reduceat(log_chances[: last[-1] + 1], starts)
    forgotten = float(above[last[-1] + 1]) if last[-1] < group else 0.0
    return Inclusions(last.astype(np.float64), joined, forgotten)


def records_of_a_transition(n_steps: int = 1, frames: int = 1) -> int:
    """
    Return the group of a stored transition: how many sampled records depend on it.

    A record that starts at time t depends on the transitions t to t + n - 1 of its n-step return
    and on the f - 1 before, whose observations are in its stack of f frames. (A patient with m
    transitions owns m records, however they overlap; there the group is m.)

    :param n_steps: n of the n-step return.
    :param frames: f, observations in a state.
    :raises PrivacyError: unless both are whole numbers, 1 or above.
    """
    for name, value in (('n_steps', n_steps), ('frames', frames)):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
            raise PrivacyError(f'{name} = {value!r}: expected a whole number, 1 or above')
    return int(n_steps + frames - 1)


_LEAST = 1e-19  # smallest tail of an output distribution on the grid


class Losses(NamedTuple):
    """
    A distribution of losses on the grid.

    :param first: index on the grid, loss / interval, of the first mass.
    :param masses: shape (points,).
    :param blurs: variance of the loss that the rounding added, by point: mass times squared nats,
        shape (points,).
    :param lost: mass at an infinite loss.
    """

    first: int
    masses: Array
    blurs: Array
    lost: float


def one_step(
    sigma: float, q: float, group: int, interval: float, negligible: float = 0.0
) -> tuple[Losses, Losses]:
    """
    Return the losses of one step where a unit is removed, log(P / Q), and added, log(Q / P).

    :param sigma: noise multiplier, at least 1 / 400 of the most records that join.
    :param q: sampling probability, in (0, 1].
    :param group: k, the most records that a unit owns.
    :param interval: of the grid, nats.
    :param negligible: mass that may be moved to an infinite loss.
    """
    joining = inclusions(group, q)
    chances = np.exp(joining.log_chances)
    low, high = ends(sigma, q, group, negligible)
    first = math.floor(low / interval)
    last = max(math.ceil(high / interval), first + 1)
    losses = np.arange(first, last + 1, dtype=np.float64) * interval
    z = _output(losses, sigma, q, joining)

    p, r, log_ratio = _cells(z, sigma, joining)
    # The position of p / r in its cell decides how much mass moves up.
    rho = np.fmin(np.fmax(log_ratio - losses[:-1], 0.0), interval)
    whole = np.expm1(-interval)
    down, up = np.expm1(rho - interval) / whole, np.expm1(-rho) / whole
    blurs = (2.0 / 3.0) * rho * (interval - rho)
    removed, added = np.zeros_like(losses), np.zeros_like(losses)
    removed[:-1] += p * np.exp(-rho) * down
    removed[1:] += p * up
    removed[0] += chances @ scipy.special.ndtr((z[0] - joining.numbers) / sigma)
    added[:-1] += r * down
    added[1:] += r * np.exp(rho - interval) * up
    added[-1] += scipy.special.ndtr(-z[-1] / sigma)
    beyond = (
        float(chances @ scipy.special.ndtr((joining.numbers - z[-1]) / sigma)) + joining.forgotten
    )
    return (
        Losses(first, removed, np.append(p * blurs, 0.0), beyond),
        Losses(
            -last,
            added[::-1],
            np.append(r * blurs, 0.0)[::-1],
            float(scipy.special.ndtr(z[0] / sigma)),
        ),
    )


def ends(sigma: float, q: float, group: int, negligible: float = 0.0) -> tuple[float, float]:
    """Return the range of losses that holds all but a negligible mass."""
    joining = inclusions(group, q)
    tail = max(0.5 * negligible, _LEAST)
    likely = int(np.sum(np.cumsum(np.exp(joining.log_chances[::-1]))[::-1] > tail))
    most = float(joining.numbers[max(0, likely - 1)])
    margin = -sigma * float(scipy.special.ndtri(tail))
    low, high = _loss(np.array([-margin, most + margin]), sigma, joining)[0]
    return float(low), float(high)


def _loss(z: Array, sigma: float, joining: Inclusions) -> tuple[Array, Array]:
    """Return l(z) and its slope."""
    exponents = np.outer(z, joining.numbers) - 0.5 * joining.numbers**2
    exponents = exponents / sigma**2 + joining.log_chances
    most = exponents.max(axis=1)
    shares = np.exp(exponents - most[:, None])
    totals = shares.sum(axis=1)
    return most + np.log(totals), (shares @ joining.numbers) / (totals * sigma**2)


def _output(losses: Array, sigma: float, q: float, joining: Inclusions) -> Array:
    """Return the z at which l(z) is each loss; minus infinity below the least loss."""
    numbers = joining.numbers
    if len(numbers) == 1:
        return losses * (sigma**2 / numbers[0]) + 0.5 * numbers[0]
    with np.errstate(divide='ignore', invalid='ignore'):
        if len(numbers) == 2 and numbers[0] == 0.0:
            # Two forms: for e^l much larger than 1, and otherwise.
            far = losses + np.log1p((q - 1.0) * np.exp(-np.maximum(losses, 0.5)))
            near = np.log(np.maximum(np.expm1(np.minimum(losses, 1.0)) + q, 0.0))
            return sigma**2 * (np.where(losses > 0.5, far, near) - math.log(q)) + 0.5
    at = np.arange(-10.0 * sigma, numbers[-1] + 11.0 * sigma, sigma / 4.0)
    found, slopes = _loss(at, sigma, joining)
    rising = np.append(True, np.diff(found) > 1e-12 * np.maximum(1.0, np.abs(found[1:])))
    at, found, slopes = at[rising], found[rising], slopes[rising]
    reached = losses > found[0]
    z = np.full_like(losses, -math.inf)
    inside = scipy.interpolate.CubicHermiteSpline(found, at, 1.0 / slopes)(losses[reached])
    for _ in range(2):  # l is convex, so Newton's method converges
        value, slope = _loss(inside, sigma, joining)
        inside -= (value - losses[reached]) / slope
    z[reached] = inside
    return z


def _cells(z: Array, sigma: float, joining: Inclusions) -> tuple[Array, Array, Array]:
    """Return the masses of P and Q between neighbours of z, and log(P / Q) of these masses."""
    if joining.numbers[-1] / sigma < 25.0:
        r = _between(z / sigma)
        p, gain = np.zeros_like(r), np.zeros_like(r)
        for number, log_chance in zip(joining.numbers, joining.log_chances, strict=True):
            part = _between((z - number) / sigma)
            p += math.exp(log_chance) * part
            gain += math.exp(log_chance) * (part - r)
        with np.errstate(divide='ignore', invalid='ignore'):
            gain /= r
            near = np.log1p(np.maximum(gain, -0.9))
            return p, r, np.where(np.abs(gain) < 0.5, near, np.log(p) - np.log(r))
    log_r = _log_between(z / sigma)
    log_p = np.full_like(log_r, -math.inf)
    for number, log_chance in zip(joining.numbers, joining.log_chances, strict=True):
        log_p = np.logaddexp(log_p, log_chance + _log_between((z - number) / sigma))
    return np.exp(log_p), np.exp(log_r), log_p - log_r


def _between(x: Array) -> Array:
    """Return the mass of N(0, 1) between neighbours of x, to full relative precision."""
    tail = scipy.special.ndtr(-np.abs(x))
    low, high = x[:-1] > 0.0, x[1:] > 0.0
    same = np.abs(tail[1:] - tail[:-1])
    return np.where(low == high, same, 1.0 - tail[1:] - tail[:-1])


def _log_between(x: Array) -> Array:
    """Return the logarithm of :func:`_between`, also where that underflows."""
    tail = scipy.special.log_ndtr(-np.abs(x))
    low, high = x[:-1] > 0.0, x[1:] > 0.0
    more, less = np.maximum(tail[1:], tail[:-1]), np.minimum(tail[1:], tail[:-1])
    with np.errstate(divide='ignore', invalid='ignore'):
        same = more + np.log1p(-np.exp(less - more))
        across = np.log1p(-np.exp(more) - np.exp(less))
    return np.where(low == high, same, across)
