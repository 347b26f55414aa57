# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Hears topics of a robot as they are sent, and puts them into a bag."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fdrl_ros.surgery.data.bag import (
    add_topic,
    ARM_STATE,
    ARM_STATE_KINDS,
    TOPICS,
    VISIBILITY,
    VISIBILITY_KIND,
)
from rclpy.qos import QoSProfile
from rclpy.serialization import deserialize_message
from support.operating_room import Room


def type_of(topic: str) -> str:
    """Return the type that a topic has in a bag."""
    return {ARM_STATE: ARM_STATE_KINDS[0], VISIBILITY: VISIBILITY_KIND, **TOPICS}[topic]


class Recorder:
    """
    Listens from now on.

    :param kinds: message type of each topic below the room's namespace.
    """

    def __init__(self, room: Room, kinds: Mapping[str, Any], profile: QoSProfile) -> None:
        self.logged: list[tuple[str, int, bytes]] = []
        self._kinds = kinds
        self._namespace = room.node.get_namespace()
        for topic, kind in kinds.items():

            def take(data: bytes, topic: str = topic) -> None:
                now = room.node.get_clock().now().nanoseconds
                self.logged.append((topic, now, bytes(data)))

            room.node.create_subscription(kind, topic, take, profile, raw=True)

    def count(self, topic: str) -> int:
        """Return how many messages of a topic came."""
        return sum(each == topic for each, _, _ in self.logged)

    def last(self, topic: str) -> Any:
        """Return what came last on a topic, or None."""
        data = [data for name, _, data in self.logged if name == topic]
        return deserialize_message(data[-1], self._kinds[topic]) if data else None

    def save(self, path: Path) -> None:
        """Write what was heard."""
        from rosbags import rosbag2

        plugin = rosbag2.StoragePlugin.MCAP
        with rosbag2.Writer(path, version=9, storage_plugin=plugin) as writer:
            known = {
                topic: add_topic(writer, f'{self._namespace}/{topic}', type_of(topic))
                for topic in self._kinds
            }
            for topic, at, data in self.logged:
                writer.write(known[topic], at, data)
