# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Reads an extracted MIMIC-III table of sepsis patients into records (DP-DQN section 4.2).

All that is wrong with its rows is told at once: places, never a patient's identity.
"""

from array import array
from collections.abc import Collection, Iterator, Sequence
import csv
from dataclasses import dataclass
import functools
from pathlib import Path
import re
import unicodedata

from fdrl_ros.errors import RecordsError, SettingError
from fdrl_ros.learner.records.records import Records
from fdrl_ros.worlds.icu_sepsis.model import LEVELS, REWARD
from fdrl_ros.worlds.mimic.columns import DoseCuts, MIMIC_FEATURES, MimicSettings, PUBLISHED_CUTS
import numpy as np
from numpy.typing import NDArray

MOST_FAULTS = 20
"""Kinds of fault that a message tells; the rest are counted."""
MOST_LINES = 3
"""Lines that it names of each kind."""


@dataclass(frozen=True)
class Fault:
    """
    One kind of fault.

    ``lines``: the first that have it, at most MOST_LINES; none if it is of the whole file.
    ``count``: how many lines have it. ``column``: none if it is of a whole line.
    """

    lines: tuple[int, ...]
    column: str | None
    detail: str
    count: int = 1

    @property
    def place(self) -> str:
        """Describe the place, such as 'lines 3, 4, 5 and 12 more, column HR'."""
        parts = []
        if self.lines:
            more = self.count - len(self.lines)
            lines = 'lines ' if self.count > 1 else 'line '
            lines += ', '.join(map(str, self.lines))
            parts.append(f'{lines} and {more} more' if more else lines)
        if self.column:
            parts.append(f'column {self.column}')
        return ', '.join(parts)

    def __str__(self) -> str:
        """Describe place and fault."""
        return f'{self.place}: {self.detail}' if self.place else self.detail


class TableError(RecordsError):
    """
    A table cannot be used; names the places, never a patient's number or name.

    Messages end in logs and diagnostics, which leave the hospital. ``line``, ``column`` and
    ``detail`` are of the first fault, ``faults`` has all that are told, ``more`` counts the lines
    of other kinds.
    """

    def __init__(self, path: Path, faults: Sequence[Fault], more: int = 0) -> None:
        first = faults[0]
        self.path, self.faults, self.more = path, tuple(faults), more
        self.line = first.lines[0] if first.lines else None
        self.column, self.detail = first.column, first.detail
        said = '; '.join(map(str, faults))
        super().__init__(f'{path}: {said}; and {more} more' if more else f'{path}: {said}')


class FaultList:
    """Collects faults, in bounded memory however many there are."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._found: dict[tuple[str | None, str], Fault] = {}
        self._more = 0

    def add(self, lines: Sequence[int], column: str | None, detail: str) -> None:
        """
        Note a kind of fault, or more lines of it.

        :param lines: rising.
        """
        known = self._found.get((column, detail), Fault((), column, detail, 0))
        if not known.count and len(self._found) >= MOST_FAULTS:
            self._more += len(lines)
            return
        kept = tuple(sorted({*known.lines, *lines[:MOST_LINES]}))[:MOST_LINES]
        count = known.count + len(lines)
        self._found[column, detail] = Fault(kept, column, detail, count)

    def check(self) -> None:
        """
        Go on only if nothing is wrong.

        :raises TableError: with all faults, in the order of lines.
        """
        if self._found:
            ordered = sorted(self._found.values(), key=lambda each: each.lines[:1])
            raise TableError(self.path, ordered, self._more)


_WHOLE = re.compile(r'([+-]?)0*(\d+?)(\.0*)?', re.ASCII)
_NUMBER = re.compile(r'[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?', re.ASCII)
_PSEUDONYM = re.compile(r'\d+e\d+', re.ASCII)  # of hexadecimal digits, such as 12e4
_GAPS = frozenset({'', 'nan', 'none', 'null', 'na', '<na>', 'nat', 'n/a'})


def canonical_name(cell: object) -> str:
    """
    Return the one spelling of a patient's or a stay's number or name.

    :param cell: text, or a whole number of Python or NumPy.
    :raises ValueError: with words that do not repeat it, if it names nobody for sure.
    """
    name = unicodedata.normalize('NFKC', str(cell)).strip()
    if name.casefold() in _GAPS:
        raise ValueError('is empty')
    if isinstance(cell, bool) or not name.isprintable():
        raise ValueError('is no name: something in it cannot be seen')
    whole = _WHOLE.fullmatch(name)
    if whole:
        sign, digits = whole[1], whole[2]
        return f'-{digits}' if sign == '-' and digits != '0' else digits
    lower = name.casefold()
    if _NUMBER.fullmatch(lower) and not _PSEUDONYM.fullmatch(lower):
        raise ValueError('is a number, but not a whole one: several patients may share it')
    return name


_PARTED = {';': 'semicolons', '\t': 'tabs', '|': 'bars'}
_LONGEST_HEADER = 1 << 20


class MimicRows:
    """
    What stands in a file; `rows[name]` is a column of numbers, (rows,).

    A row with a cell that cannot be read is left out and noted in ``faults``.
    """

    def __init__(self, path: Path, settings: MimicSettings) -> None:
        """
        Read a file.

        :raises TableError: if it cannot be read at all, or has other columns.
        """
        self.path = path
        self.settings = settings
        self.faults = FaultList(path)
        self.patients: dict[str, int] = {}
        self.stays: dict[str, int] = {}
        names = [each.name for each in MIMIC_FEATURES]
        names += [settings.window, settings.outcome, settings.fluid, settings.vasopressor]
        self.numbers = list(dict.fromkeys(names))
        values, places = array('d'), array('q')
        for line, who, where, numbers in self._rows():
            patient = self.patients.setdefault(who, len(self.patients))
            places.extend((line, patient, self.stays.setdefault(where, len(self.stays))))
            values.extend(numbers)
        self.lines, self.patient, self.stay = np.array(places, np.int64).reshape(-1, 3).T
        self._values = np.array(values, np.float64).reshape(-1, len(self.numbers))

    def __getitem__(self, name: str) -> NDArray[np.float64]:
        """Return a column of numbers."""
        return self._values[:, self.numbers.index(name)]

    def _rows(self) -> Iterator[tuple[int, str, str, list[float]]]:
        """Yield line, patient, stay and numbers of each row that can be read."""
        try:
            with open(self.path, newline='', encoding='utf-8-sig') as file:
                self._check_commas(file.readline(_LONGEST_HEADER))
                file.seek(0)
                reader = csv.reader(file, strict=True)
                try:
                    yield from self._parsed(reader, next(reader, []))
                except csv.Error as error:  # what follows cannot be told apart
                    self.faults.add([reader.line_num], None, f'not CSV: {error}')
        except (OSError, UnicodeDecodeError) as error:
            fault = Fault((), None, f'cannot be read: {error}')
            raise TableError(self.path, [fault]) from error

    def _check_commas(self, header: str) -> None:
        """Refuse a header that has more of the columns if it is parted by something else."""
        wanted = {self.settings.patient, self.settings.stay, *self.numbers}

        def known(mark: str) -> int:
            return len(wanted & {each.strip().strip('"') for each in header.split(mark)})

        best = max(_PARTED, key=known)
        if known(best) > known(','):
            words = f'columns are parted by {_PARTED[best]}, expected commas'
            raise TableError(self.path, [Fault((1,), None, words)])

    def _check_header(self, names: list[str], wanted: list[str]) -> None:
        if not any(names):
            raise TableError(self.path, [Fault((), None, 'too short: no header')])
        missing = [each for each in dict.fromkeys(wanted) if each not in names]
        if missing:
            words, more = ', '.join(missing[:MOST_FAULTS]), len(missing) - MOST_FAULTS
            if more > 0:
                words += f' and {more} more'
            self.faults.add([1], None, f'missing columns: {words}')
        for each in wanted:
            if names.count(each) > 1:
                self.faults.add([1], each, 'is there twice')
        self.faults.check()

    def _parsed(
        self, reader: Iterator[list[str]], header: list[str]
    ) -> Iterator[tuple[int, str, str, list[float]]]:
        names = [each.strip() for each in header]
        settings = self.settings
        self._check_header(names, [settings.patient, settings.stay, *self.numbers])
        owners = [names.index(settings.patient), names.index(settings.stay)]
        places = [names.index(each) for each in self.numbers]
        name_of = functools.lru_cache(maxsize=4096)(canonical_name)
        for cells in reader:
            line: int = reader.line_num  # type: ignore[attr-defined]
            if not cells:
                continue
            if len(cells) != len(names):
                self.faults.add([line], None, f'{len(cells)} cells, expected {len(names)}')
                continue
            try:
                who, where = (name_of(cells[place]) for place in owners)
                numbers = _numbers([cells[place] for place in places])
            except ValueError:
                for place in owners:
                    try:
                        name_of(cells[place])
                    except ValueError as error:
                        self.faults.add([line], names[place], str(error))
                for place in places:
                    try:
                        _numbers([cells[place]])
                    except ValueError:
                        self.faults.add([line], names[place], 'expected a number')
            else:
                yield line, who, where, numbers


def _numbers(texts: list[str]) -> list[float]:
    """
    Read numbers as other programs write them; Python's own 8_0 is none.

    :raises ValueError: if one is no number.
    """
    together = ''.join(texts)
    if '_' in together or not together.isascii():
        raise ValueError('no number')
    return [float(each) for each in texts]


def check_ranges(rows: MimicRows) -> None:
    """Note numbers that cannot be, each with the first reason alone."""
    settings = rows.settings
    doses = [settings.fluid, settings.vasopressor]
    checks = [(name, ~np.isfinite(rows[name]), 'is not a finite number') for name in rows.numbers]
    checks += [(name, rows[name] < 0.0, 'a dose is negative') for name in doses]
    if settings.doses == 'level':
        for name in doses:
            wrong = (rows[name] % 1.0 != 0.0) | (rows[name] >= LEVELS)
            checks.append((name, wrong, f'expected a level, 0 to {LEVELS - 1}'))
    window = rows[settings.window]
    wrong = (window % 1.0 != 0.0) | (window < 0.0) | (window > 2**31)
    checks.append((settings.window, wrong, 'expected a whole number, at least 0'))
    flags = [(settings.outcome, '0 or 1')]
    flags += [(each.name, each.unit) for each in MIMIC_FEATURES if each.binary]
    checks += [(name, ~np.isin(rows[name], (0.0, 1.0)), f'expected {x}') for name, x in flags]
    for each in MIMIC_FEATURES:
        values = rows[each.name]
        wrong = (values < each.lowest) | (values > each.highest)
        expected = f'expected {each.lowest:g} to {each.highest:g} {each.unit}'.rstrip()
        checks.append((each.name, wrong, expected))
    noted = {name: np.zeros(len(rows.lines), np.bool_) for name in rows.numbers}
    for name, wrong, detail in checks:
        _note(rows, wrong & ~noted[name], name, detail)
        noted[name] |= wrong


def check_known(rows: MimicRows, known: Collection[object]) -> None:
    """
    Record patients whose records may not be used.

    :param known: names or whole numbers, spelled in any way.
    :raises SettingError: if they are none.
    """
    expected = 'names or whole numbers of patients, in a collection'
    if isinstance(known, str | bytes):
        raise SettingError('known_patients', '(one text)', expected)
    try:
        names = {canonical_name(each) for each in known}
    except (TypeError, ValueError) as error:
        raise SettingError('known_patients', f'(one {error})', expected) from error
    strangers = [number for name, number in rows.patients.items() if name not in names]
    wrong = np.isin(rows.patient, strangers)
    _note(rows, wrong, rows.settings.patient, 'a patient who is not known here')


def ordered(rows: MimicRows) -> NDArray[np.int64]:
    """
    Return the rows by patient, stay and window.

    :raises TableError: with all faults, also those noted before, and stays that contradict
        themselves.
    """
    rows.faults.check()  # without the rows that were left out every stay may have gaps
    settings = rows.settings
    window, outcome = rows[settings.window], rows[settings.outcome]
    owner = np.empty(len(rows.stays), np.int64)
    owner[rows.stay[::-1]] = rows.patient[::-1]  # of the first row
    wrong = rows.patient != owner[rows.stay]
    _note(rows, wrong, settings.stay, 'this stay began as that of another patient')
    order = np.lexsort((rows.lines, window, rows.stay, rows.patient))
    before, after = order[:-1], order[1:]
    same = rows.stay[before] == rows.stay[after]
    step = window[after] - window[before]
    for wrong, column, detail in (
        (step == 0.0, settings.window, 'is there again'),
        (step > 1.0, settings.window, 'leaves a gap'),
        (outcome[before] != outcome[after], settings.outcome, 'contradicts itself'),
    ):
        pairs = rows.lines[[after[same & wrong], before[same & wrong]]]
        for line, earlier in sorted(zip(*pairs.tolist(), strict=True)):
            rows.faults.add([line], column, f'{detail} after line {earlier}')
    rows.faults.check()
    return order


def _note(rows: MimicRows, wrong: NDArray[np.bool_], column: str, detail: str) -> None:
    """Note the rows that are wrong, if some are."""
    if wrong.any():
        rows.faults.add(np.sort(rows.lines[wrong]).tolist(), column, detail)


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
    known_patients: Collection[str | int] | None = None,
) -> MimicTable:
    """
    Read a CSV file with one row for each patient and window of four hours, in any order.

    The action of a window is what was given in it; the last window of a stay ends with +15 or
    -15. Nothing is computed over the table but what belongs to one stay alone.

    :param path: UTF-8, commas, a header; see docs/sepsis.md for the columns.
    :param settings: which columns tell what.
    :param cuts: that make levels of doses.
    :param known_patients: whose records may be used, names or whole numbers; everyone's unless
        given.
    :raises TableError: with file, lines and columns, on all that is wrong, up to a bound.
    """
    chosen = settings or MimicSettings()
    table = MimicRows(Path(path), chosen)
    check_ranges(table)
    if known_patients is not None:
        check_known(table, known_patients)
    order = ordered(table)
    found = len(table.patients)
    if found < chosen.minimum_patients:
        words = f'too short: {found} patients, expected at least {chosen.minimum_patients}'
        raise TableError(table.path, [Fault((), None, words)])
    stay, patient = table.stay[order], table.patient[order]
    fluid, vasopressor = (_levels(table, name, cuts) for name in ('fluid', 'vasopressor'))
    actions = LEVELS * fluid + vasopressor
    states = np.stack([each.scaled(table[each.name]) for each in MIMIC_FEATURES], axis=1)[order]
    last = np.append(stay[1:] != stay[:-1], True)
    next_states = np.where(last[:, None], np.float32(0.0), np.roll(states, -1, axis=0))
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


def _levels(table: MimicRows, name: str, cuts: DoseCuts) -> NDArray[np.int64]:
    """Return the level of each row's dose, or the levels that the table holds."""
    values = table[getattr(table.settings, name)]
    if table.settings.doses == 'level':
        return values.astype(np.int64)
    return cuts.levels(name, values)
