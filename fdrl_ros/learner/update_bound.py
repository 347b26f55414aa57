# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Bound what one round of an honest hospital changes: each weight, and the L2 norm of all of them.

The bounds follow from public settings and counts alone, and hold whatever the records are. They
are of theta_i - theta in real numbers, before the factor n_i / n_max, which is at most 1. A round
begins with fresh moments. Only trained weights change: frozen tensors do not, and layers that a
hospital keeps to itself do not travel. T is the number of steps, epochs times steps of an epoch.
kappa_t = min(1, (T - t + 1) / A) is how much of step t the mean of the last A iterates keeps
(learner.averaging; A = 1 without), since a mean of iterates is a sum of steps so weighted.

**Adam** (deterministic; beta_1 = 0.9, beta_2 = 0.999, no weight decay). At step t both moments
are weighted sums of the gradients so far: m = sum a_i g_i, v = sum b_i g_i^2, with
a_i = (1 - beta_1) beta_1^(t - i) / (1 - beta_1^t), and b_i in the same way. Cauchy-Schwarz gives
m^2 <= v sum a_i^2 / b_i, so a step is at most its rate times R_t = sqrt(sum a_i^2 / b_i):

    R_t^2 = ((1 - beta_1) / (1 - beta_1^t))^2 (1 - beta_2^t) / (1 - beta_2)
            (1 - q^t) / (1 - q),    q = beta_1^2 / beta_2

from R_1 = 1 up to R_infinity = 7.27. A weight changes by at most rate sum_t kappa_t R_t. Gradients
that grow as (beta_2 / beta_1)^i meet every R_t at once, so nothing less holds for all gradients.
Clipping, noise and the FedProx term change the gradients only. Noise does not make it less either:
patients who agree move a weight by up to C a step, beside noise of sigma C / L.

**Plain descent** (probability of failure at most 2^-40). A step is -G g, g = lambda (theta_t -
theta) + (s_t + C sigma x_t) / L. s_t is a sum of N_t gradients clipped to C, x_t is N(0, I), and
G = learning_rate I. So the change is sum_t K_t G (s_t + C sigma x_t) / L with public matrices
|K_t| <= kappa_t M, M = max(1, |I - lambda G|)^(T - 1). Whatever s_t depends on, the noise in it is
exactly Gaussian with a covariance of at most (M C sigma / L)^2 sum kappa_t^2 G^2. Each of four
events fails with at most delta = 2^-42:

- sum kappa_t N_t <= L sum kappa_t + l / 3 + sqrt(l^2 / 9 + 2 l L sum kappa_t^2), l = ln 1 / delta
  (Bernstein: all who join do so by independent coins, L of them in a step on average). It is no
  more than all records in every step, and exactly L sum kappa_t where a batch has a fixed size.
- The noise of each of d weights is at most sqrt(2 ln d / delta) standard deviations.
- The norm of N(0, I) in d dimensions is at most sqrt(d + 2 sqrt(d l) + 2 l) (Laurent and Massart
  2000, Lemma 1); again in as many dimensions as there are offsets.

**Offsets of inputs** (:mod:`fdrl_ros.learner.offsets`). With the columns S of the first matrix,
which is frozen, offsets move the first bias by S d. Under Adam, d is bounded like a weight, at
offset_rate, and row j of S adds offset_rate sum |S_jo| to the rate of weight j. In plain descent
G = learning_rate I + offset_rate S S'.
"""

from dataclasses import dataclass
import decimal
import math

from fdrl_ros.errors import SettingError
from fdrl_ros.learner.optimizer import BETAS
from fdrl_ros.learner.settings import LearnerSettings, PrivacySettings
import numpy as np
from numpy.typing import NDArray

FAILURE = 2.0**-40
"""Greatest probability that a round of an honest hospital is beyond its bounds."""

_LOG = math.log(4.0 / FAILURE)  # of each of four events
_MARGIN = 1.01
_LEAST = 1e-6


@dataclass(frozen=True)
class UpdateBound:
    """
    What an honest hospital changes in a round at most.

    :param per_weight: in any single weight.
    :param norm: L2 norm of the changes of all weights that travel. Quantisation adds less than
        its step to each number of an update, also to that of a frozen weight.
    """

    per_weight: float
    norm: float

    @property
    def limit(self) -> float:
        """
        Bound of a weight for `encryption.limit`: 1 % more, rounded up to three digits, not 0.

        The 1 % is for arithmetic: weights are float32 between rounds, noise is rounded to a grid,
        and the first matrix drifts by half a step of quantisation in a round. Three digits are
        the same number on every machine, though the last bits of a logarithm may differ.
        """
        return _rounded_up(self.per_weight)

    @property
    def norm_limit(self) -> float:
        """Bound of the norm for `encryption.norm`, as :attr:`limit` for a weight."""
        return _rounded_up(self.norm)


def _rounded_up(bound: float) -> float:
    upwards = decimal.Context(prec=3, rounding=decimal.ROUND_CEILING)
    return max(_LEAST, float(upwards.create_decimal(_MARGIN * bound)))


def update_bound(
    learner: LearnerSettings,
    privacy: PrivacySettings,
    *,
    weights: int,
    steps: int,
    records: int,
    span: NDArray[np.floating] | None = None,
) -> UpdateBound:
    """
    Return the bounds of a round.

    :param weights: trained weights that travel, d.
    :param steps: of the round, T.
    :param records: the most that can join a step.
    :param span: of :meth:`fdrl_ros.learner.offsets.InputOffsets.span`, rows of those weights,
        shape (d, offsets); None if no offsets are learned.
    :raises SettingError: if plain descent moves the FedProx term beyond all numbers.
    """
    if not weights:
        return UpdateBound(0.0, 0.0)
    columns = np.zeros((weights, 0)) if span is None else np.asarray(span, np.float64)
    kept = _kept(steps, learner.averaged_steps(steps))
    if learner.optimizer == 'adam':
        return _of_adam(learner, columns, kept)
    return _of_descent(learner, privacy, columns, kept, records)


def adam_steps(steps: int) -> NDArray[np.float64]:
    """Return R_1 to R_T, the longest steps of Adam at a rate of 1, shape (steps,)."""
    first, second = BETAS
    ratio, t = first**2 / second, np.arange(1, steps + 1)
    terms = (1.0 - second**t) / (1.0 - second) * (1.0 - ratio**t) / (1.0 - ratio)
    return np.asarray((1.0 - first) / (1.0 - first**t) * np.sqrt(terms), np.float64)


def _kept(steps: int, averaged: int) -> NDArray[np.float64]:
    """Return kappa_1 to kappa_T."""
    left = np.arange(steps, 0, -1, dtype=np.float64)
    return np.minimum(1.0, left / max(1, averaged))


def _of_adam(
    learner: LearnerSettings, columns: NDArray[np.float64], kept: NDArray[np.float64]
) -> UpdateBound:
    count, offsets = columns.shape
    farthest = float(kept @ adam_steps(len(kept)))
    rates = learner.learning_rate + learner.offset_rate * np.abs(columns).sum(axis=1)
    rate_of_all = learner.learning_rate * math.sqrt(count)
    rate_of_all += learner.offset_rate * math.sqrt(offsets) * _widest(columns)
    norm = min(float(np.linalg.norm(rates)), rate_of_all)
    return UpdateBound(farthest * float(rates.max()), farthest * norm)


def _of_descent(
    learner: LearnerSettings,
    privacy: PrivacySettings,
    columns: NDArray[np.float64],
    kept: NDArray[np.float64],
    records: int,
) -> UpdateBound:
    count, offsets = columns.shape
    rate, offset_part = learner.learning_rate, learner.offset_rate * _widest(columns) ** 2
    whole = rate + offset_part
    pulls = (abs(1.0 - learner.proximal * each) for each in (rate, whole))
    with np.errstate(over='ignore'):
        grown = float(np.power(max(1.0, *pulls), len(kept) - 1))
    # Of each column of G, and of the noise along it.
    along = np.einsum('jo,op,jp->j', columns, columns.T @ columns, columns)
    reach = rate + learner.offset_rate * math.sqrt(max(0.0, float(along.max())))
    unit = grown * privacy.clip_norm / privacy.batch
    signal = unit * _joined(learner.replay, privacy.batch, records, kept)
    noise = unit * privacy.noise_multiplier * math.sqrt(float(kept @ kept))
    per_weight = reach * (signal + noise * math.sqrt(2.0 * (math.log(count) + _LOG)))
    norm = whole * signal + noise * (rate * _longest(count) + offset_part * _longest(offsets))
    if not math.isfinite(norm + per_weight):
        expected = f'less: {learner.proximal:g} times it makes the FedProx term grow without end'
        raise SettingError('learner.learning_rate', rate, expected)
    return UpdateBound(per_weight, norm)


def _joined(replay: str, batch: int, records: int, kept: NDArray[np.float64]) -> float:
    """Return the most records that join all steps, each step counted by what is kept of it."""
    most, mean = records * float(kept.sum()), batch * float(kept.sum())
    if replay == 'prioritised_poisson':  # the probabilities may add up to all records
        return most
    if replay != 'poisson':
        return mean
    variance = batch * float(kept @ kept)
    return min(most, mean + _LOG / 3.0 + math.sqrt(_LOG**2 / 9.0 + 2.0 * _LOG * variance))


def _longest(dimensions: int) -> float:
    """Return the length that N(0, I) of so many dimensions passes with probability delta."""
    return math.sqrt(dimensions + 2.0 * math.sqrt(dimensions * _LOG) + 2.0 * _LOG)


def _widest(columns: NDArray[np.float64]) -> float:
    """Return the largest singular value."""
    return float(np.linalg.norm(columns, 2)) if columns.size else 0.0
