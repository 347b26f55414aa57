# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
What an arm tells of one moment, in CRTK's frames: `body/` is the tip's, all else the base's.

A live arm publishes it and a recording is written with it, so that one plays as the other.
"""

from dataclasses import dataclass

from fdrl_ros.surgery.arm.free_motion import DrivenArm
from fdrl_ros.surgery.arm.kinematics import forward_kinematics, Vector
import numpy as np

BASE = 'base_link'
"""Frame of all positions in the URDF: origin in the trocar, z up."""

TIP = 'tool_tip'
"""Frame of the tool's tip in the URDF."""


@dataclass(frozen=True)
class Readings:
    """
    The arm at one moment; positions and forces in the base frame.

    :param joints: shape (6,), rad and m.
    :param position: of the tip, shape (3,), m.
    :param rotation: of the tool, shape (3, 3).
    :param setpoint: joints of the set-point, shape (6,), rad and m.
    :param jaw: measured opening, rad.
    :param jaw_setpoint: rad.
    :param force: on the tip as the sensor says, shape (3,), N.
    """

    joints: Vector
    position: Vector
    rotation: Vector
    setpoint: Vector
    jaw: float
    jaw_setpoint: float
    force: Vector

    def setpoint_pose(self) -> tuple[Vector, Vector]:
        """Return where the set-point is: shape (3,), m, and its rotation, shape (3, 3)."""
        return forward_kinematics(self.setpoint)

    def body_force(self) -> Vector:
        """Return the force in the tool's own axes, shape (3,), N; there it has no torque."""
        return self.rotation.T @ self.force

    def spatial_torque(self) -> Vector:
        """Return the torque of the force about the origin of the base, shape (3,), N m."""
        return np.cross(self.position, self.force)


def read(driven: DrivenArm) -> Readings:
    """Read the arm; its force sensor errs along z, in which tissue presses."""
    joints = np.asarray(driven.arm.joints(), np.float64)
    x, y, z = driven.force
    return Readings(
        joints=joints,
        position=np.array(driven.arm.position),
        rotation=forward_kinematics(joints)[1],
        setpoint=driven.setpoint_joints(),
        jaw=float(driven.jaw.angle),
        jaw_setpoint=float(driven.jaw.target),
        force=np.array([x, y, z + driven.measured_force - driven.load]),
    )
