# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Many operations at once, as arrays, by the laws of :mod:`fdrl_ros.surgery.gym.operation`.

Kinematic arms only. Row i depends on patient i and its actions alone; from an operation by itself
it differs in rounding only. The last axis of inner arrays is the patient.
"""

from collections.abc import Iterable, Sequence
import copy
from typing import Any

from fdrl_ros.errors import SettingError, StateError
from fdrl_ros.surgery.arm.kinematic_arm import JAW_OPEN, JAW_SPEED
from fdrl_ros.surgery.arm.lagging_arms import LaggingArms, MOVES, refuse_unreachable
from fdrl_ros.surgery.gym.actions import ACTION_COUNT, ACTIONS, STAY, SUBSTEP, TICK
from fdrl_ros.surgery.gym.operation import FORCE_LEVELS, Operation
from fdrl_ros.surgery.gym.state import (
    operation_values,
    PATIENT_FIELDS,
    PROCEDURE_NAMES,
    scale,
    Seen,
    STATE_SIZE,
    TICK_INFO,
)
from fdrl_ros.surgery.patient.breathing import VectorBreathing
from fdrl_ros.surgery.patient.patient import MOST_LATENCY, Patient
from fdrl_ros.surgery.patient.physiology import VectorPhysiology
from fdrl_ros.surgery.scalar_or_array import Array, Columns, Flags, PerPatient, Rows
from fdrl_ros.surgery.settings import checked_world, WorldSettings
from fdrl_ros.surgery.tasks.outcome import judge, NO_FAILURE, Rules, Tick
from fdrl_ros.surgery.tasks.task_groups import TaskGroups, TaskReading
from fdrl_ros.surgery.tissue.contact import (
    contact_force,
    Felt,
    ForceSensor,
    harm,
    smoothed,
    Tissue,
)
import numpy as np
from numpy.typing import ArrayLike, NDArray

Infos = dict[str, NDArray[Any]]
Step = tuple[NDArray[np.float32], Array, Flags, Flags, Infos]
"""States, rewards, terminated, truncated and more, each with a row for each patient."""

_JAWS: Array = np.array([np.nan if a.jaw is None else a.jaw * JAW_OPEN for a in ACTIONS])
_STRIDE = JAW_SPEED * TICK
_NOISE_BLOCK = 32
"""Ticks for which the noise of a force sensor is drawn at once."""
_OPERATION = len(PROCEDURE_NAMES)
_VITAL = STATE_SIZE - len(PATIENT_FIELDS)


class VectorOperation(PerPatient):
    """
    Operations on n patients in step, each tick an action for every one.

    An operation that is over must be replaced, or left out by :meth:`select`, before a step.

    :param patients: who is on the tables once :meth:`reset` is called.
    :param settings: of the world; kinematic, which they are unless given.
    :raises SettingError: on another mode than the kinematic one.

    Arrays of all operations, besides what the methods return: `load` and `greatest_force` since
    the start (N), `damage` (N s), `time_above` with a load above each of FORCE_LEVELS (s), `jaw`
    (rad), `ticks`, `touched`, the heights at which contact was first felt (m; not a number
    before), and `over`.
    """

    def __init__(
        self,
        patients: Sequence[Patient] = (),
        settings: WorldSettings | None = None,
    ) -> None:
        self.settings = checked_world(
            WorldSettings(mode='kinematic') if settings is None else settings
        )
        if self.settings.mode != 'kinematic':
            raise SettingError('mode', self.settings.mode, "'kinematic', which alone is batched")
        self.patients: list[Patient] = _listed(patients)
        self._begun = Operation(self.settings)
        self._closed = False
        self._allocate(0)

    def _allocate(self, count: int) -> None:
        """Make room for so many rows."""
        self.arms = LaggingArms(count)
        self.breathing = VectorBreathing(count)
        self.tissue = Columns(Tissue, count)
        self.physiology = VectorPhysiology(count, self.settings.pace)
        self.tasks = TaskGroups(count)
        self._rules = Columns(Rules, count)
        self.over, self._uses_jaw, self._critical, self._success = np.zeros((4, count), np.bool_)
        self._failure = np.zeros(count, np.intp)
        self._scores = np.zeros((2, count), np.int64)
        self.time_above: Array = np.zeros((len(FORCE_LEVELS), count))
        self.touched, self.greatest_force = np.zeros((2, count))
        self.ticks, self.load, self.damage, self.jaw = np.zeros((4, count))
        self._peak, self._mean, self._smooth, self._tick_force = np.zeros((4, count))
        self._jaw_target, self._jaw_goal, self._remaining = np.zeros((3, count))
        self._command: Array = np.zeros((3, count))
        self._latency = np.zeros(count, np.intp)
        self._sent: Rows = np.full((MOST_LATENCY, count), STAY)
        """The newest actions, the last one first."""
        self._noise: Array = np.zeros((_NOISE_BLOCK, count))
        """Noise of the force sensors in this and the next ticks, N."""
        self._gain, self._felt, self._felt_load = np.ones((3, count))
        self._noisy = np.zeros(count, np.bool_)
        self._sensors: list[ForceSensor] = []
        self.felt_tissue = Felt(count)
        self._values: Array = np.zeros((STATE_SIZE, count))
        self._motion: tuple[Array, Array, Array] | None = None

    @property
    def rules(self) -> Rules:
        """Return the rules of all operations."""
        return self._rules.record()

    def reset(self, patients: Sequence[Patient] | None = None) -> NDArray[np.float32]:
        """
        Put patients on the tables; those of before unless given.

        :returns: states as a policy sees them, shape (n, STATE_SIZE).
        :raises StateError: if there is none, or if the arm cannot reach a start, a goal or a
            destination.
        """
        self._check_open()
        chosen = self.patients if patients is None else _checked_patients(patients)
        if not chosen:
            raise StateError('no patients: expected at least one')
        self.patients = chosen
        self._allocate(len(chosen))
        for row, patient in enumerate(chosen):
            self._begin_row(row, patient)
        return self.states()

    def replace(self, row: int, patient: Patient) -> NDArray[np.float32]:
        """
        Put another patient on one table; the other operations go on.

        :returns: the state of that row, shape (STATE_SIZE,).
        :raises StateError: if there is no such row, or the arm cannot reach the start, the
            goal or the destination.
        """
        self._check_open()
        count = len(self.over)
        if type(row) is bool or not isinstance(row, int | np.integer) or not 0 <= row < count:
            raise StateError(f'row {row!r}: expected 0 to {count - 1}, after a reset')
        (self.patients[row],) = _checked_patients([patient])
        self._begin_row(row, patient)
        return scale(self._values[:, row])

    def select(self, rows: ArrayLike) -> None:
        """
        Keep only some operations, in the order given.

        :param rows: numbers of rows, each at most once.
        :raises StateError: if they are none, or no such rows.
        """
        self._check_open()
        chosen = np.asarray(rows)
        if not (
            chosen.ndim == 1
            and chosen.dtype.kind in 'iu'
            and 0 < len(chosen) == len(set(chosen.tolist()))
            and 0 <= chosen.min() <= chosen.max() < len(self.over)
        ):
            raise StateError(f'rows {rows!r}: expected numbers of rows, each once')
        self._select(chosen)

    def copies(self, count: int) -> 'VectorOperation':
        """
        Return a batch of copies, each as it stands now: rows 0 to n - 1, then the same again.

        A copy's force sensor will have the same noise.

        :param count: how often each operation is in it.
        :raises StateError: if the batch is closed.
        """
        self._check_open()
        twin = copy.deepcopy(
            self, {id(patient): patient for patient in self.patients}
        )  # they never change
        twin._select(np.tile(np.arange(len(self.over)), count))
        twin._sensors = [copy.deepcopy(sensor) for sensor in twin._sensors]
        return twin

    def _select(self, rows: Rows) -> None:
        """Go on with these rows, each as often as it is named."""
        super().select(rows)
        self._motion = None
        self.patients = [self.patients[row] for row in rows.tolist()]
        self._sensors = [self._sensors[row] for row in rows.tolist()]

    def _begin_row(self, row: int, patient: Patient) -> None:
        """Begin a row as one operation begins."""
        begun = self._begun
        begun.reset(patient)
        self.clear(row)
        self.felt_tissue.clear(row)
        self.arms.put(row, patient.start, patient.servo_lag)
        self.breathing.put(row, patient)
        self.tissue.put(row, begun.tissue)
        self.physiology.put(row, patient, begun.physiology)
        self.tasks.put(row, begun.task, begun.scene)
        self._rules.put(row, begun.rules)
        self.touched[row], self._failure[row] = begun.touched, NO_FAILURE
        self._command[:, row], self._sent[:, row] = patient.start, STAY
        self._latency[row], sensor = patient.latency, ForceSensor(patient, self.settings)
        self._gain[row], self._noisy[row] = sensor.gain, sensor.noisy
        self._felt[row], self._felt_load[row] = sensor.felt, sensor.felt_load
        self._sensors[row:] = [sensor, *self._sensors[row + 1 :]]
        self._remaining[row], self._uses_jaw[row] = begun.remaining, begun.task.uses_jaw
        self._values[:, row], self._scores[:, row] = begun.values(), begun.physiology.scores()
        self._motion = None

    def motion(self) -> tuple[Array, Array, Array]:
        """Return how breathing moves the organs in the tick to come, see VectorBreathing."""
        self._check_open()
        if self._motion is None:
            self._motion = self.breathing.motion(self.ticks * TICK)
        return self._motion

    def values(self) -> Array:
        """Return the states in the order and units of STATE_FIELDS, shape (n, STATE_SIZE)."""
        self._check_open()
        return self._values.T.copy()

    def states(self) -> NDArray[np.float32]:
        """Return the states as a policy sees them, shape (n, STATE_SIZE)."""
        self._check_open()
        return scale(self._values.T)

    def info(self, rows: Rows | slice = slice(None)) -> Infos:
        """
        Return what the states leave out; failures are numbers, see :data:`NO_FAILURE`.

        :param rows: of which operations, if not of all.
        """
        self._check_open()
        numbers = (
            self.load,
            self._peak,
            self._mean,
            self.greatest_force,
            self.damage,
            self.arms.tip.T,
            self.jaw,
            *self._scores,
            self.physiology.pressure,
            self._critical,
            self._success,
            self._failure,
        )
        return {name: values[rows].copy() for name, values in zip(TICK_INFO, numbers, strict=True)}

    def step(self, actions: ArrayLike) -> Step:
        """
        Carry out one action in each operation and let 50 ms pass.

        :param actions: whole numbers, shape (n,).
        :returns: states, shape (n, STATE_SIZE); rewards, terminated and truncated, shape (n,);
            and arrays by name, as :meth:`info` has them.
        :raises StateError: on actions that cannot be, or after an end; then nothing moves.
        """
        self._check_open()
        chosen = _checked_actions(actions, self.over)
        command = self._command + MOVES.take(chosen, axis=1)
        refuse_unreachable(command)
        self._command = command
        self._jaw_target = self._told(chosen, self._jaw_target)
        begin, (breaths, rises, coughs), before = self.ticks * TICK, self.motion(), self.tasks.done
        rules = self.rules
        arriving = self._arriving(chosen)
        self._jaw_goal = self._told(arriving, self._jaw_goal)
        normal, damage = self._press(arriving, breaths[1:-1], rises[1:-1])
        tip = self.arms.tip
        way = self._jaw_goal - self.jaw
        self.jaw = self.jaw + np.minimum(np.maximum(way, -_STRIDE), _STRIDE)
        self.physiology.advance(TICK, normal, damage, coughs)
        self.ticks, self._motion = self.ticks + 1.0, None
        opening = self.jaw / JAW_OPEN
        wide = (self._jaw_target > 0.5 * JAW_OPEN).astype(np.float64)
        now, later = begin + TICK, begin + self.breathing.ahead[-1]
        remaining, lost, waypoint = self.tasks.progress(
            TaskReading(tip, command, normal, opening, wide, now, later, breaths[-2], breaths[-1])
        )
        done = self.tasks.done
        judged = judge(
            rules,
            self.settings,
            Tick(
                self.ticks,
                tip,
                self._peak,
                self.load,
                lost,
                self.physiology.hypotensive,
                done,
                done - before,
                self._remaining - remaining,
            ),
        )
        self._remaining = remaining
        force, felt = self._sense(tip[2])
        surface = self.tissue.record().rest + breaths[-2]
        seen = surface + rules.calibration[2]
        self.felt_tissue.add(force, seen - tip[2], felt, tip[2] - command[2])
        values = operation_values(
            rules,
            (done, self.tasks.grasped),
            self.ticks,
            Seen(
                command,
                waypoint,
                tip,
                self.touched,
                surface - rules.goal[2],
                rises[-2],
                self.felt_tissue.stiffness,
            ),
            (force, (force - self._tick_force) / TICK, felt),
            (opening, wide),
        )
        self._tick_force = force
        for row, value in enumerate(values, _OPERATION):
            self._values[row] = value
        self._values[_VITAL:], self._scores[:] = self.physiology.values(), self.physiology.scores()
        self._critical, self._success, self._failure = judged[1:4]
        self.over = judged.terminated | judged.truncated
        return self.states(), judged.reward, judged.terminated, judged.truncated, self.info()

    def _told(self, actions: Rows, last: Array) -> Array:
        """Return what jaws are told by actions, rad, where they were told something before."""
        jaw = _JAWS.take(actions)
        return np.where(self._uses_jaw & ~np.isnan(jaw), jaw, last)

    def _arriving(self, chosen: Rows) -> Rows:
        """Send actions; return those that reach the arms in this tick, chosen `latency` ago."""
        if not self._latency.any():
            return chosen
        sent = np.vstack([chosen, self._sent])
        self._sent = sent[:-1]
        arriving: Rows = sent[self._latency, np.arange(len(chosen))]
        return arriving

    def _press(self, actions: Rows, breaths: Array, rises: Array) -> tuple[Array, Array]:
        """
        Move the arms for a tick, and note the loads on their tips.

        :param actions: that reach the arms.
        :param breaths: heights of the surfaces above rest at the end of each sub-step, m.
        :param rises: their upward speeds, m/s.
        :returns: the tissue's normal force at the end (N), and the damage done to it (N s).
        """
        heights, speeds = self.arms.move(actions, self.arms.target + MOVES.take(actions, axis=1))
        organ = self.tissue.record()
        depths = organ.rest + breaths - heights
        loads, damage = np.zeros_like(depths), np.zeros_like(self.damage)
        if depths.max() > 0.0:
            # Normal forces only: a kinematic arm does not feel friction.
            loads = contact_force(organ.stiffness, organ.damping, depths, rises - speeds)
            self._note_contact((loads >= self._felt_load) & ~self._noisy, heights)
            strain, pressure = harm(loads, depths, self.rules.warn_force, organ.bearable)
            damage = (strain + pressure).sum(axis=0) * SUBSTEP
        normal = loads[-1].copy()
        self.tasks.resist(loads, self.arms)
        self._peak, self._mean = loads.max(axis=0), loads.sum(axis=0) * (SUBSTEP / TICK)
        if self._peak.max() > FORCE_LEVELS[0]:
            for total, level in zip(self.time_above, FORCE_LEVELS, strict=True):
                total += (loads > level).sum(axis=0) * SUBSTEP
        self.greatest_force = np.maximum(self.greatest_force, self._peak)
        self.load, self.damage = loads[-1], self.damage + damage
        return normal, damage

    def close(self) -> None:
        """Let go of all patients; whatever is asked of the batch from now on is refused."""
        self._begun.close()
        self._closed, self.patients = True, []
        self._allocate(0)

    def _check_open(self) -> None:
        if self._closed:
            raise StateError.closed('batch')

    def _note_contact(self, felt: Flags, heights: Array) -> None:
        """Keep the height of each tip at which it first felt contact, of moments in order."""
        new: Rows = np.flatnonzero(felt.any(axis=0) & np.isnan(self.touched))
        if len(new):
            self.touched[new] = heights[felt[:, new].argmax(axis=0), new]

    def _sense(self, height: Array) -> tuple[Array, Flags]:
        """Return what the sensors measure at the end of a tick, N, and who feels contact."""
        if not self._noisy.any():
            force = self._gain * self.load
            return force, force >= self._felt
        place = (self.ticks.astype(np.intp) - 1) % _NOISE_BLOCK
        for row in np.flatnonzero(place == 0).tolist():
            self._noise[:, row] = self._sensors[row].noise(_NOISE_BLOCK)
        force = self._gain * self.load + self._noise[place, np.arange(len(place))]
        self._smooth = np.where(self._noisy, smoothed(self._smooth, force), force)
        felt = self._smooth >= self._felt
        self._note_contact((felt & self._noisy)[None], height[None])
        return force, felt


def _listed(patients: Iterable[Patient]) -> list[Patient]:
    """
    Return patients as a list.

    :raises StateError: if they are none.
    """
    if not isinstance(patients, Iterable):
        raise StateError(f'patients {patients!r}: expected a list of Patients')
    return list(patients)


def _checked_patients(patients: Iterable[Patient]) -> list[Patient]:
    """
    Return patients that can be operated on.

    :raises StateError: if one is none, or the arm cannot reach a start, goal or destination.
    """
    chosen = _listed(patients)
    for patient in chosen:
        if not isinstance(patient, Patient):
            raise StateError(f'patient {patient!r}: expected a Patient')
    if chosen:
        places = [place for who in chosen for place in (who.start, who.goal, who.destination)]
        refuse_unreachable(np.array(places).T)
    return chosen


def _checked_actions(actions: ArrayLike, over: Flags) -> Rows:
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
