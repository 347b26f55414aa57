# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Metrics of one operation: success, time, motion, force, vitals and A_task (FDRL Eq. 8), and files.

Motion is judged by path length and log dimensionless jerk; the latter distinguishes surgeons of
differing skill where mean jerk does not (Sensors 2023, 23(6), 3146). A value that is undefined or
was not recorded is NaN, never 0.
"""

from collections.abc import Mapping, Sequence
import csv
from dataclasses import asdict, dataclass, field, fields, replace
import io
import json
import math
import os
from pathlib import Path
from typing import Any

from fdrl_ros.errors import RecordsError, StateError
from fdrl_ros.metrics.task import StateSet, task_accuracy
import numpy as np

_NAN = math.nan


def _measure(unit: str, meaning: str, default: float | None = None) -> Any:
    metadata = {'unit': unit, 'meaning': meaning}
    if default is None:
        return field(metadata=metadata)
    return field(metadata=metadata, default=default)


@dataclass(frozen=True)
class EpisodeMetrics:
    """Metrics of one operation; see :func:`measure_episode` and :func:`metric_unit`."""

    patient: str = _measure('', 'pseudonym')
    procedure: str = _measure('', 'its name')
    success: bool = _measure('', 'the task was completed')
    failure: str = _measure('', 'why not, or empty')
    time: float = _measure('s', 'from the first command to the end')
    path_length: float = _measure('m', 'of the tip')
    log_dimensionless_jerk: float = _measure('1', 'of the tip; nearer to zero is smoother')
    peak_force: float = _measure('N', 'greatest normal force on the tip; friction counts in none')
    mean_force: float = _measure('N', 'the same over the whole operation')
    time_above_gentle: float = _measure('s', 'with more than the gentle force')
    time_above_firm: float = _measure('s', 'with more than the firm force')
    time_above_severe: float = _measure('s', 'with more than the severe force')
    force_time: float = _measure('N s', 'force integrated over time')
    damage: float = _measure('N s', 'force, and pressure, above what tissue bears, over time')
    low_pressure_time: float = _measure('s', 'with a mean arterial pressure that is too low')
    worst_news2: float = _measure('1', 'greatest NEWS2, from the start on')
    worst_sofa: float = _measure('1', 'greatest SOFA, from the start on')
    task_exact: float = _measure('1', "A_task: share of the expert's very actions", _NAN)
    task_tolerant: float = _measure('1', 'A_task: share of actions as good as its', _NAN)
    chance_exact: float = _measure('1', 'task_exact of random actions', _NAN)
    chance_tolerant: float = _measure('1', 'task_tolerant of random actions', _NAN)
    ceiling_exact: float = _measure('1', 'task_exact that no policy passes', _NAN)
    ceiling_tolerant: float = _measure('1', 'task_tolerant that no policy passes', _NAN)
    states: str = field(
        default='', metadata={'unit': '', 'meaning': 'SHA-256 of the states behind A_task'}
    )

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
                if value < 0 and each.name != 'log_dimensionless_jerk':
                    raise StateError(f'{each.name} = {value!r}: expected none below 0')
                object.__setattr__(self, each.name, float(value))
            elif type(value) is not each.type:
                raise StateError(f'{each.name} = {value!r}: expected {each.type}')
        if self.success and self.failure:
            raise StateError(f'a success that failed by {self.failure!r}')


def metric_unit(name: str) -> str:
    """Return the unit of a metric, empty for strings and booleans."""
    unit: str = EpisodeMetrics.__dataclass_fields__[name].metadata['unit']
    return unit


@dataclass(frozen=True)
class EpisodeTrace:
    """
    The recorded signals of one operation of T ticks; numbers that were not recorded are NaN.

    :param period: of a tick, s.
    :param tips: positions of the tip from start to end, shape (T + 1, 3), m.
    :param peak_forces: greatest normal force within each tick, shape (T,), N.
    :param mean_forces: mean normal force over each tick, shape (T,), N.
    :param damages: accumulated damage at the end of each tick, shape (T,), N s.
    :param pressures: mean arterial pressure at the end of each tick, shape (T,), mmHg.
    :param news2: NEWS2 from start to end, shape (T + 1,).
    :param sofa: SOFA from start to end, shape (T + 1,).
    :param time_above: seconds above each force level; None counts ticks whose mean is above.
    :param low_pressure_time: seconds with too low a pressure; None counts ticks.
    """

    patient: str
    procedure: str
    success: bool
    failure: str
    period: float
    tips: np.ndarray
    peak_forces: np.ndarray
    mean_forces: np.ndarray
    damages: np.ndarray
    pressures: np.ndarray
    news2: np.ndarray
    sofa: np.ndarray
    time_above: Mapping[float, float] | None = None
    low_pressure_time: float | None = None


def measure_episode(
    trace: EpisodeTrace,
    *,
    levels: tuple[float, float, float],
    hypotension: float,
    state_set: StateSet | None = None,
    chosen: np.ndarray | None = None,
) -> EpisodeMetrics:
    """
    Measure one operation.

    :param levels: gentle, firm and severe force, N.
    :param hypotension: mean arterial pressure below which it is too low, mmHg.
    :param state_set: the states for A_task: a frozen set, or the states of this operation.
    :param chosen: the policy's action in each of these states, shape (M,).
    :raises StateError: if shapes disagree, a number is impossible, or only one of the last two is
        given.
    """
    tips = _array('tips', trace.tips, None)
    if tips.ndim != 2 or tips.shape[1] != 3 or len(tips) < 2:
        raise StateError(f'tips of shape {tips.shape}: expected (T + 1, 3), T at least 1')
    count, period = len(tips) - 1, trace.period
    peaks, means, damage, pressures = (
        _array(name, getattr(trace, name), count)
        for name in ('peak_forces', 'mean_forces', 'damages', 'pressures')
    )
    news2, sofa = (_array(name, getattr(trace, name), count + 1) for name in ('news2', 'sofa'))
    if not math.isfinite(period) or period <= 0:
        raise StateError(f'period {period!r}: expected seconds above 0')
    if (state_set is None) != (chosen is None):
        raise StateError('A_task needs both the states and what was chosen in them')
    above = [_time_where(means, means > level, period) for level in levels]
    if trace.time_above is not None:
        try:
            above = [_seconds(float(trace.time_above[level])) for level in levels]
        except KeyError as missing:
            raise StateError(f'time above {missing} N is missing') from None
    low_pressure_time = trace.low_pressure_time
    if low_pressure_time is None:
        low_pressure_time = _time_where(pressures, pressures < hypotension, period)
    metrics = EpisodeMetrics(
        patient=trace.patient,
        procedure=trace.procedure,
        success=bool(trace.success),
        failure=trace.failure,
        time=_seconds(count * period),
        path_length=path_length(tips),
        log_dimensionless_jerk=log_dimensionless_jerk(tips, period),
        peak_force=float(peaks.max()),
        mean_force=float(means.mean()),
        time_above_gentle=above[0],
        time_above_firm=above[1],
        time_above_severe=above[2],
        force_time=float(means.sum()) * period,
        damage=float(damage[-1]),
        low_pressure_time=_seconds(low_pressure_time),
        worst_news2=float(news2.max()),
        worst_sofa=float(sofa.max()),
    )
    if state_set is None or chosen is None:
        return metrics
    accuracy = task_accuracy(state_set, chosen)
    return replace(
        metrics,
        task_exact=accuracy.exact,
        task_tolerant=accuracy.tolerant,
        chance_exact=accuracy.chance_exact,
        chance_tolerant=accuracy.chance_tolerant,
        ceiling_exact=accuracy.ceiling_exact,
        ceiling_tolerant=accuracy.ceiling_tolerant,
        states=state_set.digest,
    )


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


def _array(name: str, values: np.ndarray, count: int | None) -> np.ndarray:
    """Return a float array; refuse another length or an infinite number."""
    array = np.asarray(values, np.float64)
    if count is not None and array.shape != (count,):
        raise StateError(f'{name} of shape {array.shape}: expected ({count},)')
    if np.isinf(array).any():
        raise StateError(f'{name} holds an infinite number')
    return array


def _time_where(values: np.ndarray, marks: np.ndarray, period: float) -> float:
    """Return the time of the marked ticks, NaN if a value was not recorded."""
    return math.nan if np.isnan(values).any() else _seconds(int(marks.sum()) * period)


def _seconds(time: float) -> float:
    """Round rounding errors of a sum of periods away, s."""
    return round(time, 12)


FORMAT = 'fdrl_ros episode metrics 1'


def column(name: str) -> str:
    """Return the heading of a metric: its name, and its unit in brackets if it has one."""
    unit = metric_unit(name)
    return f'{name} [{unit}]' if unit else name


_FIELDS = fields(EpisodeMetrics)
_COLUMNS = [column(each.name) for each in _FIELDS]


def write_csv(path: Path, episodes: Sequence[EpisodeMetrics]) -> None:
    """
    Write a table with a heading and one row an episode; NaN is an empty cell.

    :raises RecordsError: if the file cannot be written.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator='\n')
    writer.writerow(_COLUMNS)
    for each in episodes:
        writer.writerow([_cell(value) for value in asdict(each).values()])
    _write(path, text.getvalue())


def write_json(path: Path, episodes: Sequence[EpisodeMetrics]) -> None:
    """
    Write format, units and episodes as JSON; NaN is null.

    :raises RecordsError: if the file cannot be written.
    """
    rows = [
        {name: None if _missing(value) else value for name, value in asdict(each).items()}
        for each in episodes
    ]
    units = {each.name: metric_unit(each.name) for each in _FIELDS}
    document = {'format': FORMAT, 'units': units, 'episodes': rows}
    _write(path, json.dumps(document, indent=1, allow_nan=False) + '\n')


def _missing(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return 'true' if value else 'false'
    if isinstance(value, float):
        return '' if math.isnan(value) else repr(value)
    return str(value)


def _write(path: Path, text: str) -> None:
    """Write a text atomically: the old file stays until the new one is complete."""
    part = path.with_name(path.name + '.part')
    try:
        with part.open('w', encoding='utf-8', newline='') as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        raise RecordsError(f'cannot write {path}: {error.strerror}') from error
