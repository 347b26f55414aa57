# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Many operations at once, as arrays, by the laws of :mod:`fdrl_ros.surgery.gym.operation`.

Kinematic arms only. Row i depends on patient i and its actions alone; from an operation by itself
it differs in rounding only. The last axis of inner arrays is the patient.
"""

from collections.abc import Iterable, Sequence
import copy
import math
from typing import Any, NamedTuple

from fdrl_ros.errors import SettingError, StateError
from fdrl_ros.surgery.arm.jaw import JAW_OPEN, JAW_SPEED
from fdrl_ros.surgery.arm.lagging_arms import LaggingArms, MOVES, refuse_unreachable
from fdrl_ros.surgery.closed_error import closed_error
from fdrl_ros.surgery.gym.actions import ACTION_COUNT, ACTIONS, SUBSTEP, TICK
from fdrl_ros.surgery.gym.operation import FORCE_LEVELS, Operation
from fdrl_ros.surgery.gym.state import (
    operation_values,
    PATIENT_FIELDS,
    PROCEDURE_NAMES,
    scale,
    STATE_SIZE,
    TICK_INFO,
)
from fdrl_ros.surgery.patient.breathing import VectorBreathing
from fdrl_ros.surgery.patient.patient import Patient
from fdrl_ros.surgery.patient.physiology import VectorPhysiology
from fdrl_ros.surgery.scalar_or_array import Array, Columns, Flags, Rows
from fdrl_ros.surgery.settings import checked_world, WorldSettings
from fdrl_ros.surgery.tasks.outcome import judge, Judgement, NO_FAILURE, Rules, Tick
from fdrl_ros.surgery.tasks.task_groups import TaskGroups, TaskReading
from fdrl_ros.surgery.tissue.contact import contact_force, felt_force, harm, smoothed, Tissue
import numpy as np
from numpy.typing import ArrayLike, NDArray

Infos = dict[str, NDArray[Any]]
Step = tuple[NDArray[np.float32], Array, Flags, Flags, Infos]
"""States, rewards, terminated, truncated and more, each with a row for each patient."""

_TOLD: Array = np.array([np.nan if each.jaw is None else each.jaw * JAW_OPEN for each in ACTIONS])
_STRIDE = JAW_SPEED * TICK
_OPERATION = len(PROCEDURE_NAMES)
_VITAL = STATE_SIZE - len(PATIENT_FIELDS)


class VectorTissue:
    """
    The organs of n patients, and where their tips first touched them.

    Normal forces only: a kinematic arm does not feel friction.

    :param count: n.
    :param settings: of the world.
    """

    def __init__(self, count: int, settings: WorldSettings) -> None:
        self._felt, self._noisy = felt_force(settings), settings.force_noise > 0.0
        self._numbers = Columns(Tissue, count)
        self.organ = self._numbers.record()
        self.touched: Array = np.full(count, math.nan)
        """Heights at which contact was first felt, m; not a number before."""
        self._smooth: Array = np.zeros(count)

    def put(self, row: int, tissue: Tissue) -> None:
        """Lay one patient's organ under the tip of a row."""
        self._numbers.put(row, tissue)
        self.touched[row], self._smooth[row] = math.nan, 0.0

    def select(self, rows: Rows) -> None:
        """Keep only some patients."""
        self._numbers.select(rows)
        self.organ = self._numbers.record()
        self.touched, self._smooth = self.touched[rows], self._smooth[rows]

    def some(self, rows: Rows) -> Tissue:
        """Return the organs of some patients."""
        return self._numbers.record(rows)

    def press(self, heights: Array, depths: Array, speeds: Array) -> Array:
        """
        Return the force that pushes each tip out after each sub-step, N, and note first contact.

        :param heights: of the tips, shape (12, n), m; as what follows.
        :param depths: of the tips below the untouched surface, m.
        :param speeds: at which the depths grow, m/s.
        """
        loads: Array = contact_force(self.organ.stiffness, self.organ.damping, depths, speeds)
        if self._noisy:
            return loads
        felt = loads >= self._felt
        new: Rows = np.flatnonzero(felt.any(axis=0) & np.isnan(self.touched))
        if len(new):
            self.touched[new] = heights[felt[:, new].argmax(axis=0), new]
        return loads

    def feel(self, measured: Array, height: Array) -> Flags:
        """
        Return at the end of a tick which tips feel contact; of a noisy sensor note the first.

        :param measured: what the sensors say, N.
        :param height: of the tips, m.
        """
        if not self._noisy:
            clear: Flags = measured >= self._felt
            return clear
        self._smooth = smoothed(self._smooth, measured)
        felt: Flags = self._smooth >= self._felt
        self.touched = np.where(felt & np.isnan(self.touched), height, self.touched)
        return felt


class _Passed(NamedTuple):
    """What happened in a tick: normal force and peak and mean load, N; begin, s; breaths, m."""

    normal: Array
    peak: Array
    mean: Array
    begin: Array
    breaths: Array


class VectorOperation:
    """
    Operations on n patients in step, each tick an action for every one.

    An operation that is over must be replaced, or left out by :meth:`select`, before a step.

    :param patients: who is on the tables once :meth:`reset` is called.
    :param settings: of the world; kinematic, which they are unless given.
    :raises SettingError: on another mode than the kinematic one.
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
        self._rngs: list[np.random.Generator] = []
        self._begun = Operation(self.settings)
        self._closed = False
        self._make(0)

    def _make(self, count: int) -> None:
        """Make room for so many rows."""
        self.arms = LaggingArms(count)
        self.breathing = VectorBreathing(count)
        self.tissue = VectorTissue(count, self.settings)
        self.physiology = VectorPhysiology(count, self.settings.pace)
        self.tasks = TaskGroups(count)
        self._rules = Columns(Rules, count)
        self.rules = self._rules.record()
        self.over: Flags = np.zeros(count, np.bool_)
        """Which operations have ended."""
        self.time_above: Array = np.zeros((len(FORCE_LEVELS), count))
        """Time with a load above each of FORCE_LEVELS, s."""
        self.greatest_force: Array = np.zeros(count)
        """Greatest load since the start, N."""
        self.ticks, self.load, self.damage, self.jaw = np.zeros((4, count))
        self._jaw_target, self._tick_force, self._remaining = np.zeros((3, count))
        self._uses_jaw: Flags = np.zeros(count, np.bool_)
        self._values: Array = np.zeros((STATE_SIZE, count))
        self._motion: tuple[Array, Array, Array] | None = None

    def reset(
        self,
        patients: Sequence[Patient] | None = None,
        rngs: Sequence[np.random.Generator] | None = None,
    ) -> NDArray[np.float32]:
        """
        Put patients on the tables; those of before unless given.

        :param rngs: sources of the rows' sensor noise; needed only where the settings ask for it.
        :returns: states as a policy sees them, shape (n, STATE_SIZE).
        :raises StateError: if there is none, if noise has no source, or if the arm cannot reach
            a start, a goal or a destination.
        """
        self._check_open()
        chosen = self.patients if patients is None else _checked_patients(patients)
        sources = list(self._rngs if rngs is None else rngs)
        if not chosen:
            raise StateError('no patients: expected at least one')
        if len(sources) != len(chosen) and (sources or self.settings.force_noise > 0.0):
            raise StateError(f'{len(sources)} random generators: expected {len(chosen)}')
        self.patients, self._rngs = chosen, sources
        self._make(len(chosen))
        for row, each in enumerate(chosen):
            self._put(row, each)
        return self.states()

    def replace(
        self, row: int, patient: Patient, rng: np.random.Generator | None = None
    ) -> NDArray[np.float32]:
        """
        Put another patient on one table; the other operations go on.

        :param rng: new source of the row's noise, where there is any; else the old one goes on.
        :returns: the state of that row, shape (STATE_SIZE,).
        :raises StateError: if there is no such row, or the arm cannot reach the start, the
            goal or the destination.
        """
        self._check_open()
        place = _checked_row(row, len(self.over))
        _checked_patients([patient])
        self.patients[place] = patient
        if rng is not None and self._rngs:
            self._rngs[place] = rng
        self._put(place, patient)
        return scale(self._values[:, place])

    def select(self, rows: ArrayLike) -> None:
        """
        Keep only some operations, in the order given.

        :param rows: numbers of rows, each at most once.
        :raises StateError: if they are none, or no such rows.
        """
        self._check_open()
        self._select(_checked_rows(rows, len(self.over)))

    def copies(self, count: int) -> 'VectorOperation':
        """
        Return a batch of copies, each as it stands now: rows 0 to n - 1, then the same again.

        :param count: how often each operation is in it.
        :raises StateError: if a noisy sensor is simulated: its noise cannot be foreseen.
        """
        self._check_open()
        if self._rngs:
            raise StateError('operations with a noisy sensor cannot be copied')
        twin = copy.deepcopy(self, {id(each): each for each in self.patients})  # they never change
        twin._select(np.tile(np.arange(len(self.over)), count))
        return twin

    def _select(self, rows: Rows) -> None:
        """Go on with these rows, each as often as it is named."""
        for each in (self.arms, self.breathing, self.tissue, self.physiology, self.tasks):
            each.select(rows)
        self._rules.select(rows)
        self.rules = self._rules.record()
        for name, value in vars(self).items():
            if isinstance(value, np.ndarray):
                setattr(self, name, np.ascontiguousarray(value[..., rows]))
        self._motion = None
        self.patients = [self.patients[each] for each in rows.tolist()]
        self._rngs = [self._rngs[each] for each in rows.tolist()] if self._rngs else []

    def _put(self, row: int, patient: Patient) -> None:
        """Begin a row as one operation begins."""
        begun = self._begun
        begun.reset(patient)
        self.arms.put(row, patient.start, patient.servo_lag)
        self.breathing.put(row, patient)
        self.tissue.put(row, begun.tissue)
        self.physiology.put(row, patient, begun.physiology)
        self.tasks.put(row, begun.task, begun.scene)
        self._rules.put(row, begun.rules)
        for array in (
            self.ticks,
            self.load,
            self.damage,
            self.greatest_force,
            self.jaw,
            self._jaw_target,
            self._tick_force,
        ):
            array[row] = 0.0
        self._remaining[row] = begun.remaining
        self._uses_jaw[row], self.over[row] = begun.task.uses_jaw, False
        self.time_above[:, row] = 0.0
        self._values[:, row] = begun.values()
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

    def info(self, rows: Rows | None = None) -> Infos:
        """
        Return what the states leave out, as SurgeryEnv does at the start of an operation.

        :param rows: of which operations, if not of all.
        """
        self._check_open()
        return self._info(np.arange(len(self.over)) if rows is None else rows)

    def _info(
        self, rows: Rows | slice, judged: Judgement | None = None, passed: _Passed | None = None
    ) -> Infos:
        """
        Return what the states leave out.

        :param judged: and `passed`: of the tick; none at the start.
        """
        load = self.load[rows].copy()
        news2, sofa = self.physiology.scores(rows)
        nobody = np.zeros(len(load), np.bool_)
        told = (
            load,
            passed.peak if passed else load.copy(),
            passed.mean if passed else load.copy(),
            self.greatest_force[rows].copy(),
            self.damage[rows].copy(),
            self.arms.tip.T[rows].copy(),
            self.jaw[rows].copy(),
            news2,
            sofa,
            self.physiology.pressure[rows].copy(),
            judged.critical if judged else nobody,
            judged.success if judged else nobody.copy(),
            judged.failure if judged else np.full(len(load), NO_FAILURE),
        )
        return dict(zip(TICK_INFO, told, strict=True))

    def step(self, actions: ArrayLike) -> Step:
        """
        Carry out one action in each operation and let 50 ms pass.

        :param actions: whole numbers, shape (n,).
        :returns: states, shape (n, STATE_SIZE); rewards, terminated and truncated, shape (n,);
            and arrays by name, as :class:`fdrl_ros.surgery.gym.surgery_env.SurgeryEnv` says them,
            the failure as a number, see :data:`NO_FAILURE`.
        :raises StateError: on actions that cannot be, or after an end; then nothing moves.
        """
        self._check_open()
        chosen = _checked_actions(actions, self.over)
        target = self.arms.target + MOVES.take(chosen, axis=1)
        refuse_unreachable(target)
        told = _TOLD.take(chosen)
        heard = self._uses_jaw & ~np.isnan(told)
        self._jaw_target = np.where(heard, told, self._jaw_target)
        begin, (breaths, rises, coughs) = self.ticks * TICK, self.motion()
        heights, speeds = self.arms.move(chosen, target)
        organ = self.tissue.organ
        depths = organ.rest + breaths[1:-1] - heights
        loads = np.zeros_like(depths)
        damage: Array = np.zeros_like(begin)
        if depths.max() > 0.0:
            loads = self.tissue.press(heights, depths, rises[1:-1] - speeds)
            strain, pressure = harm(loads, depths, self.rules.warn_force, organ.bearable)
            damage = (strain + pressure).sum(axis=0) * SUBSTEP
        normal = loads[-1].copy()
        self.tasks.resist(loads, self.arms)
        peak = loads.max(axis=0)
        if peak.max() > FORCE_LEVELS[0]:
            for total, level in zip(self.time_above, FORCE_LEVELS, strict=True):
                total += (loads > level).sum(axis=0) * SUBSTEP
        self.greatest_force = np.maximum(self.greatest_force, peak)
        self.load = loads[-1]
        way = self._jaw_target - self.jaw
        self.jaw = self.jaw + np.minimum(np.maximum(way, -_STRIDE), _STRIDE)
        self.damage = self.damage + damage
        self.physiology.advance(TICK, normal, damage, coughs)
        mean = loads.sum(axis=0) * (SUBSTEP / TICK)
        return self._judged(_Passed(normal, peak, mean, begin, breaths))

    def close(self) -> None:
        """Let go of all patients; whatever is asked of the batch from now on is refused."""
        self._begun.close()
        self._closed, self.patients, self._rngs = True, [], []
        self._make(0)

    def _check_open(self) -> None:
        if self._closed:
            raise closed_error('batch')

    def _judged(self, passed: _Passed) -> Step:
        """Judge a tick."""
        before, breaths = self.tasks.done, passed.breaths
        tip, target = self.arms.tip, self.arms.target
        self.ticks, self._motion = self.ticks + 1.0, None
        opening = self.jaw / JAW_OPEN
        told = (self._jaw_target > 0.5 * JAW_OPEN).astype(np.float64)
        reading = TaskReading(
            tip,
            target,
            passed.normal,
            opening,
            told,
            passed.begin + TICK,
            passed.begin + self.breathing.ahead[-1],
            breaths[-2],
            breaths[-1],
            TICK,
        )
        remaining, lost, waypoint = self.tasks.progress(reading)
        done = self.tasks.done
        tick = Tick(
            self.ticks,
            tip,
            passed.peak,
            self.load,
            lost,
            self.physiology.hypotensive,
            done,
            done - before,
            self._remaining - remaining,
        )
        judged = judge(self.rules, self.settings, tick)
        self._remaining = remaining
        force = self._measured()
        felt = self.tissue.feel(force, tip[2])
        values = operation_values(
            self.rules,
            self.tasks,
            self.ticks,
            (target, waypoint, tip[2], self.tissue.touched),
            (force, (force - self._tick_force) / TICK, felt),
            (opening, told),
        )
        self._tick_force = force
        for row, value in enumerate(values, _OPERATION):
            self._values[row] = value
        self._values[_VITAL:] = self.physiology.values()
        self.over = judged.terminated | judged.truncated
        info = self._info(slice(None), judged, passed)
        return self.states(), judged.reward, judged.terminated, judged.truncated, info

    def _measured(self) -> Array:
        """Return what the sensors say of the loads, N."""
        noise = self.settings.force_noise
        if noise == 0.0:
            return self.load
        drawn = [each.standard_normal() for each in self._rngs]
        return self.load + noise * np.array(drawn)


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
    for each in chosen:
        if not isinstance(each, Patient):
            raise StateError(f'patient {each!r}: expected a Patient')
    if chosen:
        places = [at for each in chosen for at in (each.start, each.goal, each.destination)]
        refuse_unreachable(np.array(places).T)
    return chosen


def _checked_row(row: object, count: int) -> int:
    """
    Return the number of a row.

    :raises StateError: if it is none.
    """
    if isinstance(row, int | np.integer) and not isinstance(row, bool) and 0 <= row < count:
        return int(row)
    raise StateError(f'row {row!r}: expected 0 to {count - 1}, after a reset')


def _checked_rows(rows: ArrayLike, count: int) -> Rows:
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
