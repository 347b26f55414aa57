# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""A CRTK client of the simulated arm, as a test is one."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fdrl_ros.deployment.bringup import NodeSpec, robot_graph
import fdrl_ros.msg as ros
from fdrl_ros.nodes.arm.arm_readings import READINGS
from fdrl_ros.nodes.arm.commands import OBEYED, REFUSED
from fdrl_ros.nodes.arm.robot_messages import (
    joint_state,
    OperatingState,
    pose,
    quaternion,
    StringStamped,
)
from fdrl_ros.nodes.common import qos
from fdrl_ros.surgery.arm.rotations import from_quaternion
import numpy as np
from std_msgs.msg import Empty
from support.operating_room import Room

LABEL = 'robot_1.env'


def env_alone(settings: Any, **parameters: Any) -> NodeSpec:
    """Return the env with all the time in the world, and an arm that obeys without latency."""
    env = robot_graph(settings, 'robot_1')[0]
    calm = {'world.horizon': 100000, 'federation.disturbances': False}
    return replace(env, parameters={**env.parameters, **calm, **parameters})


class Surgeon:
    """A CRTK client: hears the arm and commands it."""

    def __init__(self, room: Room) -> None:
        self.room = room
        for topic, (kind, _) in READINGS.items():
            room.hear(kind, topic, qos.EVENT)
        room.hear(OperatingState, 'operating_state', qos.HEARD)
        room.hear(ros.Outcome, 'outcome', qos.EVENT)
        self._on_table = ''

        def note(state: ros.OperationState) -> None:
            self._on_table = state.patient

        room.node.create_subscription(ros.OperationState, 'operation_state', note, qos.SENSOR)
        make = room.node.create_publisher
        self._topics = {
            'hold': make(Empty, 'hold', qos.EVENT),
            'state_command': make(StringStamped, 'state_command', qos.EVENT),
        }
        for topic, (kind, _, _, profile) in OBEYED.items():
            newest = profile is qos.SENSOR
            self._topics[topic] = make(kind, topic, qos.COMMAND if newest else qos.EVENT)
        for topic, (kind, _) in REFUSED.items():
            self._topics[topic] = make(kind, topic, qos.COMMAND)

    def watch(self) -> None:
        """Wait until all is heard that the arm says."""
        self.room.wait(lambda: all(self.room.heard[each] for each in READINGS))
        self.room.wait(lambda: self.room.last('operating_state'))

    def begin(self, procedure: str = 'reach', index: int = 0) -> str:
        """Have a patient put on the table, and look at the arm."""
        self._on_table = ''
        patient = self.room.operate_now(procedure, index)
        self.room.wait(lambda: self._on_table == patient)
        for each in READINGS:
            self.room.heard[each].clear()  # of where the arm was before
        self.watch()
        return patient

    @property
    def now(self) -> Any:
        return self.room.node.get_clock().now().to_msg()

    @property
    def state(self) -> tuple[str, bool, bool]:
        said = self.room.last('operating_state')
        return said.state, said.is_homed, said.is_busy

    def send(self, topic: str, message: Any) -> None:
        self._topics[topic].publish(message)

    def joints(self, topic: str, positions: Any, names: tuple[str, ...] = ()) -> None:
        self.send(topic, joint_state(self.now, names, positions))

    def pose(self, topic: str, position: Any, rotation: Any) -> None:
        self.send(topic, pose(self.now, position, quaternion(np.asarray(rotation))))

    def word(self, word: str) -> None:
        """Send a state command, without a stamp as people do."""
        self.send('state_command', StringStamped(string=word))

    def say_until(self, say: Callable[[], None], condition: Callable[[], Any]) -> None:
        """Repeat a command every 10 ms until a condition holds."""

        def satisfied() -> Any:
            say()
            return condition()

        self.room.wait(satisfied)

    def wait(self, condition: Callable[[], Any], seconds: float = 60.0) -> None:
        self.room.wait(condition, seconds)

    def settle(self) -> np.ndarray:
        """Wait until the measured joints stand still, and return them."""

        def still() -> bool:
            last = [each.position for _, each in self.room.heard['measured_js'][-20:]]
            return len(last) == 20 and float(np.ptp(np.array(last), axis=0).max()) < 1e-7

        self.room.heard['measured_js'].clear()
        self.wait(still)
        return np.array(self.room.last('measured_js').position)

    def tip(self, topic: str = 'setpoint_cp') -> tuple[np.ndarray, np.ndarray]:
        """Return position and rotation of a pose."""
        said = self.room.last(topic).pose
        at, turned = said.position, said.orientation
        rotation = from_quaternion((turned.x, turned.y, turned.z, turned.w))
        return np.array([at.x, at.y, at.z]), rotation
