# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""One call of a service, for commands that are no node otherwise."""

from typing import Any

from fdrl_ros.errors import OrderError
import rclpy
from rclpy.context import Context
from rclpy.executors import SingleThreadedExecutor

PATIENCE = 10.0
"""Longest wait for the server, and for its answer, second."""


def call(kind: type[Any], name: str, request: object, domain: int) -> Any:
    """
    Call a service.

    :param domain: DDS domain that it is in.
    :returns: its answer, or None if none came in time.
    :raises OrderError: if there is no such service.
    """
    context = Context()
    rclpy.init(context=context, domain_id=domain)
    node = rclpy.create_node('operator', context=context, use_global_arguments=False)
    executor = SingleThreadedExecutor(context=context)
    executor.add_node(node)
    try:
        client = node.create_client(kind, name)
        if not client.wait_for_service(PATIENCE):
            raise OrderError(
                f'no service {name} in DDS domain {domain}: is its node active there (another '
                'domain: --domain), and told the same namespace?'
            )
        future = client.call_async(request)
        executor.spin_until_future_complete(future, PATIENCE)
        return future.result() if future.done() else None
    finally:
        executor.remove_node(node)
        node.destroy_node()
        rclpy.shutdown(context=context)
