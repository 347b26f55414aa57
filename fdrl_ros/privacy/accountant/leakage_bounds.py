# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Bounds that differential privacy gives for membership attacks: AUC, TPR at an FPR, PLR.

Whether a unit took part is a choice between two distributions of the release, and the accountant's
dominating pair (P with the unit, Q without) is at least as easy to tell apart: its ROC is above
that of every attack, and the mutual information of a fair bit with its output is at least what the
release tells of a membership bit (Blackwell 1953). The pair's losses are composed on a grid,
rounded so that every bound can only grow. (epsilon, delta) alone gives weaker bounds.
"""

from collections.abc import Iterable, Mapping
import math
from typing import NamedTuple

from fdrl_ros.errors import PrivacyError
from fdrl_ros.privacy.accountant.accountant import ChargeLike, Tally
from fdrl_ros.privacy.accountant.loss_distribution import Step
from fdrl_ros.privacy.accountant.one_step import Array, ends, Losses, one_step
import numpy as np
import scipy

_FINENESS = 0.05  # of the grid, in standard deviations of the loss of a step
_NEGLIGIBLE = 1e-10  # mass that may lie beyond the grid, and is charged
_ROUNDING = 1e-9  # of sums of masses, charged too
_POINTS = 2**22  # most points of the grid
_PIECE = 5.0  # largest mu of the pieces that unsampled releases are cut into
_TILTS = np.geomspace(1e-3, 1e3, 61)


class LeakageBounds(NamedTuple):
    """
    What no membership attack exceeds.

    ``auc``: area under the ROC. ``tpr``: at the FPR that was asked for. ``information``: mutual
    information of release and a fair membership bit, in bits, which is PLR.
    """

    auc: float
    tpr: float
    information: float


NO_BOUNDS = LeakageBounds(1.0, 1.0, 1.0)
"""Of a release without noise."""


def leakage_bounds(history: Iterable[ChargeLike], fpr: float = 0.01) -> LeakageBounds:
    """
    Return the bounds of a history of noisy steps, from its dominating pair.

    :param history: charges, see :class:`fdrl_ros.privacy.accountant.accountant.Charge`.
    :param fpr: at which the TPR is bounded, in (0, 1).
    :raises PrivacyError: on a charge or an FPR that is not valid.
    """
    if not 0.0 < fpr < 1.0:
        raise PrivacyError(f'fpr = {fpr!r}: expected between 0 and 1')
    tally = Tally.from_history(history)
    if math.isinf(tally.mu) or tally.forgotten >= 1.0:
        return NO_BOUNDS
    if not tally.exact:
        return gaussian_bounds(tally.mu, fpr)
    return _pair_bounds(tally.tight.counts, tally.mu, tally.forgotten, fpr)


def gaussian_bounds(mu: float, fpr: float = 0.01) -> LeakageBounds:
    """
    Return the bounds of Gaussian releases of total sensitivity over noise mu: exact.

    AUC = Phi(mu / sqrt 2), TPR = Phi(Phi^-1(FPR) + mu) (Dong et al. 2022).
    """
    at = np.linspace(-12.0, 12.0, 4801)
    density = np.exp(-0.5 * at**2) / math.sqrt(2.0 * math.pi)
    losses = mu * at + 0.5 * mu**2
    told = 1.0 - np.logaddexp(0.0, -losses) / math.log(2.0)
    return LeakageBounds(
        float(scipy.special.ndtr(mu / math.sqrt(2.0))),
        float(scipy.special.ndtr(scipy.special.ndtri(fpr) + mu)),
        float(min(1.0, max(0.0, np.trapezoid(density * told, at)))),
    )


def bounds_of_guarantee(epsilon: float, delta: float, fpr: float = 0.01) -> LeakageBounds:
    """
    Return the bounds that (epsilon, delta) alone gives.

    TPR <= min(e^epsilon FPR + delta, 1 - e^-epsilon (1 - delta - FPR)) (Kairouz et al. 2015); AUC
    is the area below; PLR <= delta + 1 - h2(1 / (1 + e^epsilon)), h2 the binary entropy.
    """
    if math.isinf(epsilon):
        return NO_BOUNDS
    growth, shrink = math.exp(min(epsilon, 700.0)), math.exp(-epsilon)

    def tpr(x: float) -> float:
        return min(1.0, growth * x + delta, 1.0 - shrink * max(0.0, 1.0 - delta - x))

    corner = (1.0 - delta) / (1.0 + growth)  # where the two lines meet
    flat = 1.0 - delta  # from there on everybody is told
    points = np.array([0.0, corner, flat, 1.0])
    auc = float(np.trapezoid([tpr(float(x)) for x in points], points))
    chance = 1.0 / (1.0 + growth)
    entropy = -(scipy.special.xlogy(chance, chance) + scipy.special.xlog1py(1 - chance, -chance))
    told = delta + 1.0 - float(entropy) / math.log(2.0)
    return LeakageBounds(auc, tpr(fpr), min(1.0, told))


def _pair_bounds(
    sampled: Mapping[Step, int], mu: float, forgotten: float, fpr: float
) -> LeakageBounds:
    """
    Compose steps, and return the bounds.

    :param sampled: steps by kind.
    :param mu: of all unsampled releases together.
    :param forgotten: chance that counts as everything told.
    """
    history = dict(sampled)
    if mu > 0.0:
        pieces = math.ceil((mu / _PIECE) ** 2)
        history[math.sqrt(pieces) / mu, 1.0, 1] = pieces
    negligible = _NEGLIGIBLE / sum(history.values())
    interval, low, high = _grid(history, negligible)
    count = scipy.fft.next_fast_len(math.ceil((high - low) / interval) + 2, real=True)
    start = math.floor(low / interval)
    with_unit, lost = _composed(history, interval, negligible, start, count, added=False)
    without, lost_without = _composed(history, interval, negligible, start, count, added=True)
    lost = min(1.0, lost + forgotten + _ROUNDING)
    lost_without = min(1.0, lost_without + forgotten + _ROUNDING)
    losses = (start + np.arange(count)) * interval

    tpr = np.minimum(1.0, np.append(lost, lost + np.cumsum(with_unit[::-1])))
    false = np.append(0.0, np.cumsum(without[::-1]))
    false = np.minimum(np.maximum(false - _ROUNDING, 0.0), 1.0)
    false, tpr = np.append(false, 1.0), np.append(tpr, 1.0)
    told = with_unit @ (1.0 - np.logaddexp(0.0, -losses) / math.log(2.0)) + lost
    told += without @ (1.0 - np.logaddexp(0.0, losses) / math.log(2.0)) + lost_without
    place = min(int(np.searchsorted(false, fpr)), len(false) - 1)
    return LeakageBounds(
        min(1.0, float(np.trapezoid(tpr, false))),
        _concave_at(false, tpr, place, fpr),
        min(1.0, 0.5 * float(told)),
    )


def _concave_at(false: Array, tpr: Array, place: int, fpr: float) -> float:
    """Return the TPR at an FPR on the segment that ends at a place."""
    left = max(place - 1, 0)
    if false[place] <= false[left]:
        return float(tpr[place])
    share = (fpr - false[left]) / (false[place] - false[left])
    return float(min(1.0, tpr[left] + share * (tpr[place] - tpr[left])))


def _grid(history: Mapping[Step, int], negligible: float) -> tuple[float, float, float]:
    """Return the interval, and ends beyond which either direction has negligible mass."""
    spreads, moments = [], np.zeros((2, 2, len(_TILTS)))
    for step, count in history.items():
        low, high = ends(*step, negligible)
        coarse = (high - low) / 4096.0
        for side, losses in enumerate(one_step(*step, coarse, negligible)):
            at = (losses.first + np.arange(len(losses.masses))) * coarse
            if side:
                at = -at  # of P / Q under Q
            mean = float(losses.masses @ at)
            spreads.append(math.sqrt(max(float(losses.masses @ (at - mean) ** 2), coarse**2)))
            with np.errstate(divide='ignore'):
                logs = np.log(losses.masses)
            for turn, sign in enumerate((1.0, -1.0)):
                tilted = logs + sign * _TILTS[:, None] * at
                moments[side, turn] += count * scipy.special.logsumexp(tilted, axis=1)
    # Chernoff: P(loss >= high) <= exp(moment - tilt high).
    reach = (moments - math.log(_NEGLIGIBLE)) / _TILTS
    high = float(reach[:, 0].min(axis=1).max())
    low = -float(reach[:, 1].min(axis=1).max())
    return max(_FINENESS * min(spreads), (high - low) / _POINTS), low, high


def _composed(
    history: Mapping[Step, int],
    interval: float,
    negligible: float,
    start: int,
    count: int,
    *,
    added: bool,
) -> tuple[Array, float]:
    """
    Return the composed masses of log(P / Q) on the grid, and the mass that tells everything.

    :param added: of Q, without the unit; else of P.
    """
    transform, shift, lost = np.ones(count // 2 + 1, np.complex128), 0, _NEGLIGIBLE
    for step, steps in history.items():
        losses = one_step(*step, interval, negligible)[added]
        masses, first = _oriented(losses, added)
        folded = np.zeros(-(-len(masses) // count) * count)
        folded[: len(masses)] = masses
        transform *= scipy.fft.rfft(folded.reshape(-1, count).sum(axis=0)) ** steps
        shift += steps * first
        lost += steps * losses.lost
    composed = np.roll(np.maximum(scipy.fft.irfft(transform, count), 0.0), (shift - start) % count)
    return composed, lost


def _oriented(losses: Losses, added: bool) -> tuple[Array, int]:
    """Return masses by rising log(P / Q), and the index of the first."""
    if not added:
        return losses.masses, losses.first
    return losses.masses[::-1], -(losses.first + len(losses.masses) - 1)
