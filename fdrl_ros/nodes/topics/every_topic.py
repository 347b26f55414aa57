# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Subscribe to all topics of DDS domains as they appear, and hand on what comes as it was sent."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
import re
import threading
import time
from typing import Final

from fdrl_ros.deployment.interfaces import INTERFACES, is_shown, Kind
from fdrl_ros.deployment.namespaces import FEDERATION
from fdrl_ros.errors import FdrlError, TopicError
from fdrl_ros.nodes.common import qos
from fdrl_ros.nodes.common.service_call import node_in
from fdrl_ros.nodes.topics.message_types import message_type
from fdrl_ros.nodes.topics.robot_frames import RobotFrames
from fdrl_ros.nodes.topics.sink import Sink, Topic
from fdrl_ros.runtime.closeable import Closeable
from fdrl_ros.surgery.data.bag import TRANSFORMS
from rclpy.experimental import EventsExecutor
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile
from rclpy.subscription import Subscription
from rclpy.topic_or_service_is_hidden import topic_or_service_is_hidden

Accepts = Callable[[str], bool]

_LOOK: Final = 0.5  # s between two looks at the graph
_SERVE: Final = 0.05  # s until a topic that is wanted is subscribed to
_DEPTH: Final = 100

_OF_ALL_NODES: Final = ('parameter_events', 'rosout', 'transition_event')
"""Topics of every node; their states are in /diagnostics."""


def _of_parties() -> 're.Pattern[str]':
    """Return what matches the topics that people are not shown."""
    names: dict[bool, set[str]] = {False: set(), True: set()}
    for domain, lines in INTERFACES.items():
        for line in lines:
            if line.kind is Kind.TOPIC:
                names[is_shown(domain, line)].add(line.name)
    hidden = sorted(names[False] - names[True])
    words = [re.sub(r'{\w+}', r'\\w+', n.replace('{federation}', FEDERATION)) for n in hidden]
    return re.compile(f'.*/?(?:{"|".join(words)})')


_OF_PARTIES: Final = _of_parties()


def is_for_people(name: str) -> bool:
    """Return whether a topic is shown: none that is hidden, long or sealed, or of every node."""
    return not (
        name.rpartition('/')[2] in _OF_ALL_NODES
        or topic_or_service_is_hidden(name)
        or _OF_PARTIES.fullmatch(name)
    )


class EveryTopic(Closeable):
    """
    Hands the messages of every topic on to sinks, with the frames of robots that nobody publishes.

    It subscribes to a topic only while a sink wants its messages, with the reliability and
    durability that its publishers offer. Use it in a `with`.

    :param domains: DDS domains.
    :param sinks: which are not closed by it.
    :param name: of its node in each domain.
    :param namespace: of these.
    :param accepts: which topics, by name.
    :raises SettingError: if there is no such domain.
    """

    def __init__(
        self,
        domains: Sequence[int],
        sinks: Sequence[Sink],
        *,
        name: str,
        namespace: str | None = None,
        accepts: Accepts = is_for_people,
    ) -> None:
        self.accepts = accepts
        self.left_out: dict[str, str] = {}
        """Topics that no sink can have, and why; in words, by name."""
        self._sinks = sinks
        self._lock = threading.RLock()
        self._topics: dict[str, Topic] = {}
        self._error: Exception | None = None
        self._ending = threading.Event()
        self.frames = RobotFrames(self._announce, self._give, self.is_wanted)
        with ExitStack() as joined:
            for domain in domains:
                node = joined.enter_context(node_in(domain, name, namespace))
                follower = _Follower(self, node)
                thread = threading.Thread(
                    target=self._follow, args=(follower,), name=f'{name} {domain}', daemon=True
                )
                joined.callback(follower.close)
                joined.callback(thread.join, 5.0)
                joined.callback(self._ending.set)
                thread.start()
            self._joined = joined.pop_all()

    @property
    def topics(self) -> tuple[Topic, ...]:
        """All topics that were found."""
        with self._lock:
            return tuple(self._topics.values())

    def poll(self, seconds: float) -> None:
        """
        Wait.

        :param seconds: for how long.
        :raises FdrlError: if a sink cannot take any more.
        """
        self._ending.wait(seconds)
        if self._error is not None:
            if isinstance(self._error, FdrlError):
                raise self._error
            raise TopicError(f'cannot go on: {self._error}') from self._error

    def close(self) -> None:
        """Leave the domains."""
        self._joined.close()

    def find(self, topic: Topic) -> Topic | None:
        """
        Take note of a topic.

        :returns: the topic that is subscribed to, or None if it cannot be.
        """
        with self._lock:
            known = self._topics.get(topic.name)
            if known is not None and known.kind != topic.kind:
                self.left_out[topic.name] = f'{topic.name} has several types'
                return None
            if known is None:
                try:
                    message_type(topic.kind)
                    self._announce(topic)
                except TopicError as error:
                    self.left_out[topic.name] = f'{topic.name}: {error}'
                    return None
                if topic.kind == TRANSFORMS:
                    self.frames.leave_to_others(topic)
            return known or topic

    def is_wanted(self, topic: Topic) -> bool:
        """Return whether a sink wants messages of a topic."""
        return any(each.wants(topic) for each in self._sinks)

    def take(self, topic: Topic, data: bytes) -> None:
        """Take a message that came now."""
        now, data = time.time_ns(), bytes(data)
        if self.frames.needs(topic):
            with self._lock:
                self.frames.take(topic, now, data)
        self._give(topic, now, data)

    def _give(self, topic: Topic, now: int, data: bytes) -> None:
        for each in self._sinks:
            if each.wants(topic):
                each.take(topic, now, data)

    def _announce(self, topic: Topic) -> None:
        with self._lock:
            if topic.name not in self._topics:
                for each in self._sinks:
                    each.announce(topic)
                self._topics[topic.name] = topic

    def _follow(self, follower: '_Follower') -> None:
        try:
            while not self._ending.is_set():
                follower.spin()
        except Exception as error:  # shown by poll, in the thread of who uses this
            self._error = error
            self._ending.set()


class _Follower:
    """The subscriptions in one domain."""

    def __init__(self, owner: EveryTopic, node: Node) -> None:
        self._owner, self._node = owner, node
        self._executor = EventsExecutor(context=node.context)
        self._executor.add_node(node)
        self._offered: dict[Topic, QoSProfile] = {}
        self._heard: dict[Topic, Subscription] = {}
        self._next_look = self._next_change = 0.0

    def spin(self) -> None:
        """Take what comes, look at the graph, and subscribe to what is wanted."""
        self._executor.spin_once(timeout_sec=_SERVE)
        now = time.monotonic()
        if now >= self._next_look:
            self._look()
            self._next_look = now + _LOOK
        if now >= self._next_change:
            self._change()
            self._next_change = now + _SERVE

    def _look(self) -> None:
        for name, kinds in self._node.get_topic_names_and_types():
            if not self._owner.accepts(name) or not kinds:
                continue
            if not (publishers := self._node.get_publishers_info_by_topic(name)):
                continue
            profile = qos.matching(publishers, _DEPTH)
            latched = profile.durability == DurabilityPolicy.TRANSIENT_LOCAL
            digest = str(publishers[0].topic_type_hash)
            known = self._owner.find(Topic(name, publishers[0].topic_type, latched, digest))
            if known is None:
                continue
            before = self._offered.get(known)
            if before is not None and (before.reliability, before.durability) != (
                profile.reliability,
                profile.durability,
            ):
                self._leave(known)
            self._offered[known] = profile

    def _change(self) -> None:
        owner = self._owner
        for topic, profile in self._offered.items():
            wanted = owner.is_wanted(topic) or owner.frames.needs(topic)
            if not wanted:
                self._leave(topic)
            elif topic not in self._heard and topic.name not in owner.left_out:
                self._subscribe(topic, profile)

    def _subscribe(self, topic: Topic, profile: QoSProfile) -> None:
        kind, take = message_type(topic.kind), partial(self._owner.take, topic)
        try:
            heard = self._node.create_subscription(kind, topic.name, take, profile, raw=True)
        except RuntimeError as error:  # as where the permissions of an enclave do not allow it
            self._owner.left_out[topic.name] = f'{topic.name}: {error}'
            return
        self._heard[topic] = heard

    def _leave(self, topic: Topic) -> None:
        if (heard := self._heard.pop(topic, None)) is not None:
            self._node.destroy_subscription(heard)

    def close(self) -> None:
        """Unsubscribe from all topics."""
        self._executor.remove_node(self._node)
