# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The endoscope: colour, depth and the parts of the instrument, through a pinhole camera.

Off unless somebody makes one. PyBullet draws a picture without letting other threads of the
process run; :class:`fdrl_ros.surgery.render.endoscope_process.EndoscopeProcess` draws it
elsewhere.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fdrl_ros.errors import StateError
from fdrl_ros.surgery.arm.kinematics import checked_joints, JAW_LIMITS
from fdrl_ros.surgery.closed_error import closed_error
from fdrl_ros.surgery.render.camera import Camera, FRAME_ID, Intrinsics
from fdrl_ros.surgery.render.stage import Stage
from fdrl_ros.surgery.render.view import View
import numpy as np
from numpy.typing import NDArray

__all__ = [
    'BACKGROUND',
    'Endoscope',
    'FRAME_ID',
    'Frame',
    'Intrinsics',
    'JAW',
    'LABELS',
    'SHAFT',
    'WRIST',
]

BACKGROUND, SHAFT, WRIST, JAW = range(4)
LABELS = ('background', 'shaft', 'wrist', 'jaw')
"""Names of the numbers in Frame.labels."""

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
_LAMP = 0.02  # metres that it is beside the eye


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


class Endoscope:
    """
    Draws what a camera sees in this process; holds a client of PyBullet until it is closed.

    :param camera: 320 by 240 pixels at the place that the URDF has for it by default.
    :param urdf: of the arm; urdf/psm.urdf unless told otherwise.
    :raises ResourceError: if the URDF is missing or broken.
    """

    def __init__(self, camera: Camera | None = None, urdf: Path | None = None) -> None:
        self.camera = camera or Camera()
        self.stage = Stage(_UNSEEN, urdf)
        self._closed = False
        self._labels = np.array(
            [BACKGROUND, *(_PARTS.get(each, BACKGROUND) for each in self.stage.links)], np.uint8
        )
        across, down = (
            np.linspace(-1, 1, size) for size in (self.camera.width, self.camera.height)
        )
        dim = 1.0 - 0.35 * (across[None, :] ** 2 + down[:, None] ** 2)
        self._cavity = (dim[:, :, None] * _CAVITY).astype(np.uint8)
        """What is too far away for the light."""

    def capture(
        self, joints: Sequence[float], jaw: float = 0.0, view: View | None = None
    ) -> Frame:
        """
        Take a picture.

        :param joints: the six of the arm, rad and m.
        :param jaw: angle between the fingers, rad.
        :param view: organ and things; an untouched organ and nothing else by default.
        :raises StateError: on joints or a jaw that are not finite or beyond their limits, or if
            the endoscope is closed.
        """
        if self._closed:
            raise closed_error('endoscope')
        six = checked_joints(joints)
        if not JAW_LIMITS[0] <= jaw <= JAW_LIMITS[1]:
            raise StateError(f'jaw {jaw!r}: expected {JAW_LIMITS[0]} to {JAW_LIMITS[1]} rad')
        self.stage.show(six, jaw, view or View())
        x, y, z = np.subtract(self.camera.eye, self.camera.look).tolist()
        shot = self.stage.shoot(self.camera, (x - _LAMP, y + _LAMP, z))
        nothing = np.isinf(shot.depth)
        shot.rgb[nothing] = self._cavity[nothing]
        return Frame(shot.rgb, shot.depth, self._labels[shot.links + 1])

    def close(self) -> None:
        """Give back the client; no picture can be taken afterwards."""
        self._closed = True
        self.stage.close()
