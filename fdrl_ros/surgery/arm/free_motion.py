# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The arm while nobody is on the table: it moves in free space, meets no tissue and feels no force.

What commands and reads the arm of an operation does so here too: see :data:`DrivenArm`.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fdrl_ros.surgery.arm.kinematic_arm import Jaw, KinematicArm
from fdrl_ros.surgery.arm.kinematics import (
    forward,
    HOME,
    Point,
    straight_joints,
    Vector,
)
from fdrl_ros.surgery.arm.motion import follow_joints, JointPath
from fdrl_ros.surgery.constants import constant
from fdrl_ros.surgery.gym.actions import SUBSTEP
from fdrl_ros.surgery.gym.operation import Operation
import numpy as np

if TYPE_CHECKING:
    from fdrl_ros.surgery.arm.simulated_arm import DynamicArm

LAG = constant('hospital.servo_lag')
"""Time constant of the arm behind its set-point before the first patient, s."""

_NOTHING: Point = (0.0, 0.0, 0.0)


class FreeMotion:
    """
    The set-point of an arm in free space, which the arm follows by joints.

    :param arm: that operations use too; it is put to its home, at rest.
    """

    force = _NOTHING
    load = measured_force = 0.0

    def __init__(self, arm: 'KinematicArm | DynamicArm') -> None:
        self.arm = arm
        self.go_home()

    def go_home(self) -> None:
        """Put the arm to its home at once: at rest, the wrist straight, the jaw closed."""
        self.arm.place(forward(HOME.tolist())[0], LAG)
        self._begin(HOME, Jaw(), 0)

    def take_over(self, operation: Operation) -> None:
        """Go on from where an operation left the arm; the jaw stays as it is."""
        self._begin(operation.setpoint_joints(), operation.jaw, operation.substeps)
        self.jaw.halt()

    def _begin(self, joints: Vector, jaw: Jaw, substeps: int) -> None:
        self.jaw, self.substeps = jaw, substeps
        self._joints = np.array(joints, np.float64)
        self._path: JointPath | None = None
        self._target: Vector | None = None

    def setpoint_joints(self) -> Vector:
        """Return the joints of the set-point, shape (6,), rad and m."""
        return self._joints.copy()

    def set_target(self, position: Sequence[float]) -> None:
        """
        Ask the tip to go somewhere with a straight wrist; the newest call counts.

        :param position: in the base frame, m.
        :raises UnreachableError: if the arm cannot go there; the old target stays.
        """
        x, y, z = position
        self._target = np.array([*straight_joints(x, y, z), 0.0, 0.0, 0.0])
        self._path = None

    def set_joint_target(self, joints: Sequence[float], substeps: int) -> None:
        """
        Have all six joints of the set-point go somewhere, evenly.

        :param joints: shape (6,), rad and m.
        :param substeps: after how many the set-point is there; who asks limits its speed.
        :raises StateError: if they are no joints of this arm; the old target stays.
        """
        self._path, self._target = JointPath(self._joints, joints, substeps), None

    def aim_jaw(self, angle: float) -> None:
        """
        Ask the jaw to open to an angle, rad.

        :raises StateError: if that is no number or outside the limits; the old target stays.
        """
        self.jaw.aim(angle)

    def halt(self) -> None:
        """Stay where the set-point is."""
        self._path = self._target = None
        self.jaw.halt()

    def advance(self, substeps: int) -> None:
        """
        Let the arm move on.

        :param substeps: of 1/240 s each.
        """
        if self._target is not None and substeps:
            after = follow_joints(self._joints, self._target, substeps * SUBSTEP)
            self._path = JointPath(self._joints, after.tolist(), substeps)
            if np.array_equal(after, self._target):
                self._target = None
        for _ in range(substeps):
            if self._path is not None:
                self._joints = np.array(self._path.step(), np.float64)
            self.arm.step_joints(self._joints.tolist(), _NOTHING)
        self.jaw.advance(substeps * SUBSTEP)
        self.substeps += substeps


DrivenArm = Operation | FreeMotion
"""An arm with what its set-points meet: a patient, or nothing."""
