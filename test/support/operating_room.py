# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Somebody in the operating room: hears what a robot says and may speak on any of its topics."""

from collections import defaultdict
from collections.abc import Callable
import time
from typing import Any

import pytest
import rclpy
from rclpy.context import Context
from rclpy.experimental import EventsExecutor
from rclpy.qos import QoSProfile


class Room:
    """A node of the test's own below a robot's namespace."""

    def __init__(self, domain: int, namespace: str = '/robot_1') -> None:
        self.context = Context()
        rclpy.init(context=self.context, domain_id=domain)
        self.node = rclpy.create_node('visitor', namespace=namespace, context=self.context)
        self.executor = EventsExecutor(context=self.context)
        self.executor.add_node(self.node)
        self.heard: dict[str, list[tuple[float, Any]]] = defaultdict(list)

    def hear(self, kind: type[Any], topic: str, profile: QoSProfile) -> None:
        """Keep all that comes on a topic with its time of arrival."""

        def take(message: Any) -> None:
            self.heard[topic].append((time.monotonic(), message))

        self.node.create_subscription(kind, topic, take, profile)

    def last(self, topic: str) -> Any:
        """Return what came last, or None."""
        return self.heard[topic][-1][1] if self.heard[topic] else None

    def wait(self, condition: Callable[[], Any], seconds: float) -> None:
        """Listen until a condition holds."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, f'not within {seconds} s'
            self.executor.spin_once(timeout_sec=0.005)

    def ask(self, kind: type[Any], name: str, request: Any) -> Any:
        """Call a service."""
        client = self.node.create_client(kind, name)
        if not client.wait_for_service(15.0):
            pytest.fail(f'no service {name}')
        future = client.call_async(request)
        self.wait(future.done, 10.0)
        return future.result()

    def close(self) -> None:
        """Leave."""
        self.executor.remove_node(self.node)
        self.node.destroy_node()
        rclpy.shutdown(context=self.context)
        # The executor never lets go of callbacks, which hold this: without a context of its own it
        # keeps no participant announced. A process can have about thirty before others do not
        # find the next one.
        del self.executor, self.node, self.context
