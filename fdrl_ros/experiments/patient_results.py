# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Results of one policy, patient by patient, and its scores: the numbers of a run in any task.

Numbers are kept for each patient, so that two policies can be compared on the same ones. A
:class:`Score` puts a number into ``summary.json``, the tables and the comparisons.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
import math
from typing import Any

from fdrl_ros.deployment.plan import Plan
from fdrl_ros.errors import SettingError, TaskError
from fdrl_ros.experiments.json_file import Json
from fdrl_ros.selector import returns_to_go
from fdrl_ros.tasks import Episode
import numpy as np
from numpy.typing import NDArray

NORMAL_95 = 1.959963984540054
"""Two-sided 95 % quantile of the normal distribution."""


@dataclass(frozen=True, eq=False)
class PatientResults:
    """
    What happened to n patients under one policy.

    :param columns: by name, each of shape (n,): ``patient``, ``hospital``, ``success``, ``total``
        (sum of the rewards), ``returns`` (discounted return J, FDRL Eq. 1), ``length`` (steps),
        and what the task measures.
    :param figures: what was measured of the policy beside these patients.
    """

    columns: Mapping[str, NDArray[Any]]
    figures: Mapping[str, float] = field(default_factory=dict)

    def __len__(self) -> int:
        """Return n."""
        return len(self.columns['patient'])

    @classmethod
    def of(
        cls, episodes: Sequence[Episode[Any]], plan: Plan, hospitals: Sequence[str] = ()
    ) -> 'PatientResults':
        """
        Measure episodes.

        :param hospitals: of their patients; unknown unless given.
        :raises TaskError: if the task measures something else of each.
        """
        task = plan.task
        rows: list[Json] = []
        for number, episode in enumerate(episodes):
            measured = task.measure(episode, plan.world)
            if missing := task.measures.keys() - measured.keys():
                raise TaskError(f'task {task.name} does not measure {", ".join(sorted(missing))}')
            row = {
                **measured,
                'patient': episode.patient.name,
                'hospital': hospitals[number] if hospitals else '',
                'success': bool(episode.success),
                'total': float(np.sum(episode.rewards, dtype=np.float64)),
                'returns': returns_to_go(episode.rewards, plan.value.discount)[0],
                'length': len(episode.actions),
            }
            if rows and row.keys() != rows[0].keys():
                raise TaskError(f'task {task.name} measures {set(row) ^ set(rows[0])} sometimes')
            rows.append(row)
        return cls({name: np.array([row[name] for row in rows]) for name in rows[0]})

    @classmethod
    def joined(
        cls, parts: Sequence['PatientResults'], figures: Mapping[str, float]
    ) -> 'PatientResults':
        """Put results of several groups of patients one after the other."""
        names = parts[0].columns
        columns = {name: np.concatenate([each.columns[name] for each in parts]) for name in names}
        return cls(columns, figures)

    def column(self, name: str) -> NDArray[Any]:
        """
        Return one of the results, shape (n,).

        :raises AttributeError: if there is none of that name.
        """
        if name not in self.columns:
            raise AttributeError(f'results have no {name!r}')
        return self.columns[name]

    def groups(self, name: str) -> dict[str, 'PatientResults']:
        """Return the results of patients with each value of a column, without figures."""
        column = self.columns[name]
        return {
            str(value): PatientResults(
                {each: found[column == value] for each, found in self.columns.items()}
            )
            for value in dict.fromkeys(column.tolist())
        }


Measure = Callable[[PatientResults], float | None]


@dataclass(frozen=True)
class Score:
    """
    One number of a policy.

    :param measure: computes it of the results.
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


Scores = Mapping[str, Score]
"""By name in ``summary.json``; the ends of the interval of `x` are `x_low` and `x_high`."""


def mean_of(name: str) -> Measure:
    """Return what averages a column over the patients; None where no value is defined."""

    def measure(results: PatientResults) -> float | None:
        values = np.asarray(results.column(name), np.float64)
        known = values[~np.isnan(values)]
        return float(known.mean()) if len(known) else None

    return measure


def _end_of_mean(name: str, side: float) -> Measure:
    def measure(results: PatientResults) -> float:
        values = results.column(name).astype(np.float64)
        spread = float(values.std(ddof=1)) if len(values) > 1 else math.nan
        return float(values.mean()) + side * NORMAL_95 * spread / math.sqrt(len(values))

    return measure


def _end_of_success(which: int) -> Measure:
    def measure(results: PatientResults) -> float:
        success = results.column('success')
        return wilson_interval(int(success.sum()), len(success))[which]

    return measure


SUCCESS: Scores = {
    'success': Score(mean_of('success'), 'success', '.1%', compared=True, paired='success'),
    'success_low': Score(_end_of_success(0)),
    'success_high': Score(_end_of_success(1)),
}
TOTAL: Scores = {
    'mean_total': Score(mean_of('total'), 'total reward', '.2f', compared=True, paired='total'),
    'mean_total_low': Score(_end_of_mean('total', -1.0)),
    'mean_total_high': Score(_end_of_mean('total', 1.0)),
}
RETURN: Scores = {
    'mean_return': Score(mean_of('returns'), 'return', minor=True, compared=True, paired='returns')
}
PATIENTS: Scores = {'patients': Score(len)}

BY_GROUP: Scores = {**SUCCESS, **TOTAL, **PATIENTS}
"""What is told of the patients of each hospital."""


def _figure(name: str) -> Measure:
    return lambda results: results.figures[name]


def plain_scores(measures: Mapping[str, str], exact: Mapping[str, str] = {}) -> Scores:
    """
    Return the scores of any task.

    Success with its 95 % interval (Wilson), mean sum of the rewards with its own (normal), mean
    discounted return and length, what the task computes exactly, the means of what it measures.

    :param measures: heading of each measure, by name.
    :param exact: heading of each exact number, by name; it is compared if it has one.
    """
    own = {
        name: Score(mean_of(name), heading, compared=True, paired=name)
        for name, heading in measures.items()
    }
    known = {
        name: Score(_figure(name), heading, compared=bool(heading), over_seeds=not heading)
        for name, heading in exact.items()
    }
    length = Score(mean_of('length'), 'length', '.1f', minor=True, over_seeds=True)
    return {**SUCCESS, **TOTAL, **RETURN, 'mean_length': length, **known, **own, **PATIENTS}


def compared(scores: Scores) -> tuple[str, ...]:
    """Return the names of the scores by which two policies are compared."""
    return tuple(name for name, score in scores.items() if score.compared)


def check_scores(scores: Scores, results: PatientResults) -> None:
    """
    Try every row on made-up results, before anything is trained.

    :raises SettingError: naming the row that names no result, or has no format of numbers.
    """
    for name, score in scores.items():
        try:
            format(score.measure(results) or 0.0, score.form)
            if score.paired:
                results.column(score.paired).astype(np.float64)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise SettingError(f'score {name}', str(error), 'results and a format') from error


def score_of(results: PatientResults, scores: Scores) -> Json:
    """Return all scores of a policy, by name."""
    return {name: score.measure(results) for name, score in scores.items()}


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
