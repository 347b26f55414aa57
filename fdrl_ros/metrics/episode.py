# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Metrics of one operation: success, time, motion, force, vitals and A_task (FDRL Eq. 8), and files.

Motion is judged by path length and log dimensionless jerk; the latter distinguishes surgeons of
differing skill where mean jerk does not (Sensors 2023, 23(6), 3146). A value that is undefined or
was not recorded is NaN, never 0.
"""

from collections.abc import Callable, Sequence
import csv
from dataclasses import dataclass, field, fields, MISSING
import io
import json
import math
from math import fsum
import os
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from fdrl_ros.errors import os_errors_as, RecordsError, StateError
import numpy as np

_NAN = math.nan


class Column(NamedTuple):
    """
    One column of `fdrl dataset show`.

    :param heading: first line of its heading.
    :param how: the second line: how operations are put together, and the unit.
    :param join: puts the values of a procedure's operations together.
    :param factor: from the metric's unit to that of the column.
    """

    heading: str
    how: str
    join: Callable[[list[float]], float] = fmean
    factor: float = 1.0
    form: str = '.2f'


def _metric(
    unit: str, meaning: str, *shown: Column, default: object = MISSING, signed: bool = False
) -> Any:
    """Return the field of a metric; `signed` ones may be negative."""
    told = {'unit': unit, 'meaning': meaning, 'shown': shown, 'signed': signed}
    return field(metadata=told, default=default)


@dataclass(frozen=True)
class EpisodeMetrics:
    """
    Metrics of one operation; :mod:`fdrl_ros.surgery.gym.episode_metrics` measures them.

    Add new metrics at the end with default NaN, so existing calls still work.
    """

    patient: str = _metric('', 'pseudonym')
    procedure: str = _metric('', 'its name')
    success: bool = _metric(
        '', 'the task was completed', Column('success', '%', fmean, 100.0, '.1f')
    )
    failure: str = _metric('', 'why not, or empty')
    time: float = _metric('s', 'from the first command to the end', Column('time', 'mean, s'))
    path_length: float = _metric(
        'm', 'of the tip', Column('way', 'mean, mm', fmean, 1000.0, '.1f')
    )
    log_dimensionless_jerk: float = _metric(
        '1', 'of the tip; nearer to zero is smoother', Column('jerk', 'mean'), signed=True
    )
    peak_force: float = _metric(
        'N',
        'greatest normal force on the tip; friction counts in none',
        Column('force', 'most, N', max),
    )
    mean_force: float = _metric(
        'N', 'the same over the whole operation', Column('force', 'mean, N')
    )
    time_above_gentle: float = _metric('s', 'with more than the gentle force')
    time_above_firm: float = _metric('s', 'with more than the firm force')
    time_above_severe: float = _metric('s', 'with more than the severe force')
    force_time: float = _metric('N s', 'force integrated over time')
    damage: float = _metric(
        'N s',
        'force, and pressure, above what tissue bears, over time',
        Column('damage', 'mean, N s', form='.4f'),
    )
    low_pressure_time: float = _metric(
        's',
        'with a mean arterial pressure that is too low',
        Column('low MAP', 'sum, s', fsum),
    )
    worst_news2: float = _metric(
        '1',
        'greatest NEWS2, from the start on',
        Column('NEWS2', 'mean', form='.1f'),
        Column('NEWS2', 'most', max, form='.0f'),
    )
    worst_sofa: float = _metric(
        '1',
        'greatest SOFA, from the start on',
        Column('SOFA', 'mean', form='.1f'),
        Column('SOFA', 'most', max, form='.0f'),
    )
    task_exact: float = _metric('1', "A_task: share of the expert's very actions", default=_NAN)
    task_tolerant: float = _metric('1', 'A_task: share of actions as good as its', default=_NAN)
    chance_exact: float = _metric('1', 'task_exact of random actions', default=_NAN)
    chance_tolerant: float = _metric('1', 'task_tolerant of random actions', default=_NAN)
    ceiling_exact: float = _metric('1', 'task_exact that no policy passes', default=_NAN)
    ceiling_tolerant: float = _metric('1', 'task_tolerant that no policy passes', default=_NAN)
    states: str = _metric('', 'SHA-256 of the states behind A_task', default='')

    def __post_init__(self) -> None:
        """
        Refuse impossible values.

        :raises StateError: on a value of another type, an infinite or a negative one.
        """
        for each in fields(self):
            value = getattr(self, each.name)
            if each.type is float:
                number = isinstance(value, int | float) and not isinstance(value, bool)
                if not number or math.isinf(value):
                    raise StateError(f'{each.name} = {value!r}: expected a finite number or NaN')
                if value < 0 and not each.metadata['signed']:
                    raise StateError(f'{each.name} = {value!r}: expected none below 0')
                object.__setattr__(self, each.name, float(value))
            elif type(value) is not each.type:
                raise StateError(f'{each.name} = {value!r}: expected {each.type}')
        if self.success and self.failure:
            raise StateError(f'a success that failed by {self.failure!r}')


def path_length(positions: np.ndarray) -> float:
    """Return the way along positions of shape (n, 3), m."""
    return float(np.linalg.norm(np.diff(positions, axis=0), axis=1).sum())


def log_dimensionless_jerk(positions: np.ndarray, period: float) -> float:
    """
    Return -ln(T^3 / v^2 * integral of squared jerk), with duration T and greatest speed v.

    The form for velocities of Balasubramanian et al. 2015 (10.1186/s12984-015-0090-9). It is
    dimensionless: neither the length nor the duration of a motion changes it. A reach of minimum
    jerk has -ln(204.8), about -5.32; less smooth motions have less. Jerk is the unfiltered third
    difference; each value stands for one period, the outermost for two.

    :param positions: shape (n, 3), m.
    :param period: between two of them, s.
    :returns: NaN for fewer than four positions, or where nothing moved.
    """
    if len(positions) < 4:
        return math.nan
    speed = np.linalg.norm(np.diff(positions, axis=0), axis=1).max() / period
    if not speed > 0:
        return math.nan
    squares = (np.diff(positions, n=3, axis=0) ** 2).sum(axis=1) / period**6
    integral = (squares.sum() + squares[0] + squares[-1]) * period
    duration = (len(positions) - 1) * period
    cost = duration**3 / speed**2 * integral
    # A uniform motion has no jerk, so the value is undefined.
    return -math.log(cost) if cost > 0 else math.nan


FORMAT = 'fdrl_ros episode metrics 1'


SHOWN: list[tuple[str, Column]] = [
    (each.name, column) for each in fields(EpisodeMetrics) for column in each.metadata['shown']
]
"""Columns of `fdrl dataset show`, each with the name of its metric."""

_UNITS: dict[str, str] = {each.name: each.metadata['unit'] for each in fields(EpisodeMetrics)}
COLUMNS = [f'{name} [{unit}]' if unit else name for name, unit in _UNITS.items()]
"""Headings of the metrics: the name, and the unit in brackets if it has one."""


def write_csv(path: Path, episodes: Sequence[EpisodeMetrics]) -> None:
    """
    Write a table with a heading and one row an episode; NaN is an empty cell.

    :raises RecordsError: if the file cannot be written.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator='\n')
    writer.writerow(COLUMNS)
    writer.writerows([map(_cell, vars(each).values()) for each in episodes])
    _write(path, text.getvalue())


def write_json(path: Path, episodes: Sequence[EpisodeMetrics]) -> None:
    """
    Write format, units and episodes as JSON; NaN is null.

    :raises RecordsError: if the file cannot be written.
    """
    rows = [
        {name: None if _missing(value) else value for name, value in vars(each).items()}
        for each in episodes
    ]
    document = {'format': FORMAT, 'units': _UNITS, 'episodes': rows}
    _write(path, json.dumps(document, indent=1, allow_nan=False) + '\n')


def _missing(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return 'true' if value else 'false'
    return '' if _missing(value) else str(value)


def _write(path: Path, text: str) -> None:
    """Write a text atomically: the old file stays until the new one is complete."""
    part = path.with_name(path.name + '.part')
    with os_errors_as(RecordsError, f'cannot write {path}'):
        with part.open('w', encoding='utf-8', newline='') as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
