# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Hold for a time: a place (reach and follow), or a force (palpation and retraction)."""

from dataclasses import dataclass
import math
from typing import Self

from fdrl_ros.surgery.constants import constant
from fdrl_ros.surgery.patient.patient import Patient
from fdrl_ros.surgery.scalar_or_array import maths_of, Number, Point
from fdrl_ros.surgery.tasks.procedures import TRAITS
from fdrl_ros.surgery.tasks.task import held_fraction, Prospect, Reading, Scene, Task, within
from fdrl_ros.surgery.tissue.contact import Tissue


@dataclass(slots=True)
class Hover(Task):
    """
    Stay near a point above the organ, which may circle and ride on its breathing.

    :param goal: planned contact point, m.
    :param height: of the point above it, m.
    :param tolerance: of each axis, m.
    :param radius: of the circle, m; 0 for a point that rests.
    :param rate: at which it circles, rad/s; 0 for a point that rests.
    :param rides: 1 if the point rises and falls with the organ, as on a beating heart, and the
        time near it adds up over breaks; 0 if it rests, and a break starts the time again.
    :param phase: of the circle at the start, rad.
    :param hold_time: to stay, s.
    """

    watches_surface = True

    goal: Point
    height: Number
    tolerance: Number
    radius: Number
    rate: Number
    rides: Number
    phase: Number
    hold_time: Number

    @classmethod
    def plan(cls, patient: Patient, tissue: Tissue) -> Self:
        """Return what is to be done with a patient."""
        procedure = patient.procedure
        traits = TRAITS[procedure.name]
        return cls(
            patient.goal,
            traits.heights[0],
            traits.numbers['position_tolerance'],
            traits.aside[0],
            2.0 * math.pi / traits.numbers['circle_time'] if traits.circles else 0.0,
            float(traits.rides),
            patient.breathing_phase,
            procedure.hold_time,
        )

    def waypoint(self, grasped: Number, done: Number, time: Number, breath: Number) -> Point:
        """Return where the point is at a time."""
        x, y, z = self.goal
        angle = self.rate * time + self.phase
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
        scene.held = (there + self.rides > 0.0) * scene.held + there * reading.period
        scene.done = held_fraction(scene.held, self.hold_time)
        return False

    def remaining(self, at: Prospect) -> Number:
        """Return the way to the point."""
        x, y, z = self.waypoint(0.0, 0.0, at.time, at.breath)
        return abs(at.x - x) + abs(at.y - y) + abs(at.z - z)


LATERAL_TOLERANCE = constant('workspace.lateral_tolerance')


@dataclass(slots=True)
class Press(Task):
    """
    The depth that the target force needs depends on a stiffness that no policy sees.

    :param goal: planned contact point, m.
    :param rest: true height of the surface without breathing, m.
    :param depth: at which the target force acts, m.
    :param target_force: to hold, N.
    :param tolerance: of the force, N.
    :param hold_time: s.
    """

    goal: Point
    rest: Number
    depth: Number
    target_force: Number
    tolerance: Number
    hold_time: Number

    @classmethod
    def plan(cls, patient: Patient, tissue: Tissue) -> Self:
        """Return what is to be done with a patient."""
        procedure = patient.procedure
        target = patient.protocol * procedure.target_force
        return cls(
            patient.goal,
            tissue.rest,
            tissue.depth_for(target),
            target,
            procedure.tolerance,
            procedure.hold_time,
        )

    def waypoint(self, grasped: Number, done: Number, time: Number, breath: Number) -> Point:
        """Return the planned contact point."""
        return self.goal

    def progress(self, scene: Scene, reading: Reading) -> Number:
        """Count the time within the force band."""
        tip, goal = reading.tip, self.goal
        held = (
            (abs(reading.normal - self.target_force) <= self.tolerance)
            & (abs(tip[0] - goal[0]) <= LATERAL_TOLERANCE)
            & (abs(tip[1] - goal[1]) <= LATERAL_TOLERANCE)
        )
        scene.held = held * (scene.held + reading.period)
        scene.done = held_fraction(scene.held, self.hold_time)
        return False

    def remaining(self, at: Prospect) -> Number:
        """Return the way to the goal and to the depth at which the target force acts."""
        goal, surface = self.goal, self.rest + at.breath
        return abs(at.x - goal[0]) + abs(at.y - goal[1]) + abs(surface - at.z - self.depth)
