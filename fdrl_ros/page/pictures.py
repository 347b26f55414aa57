# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The endoscope's newest pictures, looked at only while somebody watches, and as JPEG."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
import io
import struct
import threading
from typing import Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image

QUALITY: Final = 80
"""Of the JPEG."""

PATIENCE: Final = 0.5
"""Longest wait for a picture before it is looked whether the client is still there, second."""


class Picture:
    """
    One picture.

    :param read: returns when it was taken, second, and its pixels: shape (height, width, 3),
        uint8, RGB. It is called once, if somebody sees the picture.
    """

    def __init__(self, read: Callable[[], tuple[float, NDArray[np.uint8]]]) -> None:
        self._read = read
        self._encoded = b''
        self._lock = threading.Lock()

    def encoded(self) -> bytes:
        """
        Return the stamp (float64, little-endian) and the JPEG; made once for all clients.

        :raises RecordsError: if it is no colour picture.
        """
        with self._lock:
            if not self._encoded:
                stamp, pixels = self._read()
                made = io.BytesIO()
                Image.fromarray(pixels).save(made, 'JPEG', quality=QUALITY)
                self._encoded = struct.pack('<d', stamp) + made.getvalue()
            return self._encoded


class Newest:
    """The newest picture of one kind of one robot."""

    def __init__(self) -> None:
        self._number, self._picture = 0, Picture(lambda: (0.0, np.zeros((1, 1, 3), np.uint8)))
        self._waiting: dict[asyncio.Future[None], asyncio.AbstractEventLoop] = {}
        self._lock = threading.Lock()
        self.viewers = 0
        self.stop: Callable[[], None] = lambda: None

    def put(self, picture: Picture) -> None:
        """Replace the picture; called on any thread."""
        with self._lock:
            self._number, self._picture = self._number + 1, picture
            waiting, self._waiting = self._waiting, {}
        for future, loop in waiting.items():
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(_finish, future)

    async def after(self, number: int) -> tuple[int, Picture] | None:
        """Return a newer picture than one has, and its number; None if none comes for a while."""
        loop = asyncio.get_running_loop()
        with self._lock:
            if self._number > number:
                return self._number, self._picture
            future = loop.create_future()
            self._waiting[future] = loop
        try:
            await asyncio.wait_for(future, PATIENCE)
        except TimeoutError:
            return None
        finally:
            with self._lock:
                self._waiting.pop(future, None)
        with self._lock:
            return self._number, self._picture


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


Look = Callable[[str, str, Callable[[Picture], None]], Callable[[], None]]
"""Begins to look at a kind of picture of a robot, hands each one on, and returns what ends it."""


class Pictures:
    """
    Begins to look with the first viewer of a picture, and ends with the last.

    :param look: called on the server's thread.
    """

    KINDS: Final = ('image', 'overlay')

    def __init__(self, look: Look) -> None:
        self._look = look
        self._newest: dict[tuple[str, str], Newest] = {}

    @contextmanager
    def looking(self, robot: str, kind: str) -> Iterator[Newest]:
        """Look at a picture while the block runs; on the server's thread alone."""
        newest = self._newest.setdefault((robot, kind), Newest())
        if newest.viewers == 0:
            newest.stop = self._look(robot, kind, newest.put)
        newest.viewers += 1
        try:
            yield newest
        finally:
            newest.viewers -= 1
            if newest.viewers == 0:
                newest.stop()
                del self._newest[robot, kind]
