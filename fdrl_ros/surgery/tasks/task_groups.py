# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The tasks of many patients, by kind: one task of each kind holds the numbers of all its rows."""

from typing import NamedTuple

from fdrl_ros.surgery.arm.lagging_arms import LaggingArms
from fdrl_ros.surgery.gym.actions import TICK
from fdrl_ros.surgery.scalar_or_array import Array, choose, Columns, Flags, PerPatient, Point, Rows
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


class TaskGroup(NamedTuple):
    """The task of all rows of one kind."""

    task: Task
    rows: Rows


class TaskGroups(PerPatient):
    """
    The tasks of all rows, and what has become of them, as :class:`Scene` has it.

    :param count: rows.
    """

    def __init__(self, count: int) -> None:
        self._tasks: dict[type[Task], Columns[Task]] = {}
        self._kinds: Rows = np.zeros(count, np.intp)
        """Which kind of task each row has, by its place among the tasks."""
        self.done, self._held, self._jaw = np.zeros((3, count))
        self.grasped: Flags = np.zeros(count, np.bool_)
        self._groups: list[TaskGroup] | None = None

    def put(self, row: int, task: Task, scene: Scene) -> None:
        """Begin a row's task."""
        kind = type(task)
        if kind not in self._tasks:
            self._tasks[kind] = Columns(kind, len(self.done))
        self._tasks[kind].put(row, task)
        self._kinds[row], self._groups = list(self._tasks).index(kind), None
        self.done[row], self._held[row] = scene.done, scene.held
        self._jaw[row], self.grasped[row] = scene.jaw, scene.grasped

    def select(self, rows: Rows) -> None:
        """Keep only some rows."""
        super().select(rows)
        for tasks in self._tasks.values():
            tasks.select(rows)
        self._groups = None

    def groups(self) -> list[TaskGroup]:
        """Return the tasks by kind, of those kinds that some row has."""
        if self._groups is None:
            places = [np.flatnonzero(self._kinds == kind) for kind in range(len(self._tasks))]
            self._groups = [
                TaskGroup(tasks.record(rows), rows)
                for tasks, rows in zip(self._tasks.values(), places, strict=True)
                if len(rows)
            ]
        return self._groups

    def resist(self, loads: Array, arms: LaggingArms) -> None:
        """
        Add to loads the reaction force of rigid objects (pegs) on tips that hold one.

        :param loads: in the sub-steps of a tick, shape (12, rows), N.
        """
        for task, rows in self.groups():
            grasped = self.grasped[rows]
            if task.resists and grasped.any():
                x, y, z = (arms.way(axis).take(rows, axis=1) for axis in range(3))
                loads[:, rows] += np.hypot(*task.resistance(grasped * 1.0, x, y, z))

    def progress(self, reading: TaskReading) -> tuple[Array, Rows, Point]:
        """
        Bring all rows up to date at the end of a tick.

        Rows are sorted by kind, so that each task works on views.

        :returns: remaining costs (m), codes of failures or NO_FAILURE, and waypoints (m).
        """
        groups = self.groups()
        order = np.concatenate([rows for _task, rows in groups])
        scenes = self.done, self._held, self._jaw, self.grasped
        seen = np.array([*reading.tip, *reading.target, *reading[2:], *scenes])
        seen, made = seen.take(order, axis=1), np.empty((9, len(order)))
        end = 0
        for task, rows in groups:
            begin, end = end, end + len(rows)
            tip_x, tip_y, tip_z, x, y, z, normal, jaw, aim, *rest = seen[:, begin:end]
            now, later, breath, ahead, done, held, last_jaw, grasped = rest
            scene = Scene(done, held, grasped > 0.0, last_jaw)
            tip = tip_x, tip_y, tip_z
            lost = task.progress(scene, Reading(tip, normal, jaw, now, breath, TICK))
            grasped = scene.grasped * 1.0
            at = Prospect(x, y, z, ahead, later, jaw, aim, grasped, scene.done)
            outcome = (
                task.remaining(at),
                choose(lost, failure_code(task.loss), NO_FAILURE),
                *task.waypoint(grasped, scene.done, now, breath),
                *(scene.done, scene.held, scene.jaw, grasped),
            )
            for row, values in zip(made, outcome, strict=True):
                row[begin:end] = values
        returned = np.empty_like(made)
        returned[:, order] = made
        cost, failure, *waypoint, self.done, self._held, self._jaw, grasped = returned
        self.grasped = grasped > 0.0
        return cost, failure.astype(np.intp), np.array(waypoint)
