# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The endoscope: colour, depth and the parts of the instrument, through a pinhole camera.

Off unless somebody makes one. u = fx x / z + cx, v = fy y / z + cy in the optical frame of
REP 103: x to the right, y down, z away from the camera.
"""

from collections.abc import Sequence
from dataclasses import dataclass
import math
from pathlib import Path

from fdrl_ros.env.arm import checked_joints, JAW_LIMITS, Point, Vector
from fdrl_ros.env.constants import constant
from fdrl_ros.env.stage import Stage
from fdrl_ros.env.view import View
from fdrl_ros.errors import SettingError, StateError
import numpy as np
from numpy.typing import NDArray

BACKGROUND, SHAFT, WRIST, JAW = range(4)
LABELS = ('background', 'shaft', 'wrist', 'jaw')
"""Names of the numbers in Frame.labels."""

FRAME_ID = 'endoscope_optical'
"""The link of the URDF where the default camera is."""

_PARTS = {
    'roll_link': SHAFT,
    'wrist_pitch_link': WRIST,
    'wrist_yaw_link': WRIST,
    'jaw_left': JAW,
    'jaw_right': JAW,
}
_OUTSIDE = ('base', 'yaw', 'pitch', 'insertion')
# In the way, or outside the patient and slow to draw.
_UNSEEN = ('endoscope', 'patient', 'table', *(f'{each}_link' for each in _OUTSIDE))
_CAVITY = np.array([62.0, 24.0, 22.0])
_FARTHEST = 0.99999
_MOST = 4096


@dataclass(frozen=True)
class Frame:
    """
    One picture of the endoscope.

    :param rgb: shape (height, width, 3), uint8.
    :param depth: along the view, shape (height, width), float32, m; infinite where nothing is.
    :param labels: one of LABELS by number in each pixel, shape (height, width), uint8.
    """

    rgb: NDArray[np.uint8]
    depth: NDArray[np.float32]
    labels: NDArray[np.uint8]


@dataclass(frozen=True)
class Intrinsics:
    """What CameraInfo wants: focal lengths and centre in pixels; there is no distortion."""

    width: int
    height: int
    fx: float
    fy: float
    cx: float
    cy: float


def _default(name: str) -> Point:
    x, y, z = (constant(f'endoscope.{name}_{axis}') for axis in 'xyz')
    return x, y, z


class Endoscope:
    """
    A camera in the patient, for one arm; it holds a client of PyBullet until it is closed.

    :param width: of a picture, pixels.
    :param height: of a picture, pixels.
    :param fps: most pictures a second that :meth:`due` asks for.
    :param eye: where the camera is, in the arm's base frame, m; by default that of the URDF.
    :param look: what is in the middle of the picture, m.
    :param urdf: of the arm; urdf/psm.urdf unless told otherwise.
    :raises SettingError: on sizes or places that no camera has.
    :raises ResourceError: if the URDF is missing or broken.
    """

    def __init__(
        self,
        width: int = 320,
        height: int = 240,
        fps: float = 15.0,
        eye: Point | None = None,
        look: Point | None = None,
        urdf: Path | None = None,
    ) -> None:
        for name, size in (('width', width), ('height', height)):
            if int(size) != size or not 8 <= size <= _MOST:
                raise SettingError(name, size, f'8 to {_MOST} pixels')
        if not 0.0 < fps <= 60.0:
            raise SettingError('fps', fps, 'above 0 and at most 60')
        self.width, self.height, self.fps = int(width), int(height), float(fps)
        self.eye = eye or _default('eye')
        self.look = look or _default('look')
        forwards = np.subtract(self.look, self.eye)
        if not np.isfinite(forwards).all() or np.hypot(forwards[0], forwards[1]) < 1e-6:
            raise SettingError('look', look, 'a finite point, neither above nor below the eye')
        self.field_of_view = constant('endoscope.field_of_view')
        """From top to bottom, rad."""
        self.near, self.far = constant('endoscope.near'), constant('endoscope.far')
        self._stage = Stage(_UNSEEN, urdf)
        self._labels = np.array(
            [BACKGROUND, *(_PARTS.get(each, BACKGROUND) for each in self._stage.links)], np.uint8
        )
        self._last = -math.inf
        across, down = np.linspace(-1, 1, self.width), np.linspace(-1, 1, self.height)
        dim = 1.0 - 0.35 * (across[None, :] ** 2 + down[:, None] ** 2)
        self._cavity = (dim[:, :, None] * _CAVITY).astype(np.uint8)
        """What is too far away for the light."""

    @property
    def intrinsics(self) -> Intrinsics:
        """Return the pinhole camera; PyBullet's middle is half a pixel from the usual one."""
        focal = self.height / 2.0 / math.tan(self.field_of_view / 2.0)
        return Intrinsics(
            self.width,
            self.height,
            focal,
            focal,
            self.width / 2.0,
            self.height / 2.0 - 1.0,
        )

    def pose(self) -> tuple[Vector, Vector]:
        """Return the optical frame: position (3,), m, and rotation (3, 3), in the base frame."""
        ahead = np.subtract(self.look, self.eye)
        ahead = ahead / np.linalg.norm(ahead)
        right = np.cross(ahead, (0.0, 0.0, 1.0))
        right = right / np.linalg.norm(right)
        return np.array(self.eye), np.column_stack([right, np.cross(ahead, right), ahead])

    def due(self, time: float) -> bool:
        """Say whether the next picture is due at a time (s), and count it as taken if so."""
        if time < self._last:
            self._last = -math.inf  # a new operation
        if time - self._last < 1.0 / self.fps - 1e-9:
            return False
        self._last = time
        return True

    def capture(
        self, joints: Sequence[float], jaw: float = 0.0, view: View | None = None
    ) -> Frame:
        """
        Take a picture.

        :param joints: the six of the arm, rad and m.
        :param jaw: angle between the fingers, rad.
        :param view: organ and things; an untouched organ and nothing else by default.
        :raises StateError: on joints or a jaw that are not finite or beyond their limits.
        """
        six = checked_joints(joints)
        if not JAW_LIMITS[0] <= jaw <= JAW_LIMITS[1]:
            raise StateError(f'jaw {jaw!r}: expected {JAW_LIMITS[0]} to {JAW_LIMITS[1]} rad')
        self._stage.pose(six, jaw)
        self._stage.show(view or View(), six)
        shot = self._stage.shoot(
            self.eye,
            self.look,
            self.width,
            self.height,
            self.field_of_view,
            self.near,
            self.far,
        )
        nothing = shot.buffer > _FARTHEST
        shot.rgb[nothing] = self._cavity[nothing]
        near, far = self.near, self.far
        depth = far * near / (far - (far - near) * shot.buffer.astype(np.float64))
        depth[nothing] = math.inf
        return Frame(shot.rgb, depth.astype(np.float32), self._labels[shot.links + 1])

    def close(self) -> None:
        """Give back the client; no picture can be taken afterwards."""
        self._stage.close()
