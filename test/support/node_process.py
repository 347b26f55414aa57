# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""A node in this very process, as the process of that node."""

from pathlib import Path

from fdrl_ros.nodes.aggregator import AggregatorNode
from fdrl_ros.nodes.env import EnvNode
from fdrl_ros.nodes.key_authority import KeyAuthorityNode
from fdrl_ros.nodes.selector import SelectorNode
from fdrl_ros.nodes.trainer import TrainerNode
import rclpy
from rclpy.experimental import EventsExecutor
from rclpy.signals import SignalHandlerOptions

NODES = {
    '/federation/aggregator': AggregatorNode,
    '/federation/key_authority': KeyAuthorityNode,
    '/hospital_1/trainer': TrainerNode,
    '/robot_1/env': EnvNode,
    '/robot_1/selector': SelectorNode,
}


class Process:
    """This process as that of one node; use it in a `with`."""

    def __init__(self, full_name: str, directory: Path, domain: int, *parameters: str) -> None:
        namespace = full_name.rpartition('/')[0]
        given = (f'directory:={directory}', *parameters)
        rclpy.init(
            args=['--ros-args', '-r', f'__ns:={namespace}']
            + [word for each in given for word in ('-p', each)],
            domain_id=domain,
            signal_handler_options=SignalHandlerOptions.NO,
        )
        self.executor = EventsExecutor()
        self.node = NODES[full_name](self.executor.create_task)
        self.executor.add_node(self.node)

    def spin(self, seconds: float = 0.05) -> None:
        self.executor.spin_once(timeout_sec=seconds)

    def close(self, *unused: object) -> None:
        self.node.trigger_shutdown()
        self.executor.remove_node(self.node)
        self.node.destroy_node()
        rclpy.shutdown()

    def __enter__(self):
        return self

    __exit__ = close
