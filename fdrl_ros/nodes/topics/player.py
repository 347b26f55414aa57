# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Play a bag: publish its messages on their topics as far apart as they came, or show them."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
import time
from typing import Final

from fdrl_ros.deployment.interfaces import Domain, INTERFACES, Kind
from fdrl_ros.deployment.namespaces import absolute
from fdrl_ros.errors import SettingError, TopicError
from fdrl_ros.nodes.common import qos
from fdrl_ros.nodes.common.service_call import node_in
from fdrl_ros.nodes.topics.every_topic import is_for_people
from fdrl_ros.nodes.topics.foxglove_server import FoxgloveServer, LOOPBACK, OPEN
from fdrl_ros.nodes.topics.message_types import message_type
from fdrl_ros.nodes.topics.sink import Topic
from fdrl_ros.nodes.topics.topic_queries import settled
from fdrl_ros.surgery.data.bag_messages import Bag, BagTopic, open_bag
from rclpy.node import Node

NAME: Final = 'player'

COMMANDS: Final = frozenset(
    line.name.removeprefix('{robot}/')
    for line in INTERFACES[Domain.ROBOTS]
    if line.kind is Kind.TOPIC and {'client', 'pedal'} & {*line.by}
)
"""Topics, below a robot's namespace, on which an arm or its selector is commanded."""

_STEP: Final = 0.05  # s of a wait until it is asked whether to stop

Publish = Callable[[str, bytes], None]


@dataclass(frozen=True)
class Moved:
    """
    Where the topics of a bag go.

    :param namespace: in front of them all.
    :param remappings: topics or namespaces, and what they become.
    """

    namespace: str = ''
    remappings: Mapping[str, str] = field(default_factory=dict)

    def __call__(self, name: str) -> str:
        """Return the new name of a topic."""
        for old, new in self.remappings.items():
            if name == old or name.startswith(f'{old.rstrip("/")}/'):
                name = absolute(new, name.removeprefix(old.rstrip('/')))
                break
        return absolute(self.namespace, name)


def is_command(name: str) -> bool:
    """Return whether an arm, or a selector, obeys what is published on a topic."""
    return any(name.endswith(f'/{each}') for each in COMMANDS)


@dataclass(frozen=True)
class Played:
    """
    What was played.

    :param messages: how many.
    :param left_out: topics that were not, and why, in words.
    """

    messages: int
    left_out: tuple[str, ...]


def play(
    path: Path,
    domain: int,
    moved: Moved,
    *,
    rate: float = 1.0,
    loop: bool = False,
    stopped: Callable[[], bool],
    tell: Callable[[str], None],
) -> Played:
    """
    Publish the messages of a bag in a DDS domain.

    Commands are left out, and so is what no sensible player publishes: topics of every node.

    :param path: of the bag.
    :param moved: where the topics go.
    :param rate: how many times as fast as they were recorded.
    :param loop: begin again at the end, until asked to stop.
    :param tell: told what is played, in a line.
    :raises RecordsError: if the bag is none, or is cut off.
    :raises TopicError: if a topic is published by others in that domain already, or there is none
        to play.
    :raises SettingError: if there is no such domain.
    """
    with open_bag(path) as bag, node_in(domain, NAME) as node:
        topics, left_out = _chosen(bag)
        _refuse_taken(node, [moved(each.name) for each in topics], domain)
        publishers = {
            each.name: node.create_publisher(
                message_type(each.kind),
                moved(each.name),
                qos.OPERATING if each.latched else qos.EVENT,
            )
            for each in topics
        }
        tell(_playing(bag, len(topics), f'in DDS domain {domain}', rate))

        def publish(name: str, data: bytes) -> None:
            publishers[name].publish(data)

        return Played(_run(bag, topics, publish, rate, loop, stopped), left_out)


def show(
    path: Path,
    port: int,
    *,
    rate: float = 1.0,
    loop: bool = False,
    stopped: Callable[[], bool],
    tell: Callable[[str], None],
) -> Played:
    """
    Show the messages of a bag to Foxglove, and publish nothing; at its end, until asked to stop.

    :raises FdrlError: as :class:`FoxgloveServer` and :func:`open_bag`.
    """
    with open_bag(path) as bag, FoxgloveServer(LOOPBACK, port) as server:
        shown = {
            each.name: Topic(each.name, each.kind, each.latched)
            for each in bag.topics
            if each.count
        }
        left_out = []
        for each in bag.topics:
            if each.name in shown:
                try:
                    server.announce(shown[each.name], each.definition)
                except TopicError as error:
                    left_out.append(f'{each.name}: {error}')
                    del shown[each.name]
        tell(_playing(bag, len(shown), f'at {server.address}', rate))
        tell(OPEN)

        def publish(name: str, data: bytes) -> None:
            if server.wants(shown[name]):
                server.take(shown[name], time.time_ns(), data)

        topics = [each for each in bag.topics if each.name in shown]
        count = _run(bag, topics, publish, rate, loop, stopped)
        while not stopped():
            time.sleep(_STEP)
        return Played(count, tuple(left_out))


def _playing(bag: Bag, topics: int, where: str, rate: float) -> str:
    return f'playing {topics} topics, {bag.seconds / rate:.1f} s, {where}'


def _chosen(bag: Bag) -> tuple[list[BagTopic], tuple[str, ...]]:
    """Return the topics that are published, and the others in words."""
    topics, left_out = [], []
    for each in bag.topics:
        if not each.count or not is_for_people(each.name):
            continue
        if is_command(each.name):
            left_out.append(f'{each.name} commands an arm')
            continue
        try:
            message_type(each.kind)
        except TopicError as error:
            left_out.append(f'{each.name}: {error}')
            continue
        topics.append(each)
    if not topics:
        raise TopicError(f'nothing to play: {"; ".join(left_out) or "the bag is empty"}')
    return topics, tuple(left_out)


def _refuse_taken(node: Node, names: list[str], domain: int) -> None:
    """Refuse topics that others publish, or whose messages would command an arm."""
    for name in names:
        if is_command(name):
            raise SettingError('remap', name, 'no topic that commands an arm')
    settled(node)
    if taken := [each for each in names if node.count_publishers(each)]:
        raise TopicError(
            f'{taken[0]} is published in DDS domain {domain} already ({len(taken)} topics are): '
            'play into another --domain, or below a --namespace or --remap'
        )


def _run(
    bag: Bag,
    topics: list[BagTopic],
    publish: Publish,
    rate: float,
    loop: bool,
    stopped: Callable[[], bool],
) -> int:
    """Publish messages when they are due; return how many."""
    names = [each.name for each in topics]
    count = 0
    while True:
        for name, data in due(bag.messages(names), rate, stopped):
            publish(name, data)
            count += 1
        if not loop or stopped():
            return count


def due(
    messages: Iterator[tuple[str, int, bytes]], rate: float, stopped: Callable[[], bool]
) -> Iterator[tuple[str, bytes]]:
    """
    Yield messages when they are due, until asked to stop.

    :param messages: topic, time of recording, ns, and message.
    :param rate: how many times as fast.
    """
    begun, first = time.monotonic(), None
    for name, at, data in messages:
        first = at if first is None else first
        due = begun + 1e-9 * (at - first) / rate
        while (left := due - time.monotonic()) > 0.0:
            if stopped():
                return
            time.sleep(min(left, _STEP))
        if stopped():
            return
        yield name, data
