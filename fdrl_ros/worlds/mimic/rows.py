# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The rows of an extracted MIMIC-III table as arrays, each with the line that it stood on."""

from array import array
from collections.abc import Iterator
import csv
import functools
from pathlib import Path
import re
import unicodedata

from fdrl_ros.worlds.mimic.columns import MIMIC_FEATURES, MimicSettings
from fdrl_ros.worlds.mimic.faults import Fault, FaultList, MOST_FAULTS, TableError
import numpy as np
from numpy.typing import NDArray

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
            fine, found = True, []
            for place in owners:
                try:
                    found.append(name_of(cells[place]))
                except ValueError as error:
                    fine = False
                    self.faults.add([line], names[place], str(error))
            texts = [cells[place] for place in places]
            try:
                numbers = _numbers(texts)
            except ValueError:
                fine = False
                for column in self._no_numbers(texts):
                    self.faults.add([line], column, 'expected a number')
            if fine:
                yield line, found[0], found[1], numbers

    def _no_numbers(self, texts: list[str]) -> Iterator[str]:
        """Yield the names of the columns that hold no number."""
        for name, text in zip(self.numbers, texts, strict=True):
            try:
                _numbers([text])
            except ValueError:
                yield name


def _numbers(texts: list[str]) -> list[float]:
    """
    Read numbers as other programs write them; Python's own 8_0 is none.

    :raises ValueError: if one is no number.
    """
    together = ''.join(texts)
    if '_' in together or not together.isascii():
        raise ValueError('no number')
    return [float(each) for each in texts]
