# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The arm with motors and masses, in PyBullet.

It follows its set-point with a first-order lag. PyBullet does rigid motion only: the force of
tissue comes from outside and is applied at the tip (its own compliant contact counts points
twice). The stepped model is the chain to the tool tip out of urdf/psm.urdf; the full file, with
jaws and patient, is for RViz and for pictures.
"""

from functools import lru_cache
from pathlib import Path
import tempfile
import weakref
import xml.etree.ElementTree as ElementTree

from fdrl_ros.env.actions import SUBSTEP
from fdrl_ros.env.arm import EFFORT, HOME, JOINTS, straight_joints, Vector
from fdrl_ros.env.bullet import pybullet
from fdrl_ros.env.placement import Point, response
from fdrl_ros.errors import ResourceError
from fdrl_ros.resources import resource
import numpy as np

BASE_HEIGHT = 0.26
"""Height of the remote centre above the table (the joint base_joint of the URDF), m."""

_CHAIN = ('world', 'base_link', *(f'{each}_link' for each in JOINTS), 'tool_tip')


@lru_cache(maxsize=1)
def chain_description() -> str:
    """Return the URDF of the moving chain alone, made from urdf/psm.urdf."""
    root = ElementTree.parse(resource('urdf/psm.urdf')).getroot()
    for each in list(root):
        child = each.find('child')
        name = each.get('name') if each.tag == 'link' else None
        if each.tag == 'joint' and child is not None:
            name = child.get('link')
        if name not in _CHAIN:
            root.remove(each)
            continue
        for visual in each.findall('visual'):
            each.remove(visual)
        if each.tag == 'link' and each.find('inertial') is None:
            inertial = ElementTree.SubElement(each, 'inertial')
            ElementTree.SubElement(inertial, 'mass', value='0')
            zeros = dict.fromkeys(('ixx', 'ixy', 'ixz', 'iyy', 'iyz', 'izz'), '0')
            ElementTree.SubElement(inertial, 'inertia', zeros)
    return ElementTree.tostring(root, encoding='unicode')


class DynamicArm:
    """Rigid-body dynamics with motors in a PyBullet client of its own."""

    def __init__(self) -> None:
        self._client: int = pybullet.connect(pybullet.DIRECT)
        if self._client < 0:
            raise ResourceError('PyBullet gives no further physics client: close unused envs')
        self._finalizer = weakref.finalize(self, pybullet.disconnect, self._client)
        pybullet.setPhysicsEngineParameter(
            fixedTimeStep=SUBSTEP, numSubSteps=0, physicsClientId=self._client
        )
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / 'chain.urdf'
            path.write_text(chain_description(), 'utf-8')
            self._body: int = pybullet.loadURDF(
                str(path),
                [0.0, 0.0, -BASE_HEIGHT],
                useFixedBase=True,
                flags=pybullet.URDF_USE_INERTIA_FROM_FILE,
                physicsClientId=self._client,
            )
        places = {}
        for index in range(pybullet.getNumJoints(self._body, self._client)):
            info = pybullet.getJointInfo(self._body, index, self._client)
            places[info[1].decode()] = index
            pybullet.changeDynamics(
                self._body,
                index,
                linearDamping=0.0,
                angularDamping=0.0,
                jointDamping=0.0,
                physicsClientId=self._client,
            )
        self._tip = places['tool_tip_joint']
        self._all = [places[each] for each in JOINTS]
        self._moved = self._all[:3]
        self._efforts = EFFORT[:3].tolist()
        self._gains = [1.0] * 3
        self._ones = [1.0] * 3
        self._setpoint: Point | None = None
        for index, effort, home in zip(self._all, EFFORT.tolist(), HOME.tolist(), strict=True):
            pybullet.resetJointState(self._body, index, home, 0.0, self._client)
            self._drive([index], [home], [effort], [0.5], [1.0])
        self._clean = pybullet.saveState(self._client)
        self.position: Point = (0.0, 0.0, 0.0)
        self.velocity: Point = (0.0, 0.0, 0.0)

    def _drive(
        self,
        indices: list[int],
        targets: list[float],
        efforts: list[float],
        gains: list[float],
        ones: list[float],
    ) -> None:
        pybullet.setJointMotorControlArray(
            self._body,
            indices,
            pybullet.POSITION_CONTROL,
            targetPositions=targets,
            forces=efforts,
            positionGains=gains,
            velocityGains=ones,
            physicsClientId=self._client,
        )

    def place(self, position: Point, lag: float) -> None:
        """Put the tip at rest without loading a file, and set its lag."""
        targets = list(straight_joints(*position))
        self._gains = [response(lag)] * 3
        pybullet.restoreState(self._clean, physicsClientId=self._client)
        for index, target in zip(self._moved, targets, strict=True):
            pybullet.resetJointState(self._body, index, target, 0.0, self._client)
        self._drive(self._moved, targets, self._efforts, self._gains, self._ones)
        self._setpoint = position
        self.position = position
        self.velocity = (0.0, 0.0, 0.0)

    def step(self, setpoint: Point, force: Point) -> None:
        """Move for one sub-step: motors, force on the tip, physics."""
        client = self._client
        if setpoint is not self._setpoint:
            self._drive(
                self._moved,
                list(straight_joints(*setpoint)),
                self._efforts,
                self._gains,
                self._ones,
            )
            self._setpoint = setpoint
        if force[2] != 0.0:
            pybullet.applyExternalForce(
                self._body, self._tip, force, self.position, pybullet.WORLD_FRAME, client
            )
        pybullet.stepSimulation(client)
        link = pybullet.getLinkState(self._body, self._tip, 1, 1, client)
        self.position = link[4]
        self.velocity = link[6]

    def joints(self) -> Vector:
        """Return the joints as they are."""
        states = pybullet.getJointStates(self._body, self._all, self._client)
        return np.array([each[0] for each in states])

    def close(self) -> None:
        """Disconnect the physics client."""
        self._finalizer()
