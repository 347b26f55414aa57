# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The tasks of many patients at once: one task of each kind whose numbers are arrays.

The formulas are those of :mod:`fdrl_ros.surgery.tasks`. The last axis of every array is the
patient.
"""

from collections.abc import Sequence
from numbers import Real
from types import SimpleNamespace
from typing import Any, NamedTuple

from fdrl_ros.surgery.arm.batch_arm import BatchArm
from fdrl_ros.surgery.patient.batch_events import Array, Rows
from fdrl_ros.surgery.tasks.batch_rules import NO_FAILURE
from fdrl_ros.surgery.tasks.outcome import FAILURES
from fdrl_ros.surgery.tasks.task import Prospect, Reading, Scene, Task
import numpy as np
from numpy.typing import NDArray


class Moment(NamedTuple):
    """
    What tasks judge of n patients: the end of one tick, each of shape (n,) unless said.

    :param tip: where the tips are, shape (3, n), m.
    :param target: where the set-points are, shape (3, n), m.
    :param normal: force along the tissue's normal, N.
    :param jaw: opening as a fraction.
    :param told: what the jaw was told, 0 or 1.
    :param now: time since the start, s.
    :param later: when the arm will have got to its set-point, s.
    :param breath_now: how far breathing has the surface above rest now, m.
    :param breath_later: how far it will then, m.
    :param period: length of the tick, s.
    """

    tip: Array
    target: Array
    normal: Array
    jaw: Array
    told: Array
    now: Array
    later: Array
    breath_now: Array
    breath_later: Array
    period: float


_SEEN = 17
"""Numbers of a row that a task judges: two points, seven of a moment, four of a scene."""

_SAID = 9
"""Numbers of a row that a task gives back: remaining, waypoint, loss, and the scene."""


_OF_PATIENT = ('breathing_phase',)
_OF_PROCEDURE = 'target_force', 'tolerance', 'hold_time'
"""What tasks ask of a patient and of a procedure; a stack has nothing else."""


class Heights:
    """
    What a stack of tasks may ask of the organs: heights that are known at some times.

    :param rest: heights without breathing, m.
    """

    def __init__(self, rest: Array) -> None:
        self.rest = rest
        self.known: tuple[tuple[Array, Array], ...] = ()
        """Times, and how far above rest the surfaces are then, m."""

    def breath(self, time: Array) -> Array:
        """Return how far the surfaces are above rest at one of the known times, m."""
        for known, height in self.known:
            if known is time:
                return height
        raise LookupError('the surface is not known at another time')

    def surface(self, time: Array) -> tuple[Array, ...]:
        """Return the heights of the surfaces at one of the known times, m."""
        return (self.rest + self.breath(time),)


def _numbers(owner: Any, names: Sequence[str]) -> list[tuple[str, int]]:
    """Return which attributes are numbers (size 0) or points, with their sizes."""
    found = []
    for name in names:
        value = getattr(owner, name)
        if isinstance(value, Real) and not isinstance(value, bool):
            found.append((name, 0))
        elif isinstance(value, tuple) and value and all(isinstance(v, Real) for v in value):
            found.append((name, len(value)))
    return found


class Stack:
    """
    The tasks of one kind.

    :param first: any task of the kind: what it has, all have.
    :param count: rows of the batch, whichever tasks they have.
    """

    def __init__(self, first: Task, count: int) -> None:
        self.kind = first.law()
        self.loss = FAILURES.index(self.kind.loss) if self.kind.loss else NO_FAILURE
        """What the procedure itself is lost by, as a number."""
        self.rows: Rows = np.empty(0, np.intp)
        """Rows with a task of this kind, as of the last :meth:`ready`."""
        self.here: NDArray[np.bool_] = np.zeros(count, np.bool_)
        """Whether a row has one."""
        self.size = 0
        """How many have one."""
        hollow: Any = object.__new__(self.kind)  # not begun: its numbers will be arrays
        hollow.patient, hollow.procedure = SimpleNamespace(), SimpleNamespace()
        self._task = hollow
        own = [each for each in vars(first) if each not in ('patient', 'procedure', 'tissue')]
        self._plan = (
            ('', _numbers(first, own)),
            ('patient', _numbers(first.patient, _OF_PATIENT)),
            ('procedure', _numbers(first.procedure, _OF_PROCEDURE)),
        )
        size = len(self._flat(first))
        self._table: Array = np.zeros((size, count))
        self._stale = True

    def _flat(self, task: Task) -> list[float]:
        """Return all numbers of a task and its patient."""
        flat: list[float] = [task.tissue.rest]
        for owner, names in self._plan:
            of = getattr(task, owner) if owner else task
            for name, size in names:
                value = getattr(of, name)
                if size:
                    flat.extend(value)
                else:
                    flat.append(value)
        return flat

    def put(self, row: int, task: Task) -> None:
        """Take the numbers of a task for those of a row."""
        self._table[:, row] = self._flat(task)
        self.size += not self.here[row]
        self.here[row] = self._stale = True

    def drop(self, row: int) -> None:
        """Have no task in a row any more."""
        self.here[row] = False
        self.size -= 1
        self._stale = True

    def keep(self, rows: Rows) -> None:
        """Keep only some rows."""
        self._table, self.here = self._table[:, rows], self.here[rows]
        self.size = int(self.here.sum())
        self._stale = True

    def ready(self) -> Any:
        """Return one task with the numbers of all rows of this kind."""
        if self._stale:
            self.rows = np.flatnonzero(self.here)
            numbers, place = self._table.take(self.rows, axis=1), 1
            self._task.tissue = Heights(numbers[0])
            if hasattr(self._task, 'breath'):
                self._task.breath = self._task.tissue.breath
            for owner, names in self._plan:
                of = getattr(self._task, owner) if owner else self._task
                for name, size in names:
                    setattr(of, name, numbers[place : place + size] if size else numbers[place])
                    place += max(size, 1)
            self._stale = False
        return self._task


class Stacks:
    """
    The tasks of all rows, and what has become of them.

    :param count: rows.
    """

    def __init__(self, count: int) -> None:
        self._of: list[Stack | None] = [None] * count
        self._stacks: dict[type[Task], Stack] = {}
        self.done, self._held, self._jaw = np.zeros((3, count))
        """As :class:`Scene` has them, shape (rows,)."""
        self.grasped: NDArray[np.bool_] = np.zeros(count, np.bool_)
        self._order: tuple[list[tuple[Stack, slice]], Rows, Rows] | None = None

    def put(self, row: int, task: Task, scene: Scene) -> None:
        """Give a row a task that begins."""
        kind, before = task.law(), self._of[row]
        if kind not in self._stacks:
            self._stacks[kind] = Stack(task, len(self._of))
        stack = self._stacks[kind]
        if before is not None and before is not stack:
            before.drop(row)
        stack.put(row, task)
        self._of[row], self._order = stack, None
        self.done[row], self._held[row] = scene.done, scene.held
        self._jaw[row], self.grasped[row] = scene.jaw, scene.grasped

    def keep(self, rows: Rows) -> None:
        """Keep only some rows."""
        self._of = [self._of[each] for each in rows.tolist()]
        self._order = None
        for stack in self._stacks.values():
            stack.keep(rows)
        for name, value in vars(self).items():
            if isinstance(value, np.ndarray):
                setattr(self, name, value[rows])

    def stacks(self) -> list[Stack]:
        """Return the tasks by kind, of those kinds that some row has."""
        return [each for each in self._stacks.values() if each.size]

    def resist(self, loads: Array, arm: BatchArm) -> None:
        """Add to loads, shape (12, rows), what rigid things do to tips that hold an object, N."""
        for stack in self._stacks.values():
            if stack.kind.rigid and (self.grasped & stack.here).any():
                task, rows = stack.ready(), stack.rows
                way = (arm.way(axis).take(rows, axis=1) for axis in range(3))
                loads[:, rows] += np.hypot(*task.resistance(self.grasped[rows] * 1.0, *way))

    def _sorted(self) -> tuple[list[tuple[Stack, slice]], Rows, Rows]:
        """Return stacks with the columns of each once rows are sorted by kind; there, and back."""
        if self._order is None:
            spans, end = [], 0
            for stack in self.stacks():
                stack.ready()
                begin, end = end, end + stack.size
                spans.append((stack, slice(begin, end)))
            there = np.concatenate([each.rows for each, _columns in spans])
            back = np.empty_like(there)
            back[there] = np.arange(end)
            self._order = spans, there, back
        return self._order

    def judge(self, moment: Moment) -> tuple[Array, NDArray[np.intp], Array]:
        """
        Bring all rows up to date at the end of a tick.

        Rows are sorted by kind once, so that each task works on views.

        :returns: remaining costs (m), failures as numbers or NO_FAILURE, and waypoints (m) of
            shape (3, rows).
        """
        spans, there, back = self._sorted()
        seen = np.empty((_SEEN, len(there)))
        seen[:3], seen[3:6] = moment.tip, moment.target
        for place, numbers in enumerate(moment[2:9], 6):
            seen[place] = numbers
        seen[13], seen[14], seen[15], seen[16] = self.done, self._held, self.grasped, self._jaw
        seen = seen.take(there, axis=1)
        held = seen[15] > 0.0
        said = np.empty_like(seen[:_SAID])
        said[4] = NO_FAILURE
        for stack, columns in spans:
            task, here, told = stack.ready(), seen[:, columns], said[:, columns]
            tip: Any = here[:3]
            x, y, z, normal, jaw, aim, now, later, breath, ahead, done, time, _, before = here[3:]
            organ = task.tissue
            organ.known = (now, breath), (later, ahead)
            scene = Scene(done, time, held[columns], before)
            lost = task.progress(scene, Reading(tip, normal, jaw, now, moment.period))
            if stack.loss != NO_FAILURE:
                np.copyto(told[4], stack.loss, where=lost)
            grasped = scene.grasped * 1.0
            at = Prospect(x, y, z, organ.rest + ahead, later, jaw, aim, grasped, scene.done)
            told[0] = task.remaining(at)
            told[1], told[2], told[3] = task.waypoint(grasped, scene.done, now)
            told[5], told[6], told[7], told[8] = scene.done, scene.held, grasped, scene.jaw
        said = said.take(back, axis=1)
        self.done, self._held, self._jaw = said[5], said[6], said[8]
        self.grasped = said[7] > 0.0
        return said[0], said[4].astype(np.intp), said[1:4]
