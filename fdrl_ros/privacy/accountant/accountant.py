# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The accountant: the true epsilon of a history of noisy steps, behind FDRL Eq. 13, 22 and 23.

A history is a sequence of :class:`Charge`; charges of different noise and sampling compose step by
step. Neighbouring data sets differ by adding or removing one privacy unit. Both methods give upper
bounds: Renyi-DP takes microseconds and serves while training runs; the privacy loss distribution
(PLD) is tighter and serves stops and reports.

The accountant counts steps of each kind and ignores their order. Many different kinds, as in data
that grow, are rounded to a public grid: the sampling probability upwards, the noise downwards, so
that epsilon can only grow. A step whose noise is tiny beside the sensitivity of its records is
charged without amplification.
"""

from collections.abc import Iterable
import copy
from functools import lru_cache
import math
from typing import NamedTuple, Self

from fdrl_ros.errors import PrivacyError
from fdrl_ros.privacy.accountant import loss_distribution, renyi
from fdrl_ros.privacy.accountant.loss_distribution import Step
from fdrl_ros.privacy.accountant.one_step import Array, inclusions, LARGEST_GROUP
import numpy as np

_LEAST_SAMPLED_NOISE = 0.05  # below, a step is charged at q = 1
_MOST_JOINING = 400.0  # also above so many joining records over the noise multiplier
_MANY = 16  # noise multipliers above which they are rounded too


class Charge(NamedTuple):
    """
    A number of equal steps of the sampled Gaussian mechanism.

    noise_multiplier is sigma_m (noise std over C); sampling_probability is the chance of each
    record to join a step. group is the most clipped records that depend on one privacy unit: 1 if
    the unit itself is clipped; the most transitions of a patient if transitions are clipped; n for
    a transition as the unit with n-step returns.
    """

    noise_multiplier: float
    sampling_probability: float
    steps: int
    group: int = 1


ChargeLike = tuple[float, float, int] | tuple[float, float, int, int]
"""The first three or four fields of a :class:`Charge`."""


class StepCounts:
    """
    Counts of steps by kind: exact for few kinds, else rounded to a grid.

    :param apart: most kinds that are counted exactly.
    :param finest: points per octave of the first grid.
    :param coarsest: points per octave of the last grid.
    :param limit: most kinds on any grid except the last.
    """

    def __init__(self, *, apart: int, finest: int, coarsest: int, limit: int) -> None:
        self.counts: dict[Step, int] = {}
        self._finest = finest
        self._coarsest = coarsest
        self._limit = limit
        self._grain = 0
        self._room = float(apart)
        self._rounds_noise = False

    def add(self, step: Step, count: int, exact: dict[Step, int]) -> None:
        """
        Count steps of one kind.

        :param exact: all unrounded counts, this one included, for a change of the grid.
        """
        self._count(step, count)
        while len(self.counts) > self._room:
            self._rounds_noise = len({sigma for sigma, _, _ in exact}) > _MANY
            # Two roundings add up, so each may be half as large.
            coarsest = 2 * self._coarsest if self._rounds_noise else self._coarsest
            self._grain = max(self._grain // 2 or self._finest, coarsest)
            self._room = self._limit if self._grain > coarsest else math.inf
            self.counts = {}
            for kind, number in exact.items():
                self._count(kind, number)

    def copy(self) -> 'StepCounts':
        """Return an independent copy."""
        other = copy.copy(self)
        other.counts = dict(self.counts)
        return other

    def _count(self, step: Step, count: int) -> None:
        sigma, q, group = step
        if self._grain:
            q = _rounded_up(q, self._grain)
            if self._rounds_noise:
                sigma = 1.0 / _rounded_up(1.0 / sigma, self._grain)
        kind = sigma, q, group
        self.counts[kind] = self.counts.get(kind, 0) + count


class Tally:
    """The sum of a history."""

    def __init__(self) -> None:
        self.mu_squared = 0.0
        """Sum of steps (k / sigma)^2 over unsampled releases; infinite without noise."""
        self.forgotten = 0.0
        """Bound on the chance that more records ever joined than are accounted for."""
        self.joined = 0.0
        """Bound on the chance that a record of the unit ever joined a sampled step."""
        self.exact: dict[Step, int] = {}
        self.tight = StepCounts(apart=64, finest=1024, coarsest=128, limit=512)
        self.quick = StepCounts(apart=16, finest=64, coarsest=4, limit=128)

    @classmethod
    def from_history(cls, history: Iterable[ChargeLike]) -> Self:
        """Add up a history; the order of charges does not change the result."""
        tally = cls()
        for charge in merged(history):
            tally._add(charge)
        return tally

    def plus(self, charges: Iterable[ChargeLike]) -> 'Tally':
        """Return the tally with additional charges."""
        other = copy.copy(self)
        other.exact = dict(self.exact)
        other.tight, other.quick = self.tight.copy(), self.quick.copy()
        for charge in charges:
            other.add(charge)
        return other

    def add(self, charge: ChargeLike) -> None:
        """
        Add a charge.

        :raises PrivacyError: if it is not valid.
        """
        self._add(checked(charge))

    def _add(self, charge: Charge) -> None:
        sigma, q, steps, group = charge
        if steps == 0:
            return
        most = 1.0
        if group > 1:
            joining = inclusions(group, q)
            most = float(joining.numbers[-1])
            self.forgotten += steps * joining.forgotten
        if q == 1.0 or sigma < _LEAST_SAMPLED_NOISE or most > _MOST_JOINING * sigma:
            # The group moves the sum by at most that many C.
            ratio = most / sigma if sigma > 0.0 else math.inf
            self.mu_squared += steps * ratio * ratio
            return
        self.joined += steps * -math.expm1(group * math.log1p(-q))
        step = (sigma, q, group)
        self.exact[step] = self.exact.get(step, 0) + steps
        self.tight.add(step, steps, self.exact)
        self.quick.add(step, steps, self.exact)

    @property
    def mu(self) -> float:
        """Return sensitivity over noise of all unsampled releases together."""
        return math.sqrt(self.mu_squared)

    def curve(self) -> Array:
        """Return the Renyi divergences of the history, shape (orders,)."""
        total = 0.5 * self.mu_squared * renyi.ORDERS
        for step, count in self.quick.counts.items():
            total += count * renyi.renyi_curve(*step)
        return total


def merged(history: Iterable[ChargeLike]) -> tuple[Charge, ...]:
    """
    Add up equal charges and sort them.

    :raises PrivacyError: if a charge is not valid.
    """
    counts: dict[Step, int] = {}
    for sigma, q, steps, group in map(checked, history):
        counts[sigma, q, group] = counts.get((sigma, q, group), 0) + steps
    return tuple(Charge(*key[:2], counts[key], key[2]) for key in sorted(counts))


def checked(charge: ChargeLike) -> Charge:
    """
    Check types and ranges of a charge.

    :raises PrivacyError: if one is not valid.
    """
    try:
        sigma, q, steps, group = Charge(*charge)
    except TypeError as error:
        raise PrivacyError(f'charge {charge!r}: expected {", ".join(Charge._fields)}') from error
    if not (_is_number(sigma) and math.isfinite(sigma) and sigma >= 0.0):
        raise PrivacyError(f'noise multiplier {sigma!r}: expected 0 or above')
    if not (_is_number(q) and 0.0 < q <= 1.0):
        raise PrivacyError(f'sampling probability {q!r}: expected in (0, 1]')
    if not (_is_number(steps) and 0 <= steps < 2**63 and steps == int(steps)):
        raise PrivacyError(f'{steps!r} steps: expected a whole number, 0 or above')
    if not (_is_number(group) and 1 <= group <= LARGEST_GROUP and group == int(group)):
        raise PrivacyError(f'group of {group!r} records: expected 1 to {LARGEST_GROUP}')
    return Charge(float(sigma), float(q), int(steps), int(group))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and value is not True


def _rounded_up(value: float, grain: int) -> float:
    """Return the least point at or above a value of the grid 2^(i / grain)."""
    i = math.ceil(math.log2(value) * grain)
    point: float = 2.0 ** (i / grain)
    return point if point >= value else max(value, 2.0 ** ((i + 1) / grain))


_LEAST_DELTA = 1e-10
_LARGEST_MU = 1e4  # epsilon is about 5e7 there, and the Renyi bound 0.1 % above


class Account:
    """
    The epsilon of a growing history; each question costs only the new charges.

    Not for concurrent threads.

    :param delta: in [1e-10, 1).
    :param history: charges, or their first three or four fields as tuples.
    :raises PrivacyError: on a charge or a delta that is not valid.
    """

    def __init__(self, delta: float, history: Iterable[ChargeLike] = ()) -> None:
        self._delta = _checked(delta)
        self._tally = Tally.from_history(history)
        self._composer = loss_distribution.Composer()

    def add(self, charge: ChargeLike) -> None:
        """Add a charge to the history."""
        self._tally.add(charge)

    def epsilon_rdp(self, *more: ChargeLike) -> float:
        """
        Return epsilon by Renyi-DP: a quick upper bound, 5 to 40 % above the PLD's.

        :param more: charges to include without adding them.
        """
        return self._rdp(self._tally.plus(more) if more else self._tally)

    def epsilon_pld(self, *more: ChargeLike) -> float:
        """
        Return epsilon by the privacy loss distribution: the value for stops and reports.

        Exact (Balle and Wang 2018) if no step was sampled; otherwise composed on a grid fine
        enough for 0.1 % and rounded upwards. More than 64 different kinds of steps are rounded
        too; both roundings together stay within 1 %. Where the Renyi bound is smaller, which
        happens only for epsilons that are tiny beside the grid, that is returned.

        :param more: charges to include without adding them.
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


def epsilon_rdp(history: Iterable[ChargeLike], delta: float) -> float:
    """Return :meth:`Account.epsilon_rdp` of a history."""
    return Account(delta, history).epsilon_rdp()


def epsilon_pld(history: Iterable[ChargeLike], delta: float) -> float:
    """Return :meth:`Account.epsilon_pld` of a history."""
    return _epsilon_pld(merged(history), delta)


@lru_cache(maxsize=256)
def _epsilon_pld(history: tuple[Charge, ...], delta: float) -> float:
    return Account(delta, history).epsilon_pld()


PAPER_ORDER = 2.0
"""Renyi order alpha of the paper's epsilon: the smallest whole one."""


def epsilon_paper(alpha: float, noise_multiplier: float) -> float:
    """
    Return alpha / (2 sigma^2), which the FDRL paper calls epsilon (Eq. 13, 22).

    It is the Renyi divergence of order alpha of one Gaussian release. It ignores composition,
    sampling and delta, so it is reported under this name only and bounds no training here.
    """
    if noise_multiplier == 0.0:
        return math.inf
    return alpha / (2.0 * noise_multiplier**2)


def sum_guarantees(epsilons: Iterable[float], delta: float) -> tuple[float, float]:
    """
    Return the sum of epsilons and of deltas for a patient of all these hospitals.

    Only if no patient is in two hospitals does each hospital's epsilon hold alone (parallel
    composition).
    """
    spent = list(epsilons)
    return math.fsum(spent), delta * len(spent)


def check_delta(delta: float, n_units: int) -> None:
    """
    Refuse a delta that would allow the release of a whole record.

    :param n_units: number of protected privacy units.
    :raises PrivacyError: unless 0 < delta < 1 / n_units.
    """
    _checked(delta)
    if not (isinstance(n_units, int | np.integer) and n_units >= 1 and delta < 1.0 / n_units):
        raise PrivacyError(f'delta = {delta:g} for {n_units!r} units: expected below 1 / units')


def _checked(delta: float) -> float:
    if not (isinstance(delta, int | float) and _LEAST_DELTA <= delta < 1.0):
        raise PrivacyError(f'delta = {delta!r}: expected in [{_LEAST_DELTA:g}, 1)')
    return float(delta)
