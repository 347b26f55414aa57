# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Refuse patients, rows and actions that a batch cannot have, before anything moves."""

from collections.abc import Iterable
from typing import Any

from fdrl_ros.errors import StateError
from fdrl_ros.surgery.arm.batch_arm import refuse_unreachable
from fdrl_ros.surgery.gym.actions import ACTION_COUNT
from fdrl_ros.surgery.patient.batch_events import Rows
from fdrl_ros.surgery.patient.patient import Patient
import numpy as np
from numpy.typing import ArrayLike, NDArray


def listed(patients: Iterable[Patient]) -> list[Patient]:
    """
    Return patients as a list.

    :raises StateError: if they are none.
    """
    if not isinstance(patients, Iterable):
        raise StateError(f'patients {patients!r}: expected a list of Patients')
    return list(patients)


def checked_patients(patients: Iterable[Patient]) -> list[Patient]:
    """
    Return patients that can be operated on.

    :raises StateError: if one is none, or the arm cannot reach a start, goal or destination.
    """
    chosen = listed(patients)
    for each in chosen:
        if not isinstance(each, Patient):
            raise StateError(f'patient {each!r}: expected a Patient')
    if chosen:
        places = [at for each in chosen for at in (each.start, each.goal, each.destination)]
        refuse_unreachable(np.array(places).T)
    return chosen


def checked_row(row: Any, count: int) -> int:
    """
    Return the number of a row.

    :raises StateError: if it is none.
    """
    whole = isinstance(row, int | np.integer) and not isinstance(row, bool)
    if not whole or not 0 <= row < count:
        raise StateError(f'row {row!r}: expected 0 to {count - 1}, after a reset')
    return int(row)


def checked_rows(rows: ArrayLike, count: int) -> Rows:
    """
    Return numbers of rows, each at most once.

    :raises StateError: if they are none, or no such rows.
    """
    chosen = np.asarray(rows)
    if not (
        chosen.ndim == 1
        and chosen.dtype.kind in 'iu'
        and 0 < len(chosen) == len(set(chosen.tolist()))
        and 0 <= chosen.min() <= chosen.max() < count
    ):
        raise StateError(f'rows {rows!r}: expected numbers of rows, each once')
    return chosen


def checked_actions(actions: ArrayLike, over: NDArray[np.bool_]) -> Rows:
    """
    Return an action for each of the operations.

    :param over: which of them have ended.
    :raises StateError: on actions that cannot be, or after an end.
    """
    chosen = np.asarray(actions)
    if chosen.shape != over.shape or not chosen.size or chosen.dtype.kind not in 'iu':
        raise StateError(
            f'actions of shape {chosen.shape} and type {chosen.dtype}: expected whole '
            f'numbers of shape {over.shape}, after a reset'
        )
    if chosen.min() < 0 or chosen.max() >= ACTION_COUNT:
        raise StateError(f'actions {actions!r}: expected 0 to {ACTION_COUNT - 1}')
    if over.any():
        raise StateError(
            f'operations {np.flatnonzero(over).tolist()} are over: '
            'replace their patients, or keep the other rows'
        )
    return chosen
