# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""CRTK's topics of one arm: commands in, readings and the operating state out."""

from collections.abc import Callable, Sequence
from typing import Any

from fdrl_ros.env.arm_control import ArmControl
from fdrl_ros.env.operation import Operation
from fdrl_ros.errors import StateError
from fdrl_ros.nodes import qos
from fdrl_ros.nodes.arm_readings import ArmReadings, READINGS
from fdrl_ros.nodes.crtk_messages import OperatingState, StringStamped
from fdrl_ros.nodes.managed_node import ManagedNode
from fdrl_ros.nodes.robot_messages import seconds
from geometry_msgs.msg import PoseStamped
from sensor_msgs.msg import JointState
from std_msgs.msg import Empty

STATE_PERIOD = 1.0
"""How often the operating state is told though nothing changed, s."""


def _pose(command: PoseStamped) -> tuple[Sequence[float], Sequence[float]]:
    at, turned = command.pose.position, command.pose.orientation
    return (at.x, at.y, at.z), (turned.x, turned.y, turned.z, turned.w)


def _joints(command: JointState) -> tuple[Sequence[str], Sequence[float]]:
    return command.name, command.position.tolist()


class ArmInterface:
    """
    Hears and speaks for the arm of a node.

    A command that is refused is told in the log, at most once a second, and the arm holds.
    A motion command with a stamp from before the present patient was meant for another one, and
    is dropped.

    :param node: whose topics these are; made while it is configured.
    :param operation: the arm is in.
    """

    def __init__(self, node: ManagedNode, operation: Operation) -> None:
        self._node = node
        self.control = ArmControl(operation)
        self._readings = ArmReadings(operation, self.control)
        self._publishers = [
            (node.publisher(kind, topic, qos.STATE), make)
            for topic, (kind, make) in READINGS.items()
        ]
        self._state = node.publisher(OperatingState, 'operating_state', qos.LATCHED)
        self.commanded = False
        """Whether the present patient's arm was given a motion command."""
        self._since = 0.0
        self._quiet_until = 0.0
        self._told: tuple[str, bool, bool] | None = None
        self._told_at = 0.0

    def begin(self) -> None:
        """Take commands; while the node is activated."""
        node, control, orders = self._node, self.control, self._orders
        self._told = None
        for topic, kind, read, obey, profile in (
            ('servo_cp', PoseStamped, _pose, control.servo_cp, qos.COMMAND),
            ('servo_jp', JointState, _joints, control.servo_jp, qos.COMMAND),
            ('move_cp', PoseStamped, _pose, control.move_cp, qos.EVENT),
            ('move_jp', JointState, _joints, control.move_jp, qos.EVENT),
            ('jaw/servo_jp', JointState, _joints, control.servo_jaw, qos.COMMAND),
            ('jaw/move_jp', JointState, _joints, control.move_jaw, qos.EVENT),
        ):
            node.hear(kind, topic, orders(topic, read, obey), profile)
        node.hear(StringStamped, 'state_command', self._command, qos.EVENT)
        node.hear(Empty, 'hold', lambda _: control.hold(), qos.EVENT)

    def place(self) -> None:
        """Take motion commands for the patient who is on the table now."""
        self.control.engage()
        self._readings.reset()
        self.commanded = False
        self._since = seconds(self._node.get_clock().now().to_msg())

    def leave(self, pause: float) -> None:
        """
        Take no more motion commands: the operation is over.

        :param pause: for how long such commands are dropped without a word, s.
        """
        self.control.disengage()
        self._quiet_until = self._node.now + pause

    def publish(self, stamp: Any, *, placed: bool) -> None:
        """
        Tell what the arm measures, and its operating state when it changed.

        :param placed: whether there is an arm to measure: not before the first patient.
        """
        if placed:
            now = self._readings.take(stamp)
            for publisher, make in self._publishers:
                if publisher.get_subscription_count():
                    publisher.publish(make(now))
        self._tell(again=self._node.now - self._told_at >= STATE_PERIOD)

    def _tell(self, *, again: bool = False) -> None:
        """Publish the operating state if it changed, or once more."""
        state = self.control.operating_state
        told = (str(state.state), state.is_homed, state.is_busy)
        if told == self._told and not again:
            return
        self._told, self._told_at = told, self._node.now
        name, homed, busy = told
        message = OperatingState(state=name, is_homed=homed, is_busy=busy)
        self._state.publish(self._node.stamped(message))

    def _orders(
        self, topic: str, read: Callable[[Any], tuple[Any, Any]], obey: Callable[..., None]
    ) -> Callable[[Any], None]:
        """Return what is called with each command of a topic."""

        def take(command: Any) -> None:
            sent = seconds(command.header.stamp)
            if not self.control.engaged and self._node.now < self._quiet_until:
                return
            if sent == 0.0:
                self._warn(f'{topic} without a stamp: expected the time at which it was sent')
            elif sent >= self._since:
                self._obey(lambda: obey(*read(command)))

        return take

    def _obey(self, order: Callable[[], None]) -> None:
        try:
            order()
        except StateError as error:
            self.control.hold()
            self._warn(str(error))
        else:
            self.commanded = True
        self._tell()

    def _command(self, command: Any) -> None:
        try:
            self.control.command(command.string)
        except StateError as error:
            self._warn(str(error))
        self._tell()

    def _warn(self, text: str) -> None:
        self._node.get_logger().warning(f'refused: {text}', throttle_duration_sec=1.0)
