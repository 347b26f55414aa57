# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""A service whose answer comes later, while the node goes on."""

from collections.abc import Callable
from typing import Any

from fdrl_ros.federation.protocol.message import shortened
from fdrl_ros.nodes.common.managed_node import ManagedNode

Answered = Callable[[bool, str], None]
"""Told whether what was asked for is done, and what there is to say of it."""

Fill = Callable[[Any, bool, str], None]
"""Puts that into the response."""


def _fill(response: Any, success: bool, message: str) -> None:
    response.success, response.message = success, message


def answer_later(
    node: ManagedNode,
    kind: type[Any],
    name: str,
    callback: Callable[[Any, Answered], None],
    fill: Fill = _fill,
) -> None:
    """
    Make a service that tells success and a message, until the present transition is undone.

    Who still waits when the transition is undone is answered: the service ends after that.

    :param callback: given the request, and what to call once with the answer, on the executor's
        thread; a fault of it is one of the node, and answered as such.
    :param fill: puts the answer into the response; into `success` and `message` by default.
    """
    service = _Service(node, node.guarded(callback), fill)
    service.serve(kind, name)
    node.keep(service.close)


class _Service:
    """
    A service that sends its answers itself, when there are any.

    An executor sends what a service's callback returns at once, and the one of Jazzy awaits no
    coroutine: so the callback returns an empty response, and what sends it only keeps it.
    """

    def __init__(
        self, node: ManagedNode, callback: Callable[..., None], fill: Fill = _fill
    ) -> None:
        self._node, self._callback, self._fill = node, callback, fill
        self._waiting, self._closed = 0, False

    def serve(self, kind: type[Any], name: str) -> None:
        """Make the service."""
        made = self._made = self._node.create_service(kind, name, self._take)
        self._send = made.send_response
        made.send_response = self._answer_request

    def _take(self, request: Any, response: Any) -> Any:
        self._request = request
        return response

    def _answer_request(self, response: Any, header: Any) -> None:
        """Call back for the request taken last; send the response when it is there."""
        self._waiting += 1

        def answered(success: bool, message: str) -> None:
            self._fill(response, success, shortened(message))
            self._send(response, header)
            self._waiting -= 1
            # Not within a call of the service itself: the executor holds it.
            self._node.post(self._end_if_idle)

        before = self._waiting
        self._callback(self._request, answered)
        if self._node.fault is not None and self._waiting == before:
            answered(False, 'the node has a fault')

    def close(self) -> None:
        """End, now or after the last answer."""
        self._closed = True
        self._end_if_idle()

    def _end_if_idle(self) -> None:
        if self._closed and not self._waiting:
            self._node.destroy_service(self._made)
