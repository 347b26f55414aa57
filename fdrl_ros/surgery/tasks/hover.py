# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Reach and follow: stay at a point above the organ, which rests or moves."""

import math

from fdrl_ros.surgery.constants import constant
from fdrl_ros.surgery.patient.patient import Patient
from fdrl_ros.surgery.tasks.task import (
    held_fraction,
    Number,
    Prospect,
    Reading,
    Scene,
    Task,
    within,
)
from fdrl_ros.surgery.tissue.contact import Tissue
import numpy as np


def _cosine(angle: Number) -> Number:
    return math.cos(angle) if isinstance(angle, float) else np.cos(angle)


def _sine(angle: Number) -> Number:
    return math.sin(angle) if isinstance(angle, float) else np.sin(angle)


class Hover(Task):
    """
    Stay near a point above the organ, which may circle and ride on its breathing.

    :param name: of the procedure.
    :param radius: of the circle, m; 0 for a point that rests.
    :param rides: 1 if the point rises and falls with the organ, else 0.
    :param breaks: 1 if the time near it adds up with breaks, 0 if a break starts it again.
    """

    rate = 2.0 * math.pi / constant('follow.circle_time')

    def __init__(
        self,
        patient: Patient,
        tissue: Tissue,
        name: str,
        radius: float,
        rides: float,
        breaks: float,
    ) -> None:
        super().__init__(patient, tissue)
        self.height = constant(f'{name}.height')
        self.tolerance = constant(f'{name}.position_tolerance')
        self.radius, self.rides, self.breaks = radius, rides, breaks

    @classmethod
    def law(cls) -> type[Task]:
        """Return this class: resting and moving points differ in numbers only."""
        return Hover

    def waypoint(self, grasped: Number, done: Number, time: Number) -> tuple[Number, ...]:
        """Return where the point is at a time."""
        x, y, z = self.goal
        angle = self.rate * time + self.patient.breathing_phase
        return (
            x + self.radius * _cosine(angle),
            y + self.radius * _sine(angle),
            z + self.height + self.rides * self.breath(time),
        )

    def breath(self, time: Number) -> Number:
        """Return how far breathing has the surface above its rest, m; a stack has its own."""
        if isinstance(time, float):
            return self.tissue.breath(time)[0]
        heights = [self.tissue.breath(each)[0] for each in np.ravel(time).tolist()]
        return np.reshape(heights, np.shape(time))

    def progress(self, scene: Scene, reading: Reading) -> Number:
        """Count the time near the point."""
        x, y, z = self.waypoint(0.0, 0.0, reading.time)
        tip_x, tip_y, tip_z = reading.tip
        there = within((tip_x, tip_y, tip_z), (x, y, z), self.tolerance)
        scene.held = (there + self.breaks > 0.0) * scene.held + there * reading.period
        scene.done = held_fraction(scene.held, self.procedure.hold_time)
        return False

    def remaining(self, at: Prospect) -> Number:
        """Return the way to the point."""
        x, y, z = self.waypoint(0.0, 0.0, at.time)
        return abs(at.x - x) + abs(at.y - y) + abs(at.z - z)


class Reach(Hover):
    """Reach a point above the organ without touching it, and stay for a while."""

    def __init__(self, patient: Patient, tissue: Tissue) -> None:
        super().__init__(patient, tissue, 'reach', 0.0, 0.0, 0.0)


class Follow(Hover):
    """
    Follow a point that circles over the organ and rides on its breathing, as a heart's wall does.

    The time near it counts, with breaks.
    """

    def __init__(self, patient: Patient, tissue: Tissue) -> None:
        super().__init__(patient, tissue, 'follow', constant('follow.radius'), 1.0, 1.0)
