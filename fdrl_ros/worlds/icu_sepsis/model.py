# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""ICU-Sepsis: how 713 kinds of patient answer to 25 treatments (Choudhary et al. 2024)."""

from dataclasses import dataclass, fields
from functools import cached_property

from fdrl_ros.errors import SettingError, StateError
import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Draws:
    """
    Row r's distribution function, raised by r: one sorted array to search them all in.

    ``keys``: r plus the cumulated chance of each value that row r can take, sorted.
    ``values``: that value. ``last``: place of each row's last value. A raised chance is exact to
    the spacing of doubles near r: 5e-13 for 2,917 rows.
    """

    keys: Floats
    values: NDArray[np.int16]
    last: Integers

    @classmethod
    def of(cls, chances: Floats) -> 'Draws':
        """
        Lay out the distributions.

        :param chances: shape (rows, values), each row of sum 1.
        """
        possible = chances > 0.0
        last = np.cumsum(possible.sum(axis=1)) - 1
        cumulated = np.minimum(np.cumsum(chances, axis=1)[possible], 1.0)
        cumulated[last] = 1.0
        row, value = np.nonzero(possible)
        return cls(cumulated + row, value.astype(np.int16), last.astype(np.int64))

    def __call__(self, rows: Integers, uniforms: Floats) -> Integers:
        """
        Draw one value of each of the given rows.

        :param rows: shape (draws,).
        :param uniforms: in [0, 1), shape (draws,).
        """
        place = np.searchsorted(self.keys, rows + uniforms, side='right')
        # Near the end of a row the sum may round up to the next one.
        return self.values[np.minimum(place, self.last[rows])].astype(np.int64)


PATIENT_STATES = 713
DEATH, SURVIVAL, AFTERWARDS = 713, 714, 715
STATE_COUNT = 716
LEVELS = 5
ACTION_COUNT = LEVELS * LEVELS
FEATURE_COUNT = 47
REWARD = 15.0
"""Of survival; death costs as much, and nothing else counts (DP-DQN section 4.2.4)."""
STEP = 4 * 3600.0
"""Seconds of a step."""
HORIZON = 500
"""Steps after which an episode is cut, as ICU-Sepsis does."""

StatePolicy = NDArray[np.int64] | Floats
"""An action for each state, or the chance of each action: (states,) or (states, 25)."""


@dataclass(frozen=True, eq=False)
class IcuSepsis:
    """
    The dynamics, with the distribution of next states kept once where many actions share it.

    In a state only some actions were seen often enough to be estimated; ICU-Sepsis gives all
    others the mean of those, so one row serves them all. States 713 and 714 are death and
    survival; what comes after them (715) is nobody's next state.

    :param rows: distributions over the states 0 to 714, those of one state in one run and in the
        order of states: (rows, 715).
    :param row_of: which row a state and an action have, (713, 25).
    :param start: chance of each state on admission, (713,).
    :param clinicians: their chance of each action, (713, 25).
    :param centres: features of each state as shipped, (713, 47).
    :param sofa: mean SOFA score of each state, (713,).
    :param admissible: which actions were seen often enough, (713, 25).
    """

    rows: Floats
    row_of: Integers
    start: Floats
    clinicians: Floats
    centres: Floats
    sofa: Floats
    admissible: NDArray[np.bool_]

    def __post_init__(self) -> None:
        """Refuse what is no such model; freeze the arrays."""
        states, pairs = (PATIENT_STATES,), (PATIENT_STATES, ACTION_COUNT)
        features = (PATIENT_STATES, FEATURE_COUNT)
        shapes = ((len(self.rows), SURVIVAL + 1), pairs, states, pairs, features, states, pairs)
        for each, shape in zip(fields(self), shapes, strict=True):
            array = getattr(self, each.name)
            if array.shape != shape:
                raise SettingError(each.name, array.shape, f'an array of shape {shape}')
            array.flags.writeable = False
        for name in ('rows', 'start', 'clinicians'):
            check_chances(name, getattr(self, name))
        if not np.array_equal(np.unique(self.row_of), np.arange(len(self.rows))) or np.any(
            self.row_of.max(axis=1)[:-1] >= self.row_of.min(axis=1)[1:]
        ):
            raise SettingError('row_of', '(an array)', 'every row once, in the order of states')

    @cached_property
    def first_row(self) -> Integers:
        """Return the first row of each state, (713,)."""
        return self.row_of.min(axis=1)

    @cached_property
    def _next(self) -> Draws:
        return Draws.of(self.rows)

    @cached_property
    def _admitted(self) -> Draws:
        return Draws.of(self.start[None])

    def admit(self, uniforms: Floats, start: Floats | None = None) -> Integers:
        """
        Draw the states of new patients.

        :param uniforms: in [0, 1), shape (patients,).
        :param start: chance of each state, (713,); that of ICU-Sepsis unless given.
        """
        draws = self._admitted if start is None else Draws.of(checked_start(start)[None])
        return draws(np.zeros(len(uniforms), np.int64), uniforms)

    def advance(self, states: Integers, actions: Integers, uniforms: Floats) -> Integers:
        """
        Draw the states four hours later.

        :param states: of patients, each 0 to 712, shape (patients,).
        :param actions: shape (patients,).
        :param uniforms: in [0, 1), shape (patients,).
        :returns: 0 to 714, shape (patients,).
        :raises StateError: on a state or action that does not exist, or after the end.
        """
        check_numbers('states', states, PATIENT_STATES)
        check_numbers('actions', actions, ACTION_COUNT)
        return self._next(self.row_of[states, actions], uniforms)


def rewards_of(next_states: Integers) -> Floats:
    """Return +15 for survival, -15 for death, 0 between, same shape."""
    return REWARD * ((next_states == SURVIVAL).astype(np.float64) - (next_states == DEATH))


def check_numbers(name: str, numbers: NDArray[np.generic], count: int) -> None:
    """
    Refuse numbers outside 0 to count - 1.

    :raises StateError: naming what was expected.
    """
    if not np.issubdtype(numbers.dtype, np.integer):
        raise StateError(f'{name} of type {numbers.dtype}: expected whole numbers')
    if numbers.size and not 0 <= numbers.min() <= numbers.max() < count:
        found = f'{name} from {numbers.min()} to {numbers.max()}'
        raise StateError(f'{found}: expected 0 to {count - 1}')


def check_chances(name: str, chances: Floats) -> None:
    """
    Refuse what are no probabilities along the last axis.

    :raises SettingError: if one is negative or not finite, or their sum is not 1.
    """
    wrong = ~np.isfinite(chances) | (chances < 0.0)
    if wrong.any() or np.abs(chances.sum(axis=-1) - 1.0).max(initial=0.0) > 1e-9:
        raise SettingError(name, '(an array)', 'probabilities, each row with the sum 1')


def checked_start(start: ArrayLike) -> Floats:
    """
    Return a distribution over the patients' states, (713,).

    :raises SettingError: if it is none.
    """
    chances = np.asarray(start, np.float64)
    if chances.shape != (PATIENT_STATES,):
        raise SettingError('start', chances.shape, f'an array of shape ({PATIENT_STATES},)')
    check_chances('start', chances)
    return chances


def checked_policy(policy: ArrayLike) -> Floats:
    """
    Return a policy as the chance of each action, (713, 25).

    Rows for the three states where all is over may be there; they do not count.

    :raises StateError: if it has another shape, or an action that does not exist.
    :raises SettingError: if its rows are no probabilities.
    """
    given = np.asarray(policy)
    sizes = (PATIENT_STATES, STATE_COUNT)
    if given.ndim == 1 and len(given) in sizes:
        actions = given[:PATIENT_STATES]
        check_numbers('actions', actions, ACTION_COUNT)
        return np.eye(ACTION_COUNT)[actions]
    if given.ndim == 2 and len(given) in sizes and given.shape[1] == ACTION_COUNT:
        chances = given[:PATIENT_STATES].astype(np.float64)
        check_chances('policy', chances)
        return chances
    raise StateError(
        f'policy of shape {given.shape}: expected ({PATIENT_STATES},) actions or '
        f'({PATIENT_STATES}, {ACTION_COUNT}) probabilities; {STATE_COUNT} rows do too'
    )


def uniform_policy() -> Floats:
    """Return every action as likely as every other, (713, 25)."""
    return np.full((PATIENT_STATES, ACTION_COUNT), 1.0 / ACTION_COUNT)
