# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Results of one policy, patient by patient, and the numbers that the table shows (FDRL Eq. 8-11).

Numbers are kept for each patient, so that two policies can be compared on the same ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
import math

from fdrl_ros.experiments.json_file import Json
from fdrl_ros.metrics.adaptation import alpha_adapt
from fdrl_ros.metrics.episode import EpisodeMetrics
from fdrl_ros.metrics.risk import risk_terms
from fdrl_ros.metrics.task import TaskAccuracy
from fdrl_ros.selector import returns_to_go
from fdrl_ros.surgery.gym.episode import Episode
from fdrl_ros.surgery.gym.episode_metrics import episode_metrics, states_met
from fdrl_ros.surgery.settings import WorldSettings
import numpy as np

COMPARED = ('patient', 'success', 'failure', 'peak_force', 'task_tolerant', 'task_exact')
"""Metrics of episodes that are kept beside returns and risks."""

NORMAL_95 = 1.959963984540054
"""Two-sided 95 % quantile of the normal distribution."""


@dataclass(frozen=True, eq=False)
class PatientResults:
    """
    What happened to n patients under one policy.

    :param episodes: what was measured of each operation.
    :param returns: discounted return J (FDRL Eq. 1), shape (n,).
    :param risk: mean of D_t over the ticks (FDRL Eq. 10), shape (n,), in [0, 1].
    :param adaptation: alpha_adapt of the case, shape (n,); NaN where no state changed.
    :param length: ticks, shape (n,).
    """

    episodes: tuple[EpisodeMetrics, ...]
    returns: np.ndarray
    risk: np.ndarray
    adaptation: np.ndarray
    length: np.ndarray

    @classmethod
    def of(
        cls, episodes: Sequence[Episode], world: WorldSettings, discount: float
    ) -> 'PatientResults':
        """
        Measure episodes.

        :param discount: gamma of the return.
        """
        rows = [_measure(each, world, discount) for each in episodes]
        measured, *columns = zip(*rows, strict=True)
        return cls(measured, *map(np.array, columns))

    @classmethod
    def join(cls, parts: Sequence['PatientResults']) -> 'PatientResults':
        """Put the patients of several parts one after the other."""
        first, *others = fields(cls)
        return cls(
            tuple(each for part in parts for each in part.episodes),
            *(np.concatenate([getattr(part, f.name) for part in parts]) for f in others),
        )

    def column(self, name: str) -> np.ndarray:
        """Return one of the metrics of all episodes, shape (n,)."""
        return np.array([getattr(each, name) for each in self.episodes])

    def arrays(self) -> dict[str, np.ndarray]:
        """Return by name what two policies are compared by, each of shape (n,)."""
        return {
            **{each: self.column(each) for each in COMPARED},
            **{each.name: getattr(self, each.name) for each in fields(self)[1:]},
        }


def score_of(cases: PatientResults, accuracy: TaskAccuracy) -> Json:
    """
    Return one row of the table.

    ``success`` with its 95 % interval (Wilson); ``a_task`` tie-tolerant and exact on the frozen
    set of states, with what random actions and the best function of the state would reach, and
    on the states that the policy itself came into; ``r_mit``; ``alpha_adapt`` (None where no case
    had a changed state) and how many cases it is the mean of; mean peak force in newtons; mean
    discounted return; patients.

    :param accuracy: of the policy on the frozen set of states.
    """
    success = cases.column('success')
    low, high = wilson_interval(int(success.sum()), len(success))
    adapted = cases.adaptation[~np.isnan(cases.adaptation)]
    return {
        'success': float(success.mean()),
        'success_low': low,
        'success_high': high,
        'a_task': accuracy.tolerant,
        'a_task_exact': accuracy.exact,
        'a_task_chance': accuracy.chance_tolerant,
        'a_task_ceiling': accuracy.ceiling_tolerant,
        'a_task_on_policy': float(cases.column('task_tolerant').mean()),
        'a_task_on_policy_exact': float(cases.column('task_exact').mean()),
        'r_mit': 1.0 - float(cases.risk.mean()),
        'alpha_adapt': float(adapted.mean()) if len(adapted) else None,
        'alpha_adapt_cases': len(adapted),
        'peak_force': float(cases.column('peak_force').mean()),
        'mean_return': float(cases.returns.mean()),
        'patients': len(success),
    }


def wilson_interval(successes: int, count: int) -> tuple[float, float]:
    """
    Return the 95 % score interval of a proportion (Wilson 1927).

    :raises ValueError: without a trial.
    """
    if not 0 <= successes <= count or count == 0:
        raise ValueError(f'{successes} successes of {count}')
    z = NORMAL_95
    share = successes / count
    centre = share + z * z / (2 * count)
    half = z * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    scale = 1 + z * z / count
    return max(0.0, (centre - half) / scale), min(1.0, (centre + half) / scale)


def _measure(
    episode: Episode, world: WorldSettings, discount: float
) -> tuple[EpisodeMetrics, float, float, float, int]:
    """Return one patient's row, in the order of the fields of :class:`PatientResults`."""
    risk = risk_terms(
        episode.forces, episode.damages, episode.critical, episode.patient.procedure.force_limit
    )
    adaptation, _ = alpha_adapt([(episode.states[:-1], episode.actions)])
    return (
        episode_metrics(episode, states_met(episode, world), episode.actions),
        returns_to_go(episode.rewards, discount)[0],
        risk.total.mean(),
        adaptation,
        len(episode.actions),
    )
