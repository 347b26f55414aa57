# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Brings an operator's signed order to its server, and back what the server says to it."""

from fdrl_ros.errors import OrderError
from fdrl_ros.federation.message import Order
from fdrl_ros.nodes.convert import to_ros
import fdrl_ros.srv as srv
import rclpy
from rclpy.context import Context
from rclpy.executors import SingleThreadedExecutor

PATIENCE = 10.0
"""Longest wait for the server, and for its answer, second."""


def deliver(order: Order, domain: int, federation: str) -> None:
    """
    Have a server take an order.

    :param domain: DDS domain of the federation.
    :param federation: namespace of its servers.
    :raises OrderError: if the server is not there, does not answer, or refuses.
    """
    name = f'/{federation.strip("/")}/{order.to}/order'
    context = Context()
    rclpy.init(context=context, domain_id=domain)
    node = rclpy.create_node('operator', context=context, use_global_arguments=False)
    executor = SingleThreadedExecutor(context=context)
    executor.add_node(node)
    try:
        client = node.create_client(srv.Order, name)
        if not client.wait_for_service(PATIENCE):
            raise OrderError(
                f'no service {name} in DDS domain {domain}: is the {order.to} active there, and '
                'told the same namespace?'
            )
        future = client.call_async(to_ros(order, srv.Order.Request()))
        executor.spin_until_future_complete(future, PATIENCE)
        answer = future.result() if future.done() else None
    finally:
        executor.remove_node(node)
        node.destroy_node()
        rclpy.shutdown(context=context)
    if answer is None:
        raise OrderError(
            f'{name} did not answer within {PATIENCE:g} s: look in its log or journal whether it '
            f'took {order.action}'
        )
    if not answer.received:
        raise OrderError(f'the {order.to} refused: {answer.reason}')
