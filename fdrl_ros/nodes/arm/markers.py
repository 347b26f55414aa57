# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What RViz shows of an operation besides the arm: tissue, trocar, goal, object, force, vitals."""

from collections.abc import Sequence

from builtin_interfaces.msg import Time
from fdrl_ros.nodes.arm.robot_messages import point
from fdrl_ros.surgery.arm.readings import BASE
from fdrl_ros.surgery.gym.operation import Operation
from fdrl_ros.surgery.render.view import tissue_colour
from std_msgs.msg import ColorRGBA
from visualization_msgs.msg import Marker, MarkerArray

NOTICE = 'simulated, not for clinical use'
"""Stands in every picture."""

FORCE_LENGTH = 0.01
"""Length of the arrow, metre for a newton."""

NAMESPACE = 'operation'

TISSUE, TROCAR, GOAL, WAYPOINT, OBJECT, DESTINATION, FORCE, VITALS = range(8)

Color = tuple[float, float, float, float]


def _marker(number: int, kind: int, size: Sequence[float], color: Color) -> Marker:
    marker = Marker(ns=NAMESPACE, id=number, type=kind, action=Marker.ADD)
    marker.header.frame_id = BASE
    marker.pose.orientation.w = 1.0
    marker.scale.x, marker.scale.y, marker.scale.z = (float(each) for each in size)
    red, green, blue, alpha = color
    marker.color = ColorRGBA(r=red, g=green, b=blue, a=alpha)
    return marker


def _ball(number: int, size: float, color: Color, position: Sequence[float] | None) -> Marker:
    """Return a ball, or what takes it away."""
    marker = _marker(number, Marker.SPHERE, (size, size, size), color)
    if position is None:
        marker.action = Marker.DELETE
    else:
        marker.pose.position = point(position)
    return marker


def vitals_text(operation: Operation) -> str:
    """Return what the monitors say, with the notice."""
    patient, body = operation.patient, operation.physiology
    pressure, rate, oxygen, breaths = body.values()
    news2, sofa = body.scores()
    return (
        f'{NOTICE}\n{patient.name}: {patient.procedure.name}, {operation.load:.2f} N, '
        f'{100.0 * operation.scene.done:.0f} % done\n'
        f'MAP {pressure:.0f} mmHg  HR {rate:.0f}/min  SpO2 {oxygen:.0f} %  RR {breaths:.0f}/min\n'
        f'NEWS2 {news2}  SOFA {sofa}'
    )


def operation_markers(stamp: Time, operation: Operation, under_way: bool) -> MarkerArray:
    """
    Draw an operation as it is now.

    :param under_way: once it is over the arm moves freely, and there is no force to draw.
    """
    patient = operation.patient
    height, _ = operation.tissue.surface(operation.time)
    x, y, z = patient.goal
    strain = min(operation.load / patient.procedure.force_limit, 1.0)
    tissue = _marker(
        TISSUE,
        Marker.CYLINDER,
        (0.1, 0.1, patient.thickness),
        (*tissue_colour(operation.damage), 0.85),
    )
    tissue.pose.position = point((x, y, height - patient.thickness / 2))
    arrow = _marker(FORCE, Marker.ARROW, (0.002, 0.004, 0.006), (1.0, 1.0 - strain, 0.0, 1.0))
    tip = operation.arm.position
    end = [a + FORCE_LENGTH * b for a, b in zip(tip, operation.force, strict=True)]
    arrow.points = [point(tip), point(end)]
    arrow.action = Marker.ADD if under_way else Marker.DELETE
    vitals = _marker(VITALS, Marker.TEXT_VIEW_FACING, (0.0, 0.0, 0.012), (1.0, 1.0, 1.0, 1.0))
    vitals.pose.position = point((x, y + 0.1, z + 0.08))
    vitals.text = vitals_text(operation)
    goes = patient.destination if patient.destination != patient.goal else None
    array = MarkerArray(
        markers=[
            tissue,
            _ball(TROCAR, 0.012, (0.2, 0.4, 0.9, 1.0), (0.0, 0.0, 0.0)),
            _ball(GOAL, 0.006, (0.1, 0.9, 0.2, 0.9), patient.goal),
            _ball(WAYPOINT, 0.004, (0.2, 0.9, 0.9, 0.9), operation.waypoint),
            _ball(OBJECT, 0.005, (0.95, 0.75, 0.1, 1.0), operation.scene.object),
            _ball(DESTINATION, 0.005, (0.9, 0.3, 0.9, 0.7), goes),
            arrow,
            vitals,
        ]
    )
    for marker in array.markers:
        marker.header.stamp = stamp
    return array
