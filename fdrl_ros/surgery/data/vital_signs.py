# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Recorded vital signs over time: from a CSV file, or the bag of a robot."""

from bisect import bisect_right
from collections.abc import Sequence
import csv
import math
from pathlib import Path

from fdrl_ros.errors import RecordsError
from fdrl_ros.surgery.data.bag import recorded, TOPICS
from fdrl_ros.surgery.data.log import PATIENT
from fdrl_ros.surgery.gym.state import PATIENT_FIELDS, PATIENT_LAYOUT

NAMES = tuple(each.name for each in PATIENT_FIELDS)
TIME = 'time'
"""Column of the time since the first row, s."""


class VitalSigns:
    """
    Vital signs over time; between two entries the first of them counts.

    :param times: s, rising, the first is 0 or more.
    :param rows: one of each time, in the order and units of PATIENT_FIELDS.
    """

    def __init__(self, times: Sequence[float], rows: Sequence[Sequence[float]]) -> None:
        self._times, self._rows = times, rows

    @classmethod
    def read(cls, path: Path) -> 'VitalSigns':
        """
        Read a CSV file, or the folder or file of a bag with `patient_state`.

        :raises RecordsError: if it is neither, or holds no vital signs that can be.
        """
        if path.suffix == '.csv':
            return cls._read_table(path)
        found = recorded(path, None, {PATIENT: (TOPICS[PATIENT],)}, (PATIENT,))
        if any(message.layout != PATIENT_LAYOUT for _, _, message in found):
            raise RecordsError(f'{path}: {PATIENT} of another layout than {PATIENT_LAYOUT}')
        times = [1e-9 * (at - found[0][0]) for at, _, _ in found]
        return cls._checked(path, times, [list(message.values) for _, _, message in found])

    @classmethod
    def _read_table(cls, path: Path) -> 'VitalSigns':
        try:
            with path.open(newline='', encoding='utf-8') as file:
                rows = list(csv.DictReader(file))
        except (OSError, ValueError, csv.Error) as error:
            raise RecordsError(f'{path}: {error}') from error
        wanted = (TIME, *NAMES)
        if not rows or not set(wanted) <= rows[0].keys():
            raise RecordsError(f'{path}: expected rows under the columns {", ".join(wanted)}')
        try:
            numbers = [[float(row[name]) for name in wanted] for row in rows]
        except (TypeError, ValueError) as error:
            raise RecordsError(f'{path}: {error}') from error
        return cls._checked(path, [row[0] for row in numbers], [row[1:] for row in numbers])

    @classmethod
    def _checked(cls, path: Path, times: list[float], rows: list[list[float]]) -> 'VitalSigns':
        if not all(map(math.isfinite, (*times, *(each for row in rows for each in row)))):
            raise RecordsError(f'{path}: a number that is not finite')
        if times[0] < 0.0 or any(a >= b for a, b in zip(times, times[1:], strict=False)):
            raise RecordsError(f'{path}: times that do not rise from 0 on')
        return cls(times, rows)

    def at(self, time: float) -> tuple[Sequence[float], float] | None:
        """
        Return the vital signs at a time, and how old they are, s; None before the first.

        :param time: since the start, s.
        """
        place = bisect_right(self._times, time) - 1
        return None if place < 0 else (self._rows[place], time - self._times[place])
