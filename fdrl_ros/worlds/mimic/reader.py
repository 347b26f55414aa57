# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Read an extracted MIMIC-III table of sepsis patients into records (DP-DQN section 4.2)."""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from fdrl_ros.learner.records.records import Records
from fdrl_ros.worlds.icu_sepsis.model import LEVELS, REWARD
from fdrl_ros.worlds.mimic.columns import DoseCuts, MIMIC_FEATURES, MimicSettings, PUBLISHED_CUTS
from fdrl_ros.worlds.mimic.table import (
    check_known,
    check_ranges,
    Fault,
    MimicRows,
    ordered,
    TableError,
)
import numpy as np
from numpy.typing import NDArray

__all__ = ['MimicTable', 'read_mimic', 'TableError']


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
