# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The endoscope of an operation: colour, depth and the parts of the instrument.

Off unless somebody makes one. It is drawn in compiled code, while other threads of the process
run.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from fdrl_ros.errors import StateError
from fdrl_ros.surgery.arm.kinematics import checked_joints, forward, JAW_LIMITS
from fdrl_ros.surgery.render.camera import Camera
from fdrl_ros.surgery.render.instrument import Build, instrument
from fdrl_ros.surgery.render.scene import Dent, Frame, Moment, Scene
from fdrl_ros.surgery.render.scene_objects import scene_objects
from fdrl_ros.surgery.render.shapes import Shape
from fdrl_ros.surgery.render.style import SceneStyle
from fdrl_ros.surgery.render.tissue import make_tissue, Organ, Tissue
from fdrl_ros.surgery.render.view import bruised, View

LIVE = SceneStyle(
    tissue=(0.45, 0.075, 0.050),
    vessels=9,
    blood=0.02,
    relief=0.9,
    wet=1.1,
    power=2.1,
    beside=(0.008, 0.008),
    fall=0.080,
    noise=0.010,
)
"""What the simulator's own operations look like."""

_SEED, _TEXELS = 4, 768
_BRUISE = (0.075, 0.004, 0.045)
_FRAMES = 1000.0  # numbers of the sensor's noise in a second


@lru_cache(maxsize=2)
def organ_tissue(style: SceneStyle) -> Tissue:
    """Return the organ of operations and what is around it, made once."""
    return make_tissue(style, _SEED, _TEXELS, Organ())


def moment_of(joints: Sequence[float], view: View) -> Moment:
    """Return the state of the organ: a tip in it dents it."""
    tip, _axes = forward(joints)
    depth = view.surface - tip[2]
    return Moment(
        surface=view.surface,
        dents=(Dent(tip[0], tip[1], depth, view.radius),) if depth > 0.0 else (),
        time=view.time,
        tint=_BRUISE,
        tinted=bruised(view.damage),
        noise=int(_FRAMES * view.time) & 0x7FFFFFFF,
    )


def build_of(style: SceneStyle) -> Build:
    """Return the arm's instrument in a style."""
    return Build(style.shaft, style.wrist, style.jaw)


def shapes_of(joints: Sequence[float], jaw: float, view: View, style: SceneStyle) -> list[Shape]:
    """Return the instrument and the objects of the procedure."""
    return [*instrument(joints, jaw, build_of(style)), *scene_objects(view)]


class Endoscope:
    """
    Draws what a camera sees; any number of threads may ask it.

    :param camera: 320 by 240 pixels at the place that the URDF has for it by default.
    :param style: of tissue, light and lens.
    :raises ResourceError: if the compiled arithmetic was not built.
    """

    def __init__(self, camera: Camera | None = None, style: SceneStyle = LIVE) -> None:
        self.camera = camera or Camera()
        self._style = style
        self._scene = Scene(style, organ_tissue(style))

    def capture(
        self,
        joints: Sequence[float],
        jaw: float = 0.0,
        view: View | None = None,
        noise: int | None = None,
    ) -> Frame:
        """
        Take a picture.

        :param joints: the six of the arm, rad and m.
        :param jaw: angle between the fingers, rad.
        :param view: organ and things; an untouched organ and nothing else by default.
        :param noise: number of the sensor's noise; by default it goes with the operation's time.
        :raises StateError: on joints or a jaw that are not finite or beyond their limits.
        """
        six = checked_joints(joints)
        if not JAW_LIMITS[0] <= jaw <= JAW_LIMITS[1]:
            raise StateError(f'jaw {jaw!r}: expected {JAW_LIMITS[0]} to {JAW_LIMITS[1]} rad')
        shown = view or View()
        shapes = shapes_of(six, jaw, shown, self._style)
        moment = moment_of(six, shown)
        if noise is not None:
            moment = replace(moment, noise=noise)
        return self._scene.draw(self.camera, shapes, moment)
