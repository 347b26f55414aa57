# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Palpation and retraction: press on the goal with a force and hold it without a break."""

from fdrl_ros.surgery.constants import constant
from fdrl_ros.surgery.patient.patient import Patient
from fdrl_ros.surgery.tasks.task import held_fraction, Number, Prospect, Reading, Scene, Task
from fdrl_ros.surgery.tissue.contact import Tissue

LATERAL_TOLERANCE = constant('workspace.lateral_tolerance')


class Press(Task):
    """The depth that the target force needs depends on a stiffness that no policy sees."""

    def __init__(self, patient: Patient, tissue: Tissue) -> None:
        super().__init__(patient, tissue)
        self.depth = tissue.depth_for(patient.procedure.target_force)

    def waypoint(self, grasped: Number, done: Number, time: Number) -> tuple[Number, ...]:
        """Return the planned contact point."""
        return self.goal

    def progress(self, scene: Scene, reading: Reading) -> Number:
        """Count the time within the force band."""
        procedure, tip, goal = self.procedure, reading.tip, self.goal
        held = (
            (abs(reading.normal - procedure.target_force) <= procedure.tolerance)
            & (abs(tip[0] - goal[0]) <= LATERAL_TOLERANCE)
            & (abs(tip[1] - goal[1]) <= LATERAL_TOLERANCE)
        )
        scene.held = held * (scene.held + reading.period)
        scene.done = held_fraction(scene.held, procedure.hold_time)
        return False

    def remaining(self, at: Prospect) -> Number:
        """Return the way to the goal and to the depth at which the target force acts."""
        goal = self.goal
        return abs(at.x - goal[0]) + abs(at.y - goal[1]) + abs(at.surface - at.z - self.depth)
