# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""A service whose answer comes later, while the node goes on."""

from collections.abc import Callable
from typing import Any

from fdrl_ros.nodes.common.managed_node import ManagedNode
from rclpy.task import Future

Answered = Callable[[bool, str], None]
"""Told whether what was asked for is done, and what there is to say of it."""


def answer_later(
    node: ManagedNode, kind: type[Any], name: str, callback: Callable[[Any, Answered], None]
) -> None:
    """
    Make a service with `success` and `message`, until the present transition is undone.

    Answers go out when the executor's thread is free again. Those that are on their way when the
    transition is undone still go out: the service ends after the last of them.

    :param callback: given the request, and what to call once with the answer; a fault of it is
        one of the node, and answered as such.
    """
    service = _Service(node, node.guarded(callback))
    service.made = node.create_service(kind, name, service.serve)
    node.keep(service.close)


class _Service:
    """A service that ends when it has answered; to send without it would crash the executor."""

    made: Any

    def __init__(self, node: ManagedNode, callback: Callable[..., None]) -> None:
        self._node, self._callback = node, callback
        self._unsent, self._closed = 0, False

    async def serve(self, request: Any, response: Any) -> Any:
        """Fill in the response when the answer is there; the executor sends it after that."""
        node = self._node
        answer = Future(executor=node.executor)

        def answered(success: bool, message: str) -> None:
            answer.set_result((success, message))

        self._unsent += 1
        node.answering += 1
        self._callback(request, answered)
        if node.fault is None:
            response.success, response.message = await answer
        else:
            response.success, response.message = False, 'the selector has a fault'
        # The first turn comes before the sending, which is posted when this returns.
        node.post(lambda: node.post(self._sent))
        return response

    def close(self) -> None:
        """End, now or after the answers that are on their way."""
        self._closed = True
        self._end_if_idle()

    def _sent(self) -> None:
        self._unsent -= 1
        self._node.answering -= 1
        self._end_if_idle()

    def _end_if_idle(self) -> None:
        if self._closed and not self._unsent:
            self._node.destroy_service(self.made)
