# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Poses, set-points and states as ROS messages and back: metres, newtons, one base frame."""

from collections.abc import Sequence
import math
from typing import Any

from builtin_interfaces.msg import Time
import fdrl_ros.msg as ros
from fdrl_ros.nodes.common.foreign_messages import definitions
from fdrl_ros.surgery.arm.controller import straight_quaternion, UNIT_TOLERANCE
from fdrl_ros.surgery.arm.mount import Mount
from fdrl_ros.surgery.arm.readings import BASE
from fdrl_ros.surgery.arm.rotations import to_quaternion
from fdrl_ros.surgery.gym.operation import Operation
from fdrl_ros.surgery.gym.state import (
    Field,
    OPERATION_FIELDS,
    OPERATION_LAYOUT,
    OPERATION_SIZE,
    PATIENT_FIELDS,
    PATIENT_LAYOUT,
)
from geometry_msgs.msg import Point, Pose, PoseStamped, Quaternion
import numpy as np
from rclpy.node import Node
from sensor_msgs.msg import JointState
from std_msgs.msg import Header

_CRTK = definitions('crtk_msgs', 'OperatingState')
OperatingState = _CRTK.msg.OperatingState
StringStamped = _CRTK.msg.StringStamped
QueryForwardKinematics = _CRTK.srv.QueryForwardKinematics
QueryInverseKinematics = _CRTK.srv.QueryInverseKinematics


def warn_without_crtk(node: Node, *names: str) -> None:
    """Say which topics and services other CRTK nodes do not understand, if there are any."""
    if _CRTK.own:
        node.get_logger().warning(
            f'built without crtk_msgs: {", ".join(names)} have types of fdrl_ros, which nodes of '
            'others do not understand'
        )


def quaternion(rotation: np.ndarray) -> Quaternion:
    """
    Turn a rotation matrix into a quaternion.

    :param rotation: shape (3, 3).
    """
    x, y, z, w = to_quaternion(rotation)
    return Quaternion(x=x, y=y, z=z, w=w)


def point(position: Sequence[float]) -> Point:
    """Turn three metres into a point."""
    x, y, z = position
    return Point(x=float(x), y=float(y), z=float(z))


def header(stamp: Time, frame: str = BASE) -> Header:
    """Make the header of what was measured in a frame."""
    return Header(stamp=stamp, frame_id=frame)


def with_frames(message: Any, mount: Mount) -> Any:
    """Put the arm's own names of frames into a message with a header, and return it."""
    message.header.frame_id = mount.frame(message.header.frame_id)
    return message


def pose(stamp: Time, position: Sequence[float], orientation: Quaternion) -> PoseStamped:
    """Make a pose in the base frame."""
    made = Pose(position=point(position), orientation=orientation)
    return PoseStamped(header=header(stamp), pose=made)


def set_point(stamp: Time, position: Sequence[float], frame: str = BASE) -> PoseStamped:
    """
    Make the command servo_cp for a tool that is straight: it points along the shaft.

    :param position: m; whether the arm reaches it is for the arm to say.
    :param frame: what the arm calls its base.
    """
    x, y, z, w = straight_quaternion(position)
    made = pose(stamp, position, Quaternion(x=x, y=y, z=z, w=w))
    made.header.frame_id = frame
    return made


def bent_by(position: Sequence[float], turned: Quaternion) -> float:
    """Return the angle between a tool and a straight one at a point (m), rad; infinite of none."""
    x, y, z, w = straight_quaternion(position)
    length = math.hypot(turned.x, turned.y, turned.z, turned.w)
    if not abs(length - 1.0) <= UNIT_TOLERANCE:
        return math.inf
    dot = abs(x * turned.x + y * turned.y + z * turned.z + w * turned.w) / length
    return 2.0 * math.acos(min(dot, 1.0))


def joint_state(
    stamp: Time, names: Sequence[str], positions: Sequence[float], speeds: Sequence[float] = ()
) -> JointState:
    """Make a joint state; without speeds it tells none."""
    return JointState(
        header=header(stamp), name=list(names), position=list(positions), velocity=list(speeds)
    )


def states(stamp: Time, operation: Operation) -> tuple[ros.OperationState, ros.PatientState]:
    """Return the two halves of the state."""
    values, patient = operation.values(), operation.patient
    first = ros.OperationState(
        procedure=patient.procedure.name,
        patient=patient.name,
        layout=OPERATION_LAYOUT,
        values=values[:OPERATION_SIZE],
    )
    second = ros.PatientState(
        patient=patient.name,
        layout=PATIENT_LAYOUT,
        values=values[OPERATION_SIZE:],
    )
    first.header.stamp = second.header.stamp = stamp
    return first, second


def state_fields(stamp: Time) -> tuple[ros.StateFields, ros.StateFields]:
    """Return the fields that :func:`states` are of."""
    operation = _fields(stamp, OPERATION_LAYOUT, OPERATION_FIELDS)
    return operation, _fields(stamp, PATIENT_LAYOUT, PATIENT_FIELDS)


def _fields(stamp: Time, layout: str, fields: Sequence[Field]) -> ros.StateFields:
    told = ros.StateFields(
        layout=layout,
        names=[each.name for each in fields],
        units=[each.unit for each in fields],
        scales=[each.scale for each in fields],
    )
    told.header.stamp = stamp
    return told


def stamp(nanoseconds: int) -> Time:
    """Turn nanoseconds into a time stamp."""
    sec, nanosec = divmod(nanoseconds, 1_000_000_000)
    return Time(sec=sec, nanosec=nanosec)


def seconds(stamp: Time) -> float:
    """Turn a time stamp into seconds."""
    return float(stamp.sec) + 1e-9 * float(stamp.nanosec)
