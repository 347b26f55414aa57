# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Write every topic into a bag (rosbag2, MCAP), as it was sent."""

from collections import Counter
from pathlib import Path
import shutil
import threading

from fdrl_ros.errors import os_errors_as, RecordsError
from fdrl_ros.nodes.topics.message_types import schema
from fdrl_ros.nodes.topics.sink import Sink, Topic
from fdrl_ros.surgery.data.bag import BAG_VERSION, bags, message_types, offered


class BagWriter(Sink):
    """
    A bag that all messages of all topics go into; it is complete when it is closed.

    :param path: of the bag's folder; it must not exist.
    :raises RecordsError: if the folder exists or cannot be written.
    :raises ResourceError: if the library that writes bags is not installed.
    """

    def __init__(self, path: Path) -> None:
        library = bags()
        self.counts: Counter[str] = Counter()
        """Messages that were written, by the name of the topic."""
        if path.exists():
            raise RecordsError(f'{path} exists already and is not written over')
        self._path, self._lock, self._closed = path, threading.Lock(), False
        self._connections: dict[str, object] = {}
        self._writer = library.Writer(
            path, version=BAG_VERSION, storage_plugin=library.StoragePlugin.MCAP
        )
        with os_errors_as(RecordsError, f'cannot write {path}'):
            self._writer.open()
            path.chmod(0o700)  # it holds what is measured of patients

    def announce(self, topic: Topic) -> None:
        """
        Add a topic.

        :raises TopicError: if the definition of its type is not installed.
        """
        definition = schema(topic.kind)
        with self._lock:
            self._connections[topic.name] = self._writer.add_connection(
                topic.name,
                topic.kind,
                msgdef=definition,
                rihs01=topic.digest or message_types().hash_rihs01(topic.kind),
                offered_qos_profiles=offered(topic.latched),
            )

    def wants(self, topic: Topic) -> bool:
        """Return that everything is wanted."""
        return not self._closed

    def take(self, topic: Topic, now: int, data: bytes) -> None:
        """
        Write a message.

        :raises RecordsError: if that fails, as on a full disk.
        """
        with self._lock, os_errors_as(RecordsError, f'cannot write {self._path}'):
            if not self._closed:
                self._writer.write(self._connections[topic.name], now, data)
                self.counts[topic.name] += 1

    def close(self) -> None:
        """Complete the bag, or remove an empty one."""
        with self._lock, os_errors_as(RecordsError, f'cannot write {self._path}'):
            self._closed = True
            self._writer.close()
            if not self.counts:
                shutil.rmtree(self._path)
