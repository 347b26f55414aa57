# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What a node does for messages with long weights: it writes, reads and streams them aside."""

from collections.abc import Callable
from typing import Any

import fdrl_ros.msg as ros
from fdrl_ros.nodes.common import qos
from fdrl_ros.nodes.common.managed_node import ManagedNode, PATIENCE
from fdrl_ros.nodes.parties.long_weights import BESIDE, WeightsIn, WeightsOut
from fdrl_ros.nodes.parties.pieces import PERIOD, Stream
from fdrl_ros.runtime.worker_thread import Worker

WAITING = 2000
"""Weights that may wait to be read or written: some of each hospital."""

LOOK = 0.25
"""Time between two looks whether a stream is due, second."""


class Courier:
    """
    Long weights of one node, while that is configured.

    Files are read and written on a thread of its own; what is streamed goes from a quick timer
    that runs only while it is needed. The executor's thread is never held up for long.
    """

    def __init__(self, node: ManagedNode) -> None:
        """Have nothing to carry."""
        self._node = node
        self._streams: list[Stream] = []
        self._thread: Worker | None = None

    def publisher(
        self, kind: type[Any], topic: str, make: Callable[..., Any] | None = None
    ) -> WeightsOut:
        """
        Make a publisher of messages whose weights may be long.

        :param make: makes the publishers; the node unless given.
        """
        made = WeightsOut(make or self._node.publisher, kind, topic, self._aside)
        self._node.keep(made.close)
        self._streams.append(made.stream)
        return made

    def begin(self) -> None:
        """Start the thread and the timers, on activation."""
        self._thread = Worker(f'{self._node.get_name()} courier', self._node.post, WAITING)
        self._node.keep(self._end)
        if self._streams:
            self._timer = self._node.every(PERIOD, self._burst)
            self._timer.cancel()
            self._node.every(LOOK, self._look)

    def hear(
        self, kind: type[Any], topic: str, size: int, then: Callable[[Any, bytes | None], None]
    ) -> None:
        """
        Hear messages whose weights may be long.

        :param size: bytes of the weights.
        :param then: takes a message and, if they came beside it, its weights.
        """
        node = self._node

        def listen(take: Callable[[Any], None]) -> None:
            with node.later():
                node.hear(ros.Piece, f'{topic}/{BESIDE}', take, qos.PIECES)

        node.hear(kind, topic, WeightsIn(size, self._aside, listen, then).take, qos.HEARD)

    def _aside(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        """Do what is short, but too long for the executor's thread."""
        if self._thread is not None:
            guarded = self._node.guarded(done)
            self._thread.submit(lambda report, stopped: work(), guarded, guarded)

    def _end(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.close(PATIENCE)

    def _look(self) -> None:
        """Begin to stream if anything is due."""
        if self._timer.is_canceled() and any(each.is_due for each in self._streams):
            self._timer.reset()

    def _burst(self) -> None:
        due = [each for each in self._streams if each.is_due]
        if not [each for each in due if each.burst()]:
            self._timer.cancel()
