# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
What a history of noisy steps costs: the true epsilon behind FDRL Eq. 13, 22 and 23.

A history is a sequence of :class:`Charge`; charges of different noise and sampling compose, each
step by itself. Neighbours differ by adding or removing one privacy unit. Both accountants give
upper bounds: Renyi-DP takes microseconds and serves while training runs, the privacy loss
distribution (PLD) is tighter and serves stops and reports.
"""

from collections.abc import Iterable
from functools import lru_cache
import math

from fdrl_ros.errors import PrivacyError
from fdrl_ros.privacy.accountant import loss_distribution, renyi
from fdrl_ros.privacy.accountant.tally import Charge, merged, Tallied, Tally
import numpy as np

__all__ = [
    'Account',
    'Charge',
    'PAPER_ORDER',
    'added_up',
    'check_delta',
    'epsilon_paper',
    'epsilon_pld',
    'epsilon_rdp',
]

_LEAST_DELTA = 1e-10
_LARGEST_MU = 1e4  # epsilon is about 5e7 there, and the Renyi bound 0.1 % above


class Account:
    """
    The cost of one history that grows: asked again, it accounts for what is new.

    Not for several threads at once.

    :param delta: in [1e-10, 1).
    :param history: charges, or their first three or four fields as tuples.
    :raises PrivacyError: on a charge or a delta that cannot be.
    """

    def __init__(self, delta: float, history: Iterable[Tallied] = ()) -> None:
        self._delta = _checked(delta)
        self._tally = Tally.of(history)
        self._composer = loss_distribution.Composer()

    def add(self, charge: Tallied) -> None:
        """Add a charge to the history."""
        self._tally.add(charge)

    def epsilon_rdp(self, *more: Tallied) -> float:
        """
        Return epsilon by Renyi-DP: a quick upper bound, 5 to 40 % above the PLD's.

        :param more: charges to count too, without adding them.
        """
        return self._rdp(self._tally.plus(more) if more else self._tally)

    def epsilon_pld(self, *more: Tallied) -> float:
        """
        Return epsilon by the privacy loss distribution: the value for stops and reports.

        Exact (Balle and Wang 2018) if no step was sampled; otherwise composed on a grid that is
        fine enough for 0.1 %, and rounded upwards. With more than 64 different kinds of steps
        these are rounded too; both together stay within 1 %. Where the Renyi bound is smaller,
        which happens only for epsilons that are tiny beside the grid, that is returned.

        :param more: charges to count too, without adding them.
        """
        tally = self._tally.plus(more) if more else self._tally
        delta = self._delta - tally.forgotten
        if math.isinf(tally.mu) or delta <= 0.0:
            return math.inf
        if not tally.tight.counts:
            return loss_distribution.gaussian_epsilon(tally.mu, delta) if tally.mu > 0.0 else 0.0
        if tally.mu == 0.0 and tally.joined <= delta:
            return 0.0
        by_renyi = self._rdp(tally)
        if by_renyi == 0.0 or tally.mu > _LARGEST_MU:
            return by_renyi
        return min(
            by_renyi,
            self._composer.epsilon(tally.tight.counts, tally.mu, float(tally.curve()[0]), delta),
        )

    def _rdp(self, tally: Tally) -> float:
        if not tally.quick.counts and tally.mu == 0.0:
            return 0.0
        delta = self._delta - tally.forgotten
        return renyi.renyi_epsilon(tally.curve(), delta) if delta > 0.0 else math.inf


def epsilon_rdp(history: Iterable[Tallied], delta: float) -> float:
    """Return :meth:`Account.epsilon_rdp` of a history."""
    return Account(delta, history).epsilon_rdp()


def epsilon_pld(history: Iterable[Tallied], delta: float) -> float:
    """Return :meth:`Account.epsilon_pld` of a history."""
    return _epsilon_pld(merged(history), delta)


@lru_cache(maxsize=256)
def _epsilon_pld(history: tuple[Charge, ...], delta: float) -> float:
    return Account(delta, history).epsilon_pld()


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


def check_delta(delta: float, n_units: int) -> None:
    """
    Refuse a delta that would allow the release of a whole record.

    :param n_units: number of privacy units that the guarantee is for.
    :raises PrivacyError: unless 0 < delta < 1 / n_units.
    """
    _checked(delta)
    if not (isinstance(n_units, int | np.integer) and n_units >= 1 and delta < 1.0 / n_units):
        raise PrivacyError(f'delta = {delta:g} for {n_units!r} units: expected below 1 / units')


def _checked(delta: float) -> float:
    if not (isinstance(delta, int | float) and _LEAST_DELTA <= delta < 1.0):
        raise PrivacyError(f'delta = {delta!r}: expected in [{_LEAST_DELTA:g}, 1)')
    return float(delta)
