# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
What a history of noisy steps costs: the true epsilon behind FDRL Eq. 13, 22 and 23.

A history is a sequence of :class:`Charge`; charges of different noise and sampling compose.
Neighbours differ by adding or removing one privacy unit. Both accountants give upper bounds:
:func:`epsilon_rdp` takes microseconds and serves while training runs, :func:`epsilon_pld` is
tighter and serves stops and reports.
"""

from collections.abc import Iterable
from functools import lru_cache
import math
from typing import NamedTuple

from fdrl_ros.errors import PrivacyError
from fdrl_ros.privacy import loss_distribution, renyi
import numpy as np
from scipy.optimize import brentq

_LEAST_SAMPLED_NOISE = 0.05  # below it, sampling is not credited: a step is charged at q = 1
_LEAST_DELTA = 1e-10  # below it, rounding in the composed grid is no longer negligible


class Charge(NamedTuple):
    """
    Some equal steps of the sampled Gaussian mechanism.

    noise_multiplier is sigma_m (noise std over C), sampling_probability the chance of each record
    to join a step, group the most records that one privacy unit owns: 1 where the unit itself is
    clipped, the most transitions of a patient where each transition is, n times as many with
    n-step returns or stacks of n frames.
    """

    noise_multiplier: float
    sampling_probability: float
    steps: int
    group: int = 1


Tallied = tuple[float, float, int] | tuple[float, float, int, int]


class _Merged(NamedTuple):
    """A history in the form that is accounted for: equal charges added, order forgotten."""

    sampled: tuple[tuple[float, float, int], ...]
    mu: float  # sqrt(sum of steps / sigma^2) over the unsampled releases; inf without noise


def epsilon_rdp(history: Iterable[Tallied], delta: float) -> float:
    """
    Return epsilon by Renyi-DP: a quick upper bound, 5 to 40 % above the PLD's.

    :param history: charges, or their first three or four fields as tuples.
    :param delta: in [1e-10, 1).
    :raises PrivacyError: on a charge or a delta that cannot be.
    """
    return _rdp(_merge(history), _checked(delta))


def epsilon_pld(history: Iterable[Tallied], delta: float) -> float:
    """
    Return epsilon by the privacy loss distribution: the value for stops and reports.

    Exact (Balle and Wang 2018) if no step was sampled; otherwise composed on a grid of 1e-3 nats
    and rounded upwards. Where the Renyi bound is smaller, which happens only for epsilons that
    are tiny beside the grid, that is returned: both are upper bounds, so the smaller holds too.

    :param history: charges, or their first three or four fields as tuples.
    :param delta: in [1e-10, 1).
    :raises PrivacyError: on a charge or a delta that cannot be.
    """
    return _pld(_merge(history), _checked(delta))


PAPER_ORDER = 2.0
"""Renyi order alpha at which the paper's epsilon is stated: the smallest whole one."""


def epsilon_paper(alpha: float, noise_multiplier: float) -> float:
    """
    Return alpha / (2 sigma^2), which the FDRL paper calls epsilon (Eq. 13, 22).

    It is the Renyi divergence of order alpha of one Gaussian release. It leaves out composition,
    sampling and delta, so it is reported under this name only and bounds nothing that we run.
    """
    if noise_multiplier == 0.0:
        return math.inf
    return alpha / (2.0 * noise_multiplier**2)


def added_up(epsilons: Iterable[float], delta: float) -> tuple[float, float]:
    """
    Return epsilon and delta for someone who is a patient of all these hospitals: both add up.

    Only if no patient is in two hospitals does each hospital's epsilon hold by itself (parallel
    composition).
    """
    spent = list(epsilons)
    return math.fsum(spent), delta * len(spent)


def noise_multiplier_for(*, epsilon: float, delta: float, q: float, steps: int) -> float:
    """
    Return the least noise multiplier whose epsilon is at most the given one, within 0.01 %.

    Found by :func:`epsilon_pld`; the result is on the safe side of the root.

    :param epsilon: target, > 0; infinity gives 0.
    :param q: sampling probability, in (0, 1].
    :raises PrivacyError: if no noise multiplier up to 1e6 reaches the target.
    """
    if not epsilon > 0.0:
        raise PrivacyError(f'epsilon = {epsilon!r}: expected above 0')
    if math.isinf(epsilon):
        return 0.0

    def excess(log_sigma: float) -> float:
        spent = epsilon_pld([Charge(math.exp(log_sigma), q, steps)], delta)
        return math.log(max(spent, 1e-12) / epsilon)

    low, high = math.log(0.5), 0.0
    while excess(high) > 0.0:
        low, high = high, high + math.log(2.0)
        if high > math.log(1e6):
            raise PrivacyError(f'no noise multiplier reaches epsilon = {epsilon:g} at {delta:g}')
    while excess(low) <= 0.0:
        low, high = low - math.log(2.0), low
    root = float(brentq(excess, low, high, xtol=2e-5))
    while excess(root) > 0.0:
        root += 2e-5
    return math.exp(root)


def check_delta(delta: float, n_units: int) -> None:
    """
    Refuse a delta that would allow the release of a whole record.

    :param n_units: number of privacy units that the guarantee is for.
    :raises PrivacyError: unless 0 < delta < 1 / n_units.
    """
    _checked(delta)
    if n_units < 1 or not delta < 1.0 / n_units:
        raise PrivacyError(f'delta = {delta:g} for {n_units} units: expected below 1 / units')


def _checked(delta: float) -> float:
    if not _LEAST_DELTA <= delta < 1.0:
        raise PrivacyError(f'delta = {delta!r}: expected in [{_LEAST_DELTA:g}, 1)')
    return float(delta)


def _merge(history: Iterable[Tallied]) -> _Merged:
    """Check the charges, add up equal ones, and join the unsampled ones into one Gaussian."""
    sampled: dict[tuple[float, float], int] = {}
    mu_squared = 0.0
    for charge in history:
        sigma, q, steps, group = Charge(*charge)
        if not (math.isfinite(sigma) and sigma >= 0.0):
            raise PrivacyError(f'noise multiplier {sigma!r}: expected 0 or above')
        if not 0.0 < q <= 1.0:
            raise PrivacyError(f'sampling probability {q!r}: expected in (0, 1]')
        if steps != int(steps) or steps < 0:
            raise PrivacyError(f'{steps!r} steps: expected a whole number, 0 or above')
        if not 1 <= group < 2**31 or group != int(group):
            raise PrivacyError(f'group of {group!r} records: expected a whole number, 1 or above')
        if steps == 0:
            continue
        if group > 1:
            # Whoever of the group joins, they move the sum by group C at most.
            sigma, q = sigma / group, 1.0
        if q == 1.0 or sigma < _LEAST_SAMPLED_NOISE:
            variance = sigma * sigma
            mu_squared += int(steps) / variance if variance > 0.0 else math.inf
        else:
            pair = (float(sigma), float(q))
            sampled[pair] = sampled.get(pair, 0) + int(steps)
    blocks = tuple((sigma, q, sampled[sigma, q]) for sigma, q in sorted(sampled))
    return _Merged(blocks, math.sqrt(mu_squared))


def _rdp(merged: _Merged, delta: float) -> float:
    if not merged.sampled and merged.mu == 0.0:
        return 0.0
    curve = np.zeros_like(renyi.ORDERS)
    for sigma, q, steps in merged.sampled:
        curve += steps * renyi.renyi_curve(sigma, q)
    return renyi.renyi_epsilon(curve + 0.5 * merged.mu**2 * renyi.ORDERS, delta)


@lru_cache(maxsize=256)
def _pld(merged: _Merged, delta: float) -> float:
    if math.isinf(merged.mu):
        return math.inf
    if not merged.sampled:
        return loss_distribution.gaussian_epsilon(merged.mu, delta) if merged.mu > 0.0 else 0.0
    # Losses beyond the Renyi bound at 1e-15 have no mass that matters; allow the same below 0.
    span = 2.0 * _rdp(merged, 1e-15)
    by_renyi = _rdp(merged, delta)
    if math.isinf(span):
        return by_renyi
    by_pld = loss_distribution.sampled_epsilon(merged.sampled, merged.mu, delta, span=span)
    return min(by_pld, by_renyi)
