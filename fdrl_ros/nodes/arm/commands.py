# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""CRTK's motion commands as topics: which the arm obeys, which it refuses and why."""

from collections.abc import Callable, Sequence
from typing import Any, Final

from fdrl_ros.nodes.common import qos
from fdrl_ros.surgery.arm.controller import ArmControl
from fdrl_ros.surgery.arm.mount import Mount
from geometry_msgs.msg import PoseStamped, TwistStamped, WrenchStamped
from rclpy.qos import QoSProfile
from sensor_msgs.msg import JointState
from std_msgs.msg import Empty

Read = Callable[[Any, Mount], tuple[Sequence[Any], Sequence[float]]]
"""Takes the two arguments of a command, in base_link, out of its message."""


def _pose(command: PoseStamped, mount: Mount) -> tuple[Sequence[float], Sequence[float]]:
    at, turned = command.pose.position, command.pose.orientation
    return mount.pose_in_base_link(
        command.header.frame_id, (at.x, at.y, at.z), (turned.x, turned.y, turned.z, turned.w)
    )


def _twist(command: TwistStamped, mount: Mount) -> tuple[Sequence[float], Sequence[float]]:
    linear, angular = command.twist.linear, command.twist.angular
    return mount.twist_in_base_link(
        command.header.frame_id,
        (linear.x, linear.y, linear.z),
        (angular.x, angular.y, angular.z),
    )


def _positions(command: JointState, mount: Mount) -> tuple[Sequence[str], Sequence[float]]:
    return command.name, command.position.tolist()


def _speeds(command: JointState, mount: Mount) -> tuple[Sequence[str], Sequence[float]]:
    return command.name, command.velocity.tolist()


OBEYED: Final[dict[str, tuple[type[Any], Read, Callable[..., None], QoSProfile]]] = {
    'servo_cp': (PoseStamped, _pose, ArmControl.servo_cp, qos.SENSOR),
    'servo_cv': (TwistStamped, _twist, ArmControl.servo_cv, qos.SENSOR),
    'servo_jp': (JointState, _positions, ArmControl.servo_jp, qos.SENSOR),
    'servo_jr': (JointState, _positions, ArmControl.servo_jr, qos.EVENT),
    'servo_jv': (JointState, _speeds, ArmControl.servo_jv, qos.SENSOR),
    'move_cp': (PoseStamped, _pose, ArmControl.move_cp, qos.EVENT),
    'move_jp': (JointState, _positions, ArmControl.move_jp, qos.EVENT),
    'move_jr': (JointState, _positions, ArmControl.move_jr, qos.EVENT),
    'jaw/servo_jp': (JointState, _positions, ArmControl.servo_jaw, qos.SENSOR),
    'jaw/move_jp': (JointState, _positions, ArmControl.move_jaw, qos.EVENT),
}
"""Topic -> its type, how it is read, what obeys it, and how the arm listens. Of servo commands the
newest counts; of relative ones each does."""

FORCES: Final = 'the simulated arm follows positions and has no force control'

REFUSED: Final[dict[str, tuple[type[Any], str]]] = {
    'servo_cf': (WrenchStamped, FORCES),
    'body/servo_cf': (WrenchStamped, FORCES),
    'spatial/servo_cf': (WrenchStamped, FORCES),
    'servo_jf': (JointState, FORCES),
    'jaw/servo_jf': (JointState, FORCES),
    'free': (Empty, f'{FORCES}, so that nobody can lead it by hand'),
}
"""Topic -> its type, and why the arm holds instead of obeying."""
