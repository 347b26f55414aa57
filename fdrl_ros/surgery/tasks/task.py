# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
What every task has: a scene, a waypoint, a progress once a tick, and a remaining cost in metres.

A task holds the numbers of one patient, or arrays of many, and its methods are pure functions of
them; what changes is in the scene. The fall of the remaining cost is the reward's progress, and
its value one tick ahead is the expert's cost of an action.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Self

from fdrl_ros.surgery.patient.patient import Patient
from fdrl_ros.surgery.scalar_or_array import choose, Number, Point
from fdrl_ros.surgery.tissue.contact import Tissue

JAW_COST = 0.0025
"""What a wrong order to the jaw costs, metres: as much as one coarse move."""

OPEN, CLOSED = 0.8, 0.5
"""Opening from which a jaw counts as open, and below which it has closed on something."""


@dataclass(slots=True)
class Scene:
    """
    What has become of the procedure so far.

    :param done: fraction of what is to be done.
    :param held: time within the tolerance, s.
    :param grasped: the jaw holds the object.
    :param jaw: opening of the jaw at the last tick.
    :param object: where the object is, m; None without one, and of many patients.
    """

    done: Number = 0.0
    held: Number = 0.0
    grasped: Number = False
    jaw: Number = 0.0
    object: tuple[float, float, float] | None = None


class Reading(NamedTuple):
    """
    What a task judges: the end of one tick.

    :param tip: where it is, m.
    :param normal: force along the tissue's normal, N.
    :param jaw: opening as a fraction.
    :param time: since the start, s.
    :param breath: how far breathing has the surface above its rest, m.
    :param period: length of the tick, s.
    """

    tip: Point
    normal: Number
    jaw: Number
    time: Number
    breath: Number
    period: float


class Prospect(NamedTuple):
    """
    What the remaining cost depends on.

    :param x: of the set-point, m, as y and z.
    :param breath: how far breathing has the surface above its rest at the time, m.
    :param time: when the arm will have got to the set-point: now and its lag, s.
    :param jaw: opening, 0 to 1.
    :param jaw_target: what the jaw was told, 0 or 1.
    :param grasped: 1 if the object is held.
    :param done: fraction done.
    """

    x: Number
    y: Number
    z: Number
    breath: Number
    time: Number
    jaw: Number
    jaw_target: Number
    grasped: Number
    done: Number


class Task(ABC):
    """One procedure on one patient, or on many; a dataclass of their numbers."""

    uses_jaw: ClassVar[bool] = False
    watches_surface: ClassVar[bool] = False
    """Whether waypoint or progress depend on breathing; else anything may be given for it."""
    loss: ClassVar[str] = ''
    """How the procedure itself may be lost; see :meth:`progress`."""

    @classmethod
    @abstractmethod
    def plan(cls, patient: Patient, tissue: Tissue) -> Self:
        """Return what is to be done with a patient."""

    def begin(self) -> Scene:
        """Return the scene at the start."""
        return Scene()

    @abstractmethod
    def waypoint(self, grasped: Number, done: Number, time: Number, breath: Number) -> Point:
        """
        Return where the plan has the tip go next, m.

        It is computed from the planned surface; the true one is unknown.

        :param breath: how far breathing has the surface above its rest at the time, m.
        """

    @abstractmethod
    def progress(self, scene: Scene, reading: Reading) -> Number:
        """Bring the scene up to date at the end of a tick; return whether the task is lost."""

    @abstractmethod
    def remaining(self, at: Prospect) -> Number:
        """Return the cost that is left, metres."""

    def peg_tops(self) -> tuple[Point, ...]:
        """Return the tops of the pegs of one patient, m."""
        return ()

    @property
    def resists(self) -> bool:
        """Return whether rigid things resist a tip that holds the object."""
        return False

    def resistance(
        self, grasped: Number, x: Number, y: Number, z: Number
    ) -> tuple[Number, Number]:
        """Return the force of rigid things on the tip along x and y, N."""
        return 0.0, 0.0


def held_fraction(held: Number, hold_time: Number) -> Number:
    """Return which part of a holding time is done."""
    fraction = held / hold_time
    return choose(fraction > 1.0 - 1e-9, 1.0, fraction)


def within(tip: Point, point: Point, tolerance: Number) -> Number:
    """Return whether no axis of a tip is further from a point than a tolerance, m."""
    return (
        (abs(tip[0] - point[0]) <= tolerance)
        & (abs(tip[1] - point[1]) <= tolerance)
        & (abs(tip[2] - point[2]) <= tolerance)
    )
