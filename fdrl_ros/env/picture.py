# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""A picture of an operation by PyBullet's software renderer; no display and no GPU needed."""

import math

from fdrl_ros.env.arm import Point
from fdrl_ros.env.operation import Operation
from fdrl_ros.env.stage import Stage
from fdrl_ros.env.view import view_of
import numpy as np
from numpy.typing import NDArray

WIDTH, HEIGHT = 320, 240
_EYE, _LOOK = (0.85, -1.15, 0.55), (0.0, 0.1, 0.0)
CLOSE_EYE, CLOSE_LOOK = (0.055, -0.110, -0.085), (0.0, 0.0, -0.122)
"""From where the tip, the organ and the things of the procedure fill a picture, m."""

_FIELD_OF_VIEW = math.radians(45.0)
_NEAR, _FAR = 0.005, 5.0
_ARROW = 0.010  # metres a newton
_BESIDE = 0.007  # metres that the arrow is in front of the instrument
_LEAST_ARROW = 0.05  # newtons that are drawn


def picture(
    operation: Operation,
    width: int = WIDTH,
    height: int = HEIGHT,
    eye: Point = _EYE,
    look: Point = _LOOK,
    stage: Stage | None = None,
) -> NDArray[np.uint8]:
    """
    Draw arm, patient, waypoint, things and the force on the tip (10 mm a newton) as they are now.

    :param eye: where the camera is, in the arm's base frame, m.
    :param look: what it looks at, in the arm's base frame, m.
    :param stage: to draw on; one that is kept makes the next picture cheaper.
    :returns: red, green, blue; shape (height, width, 3).
    """
    used = stage or Stage()
    try:
        joints = operation.arm.joints().tolist()
        used.pose(joints, operation.jaw.angle)
        used.show(view_of(operation), joints)
        if math.hypot(*operation.force) > _LEAST_ARROW:
            fx, fy, fz = (each * _ARROW for each in operation.force)
            x, y, z = operation.arm.position
            used.arrow((x, y - _BESIDE, z), (fx, fy, fz))
        return used.shoot(eye, look, width, height, _FIELD_OF_VIEW, _NEAR, _FAR).rgb
    finally:
        if stage is None:
            used.close()
