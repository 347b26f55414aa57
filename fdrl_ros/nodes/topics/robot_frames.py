# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""/tf and `robot_description` of robots, where nobody publishes them."""

from collections.abc import Callable
from dataclasses import dataclass

from fdrl_ros.errors import ResourceError
from fdrl_ros.nodes.topics.sink import Topic
from fdrl_ros.surgery.arm.frame_tree import FrameTree, text_message, transforms_message
from fdrl_ros.surgery.arm.kinematics import JAW, JOINTS
from fdrl_ros.surgery.arm.mount import Mount
from fdrl_ros.surgery.data import bag
from rclpy.serialization import deserialize_message
from sensor_msgs.msg import JointState
from std_msgs.msg import String

TF = Topic(bag.TF, bag.TRANSFORMS)
TF_STATIC = Topic(bag.TF_STATIC, bag.TRANSFORMS, latched=True)

_PERIOD = 19_000_000  # ns between two messages of /tf: 50 Hz of 100
_TEXT = 'std_msgs/msg/String'

Give = Callable[[Topic, int, bytes], None]


@dataclass
class _Robot:
    """
    A robot whose frames are computed.

    :param described: whether somebody publishes its URDF.
    :param prefix: before the names of its frames and joints in our URDF, besides its own.
    """

    namespace: str
    described: bool = False
    prefix: str = ''
    tree: FrameTree | None = None
    unknown: bool = False
    newest: int = 0


class RobotFrames:
    """
    Computes the frames of robots from `joint_states` and a URDF, as robot_state_publisher does.

    The URDF is that of the topic `robot_description`, or else ours, with the names that the joints
    have. Of several robots with the same names all but the first get theirs with the robot's name
    in front, such as robot_2/tool_tip.

    :param announce: takes note of a topic of these.
    :param give: takes a message of one.
    :param wanted: whether messages of a topic are wanted now.
    """

    def __init__(
        self, announce: Callable[[Topic], None], give: Give, wanted: Callable[[Topic], bool]
    ) -> None:
        self._announce, self._give, self._wanted = announce, give, wanted
        self._robots: dict[str, _Robot] = {}
        self._others: set[str] = set()
        self._announced: set[str] = set()

    def needs(self, topic: Topic) -> bool:
        """Return whether messages of a topic are needed for frames that are wanted."""
        namespace, _, name = topic.name.rpartition('/')
        if name == bag.DESCRIPTION:
            return True
        if name != 'joint_states' or namespace in self._others:
            return False
        robot = self._robots.get(namespace)
        return robot is None or (not robot.unknown and (robot.tree is None or self._wanted(TF)))

    def leave_to_others(self, topic: Topic) -> None:
        """Take note that somebody publishes the frames of a namespace, or of all robots."""
        self._others.add(topic.name.rpartition('/')[0])

    def take(self, topic: Topic, now: int, data: bytes) -> None:
        """Take a message that is needed."""
        namespace, _, name = topic.name.rpartition('/')
        if {namespace, ''} & self._others:
            return
        robot = self._robots.setdefault(namespace, _Robot(namespace))
        if name == bag.DESCRIPTION:
            robot.described = True
            self._describe(robot, deserialize_message(data, String).data, now)
            return
        state = deserialize_message(data, JointState)
        if robot.tree is None and not robot.unknown:
            self._describe_as_ours(robot, state.name, now)
        if robot.tree is None or now - robot.newest < _PERIOD or not self._wanted(TF):
            return
        robot.newest = now
        names = (f'{robot.prefix}{each}' for each in state.name)
        positions = dict(zip(names, state.position, strict=False))
        stamp = state.header.stamp
        at = stamp.sec * 1_000_000_000 + stamp.nanosec
        self._give(TF, now, transforms_message(at, robot.tree.moving(positions)))

    def _describe_as_ours(self, robot: _Robot, joints: list[str], now: int) -> None:
        """Take our URDF, with the names of the joints that a robot has, if it is of that kind."""
        own = next((each for each in joints if each.endswith(JOINTS[0])), '')
        named = own.removesuffix(JOINTS[0])
        if not {f'{named}{each}' for each in (*JOINTS, JAW)} <= set(joints):
            robot.unknown = True  # until somebody publishes its URDF
            return
        names = {
            each for other in self._robots.values() if other.tree for each in other.tree.joints
        }
        if own in names:
            robot.prefix = f'{robot.namespace.rpartition("/")[2]}/'
        urdf = Mount(f'{robot.prefix}{named}').urdf()
        description = Topic(f'{robot.namespace}/{bag.DESCRIPTION}', _TEXT, latched=True)
        self._offer(description, now, text_message(urdf))
        self._describe(robot, urdf, now)

    def _describe(self, robot: _Robot, urdf: str, now: int) -> None:
        """Begin to compute the frames of a URDF."""
        try:
            robot.tree = FrameTree(urdf)
        except ResourceError:
            robot.unknown = True
            return
        self._offer(TF_STATIC, now, transforms_message(now, robot.tree.fixed()))
        self._offer(TF)

    def _offer(self, topic: Topic, now: int = 0, data: bytes = b'') -> None:
        if topic.name not in self._announced:
            self._announced.add(topic.name)
            self._announce(topic)
        if data and self._wanted(topic):
            self._give(topic, now, data)
