# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Somebody in the operating room: hears what a robot says and may speak on any of its topics."""

from collections import defaultdict
from collections.abc import Callable
import time
from typing import Any

from fdrl_ros.action import Operate
import pytest
import rclpy
from rclpy.action import ActionClient
from rclpy.action.client import ClientGoalHandle
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
        self._operate = ActionClient(self.node, Operate, 'env/operate')

    def hear(self, kind: type[Any], topic: str, profile: QoSProfile) -> None:
        """Keep all that comes on a topic with its time of arrival."""

        def take(message: Any) -> None:
            self.heard[topic].append((time.monotonic(), message))

        self.node.create_subscription(kind, topic, take, profile)

    def last(self, topic: str) -> Any:
        """Return what came last, or None."""
        return self.heard[topic][-1][1] if self.heard[topic] else None

    def wait(self, condition: Callable[[], Any], seconds: float = 60.0) -> None:
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
        self.wait(future.done)
        return future.result()

    def operate(self, procedure: str = '', index: int = 0) -> ClientGoalHandle:
        """Send the env a goal; its feedback is kept as `feedback`, that of goals before is not."""
        if not self._operate.wait_for_server(15.0):
            pytest.fail('no action operate')
        self.heard['feedback'] = kept = []

        def take(message: Any) -> None:
            kept.append((time.monotonic(), message.feedback))

        goal = Operate.Goal(procedure=procedure, index=index)
        future = self._operate.send_goal_async(goal, feedback_callback=take)
        self.wait(future.done)
        return future.result()

    @property
    def takes_goals(self) -> bool:
        """Whether an env that takes goals is there."""
        return bool(self._operate.server_is_ready())

    def operate_now(self, procedure: str = '', index: int = 0) -> str:
        """Send the env a goal, and return the patient when that one is on the table."""
        assert self.operate(procedure, index).accepted
        self.wait(lambda: self.last('feedback') and self.last('feedback').patient)
        return self.last('feedback').patient

    def outcome_of(self, goal: ClientGoalHandle, seconds: float = 60.0) -> tuple[int, Any]:
        """Wait for the end of a goal; return its status and the outcome of the operation."""
        future = goal.get_result_async()
        self.wait(future.done, seconds)
        return future.result().status, future.result().result.outcome

    def close(self) -> None:
        """Leave."""
        self._operate.destroy()
        self.executor.remove_node(self.node)
        self.node.destroy_node()
        rclpy.shutdown(context=self.context)
        # The executor never lets go of callbacks, which hold this: without a context of its own it
        # keeps no participant announced. A process can have about thirty before others do not
        # find the next one.
        del self.executor, self.node, self.context, self._operate
