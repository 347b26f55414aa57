# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Many operations at once, as arrays: the world of :class:`fdrl_ros.env.operation.Operation`.

Kinematic arms only. Row i depends on patient i and its actions alone, to the last bit; it differs
from an operation by itself in rounding. The last axis of inner arrays is the patient.
"""

from collections.abc import Sequence
import math
from typing import Any

from fdrl_ros.env.actions import ACTION_COUNT, ACTIONS, SUBSTEP, SUBSTEPS, TICK
from fdrl_ros.env.batch_arm import BatchArm, MOVES, refuse_unreachable
from fdrl_ros.env.batch_events import Array, Breathing, Rows
from fdrl_ros.env.batch_physiology import BatchPhysiology
from fdrl_ros.env.batch_tasks import Moment, NO_FAILURE, Stacks
from fdrl_ros.env.jaw import JAW_OPEN, JAW_SPEED
from fdrl_ros.env.operation import (
    ABOVE,
    FAILURES,
    FORCE_LEVELS,
    HARD_STOP,
    LATERAL,
    Operation,
    TOUCH_FORCE,
)
from fdrl_ros.env.patient import Patient
from fdrl_ros.env.settings import WorldSettings
from fdrl_ros.env.state import INDEX, scale, STATE_SIZE
from fdrl_ros.errors import SettingError, StateError
import numpy as np
from numpy.typing import ArrayLike, NDArray

Step = tuple[
    NDArray[np.float32], Array, NDArray[np.bool_], NDArray[np.bool_], dict[str, NDArray[Any]]
]
"""States, rewards, terminated, truncated and more, each with a row for each patient."""

_FORCE, _WORKSPACE, _VITALS, _TIME = (
    FAILURES.index(each) for each in ('force', 'workspace', 'vitals', 'time')
)
_COUNTS: Array = np.arange(1.0, SUBSTEPS + 1.0)[:, None]
_TOLD: Array = np.array([np.nan if each.jaw is None else each.jaw * JAW_OPEN for each in ACTIONS])
_HIGHEST: Array = np.array([[LATERAL], [LATERAL], [ABOVE]])
_STRIDE = JAW_SPEED * TICK
_ERROR = INDEX['goal_error_x']
_VITAL = INDEX['mean_arterial_pressure']


class BatchSurgery:
    """
    Operations on n patients in step, each tick an action for every one.

    An operation that is over must be replaced, or left out by :meth:`keep`, before the next step.

    :param patients: who is on the tables once :meth:`reset` is called.
    :param settings: of the world; kinematic, which they are unless given.
    :param rngs: source of each row's sensor noise; needed only when the settings ask for noise.
    :raises SettingError: on another mode than the kinematic one, or noise without a source.
    """

    def __init__(
        self,
        patients: Sequence[Patient] = (),
        settings: WorldSettings | None = None,
        rngs: Sequence[np.random.Generator] = (),
    ) -> None:
        self.settings = settings or WorldSettings(mode='kinematic')
        if self.settings.mode != 'kinematic':
            raise SettingError('mode', self.settings.mode, "'kinematic', which alone is batched")
        if self.settings.force_noise > 0.0 and not rngs:
            raise SettingError('rngs', rngs, 'a generator for each patient, as noise is asked for')
        self.patients: list[Patient] = list(patients)
        self._rngs = list(rngs)
        self._begun = Operation(self.settings)
        self._make(0)

    def _make(self, count: int) -> None:
        """Make room for so many rows."""
        self.arm = BatchArm(count)
        self.breathing = Breathing(count)
        self.physiology = BatchPhysiology(count)
        self.tasks = Stacks(count)
        self.over: NDArray[np.bool_] = np.zeros(count, np.bool_)
        """Which operations have ended."""
        self.time_above: Array = np.zeros((len(FORCE_LEVELS), count))
        """Time with a load above each of FORCE_LEVELS, s."""
        self.ticks, self.load, self.damage, self.jaw, self._jaw_target, self._tick_force = (
            np.zeros((6, count))
        )
        self._touched: Array = np.zeros(count)
        self._remaining: Array = np.zeros(count)
        self._goal: Array = np.zeros((3, count))
        self._lowest: Array = np.zeros((3, count))
        """Furthest down and aside that a tip may be from the goal, m."""
        self._rest, self._stiffness, self._damping, self._lead = np.zeros((4, count))
        self._wanted, self._warn, self._limit, self._free, self._against = np.ones((5, count))
        self._force_emphasis, self._time_emphasis, self._horizon = np.ones((3, count))
        self._uses_jaw: NDArray[np.bool_] = np.zeros(count, np.bool_)
        self._values: Array = np.zeros((STATE_SIZE, count))

    def reset(self, patients: Sequence[Patient] | None = None) -> NDArray[np.float32]:
        """
        Put patients on the tables; those of before unless given.

        :returns: states as a policy sees them, shape (n, STATE_SIZE).
        :raises StateError: if there is none, or the arm cannot reach a start.
        """
        chosen = list(self.patients if patients is None else patients)
        if not chosen:
            raise StateError('no patients: expected at least one')
        if self._rngs and len(self._rngs) != len(chosen):
            raise StateError(f'{len(chosen)} patients, {len(self._rngs)} generators: as many')
        self._refuse(chosen)
        self.patients = chosen
        self._make(len(chosen))
        for row, each in enumerate(chosen):
            self._put(row, each)
        return self.states()

    def replace(self, row: int, patient: Patient) -> NDArray[np.float32]:
        """
        Put another patient on one table; the other operations go on.

        :returns: the state of that row, shape (STATE_SIZE,).
        :raises StateError: if there is no such row, or the arm cannot reach the start.
        """
        if not 0 <= row < len(self.over) or int(row) != row:
            raise StateError(f'row {row!r}: expected 0 to {len(self.over) - 1}, after a reset')
        self._refuse([patient])
        self.patients[int(row)] = patient
        self._put(int(row), patient)
        return scale(self._values[:, int(row)])

    def keep(self, rows: ArrayLike) -> None:
        """
        Keep only some operations, in the order given.

        :param rows: numbers of rows, each at most once.
        :raises StateError: if they are none, or no such rows.
        """
        chosen = np.asarray(rows)
        if not (
            chosen.ndim == 1
            and chosen.dtype.kind in 'iu'
            and 0 < len(chosen) == len(set(chosen.tolist()))
            and 0 <= chosen.min() <= chosen.max() < len(self.over)
        ):
            raise StateError(f'rows {rows!r}: expected numbers of rows, each once')
        for part in (self.arm, self.breathing, self.physiology, self.tasks):
            part.keep(chosen)
        for name, value in vars(self).items():
            if isinstance(value, np.ndarray):
                setattr(self, name, np.ascontiguousarray(value[..., chosen]))
        self.patients = [self.patients[each] for each in chosen.tolist()]
        self._rngs = [self._rngs[each] for each in chosen.tolist()] if self._rngs else []

    def _refuse(self, patients: Sequence[Patient]) -> None:
        for each in patients:
            if not isinstance(each, Patient):
                raise StateError(f'patient {each!r}: expected a Patient')
        refuse_unreachable(np.array([each.start for each in patients]).T)

    def _put(self, row: int, patient: Patient) -> None:
        """Begin a row as one operation begins."""
        begun, procedure = self._begun, patient.procedure
        begun.reset(patient)
        tissue, task = begun.tissue, begun.task
        self.arm.put(row, patient.start, patient.servo_lag)
        self.breathing.put(row, patient)
        self.physiology.put(row, patient, begun.physiology)
        self.tasks.put(row, task, begun.scene)
        wanted, free = procedure.target_force, procedure.target_force + procedure.tolerance
        against = wanted
        if wanted == 0.0:
            free, against = procedure.warn_force, procedure.force_limit
        for array, value in (
            (self.ticks, 0.0),
            (self.load, 0.0),
            (self.damage, 0.0),
            (self.jaw, 0.0),
            (self._jaw_target, 0.0),
            (self._tick_force, 0.0),
            (self._touched, math.nan),
            (self._rest, tissue.rest),
            (self._stiffness, tissue.stiffness),
            (self._damping, tissue.damping),
            (self._lead, task.lead),
            (self._wanted, wanted),
            (self._warn, procedure.warn_force),
            (self._limit, procedure.force_limit),
            (self._free, free),
            (self._against, against),
            (self._force_emphasis, patient.force_emphasis),
            (self._time_emphasis, patient.time_emphasis),
            (self._horizon, begun.horizon),
        ):
            array[row] = value
        self._uses_jaw[row], self.over[row] = task.uses_jaw, False
        self.time_above[:, row] = 0.0
        self._goal[:, row] = patient.goal
        self._lowest[:, row] = -LATERAL, -LATERAL, -patient.thickness
        self._values[:, row] = begun.values()
        x, y, z = patient.start
        surface = tissue.surface(task.lead)[0]
        self._remaining[row] = task.remaining(
            x, y, z, surface, task.lead, 0.0, 0.0, 0.0, begun.scene.done
        )

    def values(self) -> Array:
        """Return the states in the order and units of STATE_FIELDS, shape (n, STATE_SIZE)."""
        return self._values.T.copy()

    def states(self) -> NDArray[np.float32]:
        """Return the states as a policy sees them, shape (n, STATE_SIZE)."""
        return scale(self._values.T)

    def step(self, actions: ArrayLike) -> Step:
        """
        Carry out one action in each operation and let 50 ms pass.

        :param actions: whole numbers, shape (n,).
        :returns: states, shape (n, STATE_SIZE); rewards, terminated and truncated, shape (n,);
            and arrays by name, as :class:`fdrl_ros.env.surgery.SurgeryEnv` says them, the failure
            as a number, see :data:`NO_FAILURE`.
        :raises StateError: on actions that cannot be, or after an end; then nothing moves.
        """
        chosen = self._checked(actions)
        target = self.arm.target + MOVES.take(chosen, axis=1)
        refuse_unreachable(target)
        told = _TOLD.take(chosen)
        heard = self._uses_jaw & ~np.isnan(told)
        self._jaw_target = np.where(heard, told, self._jaw_target)
        # What follows is that of Operation.advance.
        times = np.empty((SUBSTEPS + 1, len(chosen)))
        np.multiply(SUBSTEPS * self.ticks + _COUNTS, SUBSTEP, out=times[:-1])
        np.add(times[-2], self._lead, out=times[-1])
        breaths, rises, coughs = self.breathing.motion(times)
        heights, speeds = self.arm.move(chosen, target)
        depths = self._rest + breaths[:-1] - heights
        loads = np.zeros_like(depths)
        if depths.max() > 0.0:
            loads = self._contact(depths, rises[:-1] - speeds, heights)
        normal = loads[-1].copy()
        self.tasks.resist(loads, self.arm)
        peak = loads.max(axis=0)
        excess = loads - self._warn
        damage = np.maximum(excess, 0.0).sum(axis=0) * SUBSTEP
        if peak.max() > FORCE_LEVELS[0]:
            for total, level in zip(self.time_above, FORCE_LEVELS, strict=True):
                total += (loads > level).sum(axis=0) * SUBSTEP
        self.load = loads[-1]
        way = self._jaw_target - self.jaw
        self.jaw = self.jaw + np.minimum(np.maximum(way, -_STRIDE), _STRIDE)
        self.damage = self.damage + damage
        self.physiology.advance(TICK, self.load, damage, coughs[-2])
        mean = loads.sum(axis=0) * (SUBSTEP / TICK)
        return self._judged(times[-2:], breaths[-2:], normal, peak, mean)

    def _checked(self, actions: ArrayLike) -> Rows:
        """Return actions that can be."""
        chosen = np.asarray(actions)
        if chosen.shape != self.over.shape or not chosen.size or chosen.dtype.kind not in 'iu':
            raise StateError(
                f'actions of shape {chosen.shape} and type {chosen.dtype}: expected whole '
                f'numbers of shape {self.over.shape}, after a reset'
            )
        if chosen.min() < 0 or chosen.max() >= ACTION_COUNT:
            raise StateError(f'actions {actions!r}: expected 0 to {ACTION_COUNT - 1}')
        if self.over.any():
            raise StateError(
                f'operations {np.flatnonzero(self.over).tolist()} are over: '
                'replace their patients, or keep the other rows'
            )
        return chosen

    def _contact(self, depths: Array, speeds: Array, heights: Array) -> Array:
        """Return the force of soft tissue after each sub-step, N, and see what was touched."""
        inside = np.maximum(depths, 0.0)
        loads = self._stiffness * inside * np.sqrt(inside) * (1.0 + self._damping * speeds)
        np.maximum(loads, 0.0, out=loads)
        felt = loads >= TOUCH_FORCE
        new = np.flatnonzero(felt.any(axis=0) & np.isnan(self._touched))
        if len(new):
            self._touched[new] = heights[felt[:, new].argmax(axis=0), new]
        return loads

    def _judged(
        self, times: Array, breaths: Array, normal: Array, peak: Array, mean: Array
    ) -> Step:
        """
        Judge a tick as Operation.tick does.

        :param times: now, and when the arm will have got to its set-point, s.
        :param breaths: how far breathing has the surfaces above rest then, m.
        """
        settings, tip, load = self.settings, self.arm.tip, self.load
        self.ticks = self.ticks + 1.0
        off = tip - self._goal
        breach = ((off < self._lowest) | (off > _HIGHEST)).any(axis=0)
        hypotensive = self.physiology.hypotensive
        opening = self.jaw / JAW_OPEN
        told = (self._jaw_target > 0.5 * JAW_OPEN).astype(np.float64)
        before = self.tasks.done
        remaining, lost, goal = self.tasks.judge(
            Moment(
                tip,
                self.arm.target,
                normal,
                opening,
                told,
                times[0],
                times[1],
                breaths[0],
                breaths[1],
                TICK,
            )
        )
        done = self.tasks.done
        failure = np.where(self.ticks >= self._horizon, _TIME, NO_FAILURE)
        success = done >= 1.0
        for code, true in (
            (NO_FAILURE, success),
            (_VITALS, hypotensive),
            (lost, lost != NO_FAILURE),
            (_WORKSPACE, breach),
            (_FORCE, peak > self._limit),
        ):
            np.copyto(failure, code, where=true)
        success &= failure == NO_FAILURE
        truncated = failure == _TIME
        failed = (failure != NO_FAILURE) & ~truncated
        reward = (
            settings.progress_reward * (self._remaining - remaining)
            + settings.hold_reward * (done - before)
            - settings.force_penalty
            * self._force_emphasis
            * np.maximum(load - self._free, 0.0)
            / self._against
            - settings.time_penalty * self._time_emphasis
            + settings.success_reward * success
            - settings.failure_penalty * self._force_emphasis * failed
        )
        self._remaining = remaining
        self._show(goal, opening, told)
        terminated = success | failed
        self.over = terminated | truncated
        said = {
            'force': load.copy(),
            'peak_force': peak,
            'mean_force': mean,
            'damage': self.damage.copy(),
            'tip': tip.T.copy(),
            'jaw': self.jaw.copy(),
            'mean_arterial_pressure': self.physiology.pressure.copy(),
            'critical': (peak > HARD_STOP) | breach | hypotensive,
            'success': success,
            'failure': failure,
        }
        return self.states(), reward, terminated, truncated, said

    def _show(self, goal: Array, opening: Array, told: Array) -> None:
        """Write what Operation.values says, without the procedure and its limit, which stay."""
        force, target, wanted = self._measured(), self.arm.target, self._wanted
        values, height = self._values, target[2]
        np.subtract(target, goal, out=values[_ERROR : _ERROR + 3])
        rate = (force - self._tick_force) / TICK
        self._tick_force = force
        pressing = wanted > 0.0
        for name, value in (
            ('lag', self.arm.tip[2] - height),
            ('depth', np.fmax(self._touched - height, 0.0)),
            ('contact', force >= TOUCH_FORCE),
            ('force', force),
            ('force_error', pressing * (wanted - force) / np.where(pressing, wanted, 1.0)),
            ('force_rate', rate),
            ('time_left', 1.0 - self.ticks / self._horizon),
            ('done', self.tasks.done),
            ('jaw', opening),
            ('jaw_target', told),
            ('grasped', self.tasks.grasped),
        ):
            values[INDEX[name]] = value
        values[_VITAL:] = self.physiology.values()

    def _measured(self) -> Array:
        """Return what the sensors say of the loads, N."""
        noise = self.settings.force_noise
        if noise == 0.0:
            return self.load
        drawn = [each.standard_normal() for each in self._rngs]
        return np.maximum(self.load + noise * np.array(drawn), 0.0)
