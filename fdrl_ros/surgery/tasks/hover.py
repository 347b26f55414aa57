# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Reach and follow: stay at a point above the organ, which rests or moves."""

from dataclasses import dataclass
import math
from typing import Self

from fdrl_ros.surgery.constants import constant
from fdrl_ros.surgery.patient.patient import Patient
from fdrl_ros.surgery.scalar_or_array import maths_of, Number, Point
from fdrl_ros.surgery.tasks.task import held_fraction, Prospect, Reading, Scene, Task, within
from fdrl_ros.surgery.tissue.contact import Tissue

_RATE = 2.0 * math.pi / constant('follow.circle_time')

_KINDS = {'reach': (0.0, 0.0, 0.0), 'follow': (constant('follow.radius'), 1.0, 1.0)}
"""Radius, `rides` and `breaks` of each procedure."""


@dataclass(slots=True)
class Hover(Task):
    """
    Stay near a point above the organ, which may circle and ride on its breathing.

    :param goal: planned contact point, m.
    :param height: of the point above it, m.
    :param tolerance: of each axis, m.
    :param radius: of the circle, m; 0 for a point that rests.
    :param rides: 1 if the point rises and falls with the organ, as on a beating heart, else 0.
    :param breaks: 1 if the time near it adds up with breaks, 0 if a break starts it again.
    :param phase: of the circle at the start, rad.
    :param hold_time: to stay, s.
    """

    watches_surface = True

    goal: Point
    height: Number
    tolerance: Number
    radius: Number
    rides: Number
    breaks: Number
    phase: Number
    hold_time: Number

    @classmethod
    def plan(cls, patient: Patient, tissue: Tissue) -> Self:
        """Return what is to be done with a patient."""
        procedure = patient.procedure
        return cls(
            patient.goal,
            constant(f'{procedure.name}.height'),
            constant(f'{procedure.name}.position_tolerance'),
            *_KINDS[procedure.name],
            patient.breathing_phase,
            procedure.hold_time,
        )

    def waypoint(self, grasped: Number, done: Number, time: Number, breath: Number) -> Point:
        """Return where the point is at a time."""
        x, y, z = self.goal
        angle = _RATE * time + self.phase
        maths = maths_of(angle)
        return (
            x + self.radius * maths.cosine(angle),
            y + self.radius * maths.sine(angle),
            z + self.height + self.rides * breath,
        )

    def progress(self, scene: Scene, reading: Reading) -> Number:
        """Count the time near the point."""
        point = self.waypoint(0.0, 0.0, reading.time, reading.breath)
        there = within(reading.tip, point, self.tolerance)
        scene.held = (there + self.breaks > 0.0) * scene.held + there * reading.period
        scene.done = held_fraction(scene.held, self.hold_time)
        return False

    def remaining(self, at: Prospect) -> Number:
        """Return the way to the point."""
        x, y, z = self.waypoint(0.0, 0.0, at.time, at.breath)
        return abs(at.x - x) + abs(at.y - y) + abs(at.z - z)
