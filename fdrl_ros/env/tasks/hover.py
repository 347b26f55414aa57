# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Reach and follow: stay at a point above the organ, which rests or moves."""

import math

from fdrl_ros.env.constants import constant
from fdrl_ros.env.tasks.task import (
    held_fraction,
    Number,
    Prospect,
    Reading,
    Scene,
    Task,
    within,
)
import numpy as np


def _cosine(angle: Number) -> Number:
    return math.cos(angle) if isinstance(angle, float) else np.cos(angle)


def _sine(angle: Number) -> Number:
    return math.sin(angle) if isinstance(angle, float) else np.sin(angle)


class Reach(Task):
    """Reach a point above the organ without touching it, and stay for a while."""

    height = constant('reach.height')
    reach_tolerance = constant('reach.position_tolerance')

    def waypoint(self, grasped: Number, done: Number, time: Number) -> tuple[Number, ...]:
        """Return the point."""
        x, y, z = self.goal
        return x, y, z + self.height

    def progress(self, scene: Scene, reading: Reading) -> Number:
        """Count the time at the point without a break."""
        scene.held = self._there(reading) * (scene.held + reading.period)
        scene.done = held_fraction(scene.held, self.procedure.hold_time)
        return False

    def remaining(self, at: Prospect) -> Number:
        """Return the way to the point."""
        x, y, z = self.waypoint(0.0, 0.0, at.time)
        return abs(at.x - x) + abs(at.y - y) + abs(at.z - z)

    def _there(self, reading: Reading) -> Number:
        """Say whether the tip is at the point."""
        point = self.waypoint(0.0, 0.0, reading.time)
        return within(reading.tip, point, self.reach_tolerance)


class Follow(Reach):
    """
    Follow a point that circles over the organ and rides on its breathing, as a heart's wall does.

    The time near it counts, with breaks.
    """

    height = constant('follow.height')
    reach_tolerance = constant('follow.position_tolerance')
    radius = constant('follow.radius')
    rate = 2.0 * math.pi / constant('follow.circle_time')

    def waypoint(self, grasped: Number, done: Number, time: Number) -> tuple[Number, ...]:
        """Return where the target is at a time."""
        x, y, z = self.goal
        angle = self.rate * time + self.patient.breathing_phase
        return (
            x + self.radius * _cosine(angle),
            y + self.radius * _sine(angle),
            z + self.height + self.breath(time),
        )

    def breath(self, time: Number) -> Number:
        """Return how far breathing has the surface above its rest, m; a stack has its own."""
        if isinstance(time, float):
            return self.tissue.breath(time)[0]
        heights = [self.tissue.breath(each)[0] for each in np.ravel(time).tolist()]
        return np.reshape(heights, np.shape(time))

    def progress(self, scene: Scene, reading: Reading) -> Number:
        """Add up the time near the target."""
        scene.held = scene.held + self._there(reading) * reading.period
        scene.done = held_fraction(scene.held, self.procedure.hold_time)
        return False
