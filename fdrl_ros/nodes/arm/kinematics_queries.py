# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""CRTK's questions about the arm's kinematics, answered whatever the arm does."""

from typing import Any

from fdrl_ros.errors import StateError
from fdrl_ros.nodes.arm.robot_messages import (
    point,
    quaternion,
    QueryForwardKinematics,
    QueryInverseKinematics,
)
from fdrl_ros.nodes.common.managed_node import ManagedNode
from fdrl_ros.surgery.arm.controller import pose_command
from fdrl_ros.surgery.arm.kinematics import checked_joints, forward_kinematics, inverse_kinematics
from geometry_msgs.msg import Pose


def answer_kinematics(node: ManagedNode) -> None:
    """Serve both queries while the node is active."""
    node.answer(QueryForwardKinematics, 'forward_kinematics', _forward)
    node.answer(QueryInverseKinematics, 'inverse_kinematics', _inverse)


def _forward(request: Any, response: Any) -> None:
    """Return the pose of the tip for six joints (rad, m) in the base frame."""
    try:
        position, rotation = forward_kinematics(checked_joints(request.jp))
    except StateError as error:
        response.message = str(error)
        return
    response.cp = Pose(position=point(position.tolist()), orientation=quaternion(rotation))
    response.result = True


def _inverse(request: Any, response: Any) -> None:
    """Return the joints of a pose; those given tell which of the rolls a turn apart is meant."""
    try:
        roll = checked_joints(request.jp)[3] if len(request.jp) else 0.0
        at, turned = request.cp.position, request.cp.orientation
        position, rotation = pose_command(
            (at.x, at.y, at.z), (turned.x, turned.y, turned.z, turned.w)
        )
        response.jp = inverse_kinematics(position, rotation, roll).tolist()
    except StateError as error:
        response.message = str(error)
        return
    response.result = True
