# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Read an extracted MIMIC-III table of sepsis patients into records (DP-DQN section 4.2)."""

from array import array
from collections.abc import Collection, Iterator
import csv
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from fdrl_ros.env.icu_sepsis_model import LEVELS, REWARD
from fdrl_ros.errors import RecordsError
from fdrl_ros.trainer.mimic_columns import (
    DoseCuts,
    MIMIC_FEATURES,
    MimicSettings,
    PUBLISHED_CUTS,
)
from fdrl_ros.trainer.records import Records
import numpy as np
from numpy.typing import NDArray


class TableError(RecordsError):
    """
    A table cannot be used; says where, and never a patient's number or name.

    Messages end in logs and diagnostics, which leave the hospital.
    """

    def __init__(self, path: Path, line: int | None, column: str | None, detail: str) -> None:
        self.path = path
        self.line = line
        self.column = column
        self.detail = detail
        place = [str(path)]
        place += [] if line is None else [f'line {line}']
        place += [] if column is None else [f'column {column}']
        super().__init__(f'{", ".join(place)}: {detail}')


@dataclass(frozen=True, eq=False)
class MimicTable:
    """
    What a table holds.

    ``records``: each patient one privacy unit. ``sofa``: score at each transition,
    (transitions,). ``cuts``: that made levels of doses; none if the table has levels.
    """

    records: Records
    sofa: NDArray[np.float64]
    cuts: DoseCuts | None


def read_mimic(
    path: Path,
    settings: MimicSettings | None = None,
    cuts: DoseCuts = PUBLISHED_CUTS,
    known_patients: Collection[str] | None = None,
) -> MimicTable:
    """
    Read a CSV file with one row for each patient and window of four hours, in any order.

    The action of a window is what was given in it; the last window of a stay ends with +15 or
    -15. Nothing is computed over the table but what belongs to one stay alone.

    :param path: UTF-8, commas, a header; see docs/sepsis.md for the columns.
    :param settings: which columns tell what.
    :param cuts: that make levels of doses.
    :param known_patients: whose records may be used; everyone's unless given.
    :raises TableError: with file, line and column, on the first thing that is wrong.
    """
    chosen = settings or MimicSettings()
    table = _Table(path, chosen)
    table.check_ranges()
    if known_patients is not None:
        table.check_known(frozenset(known_patients))
    order = table.ordered()
    stay, patient = table.stay[order], table.patient[order]
    actions = LEVELS * table.levels('fluid', cuts) + table.levels('vasopressor', cuts)
    states = np.stack([each.scaled(table[each.name]) for each in MIMIC_FEATURES], axis=1)[order]
    last = np.append(stay[1:] != stay[:-1], True)
    next_states = np.zeros_like(states)
    next_states[:-1] = states[1:]
    next_states[last] = 0.0
    reward = REWARD * (1.0 - 2.0 * table[chosen.outcome][order])
    first = np.flatnonzero(np.append(True, patient[1:] != patient[:-1]))
    names = list(table.patients)
    return MimicTable(
        records=Records(
            states=states,
            actions=actions[order],
            rewards=np.where(last, reward, 0.0).astype(np.float32),
            next_states=next_states,
            terminals=last,
            starts=np.append(first, len(order)).astype(np.int64),
            patients=np.array([names[each] for each in patient[first]]),
        ),
        sofa=table['SOFA'][order],
        cuts=cuts if chosen.doses == 'dose' else None,
    )


class _Table:
    """The columns as arrays, each row with the line that it stood on."""

    def __init__(self, path: Path, settings: MimicSettings) -> None:
        self.path = path
        self.settings = settings
        self.patients: dict[str, int] = {}
        self._stays: dict[str, int] = {}
        names = [each.name for each in MIMIC_FEATURES]
        names += [settings.window, settings.outcome, settings.fluid, settings.vasopressor]
        self._numbers = list(dict.fromkeys(names))
        values, lines = array('d'), array('q')
        stay, patient = array('q'), array('q')
        for line, who, where, numbers in self._rows():
            lines.append(line)
            patient.append(self.patients.setdefault(who, len(self.patients)))
            stay.append(self._stays.setdefault(where, len(self._stays)))
            values.extend(numbers)
        self.lines = np.array(lines, np.int64)
        self.patient = np.array(patient, np.int64)
        self.stay = np.array(stay, np.int64)
        self._values = np.array(values, np.float64).reshape(len(lines), len(self._numbers))
        found = len(self.patients)
        if found < settings.minimum_patients:
            wanted = settings.minimum_patients
            self._refuse(None, None, f'too short: {found} patients, expected at least {wanted}')

    def __getitem__(self, name: str) -> NDArray[np.float64]:
        """Return a column of numbers."""
        return self._values[:, self._numbers.index(name)]

    def _refuse(self, line: int | None, column: str | None, detail: str) -> NoReturn:
        raise TableError(self.path, line, column, detail)

    def _rows(self) -> Iterator[tuple[int, str, str, list[float]]]:
        """Yield line, patient, stay and numbers of each row."""
        try:
            with open(self.path, newline='', encoding='utf-8-sig') as file:
                reader = csv.reader(file, strict=True)
                try:
                    yield from self._parsed(reader, next(reader, []))
                except csv.Error as error:
                    self._refuse(reader.line_num, None, f'not CSV: {error}')
        except (OSError, UnicodeDecodeError) as error:
            raise TableError(self.path, None, None, f'cannot be read: {error}') from error

    def _parsed(
        self, reader: Iterator[list[str]], header: list[str]
    ) -> Iterator[tuple[int, str, str, list[float]]]:
        names = [each.strip() for each in header]
        if not any(names):
            self._refuse(None, None, 'too short: no header')
        wanted = [self.settings.patient, self.settings.stay, *self._numbers]
        missing = [each for each in dict.fromkeys(wanted) if each not in names]
        if missing:
            self._refuse(1, None, 'missing columns: ' + ', '.join(missing))
        for each in wanted:
            if names.count(each) > 1:
                self._refuse(1, each, 'is there twice')
        patient, stay = names.index(self.settings.patient), names.index(self.settings.stay)
        places = [names.index(each) for each in self._numbers]
        for cells in reader:
            line: int = reader.line_num  # type: ignore[attr-defined]
            if not cells:
                continue
            if len(cells) != len(names):
                self._refuse(line, None, f'{len(cells)} cells, expected {len(names)}')
            for place in (patient, stay):
                if not cells[place].strip():
                    self._refuse(line, names[place], 'is empty')
            try:
                numbers = [float(cells[place]) for place in places]
            except ValueError:
                self._refuse(line, self._first_text(cells, places), 'expected a number')
            yield line, cells[patient].strip(), cells[stay].strip(), numbers

    def _first_text(self, cells: list[str], places: list[int]) -> str:
        """Return the name of the first column that holds no number."""
        for name, place in zip(self._numbers, places, strict=True):
            try:
                float(cells[place])
            except ValueError:
                return name
        raise AssertionError('all are numbers')

    def _refuse_rows(self, wrong: NDArray[np.bool_], column: str, detail: str) -> None:
        """Refuse the first row that is wrong, if one is."""
        if wrong.any():
            self._refuse(int(self.lines[wrong].min()), column, detail)

    def check_ranges(self) -> None:
        """Refuse numbers that cannot be."""
        settings = self.settings
        for name in self._numbers:
            self._refuse_rows(~np.isfinite(self[name]), name, 'is not a finite number')
        for name in (settings.fluid, settings.vasopressor):
            self._refuse_rows(self[name] < 0.0, name, 'a dose is negative')
            if settings.doses == 'level':
                wrong = (self[name] % 1.0 != 0.0) | (self[name] >= LEVELS)
                self._refuse_rows(wrong, name, f'expected a level, 0 to {LEVELS - 1}')
        window = self[settings.window]
        wrong = (window % 1.0 != 0.0) | (window < 0.0) | (window > 2**31)
        self._refuse_rows(wrong, settings.window, 'expected a whole number, at least 0')
        outcome = self[settings.outcome]
        self._refuse_rows((outcome != 0.0) & (outcome != 1.0), settings.outcome, 'expected 0 or 1')
        for each in MIMIC_FEATURES:
            wrong = (self[each.name] < each.lowest) | (self[each.name] > each.highest)
            text = f'expected {each.lowest:g} to {each.highest:g} {each.unit}'
            self._refuse_rows(wrong, each.name, text.rstrip())

    def check_known(self, known: frozenset[str]) -> None:
        """Refuse a patient whose records may not be used."""
        strangers = [number for name, number in self.patients.items() if name not in known]
        wrong = np.isin(self.patient, strangers)
        self._refuse_rows(wrong, self.settings.patient, 'a patient who is not known here')

    def ordered(self) -> NDArray[np.int64]:
        """Return the rows by patient, stay and window; refuse stays that contradict themselves."""
        settings = self.settings
        window, outcome = self[settings.window], self[settings.outcome]
        owner = np.empty(len(self._stays), np.int64)
        owner[self.stay[::-1]] = self.patient[::-1]  # of the first row
        wrong = self.patient != owner[self.stay]
        self._refuse_rows(wrong, settings.stay, 'this stay began as that of another patient')
        order = np.lexsort((self.lines, window, self.stay, self.patient))
        before, after = order[:-1], order[1:]
        same = self.stay[before] == self.stay[after]
        step = window[after] - window[before]
        self._refuse_pair(same & (step == 0.0), before, after, settings.window, 'is there again')
        self._refuse_pair(same & (step > 1.0), before, after, settings.window, 'leaves a gap')
        changed = same & (outcome[before] != outcome[after])
        self._refuse_pair(changed, before, after, settings.outcome, 'contradicts itself')
        return order

    def _refuse_pair(
        self,
        wrong: NDArray[np.bool_],
        before: NDArray[np.int64],
        after: NDArray[np.int64],
        column: str,
        detail: str,
    ) -> None:
        if wrong.any():
            pairs = np.flatnonzero(wrong)
            pair = pairs[self.lines[after[pairs]].argmin()]
            earlier = int(self.lines[before[pair]])
            self._refuse(int(self.lines[after[pair]]), column, f'{detail} after line {earlier}')

    def levels(self, name: str, cuts: DoseCuts) -> NDArray[np.int64]:
        """Return the level of each row's dose, or the levels that the table holds."""
        values = self[getattr(self.settings, name)]
        if self.settings.doses == 'level':
            return values.astype(np.int64)
        return cuts.levels(name, values)
