# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""A picture of an operation on a :class:`Renderer`; no display and no GPU needed."""

from dataclasses import replace
import math

from fdrl_ros.surgery.arm.kinematics import Point
from fdrl_ros.surgery.gym.operation import Operation
from fdrl_ros.surgery.render.camera import Camera
from fdrl_ros.surgery.render.renderer import Renderer
from fdrl_ros.surgery.render.view import view_of
import numpy as np
from numpy.typing import NDArray

WIDTH, HEIGHT = 320, 240
_EYE, _LOOK = (0.85, -1.15, 0.55), (0.0, 0.1, 0.0)
CLOSE_EYE, CLOSE_LOOK = (0.055, -0.110, -0.085), (0.0, 0.0, -0.122)
"""From where the tip, the organ and the things of the procedure fill a picture, m."""

_FIELD_OF_VIEW = math.radians(45.0)
_NEAR, _FAR = 0.005, 5.0
_ARROW = 0.010  # metres a newton
_LIGHT = (-0.4, -0.7, 1.0)
_BESIDE = 0.007  # metres that the arrow is in front of the instrument
_LEAST_ARROW = 0.05  # newtons that are drawn
_CLEAR = 0.45
"""How much of an instrument in the organ shines through, so that the tip can be seen at work."""


def picture(
    operation: Operation,
    width: int = WIDTH,
    height: int = HEIGHT,
    eye: Point = _EYE,
    look: Point = _LOOK,
    renderer: Renderer | None = None,
) -> NDArray[np.uint8]:
    """
    Draw arm, patient, waypoint, things and the force on the tip (10 mm a newton) as they are now.

    What is within the organ shines through; the arrow begins at its surface at the lowest.

    :param eye: where the camera is, in the arm's base frame, m.
    :param look: what it looks at, in the arm's base frame, m.
    :param renderer: to draw on; one that is kept makes the next picture cheaper.
    :returns: red, green, blue; shape (height, width, 3).
    """
    used = renderer or Renderer()
    try:
        view, force = view_of(operation), operation.force
        if math.hypot(*force) > _LEAST_ARROW:
            x, y, z = operation.arm.position
            way = (force[0] * _ARROW, force[1] * _ARROW, force[2] * _ARROW)
            view = replace(view, arrow=((x, y - _BESIDE, max(z, view.surface)), way))
        used.show(operation.arm.joints().tolist(), operation.jaw.angle, view)
        camera = Camera(
            width, height, eye=eye, look=look, field_of_view=_FIELD_OF_VIEW, near=_NEAR, far=_FAR
        )
        return used.render(camera, _LIGHT, _CLEAR).rgb
    finally:
        if renderer is None:
            used.close()
