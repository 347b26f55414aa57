# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Transitions as the learner takes them: returns of n steps, and what is left of gamma then.

Records to which patients are added: a round costs what is new in it, not what is there.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cached_property
import math

from fdrl_ros.errors import RecordsError
from fdrl_ros.learner.records.records import Records
from fdrl_ros.learner.settings import LearnerSettings
from fdrl_ros.policy.network import Network
import numpy as np
from numpy.typing import NDArray


def check_actions(
    actions: np.ndarray, count: int, *, continuous: bool = False, places: int = 1
) -> None:
    """
    Refuse recorded actions that a network does not have.

    :param actions: discrete, (transitions,) or (transitions, places), or continuous,
        (transitions, n).
    :param count: discrete actions of the network, or numbers of its continuous ones.
    :param continuous: whether the network's actions are.
    :param places: of an observation that have an action each.
    :raises RecordsError: if there are others.
    """
    if continuous != (actions.dtype == np.float32):
        found, wanted = ('continuous', 'discrete')[:: -1 if continuous else 1]
        raise RecordsError(f'{found} actions: those of the network are {wanted}')
    if continuous and actions.shape[1] != count:
        raise RecordsError(f'actions of {actions.shape[1]} numbers: the network gives {count}')
    if not continuous and actions[0].size != places:
        found = actions[0].size
        raise RecordsError(f'actions at {found} places of an observation: expected {places}')
    if not continuous and actions.max() >= count:
        raise RecordsError(f'an action beyond the {count} of the network')


@dataclass(frozen=True)
class Batch:
    """
    Transitions of some units, the same number of each.

    ``states`` and ``next_states`` have shape (units, transitions, states), float32; ``actions``
    int64, ``rewards`` and ``discounts`` float32 (gamma^n; 0 where no value follows) have shape
    (units, transitions). ``weights``, if any, scale each transition's loss. Continuous actions,
    and those at several places, have one more axis, and the type of the records.
    """

    states: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    next_states: np.ndarray
    discounts: np.ndarray
    weights: np.ndarray | None = None

    def mapped(self, change: Callable[[np.ndarray], np.ndarray]) -> 'Batch':
        """Change every column alike, such as to take some of the units."""
        columns = {field.name: getattr(self, field.name) for field in fields(Batch)}
        return Batch(**{name: change(x) for name, x in columns.items() if x is not None})

    def rows(self) -> 'Batch':
        """View units and transitions as one axis of rows."""
        return self.mapped(lambda column: column.reshape(-1, *column.shape[2:]))


_COLUMNS = ('states', 'actions', 'rewards', 'next_states', 'discounts')


class DrawnBatch(Batch):
    """A batch whose columns are copied from all transitions on first access."""

    transitions: 'Transitions'
    index: NDArray[np.int64]

    def __init__(
        self,
        transitions: 'Transitions',
        index: NDArray[np.int64],
        weights: np.ndarray | None = None,
    ) -> None:
        """
        Store the drawn rows.

        :param index: shape (units, transitions).
        """
        vars(self).update(transitions=transitions, index=index, weights=weights)

    def __getattr__(self, name: str) -> np.ndarray:
        if name not in _COLUMNS:
            raise AttributeError(name)
        found = vars(self)[name] = self.transitions.column(name, self.index)
        return found


@dataclass(frozen=True)
class Transitions:
    """
    A hospital's records as n-step transitions, those of a unit in one run.

    ``states``, ``next_states``: (transitions, states), float32. ``actions``: int64, ``rewards``
    (sum of gamma^k r over n steps) and ``discounts`` (gamma^n; 0 where no value follows): float32,
    (transitions,). ``starts``: first transition of each unit, then their number: (units + 1,).
    ``inputs``: the network's input for each state number, (numbers, inputs), if states are
    recorded by number. ``lines``: the precomputed :attr:`table`, if any.
    """

    states: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    next_states: np.ndarray
    discounts: np.ndarray
    starts: NDArray[np.int64]
    inputs: np.ndarray | None = None
    lines: np.ndarray | None = None

    @classmethod
    def from_records(
        cls,
        records: Records,
        *,
        discount: float,
        n_step: int | None = 1,
        unit: str = 'patient',
        inputs: np.ndarray | None = None,
    ) -> 'Transitions':
        """
        Compute n-step transitions within each episode.

        :param discount: gamma.
        :param n_step: n; None sums all rewards to the end of the episode, and no value follows.
        :param unit: 'patient', or 'transition' if every step is a unit. A step is then part of up
            to n transitions, which the accountant must count as its group.
        :param inputs: public table of the network's input for each state number.
        """
        rewards = records.rewards.astype(np.float64)
        starts = records.starts if unit == 'patient' else np.arange(len(rewards) + 1)
        if n_step is None:
            return cls(
                records.states,
                records.actions,
                returns_to_go(rewards, records.ends, discount).astype(np.float32),
                records.next_states,
                np.zeros(len(rewards), np.float32),
                starts,
                inputs,
            )
        left = discount * ~records.terminals
        last = np.arange(len(records.actions))
        going = ~records.ends
        total, factor, reach = rewards.copy(), np.ones(len(rewards)), going.copy()
        for _ in range(n_step - 1):
            index = np.flatnonzero(reach)
            last[index] += 1
            factor[index] *= discount
            total[index] += factor[index] * rewards[last[index]]
            reach[index] = going[last[index]]
        return cls(
            records.states,
            records.actions,
            total.astype(np.float32),
            records.next_states if n_step == 1 else records.next_states[last],
            (factor * left[last]).astype(np.float32),
            starts,
            inputs,
        )

    def check_fit(self, network: Network, inputs: np.ndarray | None = None) -> None:
        """
        Refuse states and actions that do not fit a network.

        :param inputs: public table of the network's input for each state number, if there is one.
        :raises RecordsError: if they do not.
        """
        seen, both = self.states.shape[-1], (self.states, self.next_states)
        if inputs is None:
            if seen != network.states:
                raise RecordsError(f'states of {seen} numbers: the network takes {network.states}')
        elif seen != 1 or inputs.ndim != 2 or inputs.shape[1] != network.states:
            raise RecordsError(f'inputs must turn the number of a state into {network.states}')
        elif any(each.min() < 0 or each.max() >= len(inputs) for each in both):
            raise RecordsError(f'a state beyond the {len(inputs)} of the inputs')
        check_actions(
            self.actions,
            network.actions,
            continuous=network.continuous,
            places=network.places,
        )

    def lengths(self, units: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return how many transitions the given units have, same shape."""
        return self.starts[units + 1] - self.starts[units]

    def at(self, index: NDArray[np.int64], weights: np.ndarray | None = None) -> Batch:
        """
        Take transitions.

        :param index: shape (units, transitions).
        :param weights: of their losses, same shape.
        """
        return DrawnBatch(self, index, weights)

    def idled(
        self,
        index: NDArray[np.int64],
        learner: LearnerSettings,
        weights: NDArray[np.float32] | None = None,
    ) -> NDArray[np.float32] | None:
        """
        Weigh transitions in which nothing was done by learner.idle_weight.

        :param index: as :meth:`at` takes it.
        :param weights: of all, same shape; None: 1.
        :returns: weights, same shape; None: 1.
        """
        if learner.idle_weight == 1.0 or learner.idle_action < 0 or self.actions.ndim > 1:
            return weights
        idle = self.actions.take(index) == learner.idle_action
        found = np.where(idle, learner.idle_weight, 1.0)
        return np.asarray(found if weights is None else found * weights, np.float32)

    def column(self, name: str, index: NDArray[np.int64]) -> np.ndarray:
        """Copy rows of a column; states in the form of the network's input."""
        found: np.ndarray = getattr(self, name).take(index, axis=0)
        if self.inputs is None or name not in ('states', 'next_states'):
            return found
        return self.inputs[found[..., 0].astype(np.int64)]

    @cached_property
    def table(self) -> np.ndarray | None:
        """
        All transitions, a line each: state, next state, reward, discount, action.

        None if states are recorded by number. Action numbers are exact in float32.
        """
        if self.lines is not None:
            return self.lines
        if self.inputs is not None:
            return None
        columns = (self.states, self.next_states, self.rewards, self.discounts, self.actions)
        return np.column_stack(columns).astype(np.float32)

    def draw_rows(
        self, units: NDArray[np.int64], uniforms: NDArray[np.float64]
    ) -> NDArray[np.int64]:
        """
        Draw transitions of the given units, uniformly with replacement.

        The draw of a unit depends on no other unit.

        :param units: their numbers, shape (units,).
        :param uniforms: in [0, 1), shape (units, transitions).
        :returns: indices for :meth:`at`, shape (units, transitions).
        """
        first, length = self.starts[units][:, None], self.lengths(units)[:, None]
        return first + np.minimum((uniforms * length).astype(np.int64), length - 1)


def returns_to_go(
    rewards: NDArray[np.float64], ends: NDArray[np.bool_], discount: float
) -> NDArray[np.float64]:
    """
    Return the discounted sum of the rewards from each step to the end of its episode.

    :param rewards: (steps,).
    :param ends: whether a step is the last of its episode, (steps,).
    """
    found = rewards.copy()
    for step in np.flatnonzero(~ends)[::-1]:
        found[step] += discount * found[step + 1]
    return found


class GrowingRecords:
    """
    Records that patients are added to; a round costs only its new patients.

    A return of n steps never reaches beyond its patient, so the transitions of new patients are
    computed alone and appended.
    """

    def __init__(self, *, discount: float, n_step: int | None, unit: str) -> None:
        """Begin without patients; settings as in :meth:`Transitions.from_records`."""
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
        :raises RecordsError: if a patient exists already, or is recorded in another form.
        """
        self.check_new(new)
        made = Transitions.from_records(
            new, discount=self._discount, n_step=self._n_step, unit=self._unit
        )
        columns = {name: getattr(made, name) for name in (*_COLUMNS, 'starts')}
        if made.table is not None:
            columns['lines'] = made.table
        columns['starts'] = columns['starts'][1:] + self.n_transitions
        if not self._columns:
            self._columns = {name: _Column(rows[:0]) for name, rows in columns.items()}
            self._columns['starts'].extend(np.zeros(1, np.int64))
        for name, rows in columns.items():
            form, expected = ((x.dtype, x.shape[1:]) for x in (rows, self._columns[name].rows))
            if form != expected:
                raise RecordsError(f'{name} of new records are {form}, of earlier ones {expected}')
        for name, rows in columns.items():
            self._columns[name].extend(rows)
        self._names |= set(new.patients.tolist())
        self.n_patients += new.n_patients
        self.n_transitions += new.n_transitions
        self.longest = max(self.longest, new.longest)
        self._digest = digest

    def check_new(self, new: Records) -> None:
        """
        Refuse patients who exist already, before any change.

        :raises RecordsError: if there is one.
        """
        if not self._names.isdisjoint(new.patients.tolist()):
            raise RecordsError('a patient appears twice: one patient is one privacy unit')

    def digest(self) -> bytes:
        """Return the digest of all records."""
        return self._digest

    def transitions(self, inputs: np.ndarray | None) -> Transitions:
        """Return all transitions; adding patients does not change them."""
        columns = {name: column.rows for name, column in self._columns.items()}
        if inputs is not None:
            columns.pop('lines', None)
        return Transitions(**columns, inputs=inputs)


class _Column:
    """Rows in an array that doubles when full, so each row is moved about once."""

    def __init__(self, room: np.ndarray) -> None:
        self.rows = self._room = room

    def extend(self, rows: np.ndarray) -> None:
        """Append rows; what was handed out as `rows` before stays as it was."""
        before, count = len(self.rows), len(self.rows) + len(rows)
        if count > len(self._room):
            room = np.empty((2 ** math.ceil(math.log2(count)), *rows.shape[1:]), rows.dtype)
            room[:before] = self.rows
            self._room = room
        self._room[before:count] = rows
        self.rows = self._room[:count]
