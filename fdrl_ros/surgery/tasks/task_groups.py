# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The tasks of many patients, by kind: one task of each kind holds the numbers of all its rows."""

from typing import NamedTuple

from fdrl_ros.surgery.arm.lagging_arms import LaggingArms
from fdrl_ros.surgery.scalar_or_array import Array, choose, Columns, Flags, Point, Rows
from fdrl_ros.surgery.tasks.outcome import failure_code, NO_FAILURE
from fdrl_ros.surgery.tasks.task import Prospect, Reading, Scene, Task
import numpy as np


class TaskReading(NamedTuple):
    """
    What tasks judge of n patients: the end of one tick, each of shape (n,) unless said.

    :param tip: where the tips are, shape (3, n), m.
    :param target: where the set-points are, shape (3, n), m.
    :param normal: force along the tissue's normal, N.
    :param jaw: opening as a fraction.
    :param jaw_target: what the jaw was told, 0 or 1.
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
    jaw_target: Array
    now: Array
    later: Array
    breath_now: Array
    breath_later: Array
    period: float


_SEEN = 17
"""Numbers of a row that a task judges: two points, seven of a reading, four of a scene."""

_RETURNED = 9
"""Numbers of a row that a task returns: remaining cost, waypoint, loss, and the scene."""


class TaskGroup:
    """
    The tasks of one kind.

    :param kind: of the tasks.
    :param count: rows of all kinds.
    """

    def __init__(self, kind: type[Task], count: int) -> None:
        self._numbers = Columns(kind, count)
        self.loss = failure_code(kind.loss)
        self.here: Flags = np.zeros(count, np.bool_)
        """Whether a row has a task of this kind."""
        self.rows: Rows = np.empty(0, np.intp)
        """The rows that have one, as of the last :meth:`task`."""
        self._task: Task | None = None

    def put(self, row: int, task: Task) -> None:
        """Write one row's task."""
        self._numbers.put(row, task)
        self.here[row], self._task = True, None

    def remove(self, row: int) -> None:
        """Forget a row's task."""
        self.here[row], self._task = False, None

    def select(self, rows: Rows) -> None:
        """Keep only some rows."""
        self._numbers.select(rows)
        self.here, self._task = self.here[rows], None

    def task(self) -> Task:
        """Return the task of all rows of this kind."""
        if self._task is None:
            self.rows = np.flatnonzero(self.here)
            self._task = self._numbers.record(self.rows)
        return self._task


class TaskGroups:
    """
    The tasks of all rows, and what has become of them.

    :param count: rows.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._groups: dict[type[Task], TaskGroup] = {}
        self.done, self._held, self._jaw = np.zeros((3, count))
        """As :class:`Scene` has them, shape (rows,)."""
        self.grasped: Flags = np.zeros(count, np.bool_)
        self._order: tuple[list[tuple[TaskGroup, slice]], Rows, Rows] | None = None

    def put(self, row: int, task: Task, scene: Scene) -> None:
        """Begin a row's task."""
        kind = type(task)
        for group in self._groups.values():
            if group.here[row]:
                group.remove(row)
        if kind not in self._groups:
            self._groups[kind] = TaskGroup(kind, self._count)
        self._groups[kind].put(row, task)
        self._order = None
        self.done[row], self._held[row] = scene.done, scene.held
        self._jaw[row], self.grasped[row] = scene.jaw, scene.grasped

    def select(self, rows: Rows) -> None:
        """Keep only some rows."""
        self._count, self._order = len(rows), None
        for group in self._groups.values():
            group.select(rows)
        self.done, self._held, self._jaw = self.done[rows], self._held[rows], self._jaw[rows]
        self.grasped = self.grasped[rows]

    def groups(self) -> list[TaskGroup]:
        """Return the tasks by kind, of those kinds that some row has."""
        return [each for each in self._groups.values() if each.here.any()]

    def resist(self, loads: Array, arms: LaggingArms) -> None:
        """
        Add to loads what rigid things do to tips that hold an object.

        :param loads: in the sub-steps of a tick, shape (12, rows), N.
        """
        for group in self._groups.values():
            if (self.grasped & group.here).any() and group.task().resists:
                rows = group.rows
                x, y, z = (arms.way(axis).take(rows, axis=1) for axis in range(3))
                pull = group.task().resistance(self.grasped[rows] * 1.0, x, y, z)
                loads[:, rows] += np.hypot(*pull)

    def _sorted(self) -> tuple[list[tuple[TaskGroup, slice]], Rows, Rows]:
        """Return groups with the columns of each once rows are sorted by kind; there, and back."""
        if self._order is None:
            spans, end = [], 0
            for group in self.groups():
                group.task()
                begin, end = end, end + len(group.rows)
                spans.append((group, slice(begin, end)))
            there = np.concatenate([each.rows for each, _columns in spans])
            back = np.empty_like(there)
            back[there] = np.arange(end)
            self._order = spans, there, back
        return self._order

    def progress(self, reading: TaskReading) -> tuple[Array, Rows, Point]:
        """
        Bring all rows up to date at the end of a tick.

        Rows are sorted by kind once, so that each task works on views.

        :returns: remaining costs (m), codes of failures or NO_FAILURE, and waypoints (m).
        """
        spans, there, back = self._sorted()
        seen = np.empty((_SEEN, len(there)))
        seen[:3], seen[3:6] = reading.tip, reading.target
        for place, numbers in enumerate(reading[2:9], 6):
            seen[place] = numbers
        seen[13], seen[14], seen[15], seen[16] = self.done, self._held, self.grasped, self._jaw
        seen = seen.take(there, axis=1)
        held = seen[15] > 0.0
        returned = np.empty_like(seen[:_RETURNED])
        for group, columns in spans:
            task, here, out = group.task(), seen[:, columns], returned[:, columns]
            x, y, z, normal, jaw, aim, now, later, breath, ahead, done, time, _, before = here[3:]
            scene = Scene(done, time, held[columns], before)
            tip = here[0], here[1], here[2]
            lost = task.progress(scene, Reading(tip, normal, jaw, now, breath, reading.period))
            grasped = scene.grasped * 1.0
            at = Prospect(x, y, z, ahead, later, jaw, aim, grasped, scene.done)
            out[0] = task.remaining(at)
            out[1], out[2], out[3] = task.waypoint(grasped, scene.done, now, breath)
            out[4] = choose(lost, group.loss, NO_FAILURE)
            out[5], out[6], out[7], out[8] = scene.done, scene.held, grasped, scene.jaw
        returned = returned.take(back, axis=1)
        self.done, self._held, self._jaw = returned[5], returned[6], returned[8]
        self.grasped = returned[7] > 0.0
        return returned[0], returned[4].astype(np.intp), (returned[1], returned[2], returned[3])
