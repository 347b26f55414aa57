# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The tasks of many patients at once: one task of each kind whose numbers are arrays.

The formulas are those of :mod:`fdrl_ros.env.tasks`. The last axis of every array is the patient.
"""

from dataclasses import dataclass, fields
from numbers import Real
from types import SimpleNamespace
from typing import Any

from fdrl_ros.env.batch_arm import BatchArm
from fdrl_ros.env.batch_events import Array, Rows
from fdrl_ros.env.batch_rules import NO_FAILURE
from fdrl_ros.env.operation import FAILURES
from fdrl_ros.env.tasks.task import Prospect, Reading, Scene, Task
import numpy as np
from numpy.typing import NDArray


@dataclass(slots=True)
class Moment:
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

    def of(self, rows: Rows) -> 'Moment':
        """Return it for some rows alone."""
        return Moment(
            self.tip.take(rows, axis=1),
            self.target.take(rows, axis=1),
            self.normal.take(rows),
            self.jaw.take(rows),
            self.told.take(rows),
            self.now.take(rows),
            self.later.take(rows),
            self.breath_now.take(rows),
            self.breath_later.take(rows),
            self.period,
        )


class Heights:
    """
    What a stack of tasks may ask of the organs: heights that are known at some times.

    :param rest: heights without breathing, m.
    """

    def __init__(self, rest: Array) -> None:
        self.rest = rest
        self.known: list[tuple[Array, Array]] = []
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


def _numbers(owner: Any, names: list[str]) -> list[tuple[str, int]]:
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
        self.kind = type(first)
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
            ('patient', _numbers(first.patient, [f.name for f in fields(first.patient)])),
            ('procedure', _numbers(first.procedure, [f.name for f in fields(first.procedure)])),
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

    def put(self, row: int, task: Task, scene: Scene) -> None:
        """Give a row a task that begins."""
        kind, before = type(task), self._of[row]
        if kind not in self._stacks:
            self._stacks[kind] = Stack(task, len(self._of))
        stack = self._stacks[kind]
        if before is not None and before is not stack:
            before.drop(row)
        stack.put(row, task)
        self._of[row] = stack
        self.done[row], self._held[row] = scene.done, scene.held
        self._jaw[row], self.grasped[row] = scene.jaw, scene.grasped

    def keep(self, rows: Rows) -> None:
        """Keep only some rows."""
        self._of = [self._of[each] for each in rows.tolist()]
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

    def judge(self, moment: Moment) -> tuple[Array, NDArray[np.intp], Array]:
        """
        Bring all rows up to date at the end of a tick.

        :returns: remaining costs (m), failures as numbers or NO_FAILURE, and waypoints (m) of
            shape (3, rows).
        """
        count = len(self._of)
        remaining, lost, goals = np.empty(count), np.full(count, NO_FAILURE), np.empty((3, count))
        self.done, self._held = self.done.copy(), self._held.copy()
        for stack in self.stacks():
            task, rows = stack.ready(), stack.rows
            here = moment.of(rows)
            task.tissue.known = [(here.now, here.breath_now), (here.later, here.breath_later)]
            scene, reading = self._read(here, rows)
            failed = task.progress(scene, reading)
            if stack.kind.loss:
                lost[rows[failed]] = FAILURES.index(stack.kind.loss)
            self.done[rows], self._held[rows] = scene.done, scene.held
            self.grasped[rows], self._jaw[rows] = scene.grasped, scene.jaw
            grasped = scene.grasped * 1.0
            surface = task.tissue.surface(here.later)[0]
            x, y, z = here.target
            at = Prospect(x, y, z, surface, here.later, here.jaw, here.told, grasped, scene.done)
            remaining[rows] = task.remaining(at)
            goals[:, rows] = task.waypoint(grasped, scene.done, here.now)
        return remaining, lost, goals

    def _read(self, here: Moment, rows: Rows) -> tuple[Any, Any]:
        """Return what a task judges, with arrays for its numbers."""
        numbers: tuple[Any, ...] = (self.done, self._held, self.grasped, self._jaw)
        seen: tuple[Any, ...] = (here.tip, here.normal, here.jaw, here.now, here.period)
        return Scene(*(each.take(rows) for each in numbers)), Reading(*seen)
