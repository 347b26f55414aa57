# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The arm with motors and masses, in PyBullet.

It follows its set-point with a first-order lag. PyBullet does rigid motion only: the force of
tissue comes from outside and is applied at the tip (its own compliant contact counts points
twice). A straight wrist is stepped with three joints (:mod:`fdrl_ros.surgery.arm.description`), a
bent one with all six; the full urdf/psm.urdf, with jaws and patient, is for RViz and for pictures.
"""

from collections.abc import Sequence
from math import cos, sin
from pathlib import Path

from fdrl_ros.resources import resource
from fdrl_ros.surgery.arm.description import chain_description
from fdrl_ros.surgery.arm.kinematic_arm import (
    checked_substep,
    response,
    STRAIGHT_WRIST,
    straighter,
    WRIST_SPEED,
)
from fdrl_ros.surgery.arm.kinematics import (
    bent_joints,
    checked_joints,
    EFFORT,
    HOME,
    Point,
    STRAIGHT,
    straight_joints,
    Vector,
)
from fdrl_ros.surgery.arm.pybullet_client import PhysicsClient, pybullet
from fdrl_ros.surgery.gym.actions import SUBSTEP
import numpy as np

_SETTLED = 1e-6
"""A wrist this near to straight, and this slow, is straight: rad, rad/s."""


JointStates = Sequence[Sequence[float]]
"""For each joint: position, speed, reaction, torque of the motor (rad, m, N)."""


class Chain(PhysicsClient):
    """
    One chain in a PyBullet client of its own: motors, no gravity, no contact.

    :param path: of the arm's URDF.
    :param straight: three joints and a straight wrist rather than six.
    :param substep: length of a sub-step, s.
    """

    def __init__(self, path: Path, straight: bool, substep: float) -> None:
        description = chain_description(path, straight)
        super().__init__('arm')
        pybullet.setPhysicsEngineParameter(
            fixedTimeStep=substep, numSubSteps=0, physicsClientId=self.client
        )
        self.body = self.load(description, path, flags=pybullet.URDF_USE_INERTIA_FROM_FILE)
        self.moved = list(range(3 if straight else 6))
        self.tip = 2 if straight else 6
        for index in (*self.moved, self.tip):
            pybullet.changeDynamics(
                self.body,
                index,
                linearDamping=0.0,
                angularDamping=0.0,
                jointDamping=0.0,
                physicsClientId=self.client,
            )
        self._efforts = EFFORT[: len(self.moved)].tolist()
        self._ones = [1.0] * len(self.moved)
        self.gains = self._ones
        """Share of its error that each motor removes in a sub-step."""
        self.set(HOME[: len(self.moved)].tolist(), [0.0] * len(self.moved))
        self._clean = pybullet.saveState(self.client)

    def set(self, joints: Sequence[float], speeds: Sequence[float]) -> None:
        """Put the joints there at once, moving at these speeds, and drive them there."""
        for index, joint, speed in zip(self.moved, joints, speeds, strict=True):
            pybullet.resetJointState(self.body, index, joint, speed, self.client)
        self.drive(joints)

    def begin(self, gain: float, joints: Sequence[float], speeds: Sequence[float]) -> None:
        """
        Forget all that happened, without loading a file, and go on from these joints.

        :param gain: share of its error that each motor removes in a sub-step.
        """
        pybullet.restoreState(self._clean, physicsClientId=self.client)
        self.gains = [gain] * len(self.moved)
        self.set(joints, speeds)

    def drive(self, targets: Sequence[float]) -> None:
        """Tell the motors where to go."""
        pybullet.setJointMotorControlArray(
            self.body,
            self.moved,
            pybullet.POSITION_CONTROL,
            targetPositions=targets,
            forces=self._efforts,
            positionGains=self.gains,
            velocityGains=self._ones,
            physicsClientId=self.client,
        )

    def step(self, force: Sequence[float], at: Sequence[float]) -> JointStates:
        """
        Let one sub-step pass with a force (N) on the tip, and return the states of the joints.

        :param at: where the force acts, m.
        """
        client, body = self.client, self.body
        if force[0] or force[1] or force[2]:
            pybullet.applyExternalForce(body, self.tip, force, at, pybullet.WORLD_FRAME, client)
        pybullet.stepSimulation(client)
        states: JointStates = pybullet.getJointStates(body, self.moved, client)
        return states

    def states(self) -> JointStates:
        """Return the states of the joints as :meth:`step` does."""
        states: JointStates = pybullet.getJointStates(self.body, self.moved, self.client)
        return states

    def motion(self) -> tuple[list[float], list[float]]:
        """Return positions and speeds of the joints, rad and m, rad/s and m/s."""
        states = self.states()
        return [state[0] for state in states], [state[1] for state in states]


class DynamicArm:
    """
    Rigid-body dynamics with motors in PyBullet clients of its own.

    :param substep: length of a sub-step, s.
    :param urdf: of the arm; urdf/psm.urdf unless told otherwise.
    :raises ResourceError: if the URDF is missing, broken or of another arm.
    """

    feels_force = True

    def __init__(self, substep: float = SUBSTEP, urdf: Path | None = None) -> None:
        self._substep = checked_substep(substep)
        self._urdf = urdf or resource('urdf/psm.urdf')
        self._quick = Chain(self._urdf, True, self._substep)
        # At once, so that the first bent wrist waits for no file.
        self._whole = Chain(self._urdf, False, self._substep)
        self.bent = False
        """Whether the wrist is not straight, which needs the whole chain."""
        self._wrist = STRAIGHT_WRIST
        self._gain = 1.0
        self._setpoint: Point | None = None
        self.position: Point = (0.0, 0.0, 0.0)
        self.velocity: Point = (0.0, 0.0, 0.0)

    @property
    def client(self) -> int:
        """Return the number of the PyBullet client."""
        return self._quick.client

    def place(self, position: Point, lag: float) -> None:
        """Put the tip at rest without loading a file, the wrist straight, and set its lag."""
        targets = straight_joints(*position)
        self._gain = response(lag, self._substep)
        self._quick.begin(self._gain, targets, (0.0, 0.0, 0.0))
        self.bent = False
        self._setpoint = position
        self.position = position
        self.velocity = (0.0, 0.0, 0.0)

    def step(self, setpoint: Point, force: Point) -> None:
        """Move for one sub-step: motors, force on the tip, physics."""
        if self.bent:
            self._straighten(setpoint, force)
            return
        if setpoint is not self._setpoint:
            self._quick.drive(straight_joints(*setpoint))
            self._setpoint = setpoint
        yaw, pitch, insertion = self._quick.step(force, self.position)
        turn, tilt, slide = yaw[1], pitch[1], insertion[1]
        reach = insertion[0] + STRAIGHT
        sy, cy, sp, cp = sin(yaw[0]), cos(yaw[0]), sin(pitch[0]), cos(pitch[0])
        level = reach * cp
        out = slide * cp - reach * sp * tilt  # how fast the level part of the reach grows
        self.position = (level * sy, -reach * sp, -level * cy)
        self.velocity = (
            out * sy + level * cy * turn,
            -slide * sp - level * tilt,
            -out * cy + level * sy * turn,
        )

    def step_joints(self, joints: Sequence[float], force: Point) -> None:
        """Move all six joints for one sub-step by their motors."""
        wanted = checked_joints(joints)
        whole = self._bend()
        whole.drive(wanted)
        roll, pitch, yaw = (state[0] for state in self._move(whole, force)[3:])
        self._wrist = (roll, pitch, yaw)

    def _bend(self) -> Chain:
        """Go over to six joints, where and as fast as the arm is."""
        whole = self._whole
        if not self.bent:
            joints, speeds = ([*row, 0.0, 0.0, 0.0] for row in self._quick.motion())
            whole.begin(self._gain, joints, speeds)
            self.bent = True
        return whole

    def _straighten(self, setpoint: Point, force: Point) -> None:
        """Follow a set-point of the tip while the wrist goes back, then with three joints."""
        whole = self._bend()
        self._wrist = straighter(self._wrist, WRIST_SPEED * self._substep)
        whole.drive(bent_joints(setpoint, self._wrist))
        self._move(whole, force)
        joints, speeds = whole.motion()
        if not any(self._wrist) and max(map(abs, (*joints[3:], *speeds[3:]))) < _SETTLED:
            self._quick.begin(self._gain, joints[:3], speeds[:3])
            self.bent = False
            self._setpoint = None

    def _move(self, whole: Chain, force: Point) -> JointStates:
        """Let one sub-step of six joints pass, and see where the tip is."""
        states = whole.step(force, self.position)
        link = pybullet.getLinkState(whole.body, whole.tip, 1, 1, whole.client)
        self.position, self.velocity = link[4], link[6]
        return states

    def joints(self) -> Vector:
        """Return the joints as they are."""
        chain = self._whole if self.bent else self._quick
        return np.array([*chain.motion()[0], 0.0, 0.0, 0.0][:6])

    def efforts(self) -> Vector:
        """Return what the motors gave in the last sub-step, shape (6,) or (3,), N m and N."""
        chain = self._whole if self.bent else self._quick
        return np.array([state[3] for state in chain.states()])

    def close(self) -> None:
        """Disconnect the physics clients."""
        self._quick.close()
        self._whole.close()
