# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Record what a robot publishes into a bag (rosbag2, MCAP), as it is sent."""

from collections import Counter
from contextlib import ExitStack
from functools import partial
import importlib
from pathlib import Path
import shutil
import time
from typing import Any, Final

from fdrl_ros.deployment.interfaces import RECORDER
from fdrl_ros.errors import RecordsError
from fdrl_ros.msg import OperationState
from fdrl_ros.nodes.arm.robot_messages import OperatingState
from fdrl_ros.nodes.common import qos
from fdrl_ros.nodes.common.service_call import node_in
from fdrl_ros.nodes.topics.bag_writer import BagWriter
from fdrl_ros.nodes.topics.every_topic import EveryTopic, is_for_people
from fdrl_ros.runtime.closeable import Closeable
from fdrl_ros.surgery.data.bag import (
    add_topic,
    ARM_STATE,
    ARM_STATE_KINDS,
    BAG_VERSION,
    bags,
    EPISODE,
    TOPICS,
    VISIBILITY,
    VISIBILITY_KIND,
)
from fdrl_ros.surgery.data.log import ACTION, FIELDS, OPERATION, OUTCOME, PATIENT
from fdrl_ros.surgery.gym.state import INDEX, OPERATION_LAYOUT
from rclpy.experimental import EventsExecutor
from rclpy.serialization import deserialize_message
from rclpy.task import Future

NAME: Final = RECORDER
"""Name of the node, below the robot's namespace."""

_LATCHED: Final = (FIELDS, ARM_STATE)

_NEEDED: Final = (OPERATION, PATIENT, ACTION)
"""Without these there is nothing to replay or to train on."""

_SHARED: Final = ('/clock', '/diagnostics', '/tf', '/tf_static')
"""Topics of several robots, which belong to the recording of each."""

_NEXT: Final = 'the next operation to begin'

_PATIENCE: Final = 5.0
"""For topics that replay and training do without, second."""

_FRESH: Final = 50_000_000
"""Age up to which a message from before the first state belongs to it, ns."""


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
    Writes all topics of one robot, from the beginning of an operation on.

    It first waits until it hears every topic that the robot publishes, so that none is missing in
    the first states; then for the next operation. What is latched, and the newest message of each
    other topic, is written before that. Use it in a `with` and call :meth:`poll`; the bag is
    complete when it is left, and there is none if nothing was written. What was sent is what is
    written, with the time at which it came.

    :param path: of the bag's folder; it must not exist.
    :param robot: absolute namespace of the topics.
    :param domain: DDS domain.
    :raises RecordsError: if the folder exists or cannot be written.
    :raises ResourceError: if the library that writes bags is not installed.
    :raises SettingError: if there is no such domain.
    """

    def __init__(self, path: Path, robot: str, domain: int) -> None:
        library = bags()
        self.counts: Counter[str] = Counter()
        """Messages that were written, by topic."""
        if path.exists():
            raise RecordsError(f'{path} exists already and is not written over')
        self._path, self._robot, self._domain = path, robot, domain
        self._heard: dict[str, Any] = {}
        self._before: list[tuple[str, int, bytes]] = []
        self._needed_at = time.monotonic()
        self.waits_for = ''
        """What it waits for before it writes; empty since it does."""
        self.left_out: tuple[str, ...] = ()
        """Topics that cannot be recorded; none of these."""
        with ExitStack() as joined:
            node = joined.enter_context(node_in(domain, NAME, robot))
            writer = library.Writer(
                path, version=BAG_VERSION, storage_plugin=library.StoragePlugin.MCAP
            )
            try:
                self._writer = joined.enter_context(writer)
            except OSError as error:
                raise RecordsError(f'cannot write {path}: {error.strerror}') from error
            path.chmod(0o700)  # it holds what is measured of patients
            self._node = node
            self._executor = EventsExecutor(context=node.context)
            self._executor.add_node(node)
            self._never: Future = Future(executor=self._executor)
            # An executor that lives on would keep the node announced.
            joined.callback(self._executor.shutdown)
            joined.callback(self._executor.remove_node, node)
            self._connections = {}
            for topic, (name, _) in _kinds().items():
                self._connections[topic] = add_topic(self._writer, f'{robot}/{topic}', name)
                if topic != OPERATION:
                    self._hear(topic)
            self._look()
            self._joined = joined.pop_all()

    def _hear(self, topic: str) -> None:
        profile = qos.HEARD if topic in _LATCHED else qos.EVENT
        self._heard[topic] = self._node.create_subscription(
            _kinds()[topic][1],
            f'{self._robot}/{topic}',
            partial(self._take, topic),
            profile,
            raw=True,
        )

    def _take(self, topic: str, data: bytes) -> None:
        now = self._node.get_clock().now().nanoseconds
        data = bytes(data)
        if self.waits_for:
            if topic == OPERATION:  # all else is heard
                self.waits_for = _NEXT
            if topic != OPERATION or not self._begins(data):
                self._keep(topic, now, data)
                return
            for each in self._before:
                self._write(*each)
            self.waits_for = ''
        self._write(topic, now, data)

    def _begins(self, data: bytes) -> bool:
        """Say whether a state is one that an operation begins with, and no topic is missing."""
        if self.waits_for != _NEXT:
            return False
        state = deserialize_message(data, OperationState)
        left = state.values[INDEX['time_left'] :]
        return state.layout != OPERATION_LAYOUT or not len(left) or left[0] >= 1.0

    def _keep(self, topic: str, now: int, data: bytes) -> None:
        """Keep what the first state is understood with, and nothing of another patient."""
        kept = [each for each in self._before if each[0] in _LATCHED or now - each[1] < _FRESH]
        self._before = [each for each in kept if each[0] != topic or topic == FIELDS]
        if topic not in (OPERATION, ACTION, OUTCOME):
            self._before.append((topic, now, data))

    def _write(self, topic: str, now: int, data: bytes) -> None:
        self._writer.write(self._connections[topic], now, data)
        self.counts[topic] += 1

    def _look(self) -> None:
        """
        Look which topics are not heard yet, of those that are needed or published.

        States of the operation are asked for once all else is heard: an env that waits for a
        recorder sees by that when nothing will be lost.
        What is published and never heard, as by another QoS, is waited for no longer than
        :data:`_PATIENCE` after the others.
        """
        now = time.monotonic()
        unheard = {
            topic: full
            for topic, full in ((each, f'{self._robot}/{each}') for each in self._connections)
            if (topic not in self._heard or not self._heard[topic].get_publisher_count())
            and (topic in _NEEDED or self._node.count_publishers(full))
        }
        operation = unheard.pop(OPERATION, '')
        if any(topic in _NEEDED for topic in unheard):
            self._needed_at = now
        missing = list(unheard.values()) if now - self._needed_at < _PATIENCE else []
        if not missing and OPERATION not in self._heard:
            self._hear(OPERATION)
        missing += [operation] * bool(operation)
        self.waits_for = f'{", ".join(missing)} in DDS domain {self._domain}' if missing else _NEXT

    def poll(self, seconds: float) -> None:
        """
        Take what comes.

        :param seconds: for how long.
        :raises RecordsError: if the bag cannot be written, as on a full disk.
        """
        try:
            self._executor.spin_until_future_complete(self._never, timeout_sec=seconds)
        except OSError as error:
            raise RecordsError(f'cannot write the bag: {error.strerror}') from error
        if self.waits_for:
            self._look()

    def close(self) -> None:
        """Leave the domain, and complete the bag, or remove an empty one."""
        self._joined.close()
        if not self.counts:
            shutil.rmtree(self._path)


class WholeRecorder(Closeable):
    """
    Writes every topic of one robot from now on, with /tf and the URDF where nobody publishes them.

    Use it in a `with`, as a :class:`Recorder`.

    :param path: of the bag's folder; it must not exist.
    :param robot: absolute namespace of the topics.
    :param domain: DDS domain.
    :raises RecordsError: if the folder exists or cannot be written.
    :raises ResourceError: if the library that writes bags is not installed.
    :raises SettingError: if there is no such domain.
    """

    def __init__(self, path: Path, robot: str, domain: int) -> None:
        def accepts(name: str) -> bool:
            return is_for_people(name) and (name.startswith(f'{robot}/') or name in _SHARED)

        self._robot, self._domain = robot, domain
        with ExitStack() as joined:
            self._writer = joined.enter_context(BagWriter(path))
            self._every = joined.enter_context(
                EveryTopic([domain], [self._writer], name=NAME, namespace=robot, accepts=accepts)
            )
            self._joined = joined.pop_all()

    @property
    def counts(self) -> Counter[str]:
        """Messages that were written, by topic below the namespace."""
        written = self._writer.counts.copy()
        return Counter({name.removeprefix(f'{self._robot}/'): n for name, n in written.items()})

    @property
    def waits_for(self) -> str:
        """What it waits for before it writes; empty since it does."""
        return '' if self._writer.counts else f'{self._robot} in DDS domain {self._domain}'

    @property
    def left_out(self) -> tuple[str, ...]:
        """Topics that cannot be recorded, and why, in words."""
        return tuple(self._every.left_out.values())

    def poll(self, seconds: float) -> None:
        """
        Take what comes.

        :param seconds: for how long.
        :raises RecordsError: if the bag cannot be written, as on a full disk.
        """
        self._every.poll(seconds)

    def close(self) -> None:
        """Leave the domain, and complete the bag, or remove an empty one."""
        self._joined.close()
