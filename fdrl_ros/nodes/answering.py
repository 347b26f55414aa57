# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""A service whose answer comes later, while the node goes on."""

from collections.abc import Callable
from typing import Any

from fdrl_ros.nodes.managed_node import ManagedNode

Answered = Callable[[bool, str], None]
"""Told whether what was asked for is done, and what there is to say of it."""


def answer_later(
    node: ManagedNode, kind: type[Any], name: str, callback: Callable[[Any, Answered], None]
) -> None:
    """
    Make a service with `success` and `message`, until the present transition is undone.

    Answers go out when the executor's thread is free again, and only while the service is there.

    :param callback: given the request, and what to call once with the answer; a fault of it is
        one of the node, and answered as such.
    """
    guarded = node.guarded(callback)

    async def serve(request: Any, response: Any) -> Any:
        answer = node.executor.create_future()

        def answered(success: bool, message: str) -> None:
            answer.set_result((success, message))

        guarded(request, answered)
        if node.fault is None:
            node.answering += 1
            response.success, response.message = await answer
            node.answering -= 1
        else:
            response.success, response.message = False, 'the selector has a fault'
        return response

    made = node.create_service(kind, name, serve)
    node.keep(lambda: node.destroy_service(made))
