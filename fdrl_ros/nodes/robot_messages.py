# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What a robot measures and sees as ROS messages: CRTK names and forms, metres and newtons."""

from collections.abc import Sequence
import math
from typing import Any

from fdrl_ros.env.arm import forward_kinematics, JAW, JOINTS
from fdrl_ros.env.operation import Operation
from fdrl_ros.env.state import OPERATION_FIELDS, OPERATION_SIZE, PATIENT_FIELDS
import fdrl_ros.msg as ros
from fdrl_ros.selector import Observation
from geometry_msgs.msg import Point, PoseStamped, Quaternion, Vector3, WrenchStamped
import numpy as np
from sensor_msgs.msg import JointState

BASE = 'base_link'
"""Frame of all positions: origin in the trocar, z up."""

_OPERATION_NAMES = [each.name for each in OPERATION_FIELDS]
_OPERATION_SCALES = [each.scale for each in OPERATION_FIELDS]
_PATIENT_NAMES = [each.name for each in PATIENT_FIELDS]
_PATIENT_SCALES = [each.scale for each in PATIENT_FIELDS]


def quaternion(rotation: np.ndarray) -> Quaternion:
    """
    Turn a rotation matrix into a quaternion, by its largest component.

    :param rotation: shape (3, 3).
    """
    (a, b, c), (d, e, f), (g, h, i) = rotation.tolist()
    squares = (1 + a + e + i, 1 + a - e - i, 1 - a + e - i, 1 - a - e + i)
    largest = max(range(4), key=squares.__getitem__)
    root = 2.0 * math.sqrt(squares[largest])
    w, x, y, z = (
        (root * root / 4, h - f, c - g, d - b),
        (h - f, root * root / 4, d + b, c + g),
        (c - g, d + b, root * root / 4, h + f),
        (d - b, c + g, h + f, root * root / 4),
    )[largest]
    return Quaternion(w=w / root, x=x / root, y=y / root, z=z / root)


def point(position: Sequence[float]) -> Point:
    """Turn three metres into a point."""
    x, y, z = position
    return Point(x=float(x), y=float(y), z=float(z))


def pose(stamp: Any, position: Sequence[float], orientation: Quaternion) -> PoseStamped:
    """Make a pose in the base frame."""
    made = PoseStamped()
    made.header.stamp, made.header.frame_id = stamp, BASE
    made.pose.position, made.pose.orientation = point(position), orientation
    return made


def set_point(stamp: Any, position: Sequence[float]) -> PoseStamped:
    """Make the command servo_cp; the wrist stays straight, so the orientation says nothing."""
    return pose(stamp, position, Quaternion(w=1.0, x=0.0, y=0.0, z=0.0))


def measured(stamp: Any, operation: Operation) -> dict[str, Any]:
    """Return what CRTK calls measured and setpoint, by topic."""
    joints = operation.arm.joints()
    _, rotation = forward_kinematics(joints)
    orientation = quaternion(rotation)
    arm = JointState(name=list(JOINTS), position=joints.tolist())
    jaw = JointState(name=[JAW], position=[0.0])
    both = JointState(name=[*JOINTS, JAW], position=[*joints.tolist(), 0.0])
    for each in (arm, jaw, both):
        each.header.stamp = stamp
    force = WrenchStamped()
    force.header.stamp, force.header.frame_id = stamp, BASE
    x, y, z = operation.force
    force.wrench.force = Vector3(x=x, y=y, z=z)
    return {
        'measured_js': arm,
        'jaw/measured_js': jaw,
        'joint_states': both,
        'measured_cp': pose(stamp, operation.arm.position, orientation),
        'setpoint_cp': pose(stamp, operation.target, orientation),
        'body/measured_cf': force,
    }


def states(stamp: Any, operation: Operation) -> tuple[Any, Any]:
    """Return the two halves of the state."""
    values, patient = operation.values(), operation.patient
    first = ros.OperationState(
        procedure=patient.procedure.name,
        patient=patient.name,
        names=_OPERATION_NAMES,
        values=values[:OPERATION_SIZE],
        scales=_OPERATION_SCALES,
    )
    second = ros.PatientState(
        patient=patient.name,
        names=_PATIENT_NAMES,
        values=values[OPERATION_SIZE:],
        scales=_PATIENT_SCALES,
    )
    first.header.stamp = second.header.stamp = stamp
    return first, second


def observation(source: Any, received: float) -> Observation:
    """
    Read one half of the state.

    :param received: second of the steady clock.
    """
    return Observation(
        patient=source.patient,
        names=tuple(source.names),
        values=np.array(source.values),
        scales=np.array(source.scales),
        received=received,
        procedure=getattr(source, 'procedure', ''),
    )


def seconds(stamp: Any) -> float:
    """Turn a time stamp into seconds."""
    return float(stamp.sec) + 1e-9 * float(stamp.nanosec)
