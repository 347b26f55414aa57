# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Sampling of units for a step: Poisson sampling, which privacy amplification needs, and others.

:func:`fdrl_ros.privacy.mechanism.charge_for` charges each by its name.
"""

from typing import NamedTuple

from fdrl_ros.learner.privacy_cost import ChargedMechanism
from fdrl_ros.learner.settings import LearnerSettings
from fdrl_ros.privacy.mechanism import independent_sample, poisson_sample
from fdrl_ros.privacy.noise import NoiseSource
import numpy as np
from numpy.typing import NDArray

_LEAST_PRIORITY = 1e-3


class SampledUnits(NamedTuple):
    """
    The units that join a step.

    ``units``: their numbers, shape (joined,). ``weights`` of their losses, if not all 1: same
    shape, float32, at most 1.
    """

    units: NDArray[np.int64]
    weights: NDArray[np.float32] | None = None


class Replay:
    """
    Draws who joins a step, by the scheme that the settings name.

    poisson: each unit by its own coin of one probability, q = L / n. uniform: a batch of a fixed
    size. prioritised: in proportion to priorities (Schaul et al. 2016), the paper's PER, where a
    unit's error moves every unit's probability. prioritised_poisson: each unit by its own coin of
    probability min(1, c p_j); p_j = |error|^alpha depends on unit j and released weights alone,
    and c = L / (n mean p) uses a public guess of the mean, so that no unit moves another's coin.
    """

    def __init__(
        self,
        mechanism: ChargedMechanism,
        learner: LearnerSettings,
        source: NoiseSource,
        priorities: NDArray[np.float64] | None = None,
    ) -> None:
        """:param priorities: to continue from, shape (units,)."""
        self._mechanism, self._learner, self._source = mechanism, learner, source
        # A unit that never joined has error 1, so that every unit eventually joins.
        count = mechanism.n_records if learner.replay.startswith('prioritised') else 0
        self.priorities = np.ones(count) if priorities is None else priorities.copy()
        """The whole state, |error|^alpha of each unit; empty if the scheme has none."""

    def draw(self, round: int, step: int) -> SampledUnits:
        """Draw who joins a step; the same round, step and state give the same units."""
        mechanism, source, priorities = self._mechanism, self._source, self.priorities
        importance, batch, count = (
            self._learner.importance_exponent,
            mechanism.batch,
            mechanism.n_records,
        )
        if self._learner.replay == 'poisson':
            return SampledUnits(poisson_sample(count, mechanism.rate, source, round, step))
        if self._learner.replay == 'prioritised_poisson':
            scale = mechanism.rate / self._learner.expected_priority
            probabilities = np.minimum(1.0, scale * priorities)
            units = independent_sample(probabilities, source, round, step)
            weights = np.minimum(1.0, mechanism.rate / probabilities[units]) ** importance
            return SampledUnits(units, weights.astype(np.float32))
        if self._learner.replay == 'uniform':
            uniforms = source.uniform('uniform replay', round, step, batch)
            return SampledUnits(np.minimum((uniforms * count).astype(np.int64), count - 1))
        # One from each equal share of the sum of priorities.
        sums = np.cumsum(priorities)
        shares = np.arange(batch) + source.uniform('prioritised', round, step, batch)
        units = np.searchsorted(sums, shares * (sums[-1] / batch), side='right')
        units = np.minimum(units, count - 1)
        weights = (count * (priorities[units] / sums[-1])) ** -importance
        return SampledUnits(units, (weights / weights.max()).astype(np.float32))

    def update_priorities(self, units: NDArray[np.int64], errors: NDArray[np.float32]) -> None:
        """
        Update priorities by the temporal-difference errors of the units that joined.

        :param errors: shape (joined, transitions).
        """
        size = np.minimum(np.abs(errors).mean(axis=-1, dtype=np.float64), 1.0)
        size[np.isnan(size)] = 1.0
        least = np.maximum(size, _LEAST_PRIORITY)
        self.priorities[units] = least**self._learner.priority_exponent
