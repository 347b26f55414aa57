# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Messages with weights: short ones travel as they are, long weights beside their message.

The message comes without them then. Who is on the same host reads them out of memory; who is not,
or is another user, hears them in pieces on a topic below the message's. Whether they are the ones
that were signed shows when the message is whole again.
"""

from collections.abc import Callable
from dataclasses import replace
import hashlib
from typing import Any, Final, TypeVar

from fdrl_ros.federation.protocol.message import GlobalPolicy, HospitalPolicy
import fdrl_ros.msg as ros
from fdrl_ros.nodes.common import qos
from fdrl_ros.nodes.parties.memory_file import fetch, MemoryFiles
from fdrl_ros.nodes.parties.pieces import Assembly, Stream
from rclpy.qos import QoSProfile

SHORT: Final = 2**18
"""Bytes of weights that travel in their message."""

BESIDE: Final = 'weights'
"""Topic of the pieces, below that of the message."""

Weighted = TypeVar('Weighted', bound=GlobalPolicy | HospitalPolicy)

Work = Callable[[], Any]
Done = Callable[[Any], None]
Run = Callable[[Work, Done], None]
"""Does work on another thread, if there is one, and hands on its result on the executor's."""


Publishers = Callable[[type[Any], str, QoSProfile], Any]
"""Makes a publisher of a type on a topic."""


def apart(message: Weighted) -> tuple[Weighted, bytes]:
    """Take out of a message of the protocol the weights that do not travel in it."""
    if len(message.weights) <= SHORT:
        return message, b''
    return replace(message, weights=b''), message.weights


class WeightsOut:
    """The sender's side of one topic."""

    def __init__(self, make: Publishers, kind: type[Any], topic: str, run: Run) -> None:
        """
        Make the publishers.

        :param kind: ROS type with weights and their digest.
        """
        self._message = make(kind, topic, qos.LATCHED)
        self._run = run
        self._files = MemoryFiles()
        self.stream = Stream(make(ros.Piece, f'{topic}/{BESIDE}', qos.PIECES))

    def publish(self, message: Any, beside: bytes = b'') -> None:
        """
        Publish a message, with long weights beside it as soon as these can be read.

        :param beside: weights that :func:`apart` took out of it.
        """
        if not beside:
            self._message.publish(message)
            return
        digest = bytes(message.digest)

        def announce(_: Any) -> None:
            self._message.publish(message)
            self.stream.begin(beside, digest)

        self._run(lambda: self._files.offer(beside, digest), announce)

    def close(self) -> None:
        """Take back what lies in memory."""
        self._files.close()


class WeightsIn:
    """The reader's side of one topic."""

    def __init__(
        self,
        size: int,
        run: Run,
        listen: Callable[[Callable[[Any], None]], None],
        then: Callable[[Any, bytes | None], None],
    ) -> None:
        """
        Wait for messages.

        :param size: bytes of the weights.
        :param listen: subscribes to the pieces; done only once somebody elsewhere sends long ones.
        :param then: takes a message and, if they came beside it, its weights.
        """
        self._size = size
        self._run = run
        self._listen = listen
        self._then = then
        self._waiting: Any = None
        self._busy = False
        self._assembly: Assembly | None = None

    def take(self, message: Any) -> None:
        """Take a message; the newest counts."""
        if self._size <= SHORT or len(message.weights):
            self._waiting = None
            self._then(message, None)
            return
        self._waiting = message
        self._look_in_memory()

    def _look_in_memory(self) -> None:
        message = self._waiting
        if self._busy or message is None:
            return
        digest, self._busy = bytes(message.digest), True

        def found(data: Any) -> None:
            self._busy = False
            if message is not self._waiting:
                self._look_in_memory()
            elif not self._use(data):
                self._look_at_pieces()

        self._run(lambda: fetch(digest, self._size), found)

    def _look_at_pieces(self) -> None:
        """Hear pieces from now on, and see whether all of the weights are here."""
        if self._assembly is None:
            self._assembly = Assembly(self._size)
            self._listen(self._take_piece)
        message = self._waiting
        if self._busy or message is None:
            return
        digest = bytes(message.digest)
        buffer = self._assembly.pop(digest)
        if buffer is None:
            return
        self._busy = True

        def checked(data: Any) -> None:
            self._busy = False
            if message is self._waiting:
                self._use(data)
            else:
                self._look_in_memory()

        self._run(lambda: _checked(buffer, digest), checked)

    def _take_piece(self, piece: ros.Piece) -> None:
        if self._assembly and self._assembly.take(piece):
            self._look_at_pieces()

    def _use(self, data: Any) -> bool:
        message = self._waiting
        if not isinstance(data, bytes):
            return False
        self._waiting = None
        self._then(message, data)
        return True


def _checked(buffer: bytearray, digest: bytes) -> bytes | None:
    """Return bytes if they have that digest."""
    data = bytes(buffer)
    return data if hashlib.sha256(data).digest() == digest else None
