# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Pictures of an operation for people: from near, and of the whole arm over the patient."""

from dataclasses import replace
import math

from fdrl_ros.surgery.arm.kinematics import Point
from fdrl_ros.surgery.gym.operation import Operation
from fdrl_ros.surgery.render.camera import Camera
from fdrl_ros.surgery.render.endoscope import build_of, LIVE, moment_of, organ_tissue
from fdrl_ros.surgery.render.instrument import instrument
from fdrl_ros.surgery.render.room import usual_room
from fdrl_ros.surgery.render.scene import Scene
from fdrl_ros.surgery.render.scene_objects import scene_objects
from fdrl_ros.surgery.render.shapes import Material
from fdrl_ros.surgery.render.tissue import make_tissue, Organ
from fdrl_ros.surgery.render.view import View, view_of
import numpy as np
from numpy.typing import NDArray

WIDTH, HEIGHT = 320, 240
NEAR_EYE, NEAR_LOOK = (0.050, -0.085, -0.062), (0.0, 0.0, -0.120)
"""From where the tip, the organ and the things of the procedure fill a picture, m."""
FAR_EYE, FAR_LOOK = (0.85, -1.15, 0.55), (0.0, 0.1, 0.0)
"""From where the whole arm is seen, m."""

_FIELD_OF_VIEW = math.radians(45.0)
_NEAREST, _FARTHEST = 0.005, 5.0
_ARROW = 0.010  # metres a newton
_BESIDE = 0.007  # metres that the arrow is in front of the instrument
_LEAST_ARROW = 0.05  # newtons that are drawn
_CLEAR = 0.45
"""How much of an instrument in the organ shines through, so that the tip can be seen at work."""
_STILL = replace(LIVE, noise=0.0, fall=0.125, vignette=0.2)
_DAY = replace(
    LIVE,
    noise=0.0,
    fall=0.0,
    power=0.85,
    ambient=0.45,
    shadow=0.0,
    vignette=0.0,
    soft=0.0,
    fringe=0.0,
    wet=0.1,
    vessels=2,
    beside=(-0.6, 0.8),
    nothing=(2.5, 2.5, 2.5),
    shaft=Material((0.10, 0.10, 0.11), gloss=0.2),
)
_DRAWN_APART = frozenset(
    'organ roll_link wrist_pitch_link wrist_yaw_link jaw_left jaw_right'.split()
)


def _shown(operation: Operation) -> View:
    """Return what is to be seen, with the force on the tip as an arrow, 10 mm a newton."""
    view, force = view_of(operation), operation.force
    if math.hypot(*force) <= _LEAST_ARROW:
        return view
    x, y, z = operation.arm.position
    way = (force[0] * _ARROW, force[1] * _ARROW, force[2] * _ARROW)
    return replace(view, arrow=((x, y - _BESIDE, max(z, view.surface)), way))


def _camera(width: int, height: int, eye: Point, look: Point) -> Camera:
    return Camera(
        width,
        height,
        eye=eye,
        look=look,
        field_of_view=_FIELD_OF_VIEW,
        near=_NEAREST,
        far=_FARTHEST,
    )


def picture(
    operation: Operation,
    width: int = WIDTH,
    height: int = HEIGHT,
    eye: Point = NEAR_EYE,
    look: Point = NEAR_LOOK,
) -> NDArray[np.uint8]:
    """
    Draw instrument, organ, waypoint, things and the force on the tip as they are now.

    What is within the organ shines through; the arrow begins at its surface at the lowest.

    :param eye: where the camera is, in the arm's base frame, m.
    :param look: what it looks at, in the arm's base frame, m.
    :returns: red, green, blue; shape (height, width, 3).
    :raises ResourceError: if the compiled arithmetic was not built.
    """
    view, joints = _shown(operation), operation.arm.joints().tolist()
    scene = Scene(_STILL, organ_tissue(LIVE))
    shapes = instrument(joints, operation.jaw.angle, build_of(_STILL)) + scene_objects(view)
    moment = replace(moment_of(joints, view), clear=_CLEAR)
    return scene.draw(_camera(width, height, eye, look), shapes, moment).rgb


def room_picture(
    operation: Operation,
    width: int = WIDTH,
    height: int = HEIGHT,
    eye: Point = FAR_EYE,
    look: Point = FAR_LOOK,
) -> NDArray[np.uint8]:
    """
    Draw the whole arm over the patient, whose belly is open; arguments as :func:`picture`.

    :raises ResourceError: if the URDF is missing or broken, or nothing was compiled.
    """
    view, joints, jaw = _shown(operation), operation.arm.joints().tolist(), operation.jaw.angle
    organ = Organ(alone=True)
    scene = Scene(_DAY, make_tissue(_DAY, 0, 256, organ), -0.9 * organ.axes[2])
    shapes = usual_room().shapes(joints, jaw, _DRAWN_APART)
    shapes += instrument(joints, jaw, build_of(_DAY)) + scene_objects(view)
    return scene.draw(_camera(width, height, eye, look), shapes, moment_of(joints, view)).rgb
