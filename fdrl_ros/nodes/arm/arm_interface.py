# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""CRTK's topics of one arm: commands in, readings and the operating state out."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from builtin_interfaces.msg import Time
from fdrl_ros.errors import StateError
from fdrl_ros.federation.protocol.party import worth_logging
from fdrl_ros.nodes.arm.arm_readings import ArmReadings, READINGS
from fdrl_ros.nodes.arm.robot_messages import joint_state, OperatingState, seconds, StringStamped
from fdrl_ros.nodes.common import qos
from fdrl_ros.nodes.common.managed_node import ManagedNode
from fdrl_ros.surgery.arm.controller import ArmControl
from fdrl_ros.surgery.arm.kinematics import HOME, JAW, JOINTS
from fdrl_ros.surgery.arm.operating_state import CommandError
from fdrl_ros.surgery.arm.readings import BASE
from fdrl_ros.surgery.gym.operation import Operation
from geometry_msgs.msg import PoseStamped
from sensor_msgs.msg import JointState
from std_msgs.msg import Empty

STATE_PERIOD = 1.0
"""How often the operating state is told though nothing changed, s."""

WARNING_PERIOD = 1.0
"""Between two warnings about one topic, s."""

GRACE = 0.1
"""For how long commands to the arm of the patient before may still come, s: qos.COMMAND."""


Command = TypeVar('Command', PoseStamped, JointState)


def _pose(command: PoseStamped) -> tuple[Sequence[float], Sequence[float]]:
    frame = command.header.frame_id
    if frame not in ('', BASE):
        raise CommandError(f'a pose in {frame!r}: expected one in {BASE!r}, or in no frame')
    at, turned = command.pose.position, command.pose.orientation
    return (at.x, at.y, at.z), (turned.x, turned.y, turned.z, turned.w)


def _joints(command: JointState) -> tuple[Sequence[str], Sequence[float]]:
    return command.name, command.position.tolist()


class ArmInterface:
    """
    Hears and speaks for the arm of a node.

    What is refused, a command of motion or of state, is told in the log, of each topic of motion
    at most once a second, and the arm holds. A motion command without a stamp is meant now; one
    stamped before the present patient came was meant for another: it is dropped, with a warning
    where it cannot just have been on its way.

    :param node: whose topics these are; made while it is configured.
    :param operation: the arm is in.
    """

    def __init__(self, node: ManagedNode, operation: Operation) -> None:
        self._node = node
        self.control = ArmControl(operation)
        self._readings = ArmReadings(operation)
        self._publishers = [
            (node.publisher(kind, topic, qos.STATE), make)
            for topic, (kind, make) in READINGS.items()
        ]
        self._joint_states = self._publishers[list(READINGS).index('joint_states')][0]
        self._state = node.publisher(OperatingState, 'operating_state', qos.OPERATING)
        self.commanded = False
        """Whether the present patient's arm was given a motion command."""
        self._since = 0.0
        self._quiet_until = 0.0
        self._warned: dict[str, float] = {}
        self._refused_commands = 0
        self._told: tuple[str, bool, bool] | None = None
        self._told_at = 0.0

    def begin(self) -> None:
        """Take commands; while the node is activated, the arm is disabled afterwards."""
        node, control, orders = self._node, self.control, self._receiver
        node.keep(self._disable)
        self._told = None
        control.command('enable')
        for topic, kind, read, obey, profile in (
            ('servo_cp', PoseStamped, _pose, control.servo_cp, qos.SENSOR),
            ('servo_jp', JointState, _joints, control.servo_jp, qos.SENSOR),
            ('move_cp', PoseStamped, _pose, control.move_cp, qos.EVENT),
            ('move_jp', JointState, _joints, control.move_jp, qos.EVENT),
            ('jaw/servo_jp', JointState, _joints, control.servo_jaw, qos.SENSOR),
            ('jaw/move_jp', JointState, _joints, control.move_jaw, qos.EVENT),
        ):
            node.hear(kind, topic, orders(topic, read, obey), profile)
        node.hear(StringStamped, 'state_command', self._receive_state_command, qos.EVENT)
        node.hear(Empty, 'hold', lambda _: control.hold(), qos.EVENT)

    def begin_operation(self) -> None:
        """Take motion commands for the patient who is on the table now."""
        self.control.engage()
        self._readings.reset()
        self.commanded = False
        self._since = seconds(self._node.get_clock().now().to_msg())
        self._quiet_until = self._node.now + GRACE

    def end_operation(self, pause: float) -> None:
        """
        Take no more motion commands: the operation is over.

        :param pause: for how long such commands are dropped without a word, s.
        """
        self.control.disengage()
        self._quiet_until = self._node.now + pause

    def step(self, substeps: int) -> None:
        """Follow the commands for the sub-steps that the operation advances by next."""
        try:
            self.control.step(substeps)
        except StateError as error:
            self._warn('move', f'held before the end of the move: {error}')

    def publish(self, stamp: Time, *, placed: bool, lag: float = 0.0) -> None:
        """
        Tell what the arm measures, and its operating state when it changed.

        :param placed: whether there is an arm to measure: not before the first patient.
        :param lag: how far behind the arm that is, sub-steps.
        """
        if placed:
            now = self._readings.snapshot(stamp, lag)
            for publisher, make in self._publishers:
                if publisher.get_subscription_count():
                    publisher.publish(make(now))
        else:  # where the arm is drawn until then
            self._joint_states.publish(joint_state(stamp, (*JOINTS, JAW), [*HOME.tolist(), 0.0]))
        self._publish_state(again=self._node.now - self._told_at >= STATE_PERIOD)

    def _publish_state(self, *, again: bool = False) -> None:
        """Publish the operating state if it changed, or once more."""
        state = self.control.operating_state
        told = (str(state.state), state.is_homed, state.is_busy)
        if told == self._told and not again:
            return
        self._told, self._told_at = told, self._node.now
        name, homed, busy = told
        message = OperatingState(state=name, is_homed=homed, is_busy=busy)
        self._state.publish(self._node.stamped(message))

    def _receiver(
        self,
        topic: str,
        read: Callable[[Command], tuple[object, object]],
        obey: Callable[..., None],
    ) -> Callable[[Command], None]:
        """Return what is called with each command of a topic."""

        def take(command: Command) -> None:
            quiet = self._node.now < self._quiet_until
            if not self.control.engaged and quiet:
                return
            sent = seconds(command.header.stamp)
            if 0.0 < sent < self._since:
                if not quiet:
                    late = self._since - sent
                    self._warn(
                        topic,
                        f'dropped: {topic} stamped {late:.1f} s before this patient came: is the '
                        "sender's clock late?",
                    )
                return
            try:
                obey(*read(command))
            except StateError as error:
                self.control.hold()
                self._warn(topic, f'refused: {error}')
            else:
                self.commanded = True
            self._publish_state()

        return take

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
        now = self._node.now
        if now - self._warned.get(topic, -WARNING_PERIOD) >= WARNING_PERIOD:
            self._warned[topic] = now
            self._node.get_logger().warning(text)

    def _disable(self) -> None:
        """Take no more commands, and say so while anybody hears it."""
        self.control.disengage()
        self.control.command('disable')
        self._publish_state()
