# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
What an attack's scores tell of membership: ROC, AUC, TPR at a small FPR, and PLR (FDRL Eq. 14-17).

Scores and membership bits have shape (models, records): each model trained on the records whose
bit is 1, and every record's bit was a fair coin. Models are independent of each other, the scores
of one model are not: intervals are bootstrap intervals over whole models.
"""

from dataclasses import dataclass
from functools import cached_property
import math
from typing import NamedTuple

from fdrl_ros.errors import SettingError
import numpy as np
from numpy.typing import NDArray

Scores = NDArray[np.float64]
Members = NDArray[np.bool_]


class Estimate(NamedTuple):
    """
    A number with the ends of its 95 % interval, and its bootstrap standard error.

    ``value`` is of all models; ``low`` and ``high`` are percentiles over resamples of models.
    """

    value: float
    low: float
    high: float
    error: float

    @property
    def surely_above(self) -> float:
        """What the number is above with 99.9 % confidence, if errors are Gaussian."""
        return self.value - _SURELY * self.error


_SURELY = 3.0902  # one-sided, 99.9 %
_CONFIDENCE = 0.95


@dataclass(frozen=True, eq=False)
class Roc:
    """
    How well scores separate members from others, pooled over models and records.

    :param scores: high for members, shape (models, records), no NaN.
    :param members: same shape.
    """

    scores: Scores
    members: Members

    def __post_init__(self) -> None:
        """
        Refuse what has no ROC.

        :raises SettingError: if shapes differ, a score is NaN, or there is nobody on one side.
        """
        if self.scores.shape != self.members.shape or self.scores.ndim != 2:
            raise SettingError('members', self.members.shape, f'shape {self.scores.shape}')
        if np.isnan(self.scores).any():
            raise SettingError('scores', 'NaN', 'numbers')
        if self.members.all() or not self.members.any():
            raise SettingError('members', bool(self.members.any()), 'members and others')

    @cached_property
    def _sorted(self) -> tuple[NDArray[np.int64], Members, NDArray[np.int64]]:
        """Model and membership by falling score, and where each run of equal scores ends."""
        flat = self.scores.reshape(-1)
        order = np.argsort(-flat, kind='stable')
        model = np.repeat(np.arange(len(self.scores)), self.scores.shape[1])[order]
        falling = flat[order]
        ends = np.flatnonzero(np.append(falling[1:] != falling[:-1], True))
        return model, self.members.reshape(-1)[order], ends

    def curve(self, weights: NDArray[np.float64] | None = None) -> tuple[Scores, Scores]:
        """
        Return FPR and TPR from (0, 0) to (1, 1), both rising; equal scores are one step.

        :param weights: how often each model counts, shape (models,); once by default.
        """
        model, member, ends = self._sorted
        each = np.ones(len(member)) if weights is None else weights[model]
        rates = []
        for side in (~member, member):
            sums = np.cumsum(each * side)[ends]
            rates.append(np.concatenate(([0.0], sums / max(sums[-1], 1e-300))))
        return rates[0], rates[1]

    def auc(self, weights: NDArray[np.float64] | None = None) -> float:
        """Return P(a member's score is above another's) + half of P(equal)."""
        false, true = self.curve(weights)
        return float(np.trapezoid(true, false))

    def tpr_at(self, fpr: float, weights: NDArray[np.float64] | None = None) -> float:
        """Return the TPR at an FPR, on the straight line between neighbouring thresholds."""
        return float(np.interp(fpr, *_upper(*self.curve(weights))))

    def bootstrapped(
        self, fpr: float, rng: np.random.Generator, resamples: int
    ) -> tuple[Estimate, Estimate]:
        """Return AUC, and TPR at an FPR, with bootstrap intervals over models."""
        models = len(self.scores)
        drawn = np.array([self._both(fpr, each) for each in resampled(models, resamples, rng)])
        values = self._both(fpr, np.ones(models))
        first, second = map(estimate, values, drawn.T)
        return first, second

    def _both(self, fpr: float, weights: NDArray[np.float64]) -> tuple[float, float]:
        false, true = self.curve(weights)
        tpr = float(np.interp(fpr, *_upper(false, true)))
        return float(np.trapezoid(true, false)), tpr


def estimate(value: float, drawn: Scores) -> Estimate:
    """
    Return a number with what bootstrap resamples say of its chance.

    :param drawn: the same number of each resample, shape (resamples,).
    """
    tail = (1.0 - _CONFIDENCE) / 2.0
    low, high = np.quantile(drawn, [tail, 1.0 - tail])
    return Estimate(float(value), float(low), float(high), float(np.std(drawn, ddof=1)))


def _upper(fpr: Scores, tpr: Scores) -> tuple[Scores, Scores]:
    """Keep the highest TPR at each FPR."""
    last = np.append(fpr[1:] != fpr[:-1], True)
    return fpr[last], tpr[last]


def resampled(models: int, resamples: int, rng: np.random.Generator) -> list[NDArray[np.float64]]:
    """Return how often each model counts in each bootstrap resample, shape (models,)."""
    counts = rng.multinomial(models, np.full(models, 1.0 / models), size=resamples)
    return list(counts.astype(np.float64))


_LARGEST = 6.0  # standardised scores beyond are as good as that
_RIDGE = 1e-3
_FOLDS = 8


def information(
    scores: Scores, members: Members, rng: np.random.Generator, folds: int = _FOLDS
) -> NDArray[np.float64]:
    """
    Return what each model's scores tell of one membership bit, in bits, cross-fitted.

    P(member | score) is fitted on other models (logistic in the score and its square, which is
    exact for Gaussian scores of any two variances). What a model adds is then 1 + log2 of the
    probability given to the true bit, averaged over its records. Its expectation is at most
    I(score; bit), whatever was fitted, so the mean over models never overstates the leak but for
    chance; it can be negative.

    :param scores: shape (models, records).
    :param folds: parts that models are cut into, at random.
    :returns: shape (models,).
    :raises SettingError: if there are fewer than two models.
    """
    models = len(scores)
    if models < 2:
        raise SettingError('models', models, 'at least 2')
    place = rng.permutation(models) % min(folds, models)
    found = np.empty(models)
    for fold in range(min(folds, models)):
        held = place == fold
        middle, spread = _middle_and_spread(scores[~held])
        features = _features((scores - middle) / spread)
        weights = _logistic(features[~held].reshape(-1, 3), members[~held].reshape(-1))
        margins = np.where(members[held], 1.0, -1.0) * (features[held] @ weights)
        found[held] = np.mean(1.0 - np.logaddexp(0.0, -margins) / math.log(2.0), axis=1)
    return found


def leakage_rate(
    scores: Scores, members: Members, rng: np.random.Generator, resamples: int
) -> Estimate:
    """
    Return PLR = I(score; bit) / H(bit) with a bootstrap interval over models (FDRL Eq. 14, 15).

    H(bit) is 1 bit, since membership is a fair coin. Where each hospital has as many candidates,
    the mean over records is the mean over hospitals of Eq. 16; of a centralised model it is Eq.
    17.
    """
    each = information(scores, members, rng)
    drawn = [w @ each / len(each) for w in resampled(len(each), resamples, rng)]
    return estimate(float(each.mean()), np.array(drawn))


def _middle_and_spread(scores: Scores) -> tuple[float, float]:
    low, middle, high = np.quantile(scores, [0.1, 0.5, 0.9])
    return float(middle), float(max(high - low, 1e-12)) / 2.56


def _features(standard: Scores) -> Scores:
    cut = np.clip(standard, -_LARGEST, _LARGEST)
    return np.stack((np.ones_like(cut), cut, cut**2), axis=-1)


def _logistic(features: Scores, members: Members) -> Scores:
    """Fit by Newton's method with a small ridge, shape (features,)."""
    weights = np.zeros(features.shape[1])
    ridge = _RIDGE * np.eye(features.shape[1])
    for _ in range(50):
        chances = 0.5 * (1.0 + np.tanh(0.5 * (features @ weights)))
        slope = features.T @ (members - chances) - ridge @ weights
        bend = (features * (chances * (1.0 - chances))[:, None]).T @ features + ridge
        change = np.linalg.solve(bend, slope)
        size = float(np.abs(change).max())
        weights += change * min(1.0, 4.0 / max(size, 1e-300))
        if size < 1e-8:
            break
    return weights
