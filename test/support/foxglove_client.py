# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""A client of Foxglove's WebSocket protocol, as the official apps are."""

from collections import defaultdict
from collections.abc import Callable
import json
import struct
import time
from typing import Any

from websockets.sync.client import connect

PROTOCOL = 'foxglove.sdk.v1'
UNKNOWN = 'Unknown channel ID: '


class FoxgloveClient:
    """Connects, and keeps what is offered and what comes; use it in a `with`."""

    def __init__(self, address: str, **headers: str) -> None:
        self._connected = connect(
            address, subprotocols=[PROTOCOL], max_size=None, additional_headers=headers
        )
        self.server: dict[str, Any] = {}
        self.channels: dict[str, dict[str, Any]] = {}
        self.heard: defaultdict[str, list[bytes]] = defaultdict(list)
        self._subscribed: dict[int, str] = {}

    def __enter__(self) -> 'FoxgloveClient':
        self._socket = self._connected.__enter__()
        return self

    def __exit__(self, *unused: object) -> None:
        self._connected.__exit__(None, None, None)

    def subscribe(self, *topics: str) -> None:
        for topic in topics:
            number = len(self._subscribed) + 1
            self._subscribed[number] = topic
            self._ask_for(number)

    def _ask_for(self, number: int) -> None:
        wanted = {'id': number, 'channelId': self.channels[self._subscribed[number]]['id']}
        self.send({'op': 'subscribe', 'subscriptions': [wanted]})

    def unsubscribe(self, topic: str) -> None:
        number = next(each for each, name in self._subscribed.items() if name == topic)
        self.send({'op': 'unsubscribe', 'subscriptionIds': [number]})

    def send(self, message: dict[str, Any]) -> None:
        self._socket.send(json.dumps(message))

    def wait(self, condition: Callable[[], Any], seconds: float = 20.0) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, f'not within {seconds} s'
            try:
                self._take(self._socket.recv(timeout=0.1))
            except TimeoutError:
                continue

    def _take(self, message: str | bytes) -> None:
        if isinstance(message, bytes):
            kind, number, _time = struct.unpack('<BIQ', message[:13])
            if kind == 1:
                self.heard[self._subscribed[number]].append(message[13:])
            return
        said = json.loads(message)
        if said['op'] == 'serverInfo':
            self.server = said
        elif said['op'] == 'advertise':
            self.channels |= {each['topic']: each for each in said['channels']}
        elif said['op'] == 'status' and said['message'].startswith(UNKNOWN):
            # The SDK offers a channel a moment before it takes subscriptions to it.
            channel = int(said['message'].removeprefix(UNKNOWN))
            for number, topic in self._subscribed.items():
                if self.channels[topic]['id'] == channel:
                    self._ask_for(number)
