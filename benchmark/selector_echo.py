# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
A bare rclpy node that answers each state with an action: the peer of benchmark/selector.py.

It has the messages, the quality of service and the executor's loop of the selector's node, and
nothing else: a subscription, a publisher, one message filled in. Started as
`selector_echo.py NAMESPACE`; it ends with the process that started it.
"""

import gc
import os
import sys

import fdrl_ros.msg as ros
from fdrl_ros.nodes.common import qos
from fdrl_ros.nodes.common.managed_node import SPIN
import rclpy
from rclpy.experimental import EventsExecutor
from rclpy.task import Future


def main() -> None:
    """Answer until the parent ends."""
    parent = os.getppid()
    rclpy.init()
    node = rclpy.create_node('echo', namespace=sys.argv[1])
    action = node.create_publisher(ros.SelectedAction, 'action', qos.ACTION)

    def answer(source: ros.OperationState) -> None:
        made = ros.SelectedAction(patient=source.patient, policy='echo', reason='best')
        made.header.stamp = source.header.stamp
        action.publish(made)

    node.create_subscription(ros.OperationState, 'operation_state', answer, qos.SENSOR)
    executor = EventsExecutor()
    executor.add_node(node)
    gc.collect()
    gc.freeze()
    gc.disable()
    never = Future(executor=executor)
    while os.getppid() == parent:
        executor.spin_until_future_complete(never, timeout_sec=SPIN)
    os._exit(0)


if __name__ == '__main__':
    main()
