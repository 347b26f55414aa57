# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Incision: draw a blade along a line at a depth below a surface that breathes.

The cut grows only where the blade is near the line and at its depth; running ahead of the cut
cuts nothing. Cutting has no resistance of its own: limits are on the contact law's normal force.
"""

from dataclasses import dataclass
import math
from typing import Self

from fdrl_ros.surgery.patient.patient import Patient
from fdrl_ros.surgery.scalar_or_array import excess, Number, Point
from fdrl_ros.surgery.tasks.procedures import TRAITS
from fdrl_ros.surgery.tasks.task import Prospect, Reading, Scene, Task
from fdrl_ros.surgery.tissue.contact import Tissue

_AHEAD = 0.001
"""How far ahead of the cut the plan has the blade, m."""

_LATERAL, _LEAD, _HEIGHT = 3.0, 3.0, 2.0
"""What a metre beside the line, ahead of the cut and off the depth costs."""

_BAND = 0.002
"""Half of the heights that are as good on the way to the cut, m."""

_FREE_LATERAL, _FREE_LEAD = 0.0004, 0.0015
"""How far beside the line and ahead of the cut costs nothing, m."""


@dataclass(slots=True)
class Incision(Task):
    """
    A cut from the goal to the destination of the patient, both on the planned surface.

    :param goal: where the cut begins, m.
    :param rest: true height of the surface without breathing, m.
    :param length: of the line, m.
    :param along_x: direction of the line, as along_y.
    :param depth: of the cut below the surface, m.
    :param textbook_depth: by the plan that the state shows, m.
    :param depth_tolerance: how far off that the blade still cuts, m.
    :param depth_limit: deeper than this is a failure, m.
    :param line_tolerance: how far beside the line the blade still cuts, m.
    :param bite: longest growth of the cut within one tick, m.
    :param hover: height above the surface on the way to the cut, m.
    """

    loss = 'depth'
    watches_surface = True

    goal: Point
    rest: Number
    length: Number
    along_x: Number
    along_y: Number
    depth: Number
    textbook_depth: Number
    depth_tolerance: Number
    depth_limit: Number
    line_tolerance: Number
    bite: Number
    hover: Number

    @classmethod
    def plan(cls, patient: Patient, tissue: Tissue) -> Self:
        """Return what is to be done with a patient."""
        goal, destination = patient.goal, patient.destination
        way_x, way_y = destination[0] - goal[0], destination[1] - goal[1]
        length = math.hypot(way_x, way_y)
        own = TRAITS[patient.procedure.name].numbers
        return cls(
            goal,
            tissue.rest,
            length,
            way_x / length,
            way_y / length,
            patient.protocol * own['depth'],
            own['depth'],
            own['depth_tolerance'],
            own['depth_limit'],
            own['line_tolerance'],
            own['bite'],
            own['hover'],
        )

    def waypoint(self, grasped: Number, done: Number, time: Number, breath: Number) -> Point:
        """Return the planned place of the blade a little ahead of the cut."""
        x, y, z = self.goal
        along = done * self.length + _AHEAD
        return x + along * self.along_x, y + along * self.along_y, z - self.textbook_depth

    def _place(self, x: Number, y: Number) -> tuple[Number, Number]:
        """Return how far along the line and how far beside it a point is, m."""
        from_x, from_y = x - self.goal[0], y - self.goal[1]
        return (
            from_x * self.along_x + from_y * self.along_y,
            from_y * self.along_x - from_x * self.along_y,
        )

    def progress(self, scene: Scene, reading: Reading) -> Number:
        """Let the cut grow to where the blade is."""
        x, y, z = reading.tip
        depth = self.rest + reading.breath - z
        along, beside = self._place(x, y)
        front = scene.done * self.length
        grows = (
            (abs(beside) <= self.line_tolerance)
            & (abs(depth - self.depth) <= self.depth_tolerance)
            & (front < along)
            & (along <= front + self.bite)
        )
        reached = along / self.length
        scene.done = grows * (reached - excess(reached, 1.0)) + (1.0 - grows) * scene.done
        return depth > self.depth_limit

    def remaining(self, at: Prospect) -> Number:
        """Return what is left of the line, with a price on leaving line, cut and depth."""
        along, beside = self._place(at.x, at.y)
        lead = along - at.done * self.length
        height = at.z - (self.rest + at.breath)
        near = (abs(beside) <= self.line_tolerance) * (abs(lead) <= self.bite)
        # On the way a band of heights is as good; coming near the cut costs nothing by itself.
        off = near * abs(height + self.depth) + (1.0 - near) * (
            excess(abs(height - self.hover), _BAND) + self.hover + self.depth + _BAND
        )
        return (
            excess(self.length + _AHEAD, along)
            + _LATERAL * excess(abs(beside), _FREE_LATERAL)
            + _LEAD * excess(lead, _FREE_LEAD)
            + _HEIGHT * off
        )
