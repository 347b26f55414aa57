# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The moving chain of the arm in a PyBullet client of its own, with its motors."""

from collections.abc import Sequence
from pathlib import Path
import tempfile
from typing import Any
import weakref

from fdrl_ros.errors import ResourceError
from fdrl_ros.surgery.arm.description import chain_description
from fdrl_ros.surgery.arm.kinematics import EFFORT, HOME
from fdrl_ros.surgery.arm.pybullet_client import pybullet
from fdrl_ros.surgery.closed_error import ClosedClient


class Chain:
    """
    One chain in a PyBullet client of its own: motors, no gravity, no contact.

    :param path: of the arm's URDF.
    :param straight: three joints and a straight wrist rather than six.
    :param substep: length of a sub-step, s.
    """

    def __init__(self, path: Path, straight: bool, substep: float) -> None:
        description = chain_description(path, straight)
        self.client: Any = pybullet.connect(pybullet.DIRECT)
        if self.client < 0:
            raise ResourceError('PyBullet gives no further physics client: close unused envs')
        self._disconnect = weakref.finalize(self, pybullet.disconnect, self.client)
        pybullet.setPhysicsEngineParameter(
            fixedTimeStep=substep, numSubSteps=0, physicsClientId=self.client
        )
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / 'chain.urdf'
            file.write_text(description, 'utf-8')
            try:
                self.body: int = pybullet.loadURDF(
                    str(file),
                    useFixedBase=True,
                    flags=pybullet.URDF_USE_INERTIA_FROM_FILE,
                    physicsClientId=self.client,
                )
            except pybullet.error as problem:
                self.close()
                raise ResourceError(f'{path}: PyBullet cannot load the arm: {problem}') from None
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

    def close(self) -> None:
        """Disconnect the client, once; its number may be somebody else's from now on."""
        self._disconnect()
        self.client = ClosedClient('arm')

    def set(self, joints: Sequence[float], speeds: Sequence[float]) -> None:
        """Put the joints there at once, moving at these speeds, and drive them there."""
        for index, joint, speed in zip(self.moved, joints, speeds, strict=True):
            pybullet.resetJointState(self.body, index, joint, speed, self.client)
        self.drive(joints)

    def restore(self) -> None:
        """Forget all that happened, without loading a file."""
        pybullet.restoreState(self._clean, physicsClientId=self.client)

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

    def step(self, force: Sequence[float], at: Sequence[float]) -> Any:
        """
        Let one sub-step pass with a force (N) on the tip, and return the states of the joints.

        :param at: where the force acts, m.
        :returns: for each joint: position, speed, reaction, torque of the motor (rad, m, N).
        """
        client, body = self.client, self.body
        if force[0] or force[1] or force[2]:
            pybullet.applyExternalForce(body, self.tip, force, at, pybullet.WORLD_FRAME, client)
        pybullet.stepSimulation(client)
        return pybullet.getJointStates(body, self.moved, client)

    def states(self) -> Any:
        """Return the states of the joints as :meth:`step` does."""
        return pybullet.getJointStates(self.body, self.moved, self.client)
