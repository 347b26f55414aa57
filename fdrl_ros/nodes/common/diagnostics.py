# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The node's health on /diagnostics once a second, as REP 107 has it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from fdrl_ros.nodes.common import qos
from rclpy.clock import Clock, ClockType
from rclpy.node import Node


class Level(IntEnum):
    """How well a node is."""

    OK = 0
    WARN = 1
    ERROR = 2


@dataclass(frozen=True)
class Health:
    """What a node says of itself."""

    level: Level
    summary: str
    values: Mapping[str, object] = field(default_factory=dict)


class Diagnostics:
    """Publishes a node's health for as long as the node lives, whatever its state."""

    def __init__(self, node: Node, part: str, hardware: str, health: Callable[[], Health]) -> None:
        """
        Begin.

        :param part: of the node, which is told of.
        :param hardware: the hospital or the robot.
        :param health: asked once a second, on the executor's thread.
        """
        self._node = node
        self._name = f'{node.get_fully_qualified_name()}: {part}'
        self._hardware = hardware
        self._health = health
        self._publisher = node.create_publisher(DiagnosticArray, '/diagnostics', qos.DIAGNOSTICS)
        steady = Clock(clock_type=ClockType.STEADY_TIME)
        self._timer = node.create_timer(1.0, self.publish, clock=steady)

    def publish(self) -> None:
        """Say how the node is now."""
        try:
            health = self._health()
        except Exception as error:  # what looks after the node must not end it
            health = Health(Level.ERROR, f'no health: {error!r}')
        status = DiagnosticStatus(
            level=bytes([health.level]),
            name=self._name,
            message=health.summary,
            hardware_id=self._hardware,
            values=[KeyValue(key=key, value=str(value)) for key, value in health.values.items()],
        )
        array = DiagnosticArray(status=[status])
        array.header.stamp = self._node.get_clock().now().to_msg()
        self._publisher.publish(array)
