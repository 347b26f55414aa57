# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Nodes in processes of their own, and one in this very process."""

from collections.abc import Sequence
import os
from pathlib import Path
import subprocess

from fdrl_ros.deployment.bringup import BringupSettings, environment, NodeSpec
from fdrl_ros.deployment.runner import command
from fdrl_ros.nodes.aggregator import AggregatorNode
from fdrl_ros.nodes.env import EnvNode
from fdrl_ros.nodes.key_authority import KeyAuthorityNode
from fdrl_ros.nodes.monitor import MonitorNode
from fdrl_ros.nodes.segmenter import SegmenterNode
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
    '/robot_1/monitor': MonitorNode,
    '/robot_1/segmenter': SegmenterNode,
    '/robot_1/selector': SelectorNode,
}
"""Kind of each node, by its full name in a federation without a namespace in front."""


class Process:
    """This process as that of one node; use it in a `with`."""

    def __init__(
        self,
        full_name: str,
        directory: Path,
        domain: int,
        *parameters: str,
        words: Sequence[str] = (),
    ) -> None:
        """
        Make the node.

        :param words: further ROS arguments.
        """
        namespace, _, name = full_name.rpartition('/')
        given = (f'directory:={directory}', *parameters)
        rclpy.init(
            args=['--ros-args', '-r', f'__ns:={namespace}']
            + [word for each in given for word in ('-p', each)]
            + [*words],
            domain_id=domain,
            signal_handler_options=SignalHandlerOptions.NO,
        )
        self.executor = EventsExecutor()
        try:
            kind = NODES[f'/{namespace.rpartition("/")[2]}/{name}']
            self.node = kind(self.executor.create_task)
        except BaseException:
            rclpy.shutdown()
            raise
        self.executor.add_node(self.node)

    def spin(self, seconds: float = 0.05) -> None:
        self.executor.spin_once(timeout_sec=seconds)

    def close(self, *unused: object) -> None:
        self.node.trigger_shutdown()
        self.executor.spin_once(timeout_sec=0.0)  # it lets go of what was destroyed
        self.executor.remove_node(self.node)
        self.node.destroy_node()
        # The node and its state machine hold each other where no garbage collector looks. They
        # would keep a participant in this process, which all later ones would find.
        vars(self.node).clear()
        rclpy.shutdown()

    def __enter__(self):
        return self

    __exit__ = close


def begin(spec: NodeSpec, settings: BringupSettings) -> subprocess.Popen[str]:
    """Start a node as a process whose output is kept."""
    variables = {**os.environ, **environment(settings, spec.domain)}
    output = {'stdout': subprocess.PIPE, 'stderr': subprocess.STDOUT}
    return subprocess.Popen(command(spec), env=variables, text=True, **output)


def run(spec: NodeSpec, settings: BringupSettings) -> tuple[int, str]:
    """Wait for the end of a node, and return its exit code and output."""
    with begin(spec, settings) as process:
        try:
            output, _ = process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    return process.returncode, output
