# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Serve topics to Foxglove and Lichtblick over Foxglove's WebSocket protocol, with the official SDK.

The SDK takes connections of any Origin, so any page that is open on this host can read what is
served. Nothing here acts: clients can neither publish nor call services nor set parameters.
"""

from collections import defaultdict, deque
import threading
from types import ModuleType
from typing import Any, Final

from fdrl_ros.errors import ResourceError
from fdrl_ros.nodes.topics.message_types import schema
from fdrl_ros.nodes.topics.sink import Sink, Topic

LOOPBACK: Final = '127.0.0.1'

OPEN: Final = 'Any page that is open in a browser of this host can read it, without login.'
"""What whoever serves is told."""

LATE: Final = 10
"""Newest messages of a latched topic that a late client gets, as many as our nodes latch."""

_BACKLOG = 512  # messages that wait for a slow client; older ones are dropped


def foxglove_sdk() -> ModuleType:
    """
    Return the SDK, which not all users need.

    :raises ResourceError: if it is not installed.
    """
    try:
        import foxglove
    except ImportError as error:
        raise ResourceError(
            f'Foxglove needs its SDK ({error}): pip install "fdrl_ros[foxglove]"'
        ) from error
    return foxglove


class FoxgloveServer(Sink):
    """
    A server that clients only read from.

    :param host: address that it listens on.
    :param port: likewise; 0 for any that is free.
    :raises ResourceError: if the SDK is not installed, or the port cannot be had.
    """

    def __init__(self, host: str, port: int) -> None:
        library = foxglove_sdk()
        self._library = library
        self._context = library.Context()
        self._lock = threading.Lock()
        self._channels: dict[str, Any] = {}
        self._clients: defaultdict[str, set[int]] = defaultdict(set)
        self._kept: dict[str, deque[tuple[int, bytes]]] = {}
        try:
            self._server = library.start_server(
                name='fdrl_ros',
                host=host,
                port=port,
                capabilities=[],
                server_listener=self,
                context=self._context,
                message_backlog_size=_BACKLOG,
            )
        except (RuntimeError, ValueError, OverflowError) as error:
            words = str(error).removeprefix('FoxgloveError: ')
            raise ResourceError(f'cannot serve on {host}:{port}: {words}') from error
        self.address = f'ws://{host}:{self._server.port}'
        """What Foxglove is told to connect to."""

    def announce(self, topic: Topic, definition: str = '') -> None:
        """
        Offer a topic to all clients.

        :param definition: of its type, with those of all types in it; that which is installed, if
            empty.
        :raises TopicError: if the definition is not installed.
        """
        data = (definition or schema(topic.kind)).encode()
        shape = self._library.Schema(name=topic.kind, encoding='ros2msg', data=data)
        if topic.latched:
            self._kept[topic.name] = deque(maxlen=LATE)
        self._channels[topic.name] = self._library.Channel(
            topic.name, schema=shape, message_encoding='cdr', context=self._context
        )

    def wants(self, topic: Topic) -> bool:
        """Return whether a client subscribes to a topic, or might come late to it."""
        return topic.latched or bool(self._clients.get(topic.name))

    def take(self, topic: Topic, now: int, data: bytes) -> None:
        """Send a message to the clients that subscribe to its topic."""
        with self._lock:
            if topic.latched:
                self._kept[topic.name].append((now, data))
            self._channels[topic.name].log(data, log_time=now)

    def on_subscribe(self, client: Any, channel: Any) -> None:
        """Give a client what its topic latches; the SDK calls this in a thread of its own."""
        with self._lock:
            self._clients[channel.topic].add(client.id)
            # The SDK has no name for one client alone: others see the same messages again.
            for now, data in self._kept.get(channel.topic, ()):
                self._channels[channel.topic].log(data, log_time=now)

    def on_unsubscribe(self, client: Any, channel: Any) -> None:
        """Take note that a client left a topic."""
        with self._lock:
            self._clients[channel.topic].discard(client.id)

    def close(self) -> None:
        """Disconnect all clients."""
        self._server.stop()
        for channel in self._channels.values():
            channel.close()
