# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Palpation and retraction: press on the goal with a force and hold it without a break."""

from dataclasses import dataclass
from typing import Self

from fdrl_ros.surgery.constants import constant
from fdrl_ros.surgery.patient.patient import Patient
from fdrl_ros.surgery.scalar_or_array import Number, Point
from fdrl_ros.surgery.tasks.task import held_fraction, Prospect, Reading, Scene, Task
from fdrl_ros.surgery.tissue.contact import Tissue

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
        return cls(
            patient.goal,
            tissue.rest,
            tissue.depth_for(procedure.target_force),
            procedure.target_force,
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
