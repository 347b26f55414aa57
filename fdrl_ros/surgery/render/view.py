# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What a picture shows besides the arm: the organ, and the things of the procedure."""

from dataclasses import dataclass
import math

from fdrl_ros.surgery.arm.kinematics import Point
from fdrl_ros.surgery.constants import constant
from fdrl_ros.surgery.gym.operation import Operation
from fdrl_ros.surgery.tasks.procedures import TRAITS

_HEALTHY, _BRUISED = (0.72, 0.26, 0.22), (0.30, 0.05, 0.22)


@dataclass(frozen=True)
class View:
    """
    One moment, apart from the joints: numbers only, so that another thread may draw it.

    :param time: of the operation, s.
    :param surface: height of the untouched organ, m.
    :param damage: done to it, N s.
    :param radius: of what presses, m.
    :param waypoint: where the tip is to go, m.
    :param object: where the object of the procedure is, m.
    :param ring: the object is a ring, else a curved needle.
    :param pegs: tops of pegs that stand on the organ, m.
    :param cut: start and end of a line to cut, m.
    :param cut_done: fraction of it that is cut.
    :param arrow: start of an arrow and its way, m.
    """

    time: float = 0.0
    surface: float = constant('workspace.surface')
    damage: float = 0.0
    radius: float = 0.003
    waypoint: Point | None = None
    object: Point | None = None
    ring: bool = False
    pegs: tuple[Point, ...] = ()
    cut: tuple[Point, Point] | None = None
    cut_done: float = 0.0
    arrow: tuple[Point, Point] | None = None


def bruised(damage: float) -> float:
    """Return how bruised tissue looks, 0 to 1, by damage in N s."""
    return 1.0 - math.exp(-max(0.0, damage) / constant('endoscope.bruise'))


def tissue_colour(damage: float) -> tuple[float, float, float]:
    """Return red, green and blue of tissue, from healthy to bruised, by damage in N s."""
    share = bruised(damage)
    red, green, blue = (a + (b - a) * share for a, b in zip(_HEALTHY, _BRUISED, strict=True))
    return red, green, blue


def view_of(operation: Operation, *, guides: bool = True) -> View:
    """
    Return what is to be seen of an operation now.

    :param guides: with the waypoint, which is not in the patient.
    """
    patient, task, scene = operation.patient, operation.task, operation.scene
    traits = TRAITS[patient.procedure.name]
    return View(
        time=operation.time,
        surface=operation.tissue.surface(operation.time)[0],
        damage=operation.damage,
        radius=patient.procedure.contact_radius,
        waypoint=operation.waypoint if guides else None,
        object=scene.object,
        ring=traits.pegs,
        pegs=tuple((x, y, z) for x, y, z in task.peg_tops()),
        cut=(patient.goal, patient.destination) if traits.task == 'incision' else None,
        cut_done=scene.done,
    )
