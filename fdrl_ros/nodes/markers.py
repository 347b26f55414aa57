# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What RViz shows of an operation besides the arm: tissue, trocar, goal, force, vital signs."""

from collections.abc import Sequence
from typing import Any

from fdrl_ros.env.operation import Operation
from fdrl_ros.nodes.robot_messages import BASE, point
from std_msgs.msg import ColorRGBA
from visualization_msgs.msg import Marker, MarkerArray

NOTICE = 'simulated, not for clinical use'
"""Stands in every picture."""

FORCE_LENGTH = 0.01
"""Length of the arrow, metre for a newton."""

TISSUE, TROCAR, GOAL, FORCE, VITALS = range(5)


def _marker(
    number: int, kind: int, size: Sequence[float], color: tuple[float, float, float, float]
) -> Marker:
    marker = Marker(ns='operation', id=number, type=kind, action=Marker.ADD)
    marker.header.frame_id = BASE
    marker.pose.orientation.w = 1.0
    marker.scale.x, marker.scale.y, marker.scale.z = (float(each) for each in size)
    red, green, blue, alpha = color
    marker.color = ColorRGBA(r=red, g=green, b=blue, a=alpha)
    return marker


def operation_markers(stamp: Any, operation: Operation) -> MarkerArray:
    """Draw an operation as it is now."""
    patient, force = operation.patient, operation.force[2]
    height, _ = operation.tissue.surface(operation.time)
    x, y, z = patient.goal
    strain = min(force / patient.procedure.force_limit, 1.0)
    tissue = _marker(
        TISSUE, Marker.CYLINDER, (0.1, 0.1, patient.thickness), (0.7, 0.2 * (1 - strain), 0.2, 0.8)
    )
    tissue.pose.position = point((x, y, height - patient.thickness / 2))
    trocar = _marker(TROCAR, Marker.SPHERE, (0.012, 0.012, 0.012), (0.2, 0.4, 0.9, 1.0))
    goal = _marker(GOAL, Marker.SPHERE, (0.006, 0.006, 0.006), (0.1, 0.9, 0.2, 0.9))
    goal.pose.position = point((x, y, z))
    arrow = _marker(FORCE, Marker.ARROW, (0.002, 0.004, 0.006), (1.0, 1.0 - strain, 0.0, 1.0))
    tip = operation.arm.position
    arrow.points = [point(tip), point((tip[0], tip[1], tip[2] + FORCE_LENGTH * force))]
    vitals = _marker(VITALS, Marker.TEXT_VIEW_FACING, (0.0, 0.0, 0.012), (1.0, 1.0, 1.0, 1.0))
    vitals.pose.position = point((x, y + 0.1, z + 0.08))
    pressure, rate, oxygen, breaths = operation.physiology.values()
    vitals.text = (
        f'{NOTICE}\n{patient.name}: {patient.procedure.name}, {force:.2f} N\n'
        f'MAP {pressure:.0f} mmHg  HR {rate:.0f}/min  SpO2 {oxygen:.0f} %  RR {breaths:.0f}/min'
    )
    array = MarkerArray(markers=[tissue, trocar, goal, arrow, vitals])
    for marker in array.markers:
        marker.header.stamp = stamp
    return array
