# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What the numbers of an extracted MIMIC-III table can be, and what a stay is."""

from collections.abc import Collection

from fdrl_ros.errors import SettingError
from fdrl_ros.worlds.icu_sepsis.model import LEVELS
from fdrl_ros.worlds.mimic.columns import MIMIC_FEATURES
from fdrl_ros.worlds.mimic.rows import canonical_name, MimicRows
import numpy as np
from numpy.typing import NDArray


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
