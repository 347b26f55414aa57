# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What takes the messages of topics as they were sent: a server for Foxglove, a bag."""

from abc import abstractmethod
from dataclasses import dataclass

from fdrl_ros.runtime.closeable import Closeable


@dataclass(frozen=True)
class Topic:
    """
    A topic and its type.

    :param kind: name of the type, such as std_msgs/msg/String.
    :param latched: whether who comes late gets the newest messages.
    :param digest: hash of the type (REP 2011), as its publisher tells it; empty if unknown.
    """

    name: str
    kind: str
    latched: bool = False
    digest: str = ''


class Sink(Closeable):
    """Takes the messages of topics; it is called from several threads."""

    @abstractmethod
    def announce(self, topic: Topic) -> None:
        """
        Take note of a topic, once, before its first message.

        :raises TopicError: if it cannot be taken.
        """

    @abstractmethod
    def wants(self, topic: Topic) -> bool:
        """Return whether messages of an announced topic are wanted now."""

    @abstractmethod
    def take(self, topic: Topic, now: int, data: bytes) -> None:
        """
        Take a message.

        :param now: when it came, ns.
        :param data: in CDR, as it was sent.
        """
