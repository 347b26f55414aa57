# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The endoscope: colour, depth and the parts of the instrument, through a pinhole camera.

Off unless somebody makes one. PyBullet draws a picture without letting other threads of the
process run; :class:`fdrl_ros.surgery.render.endoscope.EndoscopeProcess` draws it
elsewhere.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
import threading
import weakref

from fdrl_ros.errors import FdrlError, ResourceError, StateError
from fdrl_ros.runtime.interrupts import spared_interrupts
from fdrl_ros.surgery.arm.kinematics import checked_joints, JAW_LIMITS
from fdrl_ros.surgery.render.camera import Camera
from fdrl_ros.surgery.render.renderer import Renderer
from fdrl_ros.surgery.render.view import View
import numpy as np
from numpy.typing import NDArray

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
_UNSEEN = ('endoscope', 'patient', 'table', *(f'{link}_link' for link in _OUTSIDE))
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
        self.renderer = Renderer(_UNSEEN, urdf)
        self._closed = False
        self._labels = np.array(
            [BACKGROUND, *(_PARTS.get(link, BACKGROUND) for link in self.renderer.links)], np.uint8
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
            raise StateError.closed('endoscope')
        six = checked_joints(joints)
        if not JAW_LIMITS[0] <= jaw <= JAW_LIMITS[1]:
            raise StateError(f'jaw {jaw!r}: expected {JAW_LIMITS[0]} to {JAW_LIMITS[1]} rad')
        self.renderer.show(six, jaw, view or View())
        x, y, z = np.subtract(self.camera.eye, self.camera.look).tolist()
        found = self.renderer.render(self.camera, (x - _LAMP, y + _LAMP, z))
        nothing = np.isinf(found.depth)
        found.rgb[nothing] = self._cavity[nothing]
        return Frame(found.rgb, found.depth, self._labels[found.links + 1])

    def close(self) -> None:
        """Give back the client; no picture can be taken afterwards."""
        self._closed = True
        self.renderer.close()


_START_TIME = 60.0  # seconds that the process may take to load PyBullet
_DRAW_TIME = 2.0  # seconds that a picture may take


def _serve(pipe: Connection, camera: Camera) -> None:
    """Draw what the pipe asks for until it is closed."""
    try:
        endoscope = Endoscope(camera)
    except FdrlError as problem:
        pipe.send(problem)
        return
    pipe.send(None)
    while True:
        try:
            asked = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            pipe.send(endoscope.capture(*asked))
        except FdrlError as problem:
            pipe.send(problem)


def _end(pipe: Connection, process: BaseProcess, lock: threading.RLock) -> None:
    process.kill()  # who waits for a picture hears of it at once
    process.join()
    with lock:
        pipe.close()


class EndoscopeProcess:
    """
    As :class:`~fdrl_ros.surgery.render.endoscope.Endoscope`, drawing in another process.

    Waiting for a picture lets other threads of this process run. Any thread may ask, one is
    served at a time. The first waits until the process has come up; :meth:`close` ends any wait.

    :param camera: as an Endoscope has it.
    """

    def __init__(self, camera: Camera | None = None) -> None:
        self.camera = camera or Camera()
        context = get_context('spawn')
        self._pipe, theirs = context.Pipe()
        self.process = context.Process(
            target=_serve, args=(theirs, self.camera), name='endoscope', daemon=True
        )
        with spared_interrupts():
            self.process.start()
        theirs.close()
        self._lock = threading.RLock()
        self._is_up = False
        self._lost = ''
        self.close = weakref.finalize(self, _end, self._pipe, self.process, self._lock)

    def capture(
        self, joints: Sequence[float], jaw: float = 0.0, view: View | None = None
    ) -> Frame:
        """
        Take a picture.

        :param joints: the six of the arm, rad and m.
        :param jaw: angle between the fingers, rad.
        :param view: organ and things; an untouched organ and nothing else by default.
        :raises StateError: on joints or a jaw that are not finite or beyond their limits, or if
            the endoscope is closed, meanwhile or before.
        :raises ResourceError: if the process does not come up or has ended.
        """
        with self._lock:
            if self._lost:
                raise ResourceError(self._lost)
            if not self.close.alive:
                raise StateError.closed('endoscope')
            if not self._is_up:
                self._answer(_START_TIME)
                self._is_up = True
            try:
                self._pipe.send((checked_joints(joints), jaw, view))
            except (BrokenPipeError, OSError) as problem:
                raise self._gone(problem) from None
            frame = self._answer(_DRAW_TIME)
        assert frame is not None  # nothing comes back but from the start
        return frame

    def _answer(self, patience: float) -> Frame | None:
        try:
            if not self._pipe.poll(patience):
                self.close()  # what it answers later must not be taken for the next picture
                self._lost = f'the endoscope did not answer within {patience:g} s'
                raise ResourceError(self._lost)
            answer: Frame | FdrlError | None = self._pipe.recv()
        except (EOFError, OSError) as problem:
            raise self._gone(problem) from None
        if isinstance(answer, FdrlError):
            raise answer
        return answer

    def _gone(self, problem: Exception) -> FdrlError:
        if not self.close.alive:
            return StateError.closed('endoscope')
        return ResourceError(f'the process of the endoscope is gone: {problem!r}')
