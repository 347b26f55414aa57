# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The log of a robot: states, actions and outcomes become operations.

An action belongs to the newest state before it; what followed is the state of the next action one
tick later, at the end the last state that was logged. A hold leaves the tip where it is and so is
a STAY, unless the shield had the tip retract meanwhile: that is no move of a policy and left out.
"""

from dataclasses import dataclass, field
from typing import Any

from fdrl_ros.errors import RecordsError
from fdrl_ros.surgery.gym.actions import ACTION_COUNT, FINE_STEP, STAY, TICK
from fdrl_ros.surgery.gym.state import (
    INDEX,
    OPERATION_LAYOUT,
    OPERATION_SIZE,
    PATIENT_LAYOUT,
    scale,
    STATE_SIZE,
    unscale,
)
import numpy as np

OPERATION, PATIENT = 'operation_state', 'patient_state'
FIELDS, ACTION, OUTCOME = 'state_fields', 'action', 'outcome'

GAP = 1.5 * TICK
"""Longest time between two actions that follow each other, s."""

_HOLD = -1
_STILL = FINE_STEP / 2
"""Farthest that the tip may be led away in a tick that still counts as a STAY, m."""

Message = Any
"""A message of rosbags, or anything with the same fields."""

_LAYOUTS = {
    OPERATION: (OPERATION_LAYOUT, OPERATION_SIZE),
    PATIENT: (PATIENT_LAYOUT, STATE_SIZE - OPERATION_SIZE),
}
"""Layout of each half of the state, and how many values it has."""


@dataclass(frozen=True, eq=False)
class LoggedOperation:
    """
    The transitions of one operation, in order; a tick at which the robot held is one of STAY.

    A log of a live arm has no reward and no patient behind the pseudonym: stiffness and surface
    were never measured. Rewards are NaN until they are derived; a trainer refuses NaN.

    Left out are holds before the operation's time began, and those in which the tip moved, as the
    shield had it retract. If such a one was the last, the transition before it leads to the end.

    :param patient: pseudonym.
    :param procedure: its name.
    :param states: in which an action was chosen, shape (n, STATE_SIZE), float32.
    :param actions: shape (n,), int64.
    :param rewards: shape (n,), float32; NaN where unknown.
    :param next_states: one tick later, shape (n, STATE_SIZE), float32.
    :param terminals: shape (n,), bool; true where no value follows.
    :param held: ticks at which the robot held, with those that are left out.
    :param success: all was done.
    :param failure: why not, or empty; both without where the log broke off.
    :param peak_force: greatest force of the operation, N; NaN where the log broke off.
    :param damage: done to tissue by the end, N s; NaN where the log broke off.
    """

    patient: str
    procedure: str
    states: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    next_states: np.ndarray
    terminals: np.ndarray
    held: int
    success: bool = False
    failure: str = ''
    peak_force: float = np.nan
    damage: float = np.nan


@dataclass
class _OpenOperation:
    """One operation in the making; its rows are when, in which state, which action."""

    patient: str
    procedure: str
    rows: list[tuple[float, np.ndarray, int]] = field(default_factory=list)


class LogReader:
    """
    Takes messages in the order of their stamps.

    :param partial: leave out what is broken off or has gaps, instead of refusing it.
    """

    def __init__(self, partial: bool) -> None:
        self._partial = partial
        self._case: _OpenOperation | None = None
        self._halves: dict[str, tuple[float, str, np.ndarray]] = {}
        """The newest message of each half of the state: when, of whom, values."""
        self._names: dict[str, str] = {}
        """Fields of each layout that was told."""
        self._ended = ''
        self._done: list[LoggedOperation] = []

    def take(self, topic: str, message: Message) -> None:
        """
        Take the next message.

        :raises RecordsError: if it cannot be one of this robot, or, unless `partial`, shows that
            others are missing.
        """
        at = message.header.stamp.sec + 1e-9 * message.header.stamp.nanosec
        if at <= 0.0:
            raise RecordsError(f'{topic}: a message without a stamp')
        if topic == FIELDS:
            self._names[message.layout] = ', '.join(message.names)
        if topic in _LAYOUTS:
            self._halves[topic] = at, message.patient, self._values(topic, message)
        if topic == OPERATION:
            if not self._is_on_table(message):
                self._break_off()
                self._case = _OpenOperation(message.patient, message.procedure)
            self._ended = ''
        elif topic == ACTION:
            self._take_action(message, at)
        elif topic == OUTCOME:
            self._take_outcome(message, at)

    def finish(self) -> list[LoggedOperation]:
        """
        Return the operations; one that the log ends in without an outcome, as far as it goes.

        :raises RecordsError: if there is none.
        """
        self._break_off(at_end=True)
        if not self._done:
            raise RecordsError('the log has no operation')
        return self._done

    def _is_on_table(self, message: Message) -> bool:
        case = self._case
        told = message.patient, message.procedure
        return case is not None and (case.patient, case.procedure) == told

    def _take_action(self, message: Message, at: float) -> None:
        action, case = int(message.action), self._case
        if not _HOLD <= action < ACTION_COUNT:
            raise RecordsError(f'action {action}: expected -1 to {ACTION_COUNT - 1}')
        if case is None or message.patient != case.patient:
            # A robot acts on until it learns of the end; before any state, the log began late.
            late = message.patient == self._ended or OPERATION not in self._halves
            if action != _HOLD and not late:
                self._refuse(f'action {action} on {message.patient}, who is not on the table')
            return
        state = self._state(case.patient, at)
        if state is None:
            self._refuse(f'{case.patient}: action {action} without a state to choose it in')
        else:
            case.rows.append((at, state, action))

    def _take_outcome(self, message: Message, at: float) -> None:
        case = self._case
        if case is None or not self._is_on_table(message):
            self._refuse(f'an outcome of {message.patient}, who is not on the table')
            return
        while case.rows and at - case.rows[-1][0] < TICK / 2:
            case.rows.pop()  # chosen when it was over already
        if len(case.rows) < int(message.steps) - 2:
            self._refuse(f'{case.patient}: {len(case.rows)} actions in {message.steps} ticks')
        if any(action != _HOLD for _, _, action in case.rows):
            self._close(case, message, at)
        else:
            self._refuse(f'{case.patient}: no action')
        self._case, self._ended = None, case.patient

    def _break_off(self, at_end: bool = False) -> None:
        """End an operation that has no outcome, which only matters before the end of the log."""
        case, self._case = self._case, None
        if case is not None and case.rows:
            if not at_end:
                self._refuse(f'{case.patient}: the operation has no outcome')
            self._close(case, None, case.rows[-1][0])

    def _close(self, case: _OpenOperation, outcome: Message | None, at: float) -> None:
        """Make the transitions."""
        end: dict[str, Any] = {}
        if outcome is not None:
            names = ('success', 'failure', 'peak_force', 'damage')
            end = {name: getattr(outcome, name) for name in names}
        over = end.get('success') or end.get('failure', 'time') not in ('', 'time')
        final = self._state(case.patient, at) if end else None
        transitions: list[tuple[np.ndarray, int, np.ndarray, bool]] = []
        whole = False  # nothing is missing since the newest of them
        for place, (then, state, action) in enumerate(case.rows):
            last = place == len(case.rows) - 1
            until, following = (at, final) if last else case.rows[place + 1][:2]
            if following is None or not TICK / 2 <= until - then <= GAP:
                if end or not last:
                    self._refuse(
                        f'{case.patient}: {until - then:.3f} s between two states, '
                        f'expected {TICK:g} s'
                    )
                whole = False
            elif action != _HOLD:
                transitions.append((state, action, following, last and over))
                whole = True
            elif _retracted(state, following):
                if last and over and whole:  # that the operation ended must not be lost
                    transitions[-1] = (*transitions[-1][:2], following, True)
            elif transitions or float(following[INDEX['time_left']]) < 1.0:
                # Before that, the patient may wait for the first command.
                transitions.append((state, STAY, following, last and over))
                whole = True
        if not transitions:
            return
        states, actions, following_states, terminals = zip(*transitions, strict=True)
        self._done.append(
            LoggedOperation(
                patient=case.patient,
                procedure=case.procedure,
                states=np.array(states),
                actions=np.array(actions, np.int64),
                rewards=np.full(len(actions), np.nan, np.float32),
                next_states=np.array(following_states),
                terminals=np.array(terminals, np.bool_),
                held=sum(action == _HOLD for _, _, action in case.rows),
                **end,
            )
        )

    def _state(self, patient: str, at: float) -> np.ndarray | None:
        """Return the newest state, if both halves are of this patient and fresh."""
        values = []
        for topic in (OPERATION, PATIENT):
            then, whose, half = self._halves.get(topic, (-np.inf, '', np.empty(0)))
            if whose != patient or at - then > TICK / 2:
                return None
            values.append(half)
        return scale(np.concatenate(values))

    def _values(self, topic: str, message: Message) -> np.ndarray:
        """Return the numbers of one half of the state in their units."""
        layout, size = _LAYOUTS[topic]
        if message.layout != layout:
            names = self._names.get(message.layout, 'fields that nothing tells')
            raise RecordsError(f'{topic} holds {names} ({message.layout!r}): expected {layout}')
        values = np.asarray(message.values, np.float64)
        if values.shape != (size,):
            raise RecordsError(f'{topic}: {len(values)} values, expected {size}')
        if not np.isfinite(values).all():
            raise RecordsError(f'{topic}: a number that is not finite')
        return values

    def _refuse(self, reason: str) -> None:
        """Refuse the log, unless what is broken is to be left out."""
        if not self._partial:
            raise RecordsError(f'{reason}; `partial` leaves out what is broken')


def _retracted(before: np.ndarray, after: np.ndarray) -> bool:
    """Say whether the set-point was led away from what it pressed on."""
    first, second = unscale(before), unscale(after)
    felt = max(first[INDEX['contact']], second[INDEX['contact']]) > 0.0
    up = second[INDEX['goal_error_z']] - first[INDEX['goal_error_z']]
    return bool(felt and up > _STILL)
