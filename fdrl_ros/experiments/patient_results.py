# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Results of one policy, patient by patient, and its scores: the numbers of a run (FDRL Eq. 8-11).

Numbers are kept for each patient, so that two policies can be compared on the same ones. A row of
:data:`SCORES` puts a number into ``summary.json``, the tables and the comparisons.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
import math
from typing import NamedTuple

from fdrl_ros.errors import SettingError
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

KEPT = ('patient', 'success', 'failure', 'peak_force', 'task_tolerant', 'task_exact')
"""Metrics of episodes that are kept beside returns and risks."""

NORMAL_95 = 1.959963984540054
"""Two-sided 95 % quantile of the normal distribution."""


class PatientResult(NamedTuple):
    """
    What happened to one patient under one policy.

    :param episode: what was measured of the operation.
    :param returns: discounted return J (FDRL Eq. 1).
    :param risk: mean of D_t over the ticks (FDRL Eq. 10), in [0, 1].
    :param adaptation: alpha_adapt of the case; NaN where no state changed.
    :param length: ticks.
    """

    episode: EpisodeMetrics
    returns: float
    risk: float
    adaptation: float
    length: int

    @classmethod
    def of(cls, episode: Episode, world: WorldSettings, discount: float) -> 'PatientResult':
        """
        Measure an episode.

        :param discount: gamma of the return.
        """
        limit = episode.patient.procedure.force_limit
        risk = risk_terms(episode.forces, episode.damages, episode.critical, limit)
        return cls(
            episode_metrics(episode, states_met(episode, world), episode.actions),
            returns_to_go(episode.rewards, discount)[0],
            risk.total.mean(),
            alpha_adapt([(episode.states[:-1], episode.actions)])[0],
            len(episode.actions),
        )


@dataclass(frozen=True)
class PatientResults:
    """What happened to n patients under one policy."""

    rows: tuple[PatientResult, ...]

    @classmethod
    def of(
        cls, episodes: Sequence[Episode], world: WorldSettings, discount: float
    ) -> 'PatientResults':
        """Measure episodes; see :meth:`PatientResult.of`."""
        return cls(tuple(PatientResult.of(each, world, discount) for each in episodes))

    @property
    def episodes(self) -> list[EpisodeMetrics]:
        """Return what was measured of each operation."""
        return [row.episode for row in self.rows]

    def column(self, name: str) -> np.ndarray:
        """Return one of the results, or of the metrics of the episodes, shape (n,)."""
        rows = self.rows if name in PatientResult._fields else self.episodes
        return np.array([getattr(row, name) for row in rows])

    def arrays(self) -> dict[str, np.ndarray]:
        """Return by name what is kept of every patient, each of shape (n,)."""
        return {name: self.column(name) for name in (*KEPT, *PatientResult._fields[1:])}


Measure = Callable[[PatientResults, TaskAccuracy], float | None]


@dataclass(frozen=True)
class Score:
    """
    One number of a policy.

    :param measure: computes it of the results, and of A_task on the frozen set of states.
    :param heading: of its column in the table of a run; without one it has none.
    :param form: of the cells.
    :param minor: whether a narrow terminal does without that column.
    :param over_seeds: whether experiments over several seeds tell its mean.
    :param compared: whether these compare two policies by it, too.
    :param paired: per-patient column that this score averages; enables paired intervals.
    :param sign: -1 where less of that result is better.
    """

    measure: Measure
    heading: str = ''
    form: str = '.3f'
    minor: bool = False
    over_seeds: bool = False
    compared: bool = False
    paired: str = ''
    sign: float = 1.0


def _mean(name: str) -> Measure:
    return lambda results, accuracy: float(results.column(name).mean())


def _end_of_success(which: int) -> Measure:
    def measure(results: PatientResults, accuracy: TaskAccuracy) -> float:
        success = results.column('success')
        return wilson_interval(int(success.sum()), len(success))[which]

    return measure


def _known(results: PatientResults) -> np.ndarray:
    adaptation = results.column('adaptation')
    return adaptation[~np.isnan(adaptation)]


SCORES = {
    'success': Score(_mean('success'), 'success', '.1%', compared=True, paired='success'),
    'success_low': Score(_end_of_success(0)),
    'success_high': Score(_end_of_success(1)),
    'a_task': Score(lambda _, accuracy: accuracy.tolerant, 'A_task', compared=True),
    'a_task_exact': Score(lambda _, accuracy: accuracy.exact, 'exact'),
    'a_task_chance': Score(lambda _, accuracy: accuracy.chance_tolerant),
    'a_task_ceiling': Score(lambda _, accuracy: accuracy.ceiling_tolerant),
    'a_task_on_policy': Score(_mean('task_tolerant'), 'on policy', minor=True),
    'a_task_on_policy_exact': Score(_mean('task_exact')),
    'r_mit': Score(
        lambda results, _: 1.0 - float(results.column('risk').mean()),
        'R_mit',
        compared=True,
        paired='risk',
        sign=-1.0,
    ),
    'alpha_adapt': Score(
        lambda results, _: float(known.mean()) if len(known := _known(results)) else None,
        'alpha_adapt',
        over_seeds=True,
    ),
    'alpha_adapt_cases': Score(lambda results, _: len(_known(results))),
    'peak_force': Score(_mean('peak_force'), 'peak N', '.2f', over_seeds=True),
    'mean_return': Score(_mean('returns'), 'return', minor=True, compared=True, paired='returns'),
    'patients': Score(lambda results, _: len(results.rows)),
}
"""
By name in ``summary.json``: ``success`` with its 95 % interval (Wilson); ``a_task`` tie-tolerant
and exact on the frozen set of states, with what random actions and the best function of the state
would reach, and on the states that the policy itself came into; ``r_mit``; ``alpha_adapt`` (None
where no case had a changed state) and how many cases it is the mean of; mean peak force in
newtons; mean discounted return; patients.
"""


def check_scores(scores: Mapping[str, Score]) -> None:
    """
    Try every row on one made-up patient, before anything is trained.

    :raises SettingError: naming the row that names no result, or has no format of numbers.
    """
    zeros: Json = {
        each.name: 0.0 if each.type is float else 'none' if each.type is str else False
        for each in fields(EpisodeMetrics)
    }
    results = PatientResults((PatientResult(EpisodeMetrics(**zeros), 0.0, 0.0, 0.0, 1),))
    accuracy = TaskAccuracy(*(0.0 for _ in fields(TaskAccuracy)))
    for name, score in scores.items():
        try:
            format(score.measure(results, accuracy) or 0.0, score.form)
            if score.paired:
                results.column(score.paired).astype(np.float64)
        except (AttributeError, TypeError, ValueError) as error:
            raise SettingError(f'score {name}', str(error), 'results and a format') from error


COMPARED = tuple(name for name, score in SCORES.items() if score.compared)


def score_of(results: PatientResults, accuracy: TaskAccuracy) -> Json:
    """
    Return all scores of a policy, by name.

    :param accuracy: of the policy on the frozen set of states.
    """
    return {name: score.measure(results, accuracy) for name, score in SCORES.items()}


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


check_scores(SCORES)
