# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Many operations at once, as arrays: the world of :class:`fdrl_ros.surgery.gym.operation.Operation`.

Kinematic arms only. Row i depends on patient i and its actions alone; from an operation by itself
it differs in rounding only. The last axis of inner arrays is the patient.
"""

from collections.abc import Sequence
import copy
from typing import Any

from fdrl_ros.errors import SettingError, StateError
from fdrl_ros.surgery.arm.batch_arm import BatchArm, MOVES, refuse_unreachable
from fdrl_ros.surgery.arm.jaw import JAW_OPEN, JAW_SPEED
from fdrl_ros.surgery.closed import closed
from fdrl_ros.surgery.gym.actions import ACTIONS, SUBSTEP, TICK
from fdrl_ros.surgery.gym.batch_checks import (
    checked_actions,
    checked_patients,
    checked_row,
    checked_rows,
    listed,
)
from fdrl_ros.surgery.gym.operation import FORCE_LEVELS, Operation
from fdrl_ros.surgery.gym.state import INDEX, scale, STATE_SIZE
from fdrl_ros.surgery.patient.batch_events import Array, Rows
from fdrl_ros.surgery.patient.batch_physiology import BatchPhysiology
from fdrl_ros.surgery.patient.batch_scores import BatchScores
from fdrl_ros.surgery.patient.patient import Patient
from fdrl_ros.surgery.settings import checked_world, WorldSettings
from fdrl_ros.surgery.tasks.batch_rules import NO_FAILURE, Rules
from fdrl_ros.surgery.tasks.batch_tasks import Moment, Stacks
from fdrl_ros.surgery.tasks.outcome import HARD_STOP
from fdrl_ros.surgery.tasks.task import Prospect
from fdrl_ros.surgery.tissue.batch_tissue import BatchTissue
import numpy as np
from numpy.typing import ArrayLike, NDArray

Step = tuple[
    NDArray[np.float32], Array, NDArray[np.bool_], NDArray[np.bool_], dict[str, NDArray[Any]]
]
"""States, rewards, terminated, truncated and more, each with a row for each patient."""

_TOLD: Array = np.array([np.nan if each.jaw is None else each.jaw * JAW_OPEN for each in ACTIONS])
_STRIDE = JAW_SPEED * TICK
_ERROR = INDEX['goal_error_x']
_VITAL = INDEX['mean_arterial_pressure']


class BatchSurgery:
    """
    Operations on n patients in step, each tick an action for every one.

    An operation that is over must be replaced, or left out by :meth:`keep`, before the next step.

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
        self.patients: list[Patient] = listed(patients)
        self._rngs: list[np.random.Generator] = []
        self._begun = Operation(self.settings)
        self._closed = False
        self._make(0)

    def _make(self, count: int) -> None:
        """Make room for so many rows."""
        self.arm = BatchArm(count)
        self.tissue = BatchTissue(count, self.settings)
        self.physiology = BatchPhysiology(count, self.settings.pace)
        self.scores = BatchScores(count)
        self.tasks = Stacks(count)
        self.rules = Rules(self.settings, count)
        self.over: NDArray[np.bool_] = np.zeros(count, np.bool_)
        """Which operations have ended."""
        self.time_above: Array = np.zeros((len(FORCE_LEVELS), count))
        """Time with a load above each of FORCE_LEVELS, s."""
        self.greatest_force: Array = np.zeros(count)
        """Greatest load since the start, N."""
        self.ticks, self.load, self.damage, self.jaw, self._jaw_target, self._tick_force = (
            np.zeros((6, count))
        )
        self._uses_jaw: NDArray[np.bool_] = np.zeros(count, np.bool_)
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
        chosen = self.patients if patients is None else checked_patients(patients)
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
        place = checked_row(row, len(self.over))
        checked_patients([patient])
        self.patients[place] = patient
        if rng is not None and self._rngs:
            self._rngs[place] = rng
        self._put(place, patient)
        return scale(self._values[:, place])

    def keep(self, rows: ArrayLike) -> None:
        """
        Keep only some operations, in the order given.

        :param rows: numbers of rows, each at most once.
        :raises StateError: if they are none, or no such rows.
        """
        self._check_open()
        self._take(checked_rows(rows, len(self.over)))

    def copies(self, count: int) -> 'BatchSurgery':
        """
        Return a batch of copies, each as it stands now: rows 0 to n - 1, then the same again.

        :param count: how often each operation is in it.
        :raises StateError: if a noisy sensor is simulated: its noise cannot be foreseen.
        """
        self._check_open()
        if self._rngs:
            raise StateError('operations with a noisy sensor cannot be copied')
        twin = copy.deepcopy(self, {id(each): each for each in self.patients})  # they never change
        twin._take(np.tile(np.arange(len(self.over)), count))
        return twin

    def _take(self, chosen: Rows) -> None:
        """Go on with these rows."""
        for part in (self.arm, self.tissue, self.physiology, self.scores, self.tasks, self.rules):
            part.keep(chosen)
        for name, value in vars(self).items():
            if isinstance(value, np.ndarray):
                setattr(self, name, np.ascontiguousarray(value[..., chosen]))
        self._motion = None
        self.patients = [self.patients[each] for each in chosen.tolist()]
        self._rngs = [self._rngs[each] for each in chosen.tolist()] if self._rngs else []

    def _put(self, row: int, patient: Patient) -> None:
        """Begin a row as one operation begins."""
        begun, (x, y, z) = self._begun, patient.start
        begun.reset(patient)
        task, lead = begun.task, begun.task.lead
        surface, done = begun.tissue.surface(lead)[0], begun.scene.done
        remaining = task.remaining(Prospect(x, y, z, surface, lead, 0.0, 0.0, 0.0, done))
        self.arm.put(row, patient.start, patient.servo_lag)
        self.tissue.lay(row, patient, begun.tissue)
        self.physiology.put(row, patient, begun.physiology)
        self.scores.put(row, begun.physiology)
        self.tasks.put(row, task, begun.scene)
        self.rules.put(row, patient, begun.horizon, remaining)
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
        self._uses_jaw[row], self.over[row] = task.uses_jaw, False
        self.time_above[:, row] = 0.0
        self._values[:, row] = begun.values()
        self._motion = None

    def motion(self) -> tuple[Array, Array, Array]:
        """Return how breathing moves the organs in the tick to come, see BatchTissue.motion."""
        self._check_open()
        if self._motion is None:
            self._motion = self.tissue.motion(self.ticks * TICK)
        return self._motion

    def values(self) -> Array:
        """Return the states in the order and units of STATE_FIELDS, shape (n, STATE_SIZE)."""
        self._check_open()
        return self._values.T.copy()

    def states(self) -> NDArray[np.float32]:
        """Return the states as a policy sees them, shape (n, STATE_SIZE)."""
        self._check_open()
        return scale(self._values.T)

    def info(self, rows: Rows | None = None) -> dict[str, NDArray[Any]]:
        """
        Say what the states leave out, as SurgeryEnv does at the start of an operation.

        :param rows: of which operations, if not of all.
        """
        self._check_open()
        chosen = np.arange(len(self.over)) if rows is None else rows
        load, nobody = self.load[chosen], np.zeros(len(chosen), np.bool_)
        news2, sofa = self.scores.of(
            self._values[_VITAL:, chosen], self.physiology.stroke[chosen], chosen
        )
        return {
            'force': load,
            'peak_force': load.copy(),
            'mean_force': load.copy(),
            'greatest_force': self.greatest_force[chosen],
            'damage': self.damage[chosen],
            'tip': self.arm.tip.T[chosen],
            'jaw': self.jaw[chosen],
            'news2': news2,
            'sofa': sofa,
            'mean_arterial_pressure': self.physiology.pressure[chosen],
            'critical': nobody,
            'success': nobody.copy(),
            'failure': np.full(len(chosen), NO_FAILURE),
        }

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
        chosen = checked_actions(actions, self.over)
        target = self.arm.target + MOVES.take(chosen, axis=1)
        refuse_unreachable(target)
        told = _TOLD.take(chosen)
        heard = self._uses_jaw & ~np.isnan(told)
        self._jaw_target = np.where(heard, told, self._jaw_target)
        # What follows is that of Operation.advance.
        begin, (breaths, rises, coughs) = self.ticks * TICK, self.motion()
        heights, speeds = self.arm.move(chosen, target)
        depths = self.tissue.rest + breaths[1:-1] - heights
        loads = np.zeros_like(depths)
        if depths.max() > 0.0:
            loads = self.tissue.press(heights, depths, rises[1:-1] - speeds)
        normal = loads[-1].copy()
        damage = self.tissue.damage(loads, depths, self.rules.warn)
        self.tasks.resist(loads, self.arm)
        peak = loads.max(axis=0)
        if peak.max() > FORCE_LEVELS[0]:
            for total, level in zip(self.time_above, FORCE_LEVELS, strict=True):
                total += (loads > level).sum(axis=0) * SUBSTEP
        self.greatest_force = np.maximum(self.greatest_force, peak)
        self.load = loads[-1]
        way = self._jaw_target - self.jaw
        self.jaw = self.jaw + np.minimum(np.maximum(way, -_STRIDE), _STRIDE)
        self.damage = self.damage + damage
        self.physiology.advance(TICK, normal, damage, coughs[-2])
        mean = loads.sum(axis=0) * (SUBSTEP / TICK)
        return self._judged(begin, breaths, normal, peak, mean)

    def close(self) -> None:
        """Let go of all patients; whatever is asked of the batch from now on is refused."""
        self._begun.close()
        self._closed, self.patients, self._rngs = True, [], []
        self._make(0)

    def _check_open(self) -> None:
        if self._closed:
            raise closed('batch')

    def _judged(
        self, begin: Array, breaths: Array, normal: Array, peak: Array, mean: Array
    ) -> Step:
        """
        Judge a tick as Operation.tick does.

        :param begin: of the tick, s.
        :param breaths: how far breathing has the surfaces above rest, as BatchTissue tells it, m.
        """
        tip, rules, before = self.arm.tip, self.rules, self.tasks.done
        self.ticks, self._motion = self.ticks + 1.0, None
        breach, hypotensive = rules.breach(tip), self.physiology.hypotensive
        opening = self.jaw / JAW_OPEN
        told = (self._jaw_target > 0.5 * JAW_OPEN).astype(np.float64)
        remaining, lost, goal = self.tasks.judge(
            Moment(
                tip,
                self.arm.target,
                normal,
                opening,
                told,
                begin + TICK,
                begin + self.tissue.ahead[-1],
                breaths[-2],
                breaths[-1],
                TICK,
            )
        )
        done = self.tasks.done
        failure = rules.failure(self.ticks, peak, breach, lost, hypotensive, done)
        success, failed, truncated = rules.ending(failure, done)
        reward = rules.reward(remaining, done - before, self.load, success, failed)
        self._show(goal, opening, told)
        terminated = success | failed
        self.over = terminated | truncated
        critical = (peak > HARD_STOP) | breach | hypotensive
        news2, sofa = self.scores.of(self._values[_VITAL:], self.physiology.stroke)
        said = {
            'force': self.load.copy(),
            'peak_force': peak,
            'mean_force': mean,
            'greatest_force': self.greatest_force.copy(),
            'damage': self.damage.copy(),
            'tip': self.arm.tip.T.copy(),
            'jaw': self.jaw.copy(),
            'news2': news2,
            'sofa': sofa,
            'mean_arterial_pressure': self.physiology.pressure.copy(),
            'critical': critical,
            'success': success,
            'failure': failure,
        }
        return self.states(), reward, terminated, truncated, said

    def _show(self, goal: Array, opening: Array, told: Array) -> None:
        """Write what Operation.values says, without the procedure and its limit, which stay."""
        force, target, wanted = self._measured(), self.arm.target, self.rules.wanted
        values, height = self._values, target[2]
        np.subtract(target, goal, out=values[_ERROR : _ERROR + 3])
        rate = (force - self._tick_force) / TICK
        self._tick_force = force
        pressing = wanted > 0.0
        felt = self.tissue.feel(force, self.arm.tip[2])
        for name, value in (
            ('lag', self.arm.tip[2] - height),
            ('depth', np.fmax(self.tissue.touched - height, 0.0)),
            ('contact', felt),
            ('force', force),
            ('force_error', pressing * (wanted - force) / np.where(pressing, wanted, 1.0)),
            ('force_rate', rate),
            ('time_left', 1.0 - self.ticks / self.rules.horizon),
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
        return self.load + noise * np.array(drawn)
