# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""An endoscope in a process of its own: pictures that do not stop the threads of this one."""

from collections.abc import Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection
import threading
from typing import Any
import weakref

from fdrl_ros.errors import FdrlError, ResourceError
from fdrl_ros.runtime.interrupts import spared_interrupts
from fdrl_ros.surgery.arm.kinematics import checked_joints
from fdrl_ros.surgery.closed_error import closed_error
from fdrl_ros.surgery.render.camera import Camera
from fdrl_ros.surgery.render.endoscope import Endoscope, Frame
from fdrl_ros.surgery.render.view import View

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


def _end(pipe: Connection, process: Any, lock: threading.RLock) -> None:
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
                raise closed_error('endoscope')
            if not self._is_up:
                self._answer(_START_TIME)
                self._is_up = True
            try:
                self._pipe.send((checked_joints(joints), jaw, view))
            except (BrokenPipeError, OSError) as problem:
                raise self._gone(problem) from None
            frame: Frame = self._answer(_DRAW_TIME)
        return frame

    def _answer(self, patience: float) -> Any:
        try:
            if not self._pipe.poll(patience):
                self.close()  # what it answers later must not be taken for the next picture
                self._lost = f'the endoscope did not answer within {patience:g} s'
                raise ResourceError(self._lost)
            answer = self._pipe.recv()
        except (EOFError, OSError) as problem:
            raise self._gone(problem) from None
        if isinstance(answer, FdrlError):
            raise answer
        return answer

    def _gone(self, problem: Exception) -> FdrlError:
        if not self.close.alive:
            return closed_error('endoscope')
        return ResourceError(f'the process of the endoscope is gone: {problem!r}')
