# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Record what a robot publishes into a bag (rosbag2, MCAP), as it is sent."""

from collections import Counter
from contextlib import ExitStack
import importlib
from pathlib import Path
from typing import Any, Final

from fdrl_ros.errors import RecordsError
from fdrl_ros.nodes.arm.robot_messages import OperatingState
from fdrl_ros.nodes.common import qos
from fdrl_ros.nodes.common.service_call import node_in
from fdrl_ros.runtime.closeable import Closeable
from fdrl_ros.surgery.data.bag import (
    ARM_STATE,
    ARM_STATE_KINDS,
    BAG_VERSION,
    bags,
    EPISODE,
    message_types,
    TOPICS,
    VISIBILITY,
    VISIBILITY_KIND,
)
from fdrl_ros.surgery.data.log import FIELDS
from rclpy.experimental import EventsExecutor
from rclpy.task import Future

_LATCHED: Final = (FIELDS, ARM_STATE)


def _kinds() -> dict[str, tuple[str, Any]]:
    """Return the topics of a robot: name of the type in a bag, and the type."""
    found = {}
    for topic, name in {**TOPICS, VISIBILITY: VISIBILITY_KIND}.items():
        if topic != EPISODE:
            package, _, kind = name.split('/')
            found[topic] = name, getattr(importlib.import_module(f'{package}.msg'), kind)
    package = OperatingState.__module__.partition('.')[0]
    arm = next(each for each in ARM_STATE_KINDS if each.startswith(f'{package}/'))
    return {**found, ARM_STATE: (arm, OperatingState)}


class Recorder(Closeable):
    """
    Hears all topics of one robot from now on, with its state's fields and operating state of now.

    Use it in a `with` and call :meth:`poll`; the bag is complete when it is left. Nothing is
    decoded: what was sent is what is written, with the time at which it came.

    :param path: of the bag's folder; it must not exist.
    :param robot: absolute namespace of the topics.
    :param domain: DDS domain.
    :raises RecordsError: if the folder exists or cannot be written.
    :raises ResourceError: if the library that writes bags is not installed.
    """

    def __init__(self, path: Path, robot: str, domain: int) -> None:
        library = bags()
        self.counts: Counter[str] = Counter()
        """Messages that were written, by topic."""
        if path.exists():
            raise RecordsError(f'{path} exists already and is not written over')
        self._joined = ExitStack()
        writer = library.Writer(
            path, version=BAG_VERSION, storage_plugin=library.StoragePlugin.MCAP
        )
        try:
            self._writer = self._joined.enter_context(writer)
        except OSError as error:
            raise RecordsError(f'cannot write {path}: {error.strerror}') from error
        path.chmod(0o700)  # it holds what is measured of patients
        node = self._joined.enter_context(node_in(domain, 'recorder', robot))
        self._clock = node.get_clock()
        self._executor = EventsExecutor(context=node.context)
        self._executor.add_node(node)
        self._never: Future = Future(executor=self._executor)
        self._joined.callback(self._executor.remove_node, node)
        for topic, (name, kind) in _kinds().items():
            connection = self._writer.add_connection(
                f'{robot}/{topic}', name, typestore=message_types()
            )
            profile = qos.HEARD if topic in _LATCHED else qos.EVENT
            node.create_subscription(
                kind, f'{robot}/{topic}', self._taker(topic, connection), profile, raw=True
            )

    def _taker(self, topic: str, connection: Any) -> Any:
        def take(data: bytes) -> None:
            self._writer.write(connection, self._clock.now().nanoseconds, bytes(data))
            self.counts[topic] += 1

        return take

    def poll(self, seconds: float) -> None:
        """
        Write what comes.

        :param seconds: for how long.
        :raises RecordsError: if the bag cannot be written, as on a full disk.
        """
        try:
            self._executor.spin_until_future_complete(self._never, timeout_sec=seconds)
        except OSError as error:
            raise RecordsError(f'cannot write the bag: {error.strerror}') from error

    def close(self) -> None:
        """Leave the domain, and complete the bag."""
        self._joined.close()
