# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What the simulated arm measures, as CRTK's topics: one snapshot, one message for each topic."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from fdrl_ros.env.actions import SUBSTEP
from fdrl_ros.env.arm import JAW, JOINTS, Vector
from fdrl_ros.env.operation import Operation
from fdrl_ros.env.readings import BASE, read, Readings, TIP
from fdrl_ros.env.rotation import rotation_vector
from fdrl_ros.nodes.robot_messages import joint_state, pose, quaternion
from geometry_msgs.msg import PoseStamped, TwistStamped, Vector3, WrenchStamped
import numpy as np
from sensor_msgs.msg import JointState


@dataclass(frozen=True, kw_only=True)
class Snapshot(Readings):
    """
    The arm at one moment, and how fast it is.

    :param stamp: of the node's clock.
    :param joint_speeds: shape (6,), rad/s and m/s.
    :param velocity: of the tip, shape (3,), m/s.
    :param turning: of the tool, shape (3,), rad/s.
    :param jaw_speed: rad/s.
    """

    stamp: Any
    joint_speeds: Vector
    velocity: Vector
    turning: Vector
    jaw_speed: float


class ArmReadings:
    """
    Takes snapshots; speeds of joints are differences over the operation's time between two.

    The force sensor errs along z, in which tissue presses: one error for all that tell of force.
    """

    def __init__(self, operation: Operation) -> None:
        self._operation = operation
        self._before: Snapshot | None = None
        self._substeps = -1

    def reset(self) -> None:
        """Forget the snapshot before: the arm was placed anew."""
        self._before, self._substeps = None, -1

    def take(self, stamp: Any) -> Snapshot:
        """Read the arm."""
        operation = self._operation
        now, before = read(operation), self._before
        speeds, turning, jaw_speed = np.zeros(6), np.zeros(3), 0.0
        velocity = np.zeros(3)
        if before is not None and operation.substeps > self._substeps:
            time = (operation.substeps - self._substeps) * SUBSTEP
            speeds = (now.joints - before.joints) / time
            turning = rotation_vector(now.rotation @ before.rotation.T) / time
            jaw_speed = (now.jaw - before.jaw) / time
            velocity = np.array(operation.arm.velocity)
        self._substeps = operation.substeps
        self._before = Snapshot(
            **vars(now),
            stamp=stamp,
            joint_speeds=speeds,
            velocity=velocity,
            turning=turning,
            jaw_speed=jaw_speed,
        )
        return self._before


def _headed(message: Any, stamp: Any, frame: str) -> Any:
    message.header.stamp, message.header.frame_id = stamp, frame
    return message


def _vector(values: Vector) -> Vector3:
    x, y, z = values.tolist()
    return Vector3(x=x, y=y, z=z)


def _measured_js(now: Snapshot) -> JointState:
    made = joint_state(now.stamp, JOINTS, now.joints.tolist())
    made.velocity = now.joint_speeds.tolist()
    return made


def _joint_states(now: Snapshot) -> JointState:
    return joint_state(now.stamp, (*JOINTS, JAW), [*now.joints.tolist(), now.jaw])


def _jaw_measured_js(now: Snapshot) -> JointState:
    made = joint_state(now.stamp, (JAW,), (now.jaw,))
    made.velocity = [now.jaw_speed]
    return made


def _measured_cp(now: Snapshot) -> PoseStamped:
    return pose(now.stamp, now.position.tolist(), quaternion(now.rotation))


def _setpoint_cp(now: Snapshot) -> PoseStamped:
    position, rotation = now.setpoint_pose()
    return pose(now.stamp, position.tolist(), quaternion(rotation))


def _measured_cv(now: Snapshot) -> TwistStamped:
    made = _headed(TwistStamped(), now.stamp, BASE)
    made.twist.linear, made.twist.angular = _vector(now.velocity), _vector(now.turning)
    return made


def _body_force(now: Snapshot) -> WrenchStamped:
    """Return the force at the tip, in the tool's own axes."""
    made = _headed(WrenchStamped(), now.stamp, TIP)
    made.wrench.force = _vector(now.body_force())
    return made


def _spatial_force(now: Snapshot) -> WrenchStamped:
    """Return the same wrench in the axes and about the origin of the base."""
    made = _headed(WrenchStamped(), now.stamp, BASE)
    made.wrench.force = _vector(now.force)
    made.wrench.torque = _vector(now.spatial_torque())
    return made


READINGS: Final[dict[str, tuple[type[Any], Callable[[Snapshot], Any]]]] = {
    'measured_js': (JointState, _measured_js),
    'setpoint_js': (JointState, lambda now: joint_state(now.stamp, JOINTS, now.setpoint.tolist())),
    'measured_cp': (PoseStamped, _measured_cp),
    'local/measured_cp': (PoseStamped, _measured_cp),
    'setpoint_cp': (PoseStamped, _setpoint_cp),
    'local/setpoint_cp': (PoseStamped, _setpoint_cp),
    'measured_cv': (TwistStamped, _measured_cv),
    'body/measured_cf': (WrenchStamped, _body_force),
    'spatial/measured_cf': (WrenchStamped, _spatial_force),
    'jaw/measured_js': (JointState, _jaw_measured_js),
    'jaw/setpoint_js': (
        JointState,
        lambda now: joint_state(now.stamp, (JAW,), (now.jaw_setpoint,)),
    ),
    'joint_states': (JointState, _joint_states),
}
"""Topic -> type and how its message is made. local/ is the same: the base is the remote centre."""
