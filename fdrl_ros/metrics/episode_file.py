# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Metrics of episodes as CSV, one row an episode, and as JSON: written whole, read with doubt."""

from collections.abc import Sequence
import csv
from dataclasses import asdict, fields
import io
import json
import math
import os
from pathlib import Path
from typing import Any

from fdrl_ros.errors import RecordsError, StateError
from fdrl_ros.metrics.episode import EpisodeMetrics, unit_of

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
