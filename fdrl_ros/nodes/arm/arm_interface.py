# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""CRTK's topics of one arm: commands in, readings and the operating state out."""

from collections.abc import Callable
from functools import partial
from typing import Any

from builtin_interfaces.msg import Time
from fdrl_ros.errors import StateError
from fdrl_ros.federation.protocol.party import worth_logging
from fdrl_ros.nodes.arm import robot_messages
from fdrl_ros.nodes.arm.arm_readings import ArmReadings, READINGS
from fdrl_ros.nodes.arm.commands import OBEYED, Read, REFUSED
from fdrl_ros.nodes.arm.kinematics_queries import answer_kinematics
from fdrl_ros.nodes.arm.robot_messages import (
    seconds,
    StringStamped,
    warn_without_crtk,
    with_frames,
)
from fdrl_ros.nodes.common import qos
from fdrl_ros.nodes.common.managed_node import ManagedNode
from fdrl_ros.surgery.arm.controller import ArmControl
from fdrl_ros.surgery.arm.free_motion import FreeMotion
from fdrl_ros.surgery.arm.mount import Mount
from fdrl_ros.surgery.arm.operating_state import CommandError, OperatingState
from fdrl_ros.surgery.gym.operation import Operation
from std_msgs.msg import Empty

STATE_PERIOD = 1.0
"""How often the operating state is told though nothing changed, s."""

WARNING_PERIOD = 1.0
"""Between two warnings about one topic, s."""

GRACE = 0.1
"""For how long commands to the arm as it was before may still come, s: qos.COMMAND."""


class ArmInterface:
    """
    Hears and speaks for the arm of a node, in operations and between them.

    What is refused, a command of motion or of state, is told in the log, of each topic of motion
    at most once a second, and the arm holds. A motion command without a stamp is meant now; one
    stamped before the present patient came, or before the one before had left, was meant for
    another: it is dropped, with a warning where it cannot just have been on its way.

    :param node: whose topics these are; made while it is configured.
    :param operation: whose arm this is.
    :param mount: names of its frames, and where it stands.
    """

    def __init__(self, node: ManagedNode, operation: Operation, mount: Mount) -> None:
        self._node = node
        self._mount = mount
        self._operation = operation
        self.free = FreeMotion(operation.arm)
        self.control = ArmControl(self.free)
        self._readings = ArmReadings(self.free)
        self._publishers = [
            (topic, node.publisher(kind, topic, qos.STATE), make)
            for topic, (kind, make) in READINGS.items()
        ]
        self._state = node.publisher(
            robot_messages.OperatingState, 'operating_state', qos.OPERATING
        )
        self.commanded = False
        """Whether the present patient's arm was given a motion command."""
        self.on_command: Callable[[], None] = lambda: None
        """Called when a motion command was obeyed."""
        self._since = 0.0
        self._quiet_until = 0.0
        self._warned: dict[str, float] = {}
        self._refused_commands = 0
        self._told: tuple[str, bool, bool] | None = None
        self._published_at = 0.0

    def begin(self) -> None:
        """Take commands; while the node is activated, the arm is disabled afterwards."""
        node, control = self._node, self.control
        node.keep(self._disable)
        self._told = None
        warn_without_crtk(
            node, 'operating_state', 'state_command', 'forward_kinematics', 'inverse_kinematics'
        )
        control.command('enable')
        for topic, (kind, read, obey, profile) in OBEYED.items():
            node.hear(kind, topic, self._receiver(topic, read, partial(obey, control)), profile)
        for topic, (kind, reason) in REFUSED.items():
            node.hear(kind, topic, self._refuser(topic, reason), qos.SENSOR)
        answer_kinematics(node)
        node.hear(StringStamped, 'state_command', self._receive_state_command, qos.EVENT)
        node.hear(Empty, 'hold', lambda _: control.hold(), qos.EVENT)

    def begin_operation(self) -> None:
        """Take motion commands for the patient who is on the table now."""
        self.control.drive(self._operation)
        self._readings.read_from(self._operation)
        self.commanded = False
        self._begin_time()

    def end_operation(self) -> None:
        """Take motion commands for the arm in free space: the operation is over."""
        self.free.take_over(self._operation)
        self.control.drive(self.free)
        self._readings.go_on_with(self.free)
        self._begin_time()

    def return_home(self) -> None:
        """Put the arm to its home, enabled, with nobody on the table."""
        self.free.go_home()
        self.control.operating_state = OperatingState()
        self.control.drive(self.free)
        self._readings.read_from(self.free)
        self._begin_time()

    def follow_clock_back(self) -> None:
        """Go on after the clock was set back."""
        self._begin_time()
        self._published_at = self._node.time
        self._warned.clear()

    def _begin_time(self) -> None:
        """Drop what was commanded before now."""
        self._since = seconds(self._node.get_clock().now().to_msg())
        self._quiet_until = self._node.time + GRACE

    def step(self, substeps: int) -> None:
        """Follow the commands for the sub-steps that the arm advances by next."""
        try:
            self.control.step(substeps)
        except StateError as error:
            self._warn('move', f'held: {error}')

    def publish(self, stamp: Time, lag: float) -> None:
        """
        Tell what the arm measures, and its operating state when it changed.

        :param lag: how far behind the arm that is, sub-steps.
        """
        now = self._readings.snapshot(stamp, lag)
        for topic, publisher, make in self._publishers:
            if not publisher.get_subscription_count():
                continue
            message = with_frames(make(now), self._mount)
            if topic == 'joint_states':  # robot_state_publisher knows the joints of the URDF
                message.name = [self._mount.frame(name) for name in message.name]
            publisher.publish(message)
        self._publish_state(again=self._node.time - self._published_at >= STATE_PERIOD)

    def _publish_state(self, *, again: bool = False) -> None:
        """Publish the operating state if it changed, or once more."""
        state = self.control.operating_state
        told = (str(state.state), state.is_homed, state.is_busy)
        if told == self._told and not again:
            return
        self._told, self._published_at = told, self._node.time
        name, homed, busy = told
        message = robot_messages.OperatingState(state=name, is_homed=homed, is_busy=busy)
        self._state.publish(self._node.stamped(message))

    def _receiver(
        self, topic: str, read: Read, obey: Callable[..., None]
    ) -> Callable[[Any], None]:
        """Return what is called with each command of a topic."""

        def take(command: Any) -> None:
            sent = seconds(command.header.stamp)
            if 0.0 < sent < self._since:
                if self._node.time >= self._quiet_until:
                    late = self._since - sent
                    self._warn(
                        topic,
                        f'dropped: {topic} stamped {late:.1f} s before this patient came, or the '
                        "one before left: is the sender's clock late?",
                    )
                return
            try:
                obey(*read(command, self._mount))
            except StateError as error:
                self._refuse(topic, error)
            else:
                self.commanded = True
                self.on_command()
            self._publish_state()

        return take

    def _refuser(self, topic: str, reason: str) -> Callable[[Any], None]:
        """Return what is called with each command of a topic that this arm cannot obey."""

        def take(command: Any) -> None:
            self._refuse(topic, CommandError(reason))
            self._publish_state()

        return take

    def _refuse(self, topic: str, error: StateError) -> None:
        self.control.hold()
        self._warn(topic, f'refused: {topic}: {error}')

    def _receive_state_command(self, command: StringStamped) -> None:
        try:
            self.control.command(command.string)
        except StateError as error:
            self.control.hold()
            self._refused_commands += 1
            if worth_logging(self._refused_commands):
                self._node.get_logger().warning(f'refused: {error}')
        self._publish_state()

    def _warn(self, topic: str, text: str) -> None:
        """Warn about a topic, unless that was done within the last second."""
        now = self._node.time
        if now - self._warned.get(topic, -WARNING_PERIOD) >= WARNING_PERIOD:
            self._warned[topic] = now
            self._node.get_logger().warning(text)

    def _disable(self) -> None:
        """Take no more commands, and say so while anybody hears it."""
        self.control.command('disable')
        self._publish_state()
