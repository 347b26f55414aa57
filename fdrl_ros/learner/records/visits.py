# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
A hospital's own table of visits, as CSV, becomes its records D_i.

Messages name lines and columns, never a value: those are of patients.
"""

from collections.abc import Iterator, Sequence
import csv
from dataclasses import dataclass, replace
from itertools import groupby
import math
from pathlib import Path
from typing import NamedTuple

from fdrl_ros.errors import RecordsError
from fdrl_ros.learner.records.records import Records
from fdrl_ros.policy.policy import Action
from fdrl_ros.policy.task_identity import TaskIdentity
from fdrl_ros.tasks.spec import TaskSpec
from fdrl_ros.tasks.task import SimpleEpisode
import numpy as np

PATIENT, STAY, TIME, ACTION, REWARD, END = 'patient', 'stay', 'time', 'action', 'reward', 'end'


@dataclass(frozen=True)
class Pseudonym:
    """A patient of whom nothing but the pseudonym is needed."""

    name: str


class _Visit(NamedTuple):
    """One row; ``following``: whether treatment went on after it."""

    patient: str
    stay: str
    time: float
    state: list[float]
    action: list[str]
    reward: str
    following: bool
    line: int


def read_visits(path: Path, spec: TaskSpec, task: TaskIdentity) -> Records:
    """
    Read a table of visits.

    Columns: `patient` (a pseudonym, the same wherever the patient appears), `time` (any unit), one
    for each field of the task by its name and in its unit, `action` (name or number of what was
    then done; `action_0` and so on if it has several numbers), `reward` (of what came of it until
    the next visit). Optional: `end` (1: treatment ended after this visit, nothing follows) and
    `stay` (which of a patient's stays). Rows may be in any order. The last visit of a stay that
    did not end only says where the patient came to: action and reward may be empty there, and a
    patient who has no other visit is left out.

    :param spec: of the task; its scales divide the measurements.
    :param task: whose records they are.
    :raises RecordsError: naming line and column, if a column is missing or a cell is not what is
        expected; or if nothing is left.
    """
    if not spec.fields or spec.places > 1:
        what = 'images' if not spec.fields else f'actions at {spec.places} places'
        raise RecordsError(f'a table of visits cannot hold {what}: make Records in Python')
    visits = sorted(_visits(path, spec), key=lambda visit: (visit.patient, visit.stay, visit.time))
    scales = np.array([field.scale for field in spec.fields])
    episodes = []
    for (patient, _), group in groupby(visits, key=lambda visit: (visit.patient, visit.stay)):
        for course in _courses(list(group), path):
            done = course[:-1] if course[-1].following else course
            if not done:
                continue
            states = [visit.state for visit in (*done, course[-1])]
            episodes.append(
                SimpleEpisode(
                    Pseudonym(patient),
                    (np.array(states) / scales).astype(np.float32),
                    np.array([_action(visit, spec, path) for visit in done]),
                    np.array([_number(visit.reward, path, visit.line, REWARD) for visit in done]),
                    success=False,
                    terminated=not course[-1].following,
                )
            )
    return replace(Records.from_episodes(episodes), task=task)


def _courses(visits: Sequence[_Visit], path: Path) -> Iterator[list[_Visit]]:
    """Divide a stay after each visit that ended the treatment."""
    course: list[_Visit] = []
    for visit in visits:
        if course and visit.time <= course[-1].time:
            raise RecordsError(
                f'{path} lines {course[-1].line} and {visit.line}: two visits of a stay at one '
                f'{TIME}'
            )
        course.append(visit)
        if not visit.following:
            yield course
            course = []
    if course:
        yield course


def _visits(path: Path, spec: TaskSpec) -> Iterator[_Visit]:
    """Read all rows."""
    names = [field.name for field in spec.fields]
    several = spec.continuous and spec.n_actions > 1
    actions = [f'{ACTION}_{each}' for each in range(spec.n_actions)] if several else [ACTION]
    try:
        with path.open(encoding='utf-8-sig', newline='') as file:
            table = csv.DictReader(file, strict=True)
            found = table.fieldnames or []
            missing = [
                each for each in (PATIENT, TIME, *names, *actions, REWARD) if each not in found
            ]
            if missing:
                raise RecordsError(
                    f'{path} has no column {", ".join(missing)}; it has {", ".join(found)}'
                )
            for row in table:
                line = table.line_num
                if None in row or None in row.values():
                    raise RecordsError(f'{path} line {line}: expected {len(found)} cells')
                cells = {name: cell.strip() for name, cell in row.items()}
                if not cells[PATIENT]:
                    raise RecordsError(f'{path} line {line}: nobody in column {PATIENT}')
                end = cells.get(END, '')
                if end not in ('', '0', '1'):
                    raise RecordsError(f'{path} line {line}, column {END}: expected 0 or 1')
                yield _Visit(
                    cells[PATIENT],
                    cells.get(STAY, ''),
                    _number(cells[TIME], path, line, TIME),
                    [_number(cells[name], path, line, name) for name in names],
                    [cells[name] for name in actions],
                    cells[REWARD],
                    end != '1',
                    line,
                )
    except OSError as error:
        raise RecordsError(f'cannot read {path}: {error.strerror or error}') from error
    except (UnicodeError, csv.Error) as error:
        raise RecordsError(f'{path} is no CSV in UTF-8: {error}') from error


def _number(cell: str, path: Path, line: int, column: str) -> float:
    try:
        value = float(cell)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise RecordsError(f'{path} line {line}, column {column}: expected a number')
    return value


def _action(visit: _Visit, spec: TaskSpec, path: Path) -> Action:
    """Return what was done at a visit."""
    if spec.continuous:
        cells = (_number(cell, path, visit.line, ACTION) for cell in visit.action)
        taken = np.fromiter(cells, np.float32)
        if np.any(taken < spec.low) or np.any(taken > spec.high):
            raise RecordsError(f'{path} line {visit.line}: an action beyond its limits')
        return taken
    (cell,) = visit.action
    if cell in spec.actions:
        return spec.actions.index(cell)
    if cell not in map(str, range(spec.n_actions)):
        expected = f'{", ".join(spec.actions)}, or 0 to {spec.n_actions - 1}'
        raise RecordsError(f'{path} line {visit.line}, column {ACTION}: expected {expected}')
    return int(cell)
