# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
A pinhole camera in the patient: u = fx x / z + cx and v = fy y / z + cy in its optical frame.

The optical frame is that of REP 103: x to the right, y down, z away from the camera.
"""

from dataclasses import dataclass
import math

from fdrl_ros.errors import SettingError
from fdrl_ros.runtime.ranges import check_number, check_whole, is_within
from fdrl_ros.surgery.arm.kinematics import Point, Vector
from fdrl_ros.surgery.constants import Group
import numpy as np

FRAME_ID = 'endoscope_optical'
"""The link of the URDF where the default camera is."""

_SCOPE = Group('endoscope')
_MOST = 4096
_ROOM = 100.0  # metres
_WIDEST = 2.9  # radians


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
    x, y, z = (getattr(_SCOPE, f'{name}_{axis}') for axis in 'xyz')
    return x, y, z


@dataclass(eq=False)
class Camera:
    """
    Where a camera is, what it looks at, and how often.

    :param width: of a picture, pixels.
    :param height: of a picture, pixels.
    :param fps: most pictures a second that :meth:`due` asks for.
    :param eye: where the camera is, in the arm's base frame, m; by default that of the URDF.
    :param look: what is in the middle of the picture, m.
    :param field_of_view: from top to bottom, rad, 0.01 to 2.9.
    :param near: nearest that is seen, m, at least 0.1 mm.
    :param far: farthest that is seen, m, beyond the nearest.
    :raises SettingError: on sizes or places that no camera has.
    """

    width: int = 320
    height: int = 240
    fps: float = 15.0
    eye: Point = _default('eye')
    look: Point = _default('look')
    field_of_view: float = _SCOPE.field_of_view
    near: float = _SCOPE.near
    far: float = _SCOPE.far

    def __post_init__(self) -> None:
        """Refuse sizes or places that no camera has."""
        check_whole('width', self.width, 8, _MOST)
        check_whole('height', self.height, 8, _MOST)
        if not 0.0 < self.fps <= 60.0:
            raise SettingError('fps', self.fps, 'above 0 and at most 60')
        for name, place in (('eye', self.eye), ('look', self.look)):
            if len(place) != 3 or not all(is_within(axis, -_ROOM, _ROOM) for axis in place):
                raise SettingError(name, place, 'a point: three metres, finite')
        if math.dist(self.look[:2], self.eye[:2]) < 1e-6:
            raise SettingError('look', self.look, 'a point neither above nor below the eye')
        check_number('field_of_view', self.field_of_view, 0.01, _WIDEST)
        check_number('near', self.near, 1e-4, _ROOM)
        check_number('far', self.far, math.nextafter(self.near, math.inf), _ROOM)
        self._last = -math.inf

    @property
    def intrinsics(self) -> Intrinsics:
        """Return the pinhole camera; whole numbers are the middles of pixels."""
        focal = self.height / 2.0 / math.tan(self.field_of_view / 2.0)
        across, down = (self.width - 1) / 2.0, (self.height - 1) / 2.0
        return Intrinsics(self.width, self.height, focal, focal, across, down)

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
