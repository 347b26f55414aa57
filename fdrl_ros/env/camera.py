# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
A pinhole camera in the patient: u = fx x / z + cx and v = fy y / z + cy in its optical frame.

The optical frame is that of REP 103: x to the right, y down, z away from the camera.
"""

from dataclasses import dataclass
from functools import cached_property
import math

from fdrl_ros.env.arm import Point, Vector
from fdrl_ros.env.constants import constant
from fdrl_ros.errors import SettingError
import numpy as np
from numpy.typing import NDArray

FRAME_ID = 'endoscope_optical'
"""The link of the URDF where the default camera is."""

_MOST = 4096


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


class Camera:
    """
    Where a camera is, what it looks at, and how often.

    :param width: of a picture, pixels.
    :param height: of a picture, pixels.
    :param fps: most pictures a second that :meth:`due` asks for.
    :param eye: where the camera is, in the arm's base frame, m; by default that of the URDF.
    :param look: what is in the middle of the picture, m.
    :param field_of_view: from top to bottom, rad.
    :param near: nearest that is seen, m.
    :param far: farthest that is seen, m.
    :raises SettingError: on sizes or places that no camera has.
    """

    def __init__(
        self,
        width: int = 320,
        height: int = 240,
        fps: float = 15.0,
        eye: Point | None = None,
        look: Point | None = None,
        field_of_view: float | None = None,
        near: float | None = None,
        far: float | None = None,
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
        self.field_of_view = field_of_view or constant('endoscope.field_of_view')
        self.near = near or constant('endoscope.near')
        self.far = far or constant('endoscope.far')
        self._last = -math.inf

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

    @cached_property
    def rays(self) -> NDArray[np.float32]:
        """
        Return the ray of each pixel, row by row, in the base frame: shape (3, height * width).

        A point at depth z in a pixel is z times its ray from the eye.
        """
        _eye, rotation = self.pose()
        pinhole = self.intrinsics
        columns = (np.arange(self.width) - pinhole.cx) / pinhole.fx
        rows = (np.arange(self.height) - pinhole.cy) / pinhole.fy
        right, down = np.meshgrid(columns, rows)
        across = np.stack([right.ravel(), down.ravel(), np.ones(right.size)])
        return np.asarray(rotation @ across, np.float32)
