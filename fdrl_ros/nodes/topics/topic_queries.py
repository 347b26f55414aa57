# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What a person asks of a DDS domain: its topics and nodes, the messages of a topic, its rate."""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
import math
import os
import signal
import threading
import time
from typing import Any

from fdrl_ros.errors import TopicError
from fdrl_ros.nodes.common import qos
from fdrl_ros.nodes.common.service_call import node_in
from fdrl_ros.nodes.topics.message_types import message_type
from rclpy.experimental import EventsExecutor
from rclpy.node import Node
from rclpy.topic_or_service_is_hidden import topic_or_service_is_hidden

SETTLED = 3.0
"""
A graph with others in it is complete when nothing was added to it for so long, second.

On a busy host the second participant was found up to 2.3 s after the first one.
"""

PATIENCE = 6.0
"""Longest wait for a complete graph, and for a publisher of a topic, second."""

_LOOK = 0.05  # s between two looks at the graph
_DEPTH = 10


def topics(domain: int) -> list[tuple[str, list[str]]]:
    """
    Return the topics of a domain with their types, sorted by name, without hidden ones.

    :raises SettingError: if there is no such domain.
    """
    with _unseen(domain) as node:
        topics, _ = settled(node)
    return [(name, kinds) for name, kinds in topics if not topic_or_service_is_hidden(name)]


def nodes(domain: int) -> list[str]:
    """
    Return the full names of the nodes of a domain, sorted, without hidden ones.

    :raises SettingError: if there is no such domain.
    """
    with _unseen(domain) as node:
        _, nodes = settled(node)
    return sorted(
        f'{namespace.rstrip("/")}/{name}' for name, namespace in nodes if not name.startswith('_')
    )


def echo(domain: int, topic: str) -> Iterator[Any]:
    """
    Yield the messages of a topic, latched ones first, until the caller ends.

    :raises TopicError: if nobody publishes it, or its type is not installed.
    :raises SettingError: if there is no such domain.
    """
    waiting: deque[Any] = deque()

    def keep(message: Any) -> None:
        waiting.append(message)

    with _listening(domain, topic, keep, raw=False) as poll:
        while True:
            while waiting:
                yield waiting.popleft()
            poll()


@dataclass(frozen=True)
class Rate:
    """
    How often messages came.

    :param rate: of the newest, Hz.
    :param shortest: time between two, second.
    :param longest: likewise.
    :param deviation: standard deviation of these times, second.
    :param window: how many times these are.
    """

    rate: float
    shortest: float
    longest: float
    deviation: float
    window: int

    def __str__(self) -> str:
        """Say it as `ros2 topic hz` does."""
        return (
            f'average rate: {self.rate:.3f}\n\tmin: {self.shortest:.3f}s max: {self.longest:.3f}s '
            f'std dev: {self.deviation:.5f}s window: {self.window}'
        )


def rates(domain: int, topic: str, window: int, period: float = 1.0) -> Iterator[Rate | None]:
    """
    Yield how often messages of a topic come, about once a period; None if none came in it.

    :param window: most times between messages that count.
    :raises TopicError: if nobody publishes it, or its type is not installed.
    :raises SettingError: if there is no such domain.
    """
    times: deque[int] = deque(maxlen=window + 1)
    heard = 0

    def note(data: bytes) -> None:
        times.append(time.monotonic_ns())

    with _listening(domain, topic, note, raw=True) as poll:
        while True:
            end = time.monotonic() + period
            while time.monotonic() < end:
                poll()
            if (newest := times[-1] if times else 0) == heard:
                yield None
            elif len(times) > 1:
                yield rate_of(list(times))
            heard = newest


def rate_of(times: list[int]) -> Rate:
    """Return the rate of messages that came at these times, at least two, ns."""
    between = [1e-9 * (after - before) for before, after in zip(times, times[1:], strict=False)]
    mean = sum(between) / len(between)
    spread = math.sqrt(sum((each - mean) ** 2 for each in between) / len(between))
    rate = 1.0 / mean if mean > 0.0 else 0.0
    return Rate(rate, min(between), max(between), spread, len(between))


@contextmanager
def _unseen(domain: int) -> Iterator[Node]:
    """Make a node that `ros2 node list` and :func:`nodes` leave out."""
    with node_in(domain, f'_fdrl_topic_{os.getpid()}') as node:
        yield node


def settled(node: Node) -> tuple[list[tuple[str, list[str]]], list[tuple[str, str]]]:
    """
    Return topics and nodes of the graph, once others were found and nothing new for a while.

    :returns: names and types of topics; names and namespaces of nodes.
    """
    begun = changed = time.monotonic()
    topics: list[tuple[str, list[str]]] = []
    nodes: list[tuple[str, str]] = []
    while (now := time.monotonic()) - begun < PATIENCE:
        newest = node.get_topic_names_and_types(), node.get_node_names_and_namespaces()
        if newest != (topics, nodes):
            (topics, nodes), changed = newest, now
        if len(nodes) > 1 and now - changed > SETTLED:
            break
        time.sleep(_LOOK)
    return topics, nodes


@contextmanager
def _listening(
    domain: int, topic: str, take: Callable[[Any], object], *, raw: bool
) -> Iterator[Callable[[], None]]:
    """Subscribe to a topic as its publishers offer it; give what takes what comes."""
    topic = topic if topic.startswith('/') else f'/{topic}'
    with _unseen(domain) as node:
        begun = time.monotonic()
        while not (publishers := node.get_publishers_info_by_topic(topic)):
            if time.monotonic() - begun > PATIENCE:
                raise TopicError(
                    f'nobody publishes {topic} in DDS domain {domain} (another domain: --domain; '
                    '`fdrl topic list` shows all)'
                )
            time.sleep(_LOOK)
        kinds = sorted({each.topic_type for each in publishers})
        if len(kinds) > 1:
            raise TopicError(f'{topic} has several types: {", ".join(kinds)}')
        kind = message_type(kinds[0])
        executor = EventsExecutor(context=node.context)
        executor.add_node(node)
        node.create_subscription(kind, topic, take, qos.matching(publishers, _DEPTH), raw=raw)
        with _interrupts() as interrupted:

            def poll() -> None:
                executor.spin_once(timeout_sec=0.1)
                if interrupted():
                    raise KeyboardInterrupt

            try:
                yield poll
            finally:
                executor.remove_node(node)


@contextmanager
def _interrupts() -> Iterator[Callable[[], bool]]:
    """Note Ctrl-C: what it raises in a callback of an executor may get lost there."""
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked.is_set
        return
    before = signal.signal(signal.SIGINT, lambda number, frame: asked.set())
    try:
        yield asked.is_set
    finally:
        signal.signal(signal.SIGINT, before)
