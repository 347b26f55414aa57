# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
What is measured of one operation: success, time, motion, force, vitals and A_task (FDRL Eq. 8).

Motion is judged by path length and log dimensionless jerk, of which the second tells surgeons of
differing skill apart where mean jerk does not (Sensors 2023, 23(6), 3146). A value that is
undefined or was not recorded is NaN, never 0.


Metrics of episodes as CSV, one row an episode, and as JSON: written whole, read with doubt.
"""

from collections.abc import Mapping, Sequence
import csv
from dataclasses import asdict, dataclass, field, fields
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
    """One operation in numbers; :func:`measure_episode` makes it, `unit_of` tells a unit."""

    patient: str = _measure('', 'pseudonym')
    procedure: str = _measure('', 'its name')
    success: bool = _measure('', 'what was to be done was done')
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
        Refuse what no operation can have.

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


def unit_of(name: str) -> str:
    """Return the unit of a metric, empty for words and truth values."""
    unit: str = EpisodeMetrics.__dataclass_fields__[name].metadata['unit']
    return unit


def measure_episode(
    *,
    patient: str,
    procedure: str,
    success: bool,
    failure: str,
    period: float,
    tips: np.ndarray,
    peak_forces: np.ndarray,
    mean_forces: np.ndarray,
    damages: np.ndarray,
    pressures: np.ndarray,
    news2: np.ndarray,
    sofa: np.ndarray,
    levels: tuple[float, float, float],
    hypotension: float,
    time_above: Mapping[float, float] | None = None,
    low_pressure_time: float | None = None,
    state_set: StateSet | None = None,
    chosen: np.ndarray | None = None,
) -> EpisodeMetrics:
    """
    Measure one operation of T ticks.

    Numbers that were not recorded are NaN in the arrays and in what comes of them.

    :param period: of a tick, s.
    :param tips: where the tip was, from the start to the end, shape (T + 1, 3), m.
    :param peak_forces: greatest normal force within each tick, shape (T,), N.
    :param mean_forces: mean normal force over each tick, shape (T,), N.
    :param damages: since the start, at the end of each tick, shape (T,), N s.
    :param pressures: mean arterial pressure at the end of each tick, shape (T,), mmHg.
    :param news2: from the start to the end, shape (T + 1,).
    :param sofa: likewise.
    :param levels: gentle, firm and severe force, N.
    :param hypotension: mean arterial pressure below which it is too low, mmHg.
    :param time_above: seconds above each level; unless given, ticks whose mean is above count.
    :param low_pressure_time: seconds with too low a pressure; unless given, ticks are counted.
    :param state_set: what A_task is measured on: a frozen set, or the states of this operation.
    :param chosen: what the policy does in each of these states, shape (M,).
    :raises StateError: if shapes disagree, a number cannot be, or one of the last two is missing.
    """
    tips = _array('tips', tips, None)
    if tips.ndim != 2 or tips.shape[1] != 3 or len(tips) < 2:
        raise StateError(f'tips of shape {tips.shape}: expected (T + 1, 3), T at least 1')
    count = len(tips) - 1
    peaks = _array('peak_forces', peak_forces, count)
    means = _array('mean_forces', mean_forces, count)
    damage = _array('damages', damages, count)
    vitals = _array('pressures', pressures, count)
    warnings = _array('news2', news2, count + 1)
    failures = _array('sofa', sofa, count + 1)
    if not math.isfinite(period) or period <= 0:
        raise StateError(f'period {period!r}: expected seconds above 0')
    if (state_set is None) != (chosen is None):
        raise StateError('A_task needs both the states and what was chosen in them')
    above = [_time_where(means, means > level, period) for level in levels]
    if time_above is not None:
        try:
            above = [_seconds(float(time_above[level])) for level in levels]
        except KeyError as missing:
            raise StateError(f'time above {missing} N is missing') from None
    if low_pressure_time is None:
        low_pressure_time = _time_where(vitals, vitals < hypotension, period)
    task: dict[str, Any] = {}
    if state_set is not None and chosen is not None:
        accuracy = task_accuracy(state_set, chosen)
        task = {
            'task_exact': accuracy.exact,
            'task_tolerant': accuracy.tolerant,
            'chance_exact': accuracy.chance_exact,
            'chance_tolerant': accuracy.chance_tolerant,
            'ceiling_exact': accuracy.ceiling_exact,
            'ceiling_tolerant': accuracy.ceiling_tolerant,
            'states': state_set.digest,
        }
    return EpisodeMetrics(
        patient=patient,
        procedure=procedure,
        success=bool(success),
        failure=failure,
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
        worst_news2=float(warnings.max()),
        worst_sofa=float(failures.max()),
        **task,
    )


def path_length(positions: np.ndarray) -> float:
    """Return the way along positions of shape (n, 3), m."""
    return float(np.linalg.norm(np.diff(positions, axis=0), axis=1).sum())


def log_dimensionless_jerk(positions: np.ndarray, period: float) -> float:
    """
    Return -ln(T^3 / v^2 * integral of squared jerk), of duration T and greatest speed v.

    The form for velocities of Balasubramanian et al. 2015 (10.1186/s12984-015-0090-9). It has no
    dimension: neither the length nor the duration of a way changes it. A reach of minimum jerk has
    -ln(204.8), about -5.32; less smooth ones are below. Jerk is the third difference of what is
    given, unfiltered, each value standing for one period, the outermost for two.

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
    # Without any jerk the logarithm has no end: a uniform motion is undefined here.
    return -math.log(cost) if cost > 0 else math.nan


def _array(name: str, values: np.ndarray, count: int | None) -> np.ndarray:
    """Return a float array, and refuse another length or an infinite number."""
    array = np.asarray(values, np.float64)
    if count is not None and array.shape != (count,):
        raise StateError(f'{name} of shape {array.shape}: expected ({count},)')
    if np.isinf(array).any():
        raise StateError(f'{name} holds an infinite number')
    return array


def _time_where(values: np.ndarray, marks: np.ndarray, period: float) -> float:
    """Return the time of the marked ticks, NaN where a value was not recorded."""
    return math.nan if np.isnan(values).any() else _seconds(int(marks.sum()) * period)


def _seconds(time: float) -> float:
    """Return a sum of periods without what rounding left of it, s."""
    return round(time, 12)


FORMAT = 'fdrl_ros episode metrics 1'

_TRUTH = {'true': True, 'false': False}


def column(name: str) -> str:
    """Return the heading of a metric: its name, and its unit in brackets where it has one."""
    unit = unit_of(name)
    return f'{name} [{unit}]' if unit else name


_FIELDS = fields(EpisodeMetrics)
_COLUMNS = [column(each.name) for each in _FIELDS]


def write_csv(path: Path, episodes: Sequence[EpisodeMetrics]) -> None:
    """
    Write a table with a heading, one row an episode; NaN is an empty cell.

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
    Write format, units and the episodes; NaN is null.

    :raises RecordsError: if the file cannot be written.
    """
    rows = [
        {name: None if _missing(value) else value for name, value in asdict(each).items()}
        for each in episodes
    ]
    units = {each.name: unit_of(each.name) for each in _FIELDS}
    document = {'format': FORMAT, 'units': units, 'episodes': rows}
    _write(path, json.dumps(document, indent=1, allow_nan=False) + '\n')


def read_csv(path: Path) -> list[EpisodeMetrics]:
    """
    Read what :func:`write_csv` wrote.

    :raises RecordsError: if the file is missing, cut off, or of another form.
    """
    text = _read(path)
    if not text.endswith('\n'):
        raise RecordsError(f'{path} is cut off: its last line has no end')
    try:
        rows = list(csv.reader(io.StringIO(text), strict=True))
    except csv.Error as error:
        raise RecordsError(f'{path} is no table: {error}') from error
    if not rows or rows[0] != _COLUMNS:
        raise RecordsError(f'{path}: expected the heading {", ".join(_COLUMNS)}')
    episodes = []
    for number, row in enumerate(rows[1:], 2):
        if len(row) != len(_FIELDS):
            raise RecordsError(f'{path}, line {number}: {len(row)} cells, expected {len(_FIELDS)}')
        try:
            values: dict[str, Any] = {
                each.name: _value(cell, each.type) for each, cell in zip(_FIELDS, row, strict=True)
            }
            episodes.append(EpisodeMetrics(**values))
        except (ValueError, KeyError, StateError) as error:
            raise RecordsError(f'{path}, line {number}: {error}') from error
    return episodes


def read_json(path: Path) -> list[EpisodeMetrics]:
    """
    Read what :func:`write_json` wrote.

    :raises RecordsError: if the file is missing, cut off, or of another form.
    """
    try:
        document = json.loads(_read(path))
    except (ValueError, RecursionError) as error:
        raise RecordsError(f'{path} is no JSON: {error}') from error
    form = document.get('format') if isinstance(document, dict) else None
    if form != FORMAT:
        raise RecordsError(f'{path}: expected the format {FORMAT!r}, came {form!r}')
    units = {each.name: unit_of(each.name) for each in _FIELDS}
    if document.get('units') != units or not isinstance(document.get('episodes'), list):
        raise RecordsError(f'{path}: expected a list of episodes and these units: {units}')
    episodes = []
    for number, row in enumerate(document['episodes']):
        if not isinstance(row, dict) or row.keys() != units.keys():
            raise RecordsError(f'{path}, episode {number}: expected the metrics {list(units)}')
        values: dict[str, Any] = {
            each.name: math.nan
            if row[each.name] is None and each.type is float
            else row[each.name]
            for each in _FIELDS
        }
        try:
            episodes.append(EpisodeMetrics(**values))
        except StateError as error:
            raise RecordsError(f'{path}, episode {number}: {error}') from error
    return episodes


def _missing(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return 'true' if value else 'false'
    if isinstance(value, float):
        return '' if math.isnan(value) else repr(value)
    return str(value)


def _value(cell: str, kind: Any) -> object:
    if kind is bool:
        return _TRUTH[cell]
    if kind is float:
        return float(cell) if cell else math.nan
    return cell


def _write(path: Path, text: str) -> None:
    """Write a text atomically: the old file stays until the new one is whole."""
    part = path.with_name(path.name + '.part')
    try:
        with part.open('w', encoding='utf-8', newline='') as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        raise RecordsError(f'cannot write {path}: {error.strerror}') from error


def _read(path: Path) -> str:
    try:
        with path.open(encoding='utf-8', newline='') as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise RecordsError(f'cannot read {path}: {error}') from error
