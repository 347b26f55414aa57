# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""A hospital's records D_i: transitions grouped by patient, and the file that holds them."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
import hashlib
import os
from pathlib import Path

from fdrl_ros.env.episode import Episode
from fdrl_ros.errors import RecordsError
import numpy as np


@dataclass(frozen=True)
class Records:
    """
    Transitions of all patients of a hospital, those of one patient in one run.

    ``states``, ``next_states``: (transitions, states), float32. ``actions``: int64, ``rewards``:
    float32, ``terminals``: bool, each (transitions,). ``starts``: first transition of each
    patient, then the number of transitions: (patients + 1,), int64. ``patients``: their
    pseudonyms, (patients,).
    """

    states: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    next_states: np.ndarray
    terminals: np.ndarray
    starts: np.ndarray
    patients: np.ndarray

    def __post_init__(self) -> None:
        """Refuse arrays that contradict each other or hold values that are not finite."""
        count = len(self.states)
        same_length = all(
            len(getattr(self, name)) == count
            for name in ('actions', 'rewards', 'next_states', 'terminals')
        )
        if not same_length or self.states.ndim != 2 or self.next_states.shape != self.states.shape:
            raise RecordsError('the arrays of the records differ in length or shape')
        if (
            len(self.starts) != len(self.patients) + 1
            or len(self.patients) == 0
            or self.starts[0] != 0
            or self.starts[-1] != count
            or np.any(np.diff(self.starts) < 1)
        ):
            raise RecordsError('the patients of the records do not cover the transitions')
        if len(np.unique(self.patients)) != len(self.patients):
            raise RecordsError('a patient appears twice: one patient is one privacy unit')
        for name in ('states', 'rewards', 'next_states'):
            if not np.all(np.isfinite(getattr(self, name))):
                raise RecordsError(f'{name} of the records are not all finite')
        if np.any(self.actions < 0):
            raise RecordsError('an action of the records is negative')

    @property
    def n_patients(self) -> int:
        """Return n_i, the number of privacy units."""
        return len(self.patients)

    @property
    def n_transitions(self) -> int:
        """Return the number of transitions of all patients."""
        return len(self.actions)

    @property
    def longest(self) -> int:
        """Return the most transitions that one patient has."""
        return int(np.diff(self.starts).max())

    @classmethod
    def from_episodes(cls, episodes: Sequence[Episode]) -> 'Records':
        """
        Group episodes by patient: all of one patient are one unit, whatever the procedure.

        :raises RecordsError: without an episode.
        """
        if not episodes:
            raise RecordsError('no episodes to make records of')
        by_patient: dict[str, list[Episode]] = {}
        for episode in episodes:
            by_patient.setdefault(episode.patient.name, []).append(episode)
        ordered = [episode for group in by_patient.values() for episode in group]
        lengths = [sum(len(e.actions) for e in group) for group in by_patient.values()]
        terminals = [np.zeros(len(e.actions), dtype=bool) for e in ordered]
        for flags, episode in zip(terminals, ordered, strict=True):
            flags[-1] = episode.terminated
        return cls(
            states=np.concatenate([e.states[:-1] for e in ordered]).astype(np.float32),
            actions=np.concatenate([e.actions for e in ordered]).astype(np.int64),
            rewards=np.concatenate([e.rewards for e in ordered]).astype(np.float32),
            next_states=np.concatenate([e.states[1:] for e in ordered]).astype(np.float32),
            terminals=np.concatenate(terminals),
            starts=np.concatenate(([0], np.cumsum(lengths))).astype(np.int64),
            patients=np.array(list(by_patient)),
        )

    @classmethod
    def joined(cls, parts: Sequence['Records']) -> 'Records':
        """
        Put the records of different patients together.

        :raises RecordsError: if there are none, or a patient is in two parts.
        """
        if not parts:
            raise RecordsError('no records to put together')
        counts = np.cumsum([0, *(len(each.actions) for each in parts)])
        starts = [each.starts[:-1] + count for each, count in zip(parts, counts[:-1], strict=True)]
        names = [f.name for f in fields(cls) if f.name != 'starts']
        arrays = {name: np.concatenate([getattr(each, name) for each in parts]) for name in names}
        return cls(**arrays, starts=np.concatenate((*starts, counts[-1:])))

    def digest(self) -> bytes:
        """Return the SHA-256 over all arrays, 32 bytes."""
        sha = hashlib.sha256()
        for each in fields(self):
            array = np.ascontiguousarray(getattr(self, each.name))
            sha.update(f'{each.name} {array.dtype.str} {array.shape}'.encode())
            sha.update(array.tobytes())
        return sha.digest()

    def save(self, path: Path) -> None:
        """Write the records atomically, readable by the owner alone."""
        part = path.with_name(path.name + '.part')
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), 'wb') as file:
            np.savez(file, **{each.name: getattr(self, each.name) for each in fields(self)})
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)

    @classmethod
    def load(cls, path: Path, n_states: int) -> 'Records':
        """
        Read records.

        :param n_states: numbers in a state that the policy expects.
        :raises RecordsError: if the file is missing, damaged, or of another form.
        """
        try:
            with np.load(path, allow_pickle=False) as file:
                records = cls(**{each.name: file[each.name] for each in fields(cls)})
        except RecordsError:
            raise
        except Exception as error:  # numpy raises half a dozen kinds on a damaged archive
            raise RecordsError(f'cannot read the records {path}: {error}') from error
        if records.states.shape[1] != n_states:
            raise RecordsError(
                f'{path}: states of {records.states.shape[1]} numbers, expected {n_states}'
            )
        return records
