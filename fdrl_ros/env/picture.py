# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""A picture of an operation by PyBullet's software renderer; no display and no GPU needed."""

from fdrl_ros.env.arm import JOINTS
from fdrl_ros.env.operation import Operation
from fdrl_ros.resources import resource
import numpy as np
from numpy.typing import NDArray
import pybullet

WIDTH, HEIGHT = 320, 240
BASE_HEIGHT = 0.26
"""Height of the remote centre above the table (the joint base_joint of the URDF), m."""

_EYE, _LOOK = (0.85, -1.15, 0.55), (0.0, 0.1, 0.0)


def picture(
    operation: Operation,
    width: int = WIDTH,
    height: int = HEIGHT,
    eye: tuple[float, float, float] = _EYE,
    look: tuple[float, float, float] = _LOOK,
) -> NDArray[np.uint8]:
    """
    Draw the arm over the patient as it is now.

    :param eye: where the camera is, in the arm's base frame, m.
    :param look: what it looks at, in the arm's base frame, m.
    :returns: red, green, blue; shape (height, width, 3).
    """
    client = pybullet.connect(pybullet.DIRECT)
    try:
        body = pybullet.loadURDF(
            str(resource('urdf/psm.urdf')),
            [0.0, 0.0, -BASE_HEIGHT],
            useFixedBase=True,
            physicsClientId=client,
        )
        joints = dict(zip(JOINTS, operation.arm.joints().tolist(), strict=True))
        for index in range(pybullet.getNumJoints(body, client)):
            name = pybullet.getJointInfo(body, index, client)[1].decode()
            if name in joints:
                pybullet.resetJointState(body, index, joints[name], 0.0, client)
        image = pybullet.getCameraImage(
            width,
            height,
            pybullet.computeViewMatrix(eye, look, (0.0, 0.0, 1.0)),
            pybullet.computeProjectionMatrixFOV(45.0, width / height, 0.005, 5.0),
            renderer=pybullet.ER_TINY_RENDERER,
            physicsClientId=client,
        )
    finally:
        pybullet.disconnect(client)
    return np.asarray(image[2], np.uint8).reshape(height, width, 4)[:, :, :3].copy()
