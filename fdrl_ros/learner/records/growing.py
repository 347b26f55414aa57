# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Records to which patients are added: a turn costs what is new in it, not what is there."""

from dataclasses import fields
import math

from fdrl_ros.errors import RecordsError
from fdrl_ros.learner.records.records import Records
from fdrl_ros.learner.records.transitions import Transitions
import numpy as np

_OTHERS = ('inputs', 'lines')  # fields of transitions that are no columns of them


class GrowingRecords:
    """
    All patients so far, as a learner takes them; see :class:`.records.Records`.

    A return of n steps never reaches beyond its patient, so the transitions of new patients are
    worked out alone and put behind the others.
    """

    def __init__(self, *, discount: float, n_step: int, unit: str) -> None:
        """Begin without a patient; the settings are those of :meth:`Transitions.of`."""
        self.n_patients = 0
        """Number of privacy units."""
        self.n_transitions = 0
        """Transitions of all patients."""
        self.longest = 0
        """The most transitions that one patient has."""
        self._digest = b''
        self._discount, self._n_step, self._unit = discount, n_step, unit
        self._names: set[str] = set()
        self._columns: dict[str, _Column] = {}

    def add(self, new: Records, digest: bytes) -> None:
        """
        Add patients.

        :param digest: of all records up to these, 32 bytes.
        :raises RecordsError: if one of them is there already, or is recorded in another form.
        """
        self.check_new(new)
        names = set(new.patients.tolist())
        made = Transitions.of(new, discount=self._discount, n_step=self._n_step, unit=self._unit)
        columns = {f.name: getattr(made, f.name) for f in fields(made) if f.name not in _OTHERS}
        if made.table is not None:  # states by their number may get inputs later
            columns['lines'] = made.table
        columns['starts'] = columns['starts'][1:] + self.n_transitions
        if not self._columns:
            self._columns = {name: _Column(rows) for name, rows in columns.items()}
            self._columns['starts'].extend(np.zeros(1, np.int64))
        for name, rows in columns.items():
            self._columns[name].check(name, rows)
        for name, rows in columns.items():
            self._columns[name].extend(rows)
        self._names |= names
        self.n_patients += new.n_patients
        self.n_transitions += new.n_transitions
        self.longest = max(self.longest, new.longest)
        self._digest = digest

    def check_new(self, new: Records) -> None:
        """
        Refuse patients who are there already.

        :raises RecordsError: if there is one; nothing has changed then.
        """
        if not self._names.isdisjoint(new.patients.tolist()):
            raise RecordsError('a patient appears twice: one patient is one privacy unit')

    def digest(self) -> bytes:
        """Return the digest of all records."""
        return self._digest

    def transitions(self, inputs: np.ndarray | None) -> Transitions:
        """Return all transitions; they stay as they are when patients are added."""
        columns = {n: each.rows for n, each in self._columns.items()}
        if inputs is not None:
            columns.pop('lines', None)
        return Transitions(**columns, inputs=inputs)


class _Column:
    """Rows in an array with room to spare: doubled when full, so each is moved about once."""

    def __init__(self, like: np.ndarray) -> None:
        self._room = np.empty((0, *like.shape[1:]), like.dtype)
        self._count = 0

    @property
    def rows(self) -> np.ndarray:
        return self._room[: self._count]

    def check(self, name: str, rows: np.ndarray) -> None:
        form, expected = (rows.dtype, rows.shape[1:]), (self._room.dtype, self._room.shape[1:])
        if form != expected:
            raise RecordsError(f'{name} of new records are {form}, of earlier ones {expected}')

    def extend(self, rows: np.ndarray) -> None:
        count = self._count + len(rows)
        if count > len(self._room):
            room = np.empty((2 ** math.ceil(math.log2(count)), *rows.shape[1:]), rows.dtype)
            room[: self._count] = self.rows
            self._room = room
        self._room[self._count : count] = rows
        self._count = count
