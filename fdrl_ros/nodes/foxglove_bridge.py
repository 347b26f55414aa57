# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Show all topics of DDS domains to Foxglove and Lichtblick, and record them beside that."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, ExitStack
from pathlib import Path
import threading
from typing import Final

from fdrl_ros.errors import FdrlError
from fdrl_ros.nodes.topics.bag_writer import BagWriter
from fdrl_ros.nodes.topics.every_topic import EveryTopic
from fdrl_ros.nodes.topics.foxglove_server import FoxgloveServer, LOOPBACK, OPEN
from fdrl_ros.nodes.topics.sink import Sink
from fdrl_ros.runtime.closeable import Closeable

NAME: Final = 'foxglove_bridge'
"""Name of its node in each domain."""


class FoxgloveBridge(Closeable):
    """
    Joins domains, reads their topics and serves them; publishes nothing and calls nothing.

    Topics are offered as they appear. The bridge subscribes to one while a client does, and to
    latched ones always, so that a client that comes late gets them. Use it in a `with`.

    :param domains: DDS domains; topics of the same name are one.
    :param port: 0 for any that is free.
    :param record: folder of a bag that all topics are written to besides; it must not exist.
    :raises ResourceError: if the SDK is not installed, or the port cannot be had.
    :raises RecordsError: if the folder exists, or cannot be written.
    :raises SettingError: if there is no such domain.
    """

    def __init__(self, domains: Sequence[int], port: int, record: Path | None = None) -> None:
        with ExitStack() as opened:
            server = opened.enter_context(FoxgloveServer(LOOPBACK, port))
            self.address = server.address
            """What Foxglove is told to connect to."""
            sinks: list[Sink] = [server]
            if record is not None:
                sinks.append(opened.enter_context(BagWriter(record)))
            self._every = opened.enter_context(EveryTopic(domains, sinks, name=NAME))
            self._opened = opened.pop_all()

    @property
    def left_out(self) -> tuple[str, ...]:
        """Topics that cannot be shown, and why, in words."""
        return tuple(self._every.left_out.values())

    def poll(self, seconds: float) -> None:
        """
        Serve.

        :param seconds: for how long.
        :raises FdrlError: if the bag cannot be written any more.
        """
        self._every.poll(seconds)

    def close(self) -> None:
        """Leave the domains, disconnect the clients and complete the bag."""
        self._opened.close()


@contextmanager
def served(bridge: FoxgloveBridge, tell: Callable[[str], None]) -> Iterator[None]:
    """
    Serve on a thread of its own.

    :param tell: told the address, and what cannot be shown or written any more, each in a line.
    """
    ended = threading.Event()

    def work() -> None:
        told: set[str] = set()
        try:
            while not ended.is_set():
                bridge.poll(0.2)
                for words in bridge.left_out:
                    if words not in told:
                        told.add(words)
                        tell(f'left out: {words}')
        except FdrlError as error:
            tell(f'nothing is shown to Foxglove any more: {error}')

    thread = threading.Thread(target=work, name='foxglove', daemon=True)
    with bridge:
        tell(f'serving {bridge.address}: in Foxglove or Lichtblick, open a Foxglove WebSocket')
        tell(OPEN)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
