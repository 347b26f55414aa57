# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What the simulated arm measures, as CRTK's topics: one snapshot, one message for each topic."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from builtin_interfaces.msg import Time
from fdrl_ros.nodes.arm.robot_messages import header, joint_state, pose, quaternion
from fdrl_ros.surgery.arm.free_motion import DrivenArm
from fdrl_ros.surgery.arm.kinematics import forward_kinematics, JAW, JOINTS, Vector
from fdrl_ros.surgery.arm.readings import read, Readings, TIP
from fdrl_ros.surgery.arm.rotations import rotation_vector
from fdrl_ros.surgery.gym.actions import SUBSTEP
from geometry_msgs.msg import PoseStamped, Twist, TwistStamped, Vector3, Wrench, WrenchStamped
import numpy as np
from numpy.typing import ArrayLike
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

    stamp: Time
    joint_speeds: Vector
    velocity: Vector
    turning: Vector
    jaw_speed: float


class ArmReadings:
    """
    Takes snapshots; speeds of joints are differences over the time between two.

    The arm goes on by 2 or 3 sub-steps of 1/240 s in a cycle of 10 ms. A snapshot that lags lies
    where the arm was in between, so that snapshots are evenly apart in time; forces, and what the
    jaw was told, are the newest. Once the arm stands, snapshots are of where it is.

    The force sensor errs along z, in which tissue presses: one error for all that tell of force.
    """

    def __init__(self, driven: DrivenArm) -> None:
        self.read_from(driven)

    def go_on_with(self, driven: DrivenArm) -> None:
        """Read the same arm in other surroundings, where its sub-steps are counted on."""
        self._driven = driven

    def read_from(self, driven: DrivenArm) -> None:
        """Read an arm that was placed anew: forget what was before."""
        self._driven = driven
        self._before: Snapshot | None = None
        self._told = -1.0  # when that was, in sub-steps
        self._arm: Readings | None = None
        self._substeps = -1

    def snapshot(self, stamp: Time, lag: float = 0.0) -> Snapshot:
        """
        Read the arm.

        :param lag: how far behind, sub-steps: no farther than the arm went since last time.
        """
        driven = self._driven
        arm, before = read(driven), self._before
        passed = driven.substeps - self._substeps
        now, told = arm, float(driven.substeps)
        if lag > 0.0 and self._arm is not None and passed >= lag:
            now, told = _between(self._arm, arm, 1.0 - lag / passed), told - lag
        self._arm, self._substeps = arm, driven.substeps
        speeds, turning, jaw_speed = np.zeros(6), np.zeros(3), 0.0
        velocity = np.zeros(3)
        if before is not None and told > self._told:
            time = (told - self._told) * SUBSTEP
            speeds = (now.joints - before.joints) / time
            turning = rotation_vector(now.rotation @ before.rotation.T) / time
            jaw_speed = (now.jaw - before.jaw) / time
            velocity = np.array(driven.arm.velocity)
        self._told = told
        self._before = Snapshot(
            **vars(now),
            stamp=stamp,
            joint_speeds=speeds,
            velocity=velocity,
            turning=turning,
            jaw_speed=jaw_speed,
        )
        return self._before


def _between(first: Readings, second: Readings, share: float) -> Readings:
    """Return where joints and jaw were a share of the way from one moment to another."""
    joints = first.joints + share * (second.joints - first.joints)
    position, rotation = forward_kinematics(joints)
    return replace(
        second,
        joints=joints,
        position=position,
        rotation=rotation,
        setpoint=first.setpoint + share * (second.setpoint - first.setpoint),
        jaw=first.jaw + share * (second.jaw - first.jaw),
    )


def _vector(values: Vector) -> Vector3:
    x, y, z = values.tolist()
    return Vector3(x=x, y=y, z=z)


def _measured_cp(now: Snapshot) -> PoseStamped:
    return pose(now.stamp, now.position.tolist(), quaternion(now.rotation))


def _setpoint_cp(now: Snapshot) -> PoseStamped:
    position, rotation = now.setpoint_pose()
    return pose(now.stamp, position.tolist(), quaternion(rotation))


def _measured_cv(now: Snapshot) -> TwistStamped:
    twist = Twist(linear=_vector(now.velocity), angular=_vector(now.turning))
    return TwistStamped(header=header(now.stamp), twist=twist)


def _body_force(now: Snapshot) -> WrenchStamped:
    """Return the force at the tip, in the tool's own axes."""
    wrench = Wrench(force=_vector(now.body_force()))
    return WrenchStamped(header=header(now.stamp, TIP), wrench=wrench)


def _spatial_force(now: Snapshot) -> WrenchStamped:
    """Return the same wrench in the axes and about the origin of the base."""
    wrench = Wrench(force=_vector(now.force), torque=_vector(now.spatial_torque()))
    return WrenchStamped(header=header(now.stamp), wrench=wrench)


def _joints(
    names: tuple[str, ...], tell: Callable[[Snapshot], tuple[ArrayLike, ...]]
) -> tuple[type[JointState], Callable[[Snapshot], JointState]]:
    """
    Return how joints are told.

    :param tell: returns their positions in a snapshot, and their speeds if they are told.
    """

    def make(now: Snapshot) -> JointState:
        return joint_state(now.stamp, names, *(np.ravel(each).tolist() for each in tell(now)))

    return JointState, make


READINGS: Final[dict[str, tuple[type[object], Callable[[Snapshot], object]]]] = {
    'measured_js': _joints(JOINTS, lambda now: (now.joints, now.joint_speeds)),
    'setpoint_js': _joints(JOINTS, lambda now: (now.setpoint,)),
    'measured_cp': (PoseStamped, _measured_cp),
    'local/measured_cp': (PoseStamped, _measured_cp),
    'setpoint_cp': (PoseStamped, _setpoint_cp),
    'local/setpoint_cp': (PoseStamped, _setpoint_cp),
    'measured_cv': (TwistStamped, _measured_cv),
    'body/measured_cf': (WrenchStamped, _body_force),
    'spatial/measured_cf': (WrenchStamped, _spatial_force),
    'jaw/measured_js': _joints((JAW,), lambda now: (now.jaw, now.jaw_speed)),
    'jaw/setpoint_js': _joints((JAW,), lambda now: (now.jaw_setpoint,)),
    'joint_states': _joints((*JOINTS, JAW), lambda now: ([*now.joints, now.jaw],)),
}
"""Topic -> type and how its message is made. local/ is the same: the base is the remote centre."""
