# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
A hospital's records D_i: transitions grouped by patient, and the file that holds them.

Logs of a live arm as a hospital's records D_i: all operations of a pseudonym are one unit.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
import hashlib
from pathlib import Path
from typing import Any, Protocol

from fdrl_ros.errors import RecordsError, TaskError
from fdrl_ros.policy.task_identity import TaskIdentity
from fdrl_ros.runtime.durable import replacing
from fdrl_ros.tasks.task import Episode, P
import numpy as np

_TYPES: dict[str, tuple[type[np.generic], ...]] = {
    'states': (np.float32, np.uint8),
    'actions': (np.int64, np.float32),  # uint8 too, where there are several places
    'rewards': (np.float32,),
    'next_states': (np.float32, np.uint8),
    'terminals': (np.bool_,),
    'starts': (np.int64,),
    'patients': (np.str_,),
    'ends': (np.bool_,),
}
"""Data types of each array; others are converted to the first."""
_TASK = 'task'
_REQUIRED = [name for name in _TYPES if name != 'ends']


class LoggedOperation(Protocol):
    """
    What records keep of an operation of a live arm, as T transitions.

    ``patient``: pseudonym. ``states``, ``next_states``: (T, states), float32. ``actions``,
    ``rewards``, ``terminals``: (T,).
    """

    @property
    def patient(self) -> str:
        """Return the pseudonym."""

    @property
    def states(self) -> np.ndarray:
        """Return the states in which an action was chosen."""

    @property
    def actions(self) -> np.ndarray:
        """Return the actions."""

    @property
    def rewards(self) -> np.ndarray:
        """Return the rewards; NaN where unknown."""

    @property
    def next_states(self) -> np.ndarray:
        """Return the states one tick later."""

    @property
    def terminals(self) -> np.ndarray:
        """Return where no value follows."""


@dataclass(frozen=True)
class Records:
    """
    Transitions of all patients of a hospital, grouped by patient and in order of time.

    ``states``, ``next_states``: (transitions, states), float32, or uint8 for images. ``actions``:
    numbers of discrete actions, (transitions,), int64, one for each place of an observation,
    (transitions, places), uint8, or continuous ones, (transitions, n), float32. ``rewards``:
    float32, ``terminals`` (no value follows): bool, each (transitions,). ``starts``: first
    transition of each patient, then the number of transitions: (patients + 1,), int64.
    ``patients``: their pseudonyms, (patients,). ``ends``: whether a transition is the last of its
    episode, terminal or cut off, bool, (transitions,); without them it is one after which the
    next row begins in another state. A terminal transition and a patient's last one always are.
    Other number types are converted if nothing is lost, terminals also from 0 and 1.
    ``task``: whose states and actions they are; a file must say it.
    """

    states: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    next_states: np.ndarray
    terminals: np.ndarray
    starts: np.ndarray
    patients: np.ndarray
    ends: np.ndarray = None  # type: ignore[assignment]  # an array once it is made
    task: TaskIdentity | None = None

    def __post_init__(self) -> None:
        """Refuse arrays that contradict each other or hold values that are not finite."""
        for name, kinds in _TYPES.items():
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, _converted(name, value, kinds))
        count, starts, patients = len(self.states), self.starts, self.patients.tolist()
        flat = (self.rewards, self.terminals, self.ends)
        several = self.actions.dtype != np.int64  # numbers of an action
        if (
            self.states.ndim != 2
            or self.next_states.shape != self.states.shape
            or self.next_states.dtype != self.states.dtype
            or self.actions.shape[:1] != (count,)
            or self.actions.ndim != (2 if several else 1)
            or any(column is not None and column.shape != (count,) for column in flat)
        ):
            raise RecordsError('the arrays of the records differ in length or shape')
        if (
            len(starts) != len(patients) + 1
            or not patients
            or np.any(np.diff(starts) <= 0)
            or (starts[0], starts[-1]) != (0, count)
        ):
            raise RecordsError('the patients of the records do not cover the transitions')
        if len(set(patients)) < len(patients):
            raise RecordsError('a patient appears twice: one patient is one privacy unit')
        for name in ('states', 'actions', 'rewards', 'next_states'):
            if not np.isfinite(getattr(self, name)).all():
                raise RecordsError(f'{name} of the records are not all finite')
        if not several and np.any(self.actions < 0):
            raise RecordsError('an action of the records is negative')
        if self.ends is None:
            ends = np.ones(count, np.bool_)
            ends[:-1] = (self.next_states[:-1] != self.states[1:]).any(axis=1)
        else:
            ends = self.ends.copy()
        ends |= self.terminals
        ends[starts[1:] - 1] = True
        object.__setattr__(self, 'ends', ends)

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

    def require_known(self, known: Collection[str]) -> None:
        """
        Refuse patients who are not on a list, such as the list of consenting patients.

        :param known: pseudonyms.
        :raises RecordsError: if there is one; the message does not name the patient.
        """
        if not set(self.patients.tolist()) <= set(known):
            raise RecordsError('the records hold a patient who is not known here')

    @classmethod
    def from_episodes(cls, episodes: Sequence[Episode[P]]) -> 'Records':
        """
        Group episodes by patient: all of one patient are one unit, whatever the procedure.

        :raises RecordsError: without an episode.
        """
        return cls._grouped(
            (
                episode.patient.name,
                episode.states[:-1],
                episode.actions,
                episode.rewards,
                episode.states[1:],
                _is_last(episode.actions) & episode.terminated,
            )
            for episode in episodes
        )

    @classmethod
    def from_logs(cls, logged: Sequence[LoggedOperation]) -> 'Records':
        """
        Group operations of a live arm by patient: all operations of a pseudonym are one unit.

        The privacy guarantee covers a patient only if the pseudonym is the same in every log.

        :param logged: with rewards, see :func:`fdrl_ros.surgery.data.log_rewards.with_rewards`.
        :raises RecordsError: without an operation, or if a reward or a pseudonym is missing.
        """
        if not all(log.patient for log in logged):
            raise RecordsError('an operation on nobody: every patient needs a pseudonym')
        if not all(np.isfinite(log.rewards).all() for log in logged):
            raise RecordsError(
                'a log has no rewards; derive them with with_rewards, or give your own'
            )
        return cls._grouped(
            (log.patient, log.states, log.actions, log.rewards, log.next_states, log.terminals)
            for log in logged
        )

    @classmethod
    def _grouped(cls, operations: Iterable[tuple[str, *tuple[np.ndarray, ...]]]) -> 'Records':
        """Group operations by patient: states, actions, rewards, next states and terminals."""
        by_patient: dict[str, list[tuple[np.ndarray, ...]]] = {}
        for patient, *columns in operations:
            by_patient.setdefault(patient, []).append((*columns, _is_last(columns[1])))
        if not by_patient:
            raise RecordsError('no operations to make records of')
        ordered = [columns for group in by_patient.values() for columns in group]
        lengths = [sum(len(columns[1]) for columns in group) for group in by_patient.values()]
        *arrays, ends = map(np.concatenate, zip(*ordered, strict=True))
        starts, patients = np.cumsum([0, *lengths]), np.array(list(by_patient))
        states, actions, rewards, next_states, terminals = arrays
        return cls(states, actions, rewards, next_states, terminals, starts, patients, ends)

    def arrays(self) -> dict[str, Any]:
        """Return the arrays by name."""
        return {name: getattr(self, name) for name in _TYPES}

    @classmethod
    def from_arrays(
        cls, arrays: Mapping[str, np.ndarray], task: TaskIdentity | None = None
    ) -> 'Records':
        """
        Make records of what :meth:`arrays` returned.

        :raises RecordsError: if they contradict each other.
        :raises TypeError: if one is missing or unknown.
        """
        columns: Any = dict(arrays)
        return cls(**columns, task=task)

    def digest(self) -> bytes:
        """Return the SHA-256 over all arrays, 32 bytes."""
        sha = hashlib.sha256()
        for name, array in self.arrays().items():
            sha.update(f'{name} {array.dtype.str} {array.shape}'.encode())
            sha.update(array.tobytes())
        return sha.digest()

    def save(self, path: Path) -> None:
        """Write the records atomically, readable by the owner alone."""
        with replacing(path) as file:
            arrays = self.arrays()
            if self.task is not None:
                arrays[_TASK] = np.array(self.task.to_json())
            np.savez(file, **arrays)

    @classmethod
    def load(cls, path: Path, n_states: int | None = None) -> 'Records':
        """
        Read records.

        :param n_states: size of a state that is expected; None: any.
        :raises RecordsError: if the file is missing, damaged, or of another form.
        """
        try:
            with np.load(path, allow_pickle=False) as file:
                # Files of earlier versions have no ends of episodes.
                names = [name for name in _TYPES if name in (*file, *_REQUIRED)]
                task = TaskIdentity.from_json(str(file[_TASK])) if _TASK in file else None
                records = cls.from_arrays({name: file[name] for name in names}, task)
        except (RecordsError, TaskError):
            raise
        except Exception as error:  # numpy raises half a dozen kinds on a damaged archive
            reason = getattr(error, 'strerror', None) or error
            raise RecordsError(f'cannot read the records {path}: {reason}') from error
        size = records.states.shape[1]
        if size != (n_states or size):
            raise RecordsError(f'{path}: states of {size} numbers, expected {n_states}')
        return records


def _converted(name: str, value: object, kinds: tuple[type[np.generic], ...]) -> np.ndarray:
    """
    Convert a value to the first of some data types, unless it has one, if nothing is lost.

    Actions of two axes are float32, or uint8 as they are: classes at each place.
    """
    try:
        array = np.asarray(value)
        compact = name == 'actions' and array.ndim == 2 and array.dtype == np.uint8
        if array.dtype in kinds or compact:
            return array
        kind = kinds[-1] if name == 'actions' and array.ndim == 2 else kinds[0]
        made = array.astype(kind, copy=False)
        if kind is np.str_:
            lossless = all(isinstance(each, str) for each in array.reshape(-1).tolist())
        else:
            # Real numbers become the nearest float32; all others must stay equal.
            lossless = array.dtype.kind in 'biuf' and (
                kind is np.float32 or np.array_equal(made.astype(array.dtype), array)
            )
    except (TypeError, ValueError) as error:
        raise RecordsError(f'{name} of the records are not an array: {error}') from error
    if not lossless:
        expected = kind.__name__
        raise RecordsError(f'{name} of the records are {array.dtype}: expected {expected}')
    return made


def _is_last(actions: np.ndarray) -> np.ndarray:
    """Mark the last transition of an episode, shape (transitions,)."""
    last: np.ndarray = np.arange(len(actions)) == len(actions) - 1
    return last
