# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
What every task has: a scene, a waypoint, a judgement once a tick, and a remaining cost in metres.

The remaining cost is a pure function of the state. Its fall is the reward's progress, and its
value one tick ahead is the expert's cost of an action: both from one formula, written so that it
takes numbers and arrays alike.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from fdrl_ros.surgery.patient.patient import Patient
from fdrl_ros.surgery.tissue.contact import Tissue
import numpy as np

Point = tuple[float, float, float]
Number = Any
"""A float, or an array of them."""

JAW_COST = 0.0025
"""What a wrong order to the jaw costs, metres: as much as one coarse move."""

OPEN, CLOSED = 0.8, 0.5
"""Opening from which a jaw counts as open, and below which it has closed on something."""


def excess(value: Number, most: Number) -> Number:
    """Return how far a value is above a bound, else 0."""
    over = value - most
    if isinstance(over, np.ndarray):
        return np.maximum(over, 0.0)
    return over if over > 0.0 else 0.0


@dataclass(slots=True)
class Scene:
    """
    What has become of the procedure so far.

    :param done: fraction of what is to be done.
    :param held: time within the tolerance, s.
    :param grasped: the jaw holds the object.
    :param jaw: opening of the jaw at the last judgement.
    :param object: where the object is, m; None without one, or where nobody asks.
    """

    done: float = 0.0
    held: float = 0.0
    grasped: bool = False
    jaw: float = 0.0
    object: Point | None = None


@dataclass(slots=True)
class Reading:
    """
    What a task judges: the end of one tick.

    :param tip: where it is, m.
    :param normal: force along the tissue's normal, N.
    :param jaw: opening as a fraction.
    :param time: since the start, s.
    :param period: length of the tick, s.
    """

    tip: Point
    normal: float
    jaw: float
    time: float
    period: float


class Prospect(NamedTuple):
    """
    What the remaining cost depends on.

    :param x: of the set-point, m, as y and z.
    :param surface: true height of the untouched surface when the arm has got there, m.
    :param time: when it will have got there: now and the arm's lag, s.
    :param jaw: opening, 0 to 1.
    :param jaw_target: what the jaw was told, 0 or 1.
    :param grasped: 1 if the object is held.
    :param done: fraction done.
    """

    x: Number
    y: Number
    z: Number
    surface: Number
    time: Number
    jaw: Number
    jaw_target: Number
    grasped: Number
    done: Number


class Task(ABC):
    """
    One procedure on one patient; it keeps nothing, all that changes is in the scene.

    :param patient: who it is.
    :param tissue: of the patient.
    """

    uses_jaw: ClassVar[bool] = False
    loss: ClassVar[str] = ''
    """How the procedure itself may be lost; see :meth:`progress`."""
    rigid: ClassVar[bool] = False
    """Whether rigid things resist a tip that holds the object; see :meth:`resistance`."""

    def __init__(self, patient: Patient, tissue: Tissue) -> None:
        self.patient = patient
        self.procedure = patient.procedure
        self.tissue = tissue
        self.goal = patient.goal
        self.lead = patient.servo_lag
        """How far ahead in time the set-point aims, s: what moves has moved when the arm comes."""

    @classmethod
    def law(cls) -> type['Task']:
        """Return the class whose formulas this one goes by: within it only numbers differ."""
        return cls

    def begin(self) -> Scene:
        """Return the scene at the start."""
        return Scene()

    @abstractmethod
    def waypoint(self, grasped: Number, done: Number, time: Number) -> tuple[Number, ...]:
        """Return where the plan has the tip go next, m: planned, so not with the true surface."""

    def judge(self, scene: Scene, reading: Reading) -> str:
        """Bring the scene up to date at the end of a tick; return a failure, or nothing."""
        return self.loss if self.progress(scene, reading) else ''

    @abstractmethod
    def progress(self, scene: Scene, reading: Reading) -> Number:
        """Bring the scene up to date; say whether the procedure is lost."""

    @abstractmethod
    def remaining(self, at: Prospect) -> Number:
        """
        Return the cost that is left, metres.

        :param at: where the set-point is, and what goes with it.
        """

    def resistance(self, grasped: Number, x: Number, y: Number, z: Number) -> tuple[Number, ...]:
        """Return the force of rigid things on the tip, N; none by default."""
        return ()


def held_fraction(held: Number, hold_time: Number) -> Number:
    """Return which part of a holding time is done."""
    fraction = held / hold_time
    whole = fraction > 1.0 - 1e-9
    if isinstance(whole, np.ndarray):
        return np.where(whole, 1.0, fraction)
    return 1.0 if whole else fraction


def within(tip: Sequence[Number], point: Sequence[Number], tolerance: Number) -> Number:
    """Say whether no axis of a tip is further from a point than a tolerance, m."""
    if isinstance(tip, np.ndarray):
        x, y, z = abs(tip - point) <= tolerance
        return x & y & z
    return (
        (abs(tip[0] - point[0]) <= tolerance)
        & (abs(tip[1] - point[1]) <= tolerance)
        & (abs(tip[2] - point[2]) <= tolerance)
    )
