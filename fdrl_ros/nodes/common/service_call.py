# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Nodes that look into a domain from outside of it, and calls of services there."""

from collections.abc import Iterator
from contextlib import contextmanager
import os
from typing import Any

from fdrl_ros.deployment.bringup import check_domain
from fdrl_ros.deployment.security.variables import check_security
from fdrl_ros.errors import OrderError
import rclpy
from rclpy.context import Context
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.parameter import Parameter

PATIENCE = 10.0
"""Longest wait for the server, and for its answer, second."""


@contextmanager
def node_in(domain: int, name: str, namespace: str | None = None) -> Iterator[Node]:
    """
    Make a node in a DDS domain, in a context of its own, that offers nothing by itself.

    :raises SettingError: if there is no such domain, or if variables ask for security and it
        would run without.
    """
    check_domain('domain', str(domain))
    check_security(os.environ, rclpy.get_rmw_implementation_identifier())
    context = Context()
    # Words of the command line are not ROS's.
    rclpy.init(args=[], context=context, domain_id=domain)
    node = rclpy.create_node(
        name,
        namespace=namespace,
        context=context,
        enable_rosout=False,
        start_parameter_services=False,
        use_global_arguments=False,
        parameter_overrides=[Parameter('start_type_description_service', value=False)],
    )
    try:
        yield node
    finally:
        node.destroy_node()
        rclpy.shutdown(context=context)


def call(kind: type[Any], name: str, request: object, domain: int) -> Any:
    """
    Call a service.

    :param domain: DDS domain that it is in.
    :returns: its answer, or None if none came in time.
    :raises OrderError: if there is no such service.
    """
    with node_in(domain, 'operator') as node:
        executor = SingleThreadedExecutor(context=node.context)
        executor.add_node(node)
        client = node.create_client(kind, name)
        if not client.wait_for_service(PATIENCE):
            raise OrderError(
                f'no service {name} in DDS domain {domain}: is its node active there (another '
                'domain: --domain), and told the same namespace?'
            )
        future = client.call_async(request)
        executor.spin_until_future_complete(future, PATIENCE)
        executor.remove_node(node)
        return future.result() if future.done() else None
