# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Sampling of units for a step: Poisson sampling, which privacy amplification needs, and others.

:func:`fdrl_ros.privacy.mechanism.charge_for` charges each by its name.
"""

from dataclasses import dataclass
from typing import Protocol

from fdrl_ros.learner.settings import LearnerSettings
from fdrl_ros.privacy.mechanism import independent_sample, poisson_sample
from fdrl_ros.privacy.noise import NoiseSource
import numpy as np
from numpy.typing import NDArray

_LEAST_PRIORITY = 1e-3


@dataclass(frozen=True)
class Draw:
    """
    The units that join a step.

    ``units``: their numbers, shape (joined,). ``weights`` of their losses, if not all 1: same
    shape, float32, at most 1.
    """

    units: NDArray[np.int64]
    weights: NDArray[np.float32] | None = None


class Replay(Protocol):
    """Draws units for a step, and receives their temporal-difference errors."""

    priorities: NDArray[np.float64]
    """The whole state, one number a unit; empty if there is none."""

    def draw(self, round: int, step: int) -> Draw:
        """Draw who joins a step; the same round, step and state give the same units."""
        ...

    def learned(self, units: NDArray[np.int64], errors: NDArray[np.float32]) -> None:
        """
        Update priorities by the temporal-difference errors of the units that joined.

        :param errors: shape (joined, transitions).
        """
        ...


class _Unprioritised:
    """Has no priorities to update."""

    def __init__(self, n_units: int, source: NoiseSource) -> None:
        self.priorities = np.empty(0)
        self._n_units = n_units
        self._source = source

    def learned(self, units: NDArray[np.int64], errors: NDArray[np.float32]) -> None:
        """Change nothing."""


class PoissonReplay(_Unprioritised):
    """Each unit joins by its own coin of one probability: q = L / n."""

    def __init__(self, n_units: int, rate: float, source: NoiseSource) -> None:
        """:param rate: q, in (0, 1]."""
        super().__init__(n_units, source)
        self._rate = rate

    def draw(self, round: int, step: int) -> Draw:
        """Draw who joins; see :class:`Replay`."""
        return Draw(poisson_sample(self._n_units, self._rate, self._source, round, step))


class UniformReplay(_Unprioritised):
    """Batches of a fixed size; no finite epsilon is known for this."""

    def __init__(self, n_units: int, batch: int, source: NoiseSource) -> None:
        """:param batch: number who join."""
        super().__init__(n_units, source)
        self._batch = batch

    def draw(self, round: int, step: int) -> Draw:
        """Draw with replacement who joins; see :class:`Replay`."""
        uniforms = self._source.uniform('uniform replay', round, step, self._batch)
        return Draw(np.minimum((uniforms * self._n_units).astype(np.int64), self._n_units - 1))


class _ByError:
    """Stores |error|^alpha of each unit, in (0, 1]."""

    def __init__(
        self, n_units: int, learner: LearnerSettings, priorities: NDArray[np.float64] | None
    ) -> None:
        # A unit that never joined has error 1, so that every unit eventually joins.
        self.priorities = np.ones(n_units) if priorities is None else priorities.copy()
        self._exponent = learner.priority_exponent
        self._importance = learner.importance_exponent

    def learned(self, units: NDArray[np.int64], errors: NDArray[np.float32]) -> None:
        """Store |error|^alpha, which depends on the unit's own data and released weights."""
        size = np.minimum(np.abs(errors).mean(axis=-1, dtype=np.float64), 1.0)
        size[np.isnan(size)] = 1.0
        self.priorities[units] = np.maximum(size, _LEAST_PRIORITY) ** self._exponent


class PrioritisedPoissonReplay(_ByError):
    """
    Each unit joins by its own coin of probability q_j = min(1, c p_j): private PER.

    p_j = |error|^alpha depends on unit j and released weights alone, and c = L / (n mean p) uses a
    public guess of the mean, so that no unit moves another unit's coin.
    """

    def __init__(
        self,
        n_units: int,
        rate: float,
        learner: LearnerSettings,
        source: NoiseSource,
        priorities: NDArray[np.float64] | None = None,
    ) -> None:
        """:param rate: mean probability to join if errors were of the guessed size."""
        super().__init__(n_units, learner, priorities)
        self._scale = rate / learner.expected_priority
        self._rate = rate
        self._source = source

    def draw(self, round: int, step: int) -> Draw:
        """Draw who joins; see :class:`Replay`."""
        probabilities = np.minimum(1.0, self._scale * self.priorities)
        units = independent_sample(probabilities, self._source, round, step)
        weights = np.minimum(1.0, self._rate / probabilities[units]) ** self._importance
        return Draw(units, weights.astype(np.float32))


class PrioritisedReplay(_ByError):
    """
    Proportional prioritised replay as published (Schaul et al. 2016), the paper's PER.

    A unit's error moves every unit's probability; no finite epsilon is known for this.
    """

    def __init__(
        self,
        n_units: int,
        batch: int,
        learner: LearnerSettings,
        source: NoiseSource,
        priorities: NDArray[np.float64] | None = None,
    ) -> None:
        """:param batch: number who join."""
        super().__init__(n_units, learner, priorities)
        self._batch = batch
        self._source = source

    def draw(self, round: int, step: int) -> Draw:
        """Draw with replacement who joins, one from each equal share of the sum of priorities."""
        sums = np.cumsum(self.priorities)
        shares = np.arange(self._batch) + self._source.uniform(
            'prioritised', round, step, self._batch
        )
        units = np.searchsorted(sums, shares * (sums[-1] / self._batch), side='right')
        units = np.minimum(units, len(sums) - 1)
        probabilities = self.priorities[units] / sums[-1]
        weights = (len(sums) * probabilities) ** -self._importance
        return Draw(units, (weights / weights.max()).astype(np.float32))


def make_replay(
    n_units: int,
    batch: int,
    learner: LearnerSettings,
    source: NoiseSource,
    priorities: NDArray[np.float64] | None = None,
    *,
    rate: float | None = None,
) -> Replay:
    """
    Make the replay that the settings name.

    :param batch: expected or exact number who join.
    :param priorities: to continue from, shape (units,).
    :param rate: probability to join, if it is not the batch over the units.
    """
    rate = batch / n_units if rate is None else rate
    if learner.replay == 'uniform':
        return UniformReplay(n_units, batch, source)
    if learner.replay == 'prioritised':
        return PrioritisedReplay(n_units, batch, learner, source, priorities)
    if learner.replay == 'prioritised_poisson':
        return PrioritisedPoissonReplay(n_units, rate, learner, source, priorities)
    return PoissonReplay(n_units, rate, source)
