# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The rows of an extracted MIMIC-III table, and all that is wrong with them at once.

Faults name their places, never a patient's identity (DP-DQN section 4.2).
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
from fdrl_ros.worlds.icu_sepsis.model import LEVELS
from fdrl_ros.worlds.mimic.columns import MIMIC_FEATURES, MimicSettings
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
        words = []
        if self.lines:
            more = self.count - len(self.lines)
            lines = ', '.join(str(each) for each in self.lines)
            lines += f' and {more} more' if more else ''
            words.append(f'line{"s" if self.count > 1 else ""} {lines}')
        words += [] if self.column is None else [f'column {self.column}']
        return ', '.join(words)


class TableError(RecordsError):
    """
    A table cannot be used; names the places, never a patient's number or name.

    Messages end in logs and diagnostics, which leave the hospital. ``line``, ``column`` and
    ``detail`` are of the first fault, ``faults`` has all that are told, ``more`` counts the lines
    of other kinds.
    """

    def __init__(self, path: Path, faults: Sequence[Fault], more: int = 0) -> None:
        first = faults[0]
        self.path = path
        self.faults = tuple(faults)
        self.more = more
        self.line = first.lines[0] if first.lines else None
        self.column = first.column
        self.detail = first.detail
        if len(self.faults) == 1 and not more:
            place = f', {first.place}' if first.place else ''
            super().__init__(f'{path}{place}: {first.detail}')
            return
        said = [f'{each.place}: {each.detail}' for each in self.faults]
        super().__init__(f'{path}: ' + '; '.join(said + [f'and {more} more'] * bool(more)))


class FaultList:
    """Collects faults, in bounded memory however many there are."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._found: dict[tuple[str | None, str], Fault] = {}
        self._more = 0

    def __bool__(self) -> bool:
        """Return whether there is a fault."""
        return bool(self._found)

    def add(self, lines: Sequence[int], column: str | None, detail: str) -> None:
        """
        Note a kind of fault, or more lines of it.

        :param lines: rising.
        """
        key = (column, detail)
        if key not in self._found and len(self._found) >= MOST_FAULTS:
            self._more += len(lines)
            return
        known = self._found.get(key, Fault((), column, detail, 0))
        kept = tuple(sorted({*known.lines, *lines[:MOST_LINES]}))[:MOST_LINES]
        self._found[key] = Fault(kept, column, detail, known.count + len(lines))

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
        values, lines = array('d'), array('q')
        stay, patient = array('q'), array('q')
        for line, who, where, numbers in self._rows():
            lines.append(line)
            patient.append(self.patients.setdefault(who, len(self.patients)))
            stay.append(self.stays.setdefault(where, len(self.stays)))
            values.extend(numbers)
        self.lines = np.array(lines, np.int64)
        self.patient = np.array(patient, np.int64)
        self.stay = np.array(stay, np.int64)
        self._values = np.array(values, np.float64).reshape(len(lines), len(self.numbers))

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
            words = ', '.join(missing[:MOST_FAULTS])
            more = len(missing) - MOST_FAULTS
            words += f' and {more} more' if more > 0 else ''
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
                for place in (*owners, *places):
                    try:
                        name_of(cells[place]) if place in owners else _numbers([cells[place]])
                    except ValueError as error:
                        words = str(error) if place in owners else 'expected a number'
                        self.faults.add([line], names[place], words)
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
    noted = {name: ~np.isfinite(rows[name]) for name in rows.numbers}

    def note(wrong: NDArray[np.bool_], column: str, detail: str) -> None:
        _note(rows, wrong & ~noted[column], column, detail)
        noted[column] |= wrong

    for name, infinite in noted.items():
        _note(rows, infinite, name, 'is not a finite number')
    for name in (settings.fluid, settings.vasopressor):
        note(rows[name] < 0.0, name, 'a dose is negative')
        if settings.doses == 'level':
            wrong = (rows[name] % 1.0 != 0.0) | (rows[name] >= LEVELS)
            note(wrong, name, f'expected a level, 0 to {LEVELS - 1}')
    window = rows[settings.window]
    wrong = (window % 1.0 != 0.0) | (window < 0.0) | (window > 2**31)
    note(wrong, settings.window, 'expected a whole number, at least 0')
    outcome = rows[settings.outcome]
    note((outcome != 0.0) & (outcome != 1.0), settings.outcome, 'expected 0 or 1')
    for each in MIMIC_FEATURES:
        values = rows[each.name]
        if each.binary:
            note((values != 0.0) & (values != 1.0), each.name, f'expected {each.unit}')
            continue
        text = f'expected {each.lowest:g} to {each.highest:g} {each.unit}'
        note((values < each.lowest) | (values > each.highest), each.name, text.rstrip())


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
    _note_pairs(rows, same & (step == 0.0), order, settings.window, 'is there again')
    _note_pairs(rows, same & (step > 1.0), order, settings.window, 'leaves a gap')
    changed = same & (outcome[before] != outcome[after])
    _note_pairs(rows, changed, order, settings.outcome, 'contradicts itself')
    rows.faults.check()
    return order


def _note(rows: MimicRows, wrong: NDArray[np.bool_], column: str, detail: str) -> None:
    """Note the rows that are wrong, if some are."""
    if wrong.any():
        rows.faults.add(np.sort(rows.lines[wrong]).tolist(), column, detail)


def _note_pairs(
    rows: MimicRows, wrong: NDArray[np.bool_], order: NDArray[np.int64], column: str, detail: str
) -> None:
    """Record rows that contradict the row before them."""
    pairs = np.flatnonzero(wrong)
    later = rows.lines[order[1:]][pairs]
    for place in np.argsort(later, kind='stable'):
        earlier = int(rows.lines[order[pairs[place]]])
        rows.faults.add([int(later[place])], column, f'{detail} after line {earlier}')
