# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Policies reach early and late readers whole, whatever their length; wrong chunks are dropped."""

from collections.abc import Callable, Iterator
import hashlib
import shutil
import time
from typing import Any

from builtin_interfaces.msg import Time
from fdrl_ros.deployment.bringup import BringupSettings
from fdrl_ros.deployment.events import ReceivedMessage
from fdrl_ros.deployment.layout import Layout
from fdrl_ros.deployment.parties.hospital import open_records
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.deployment.prepare import prepare
from fdrl_ros.deployment.runner import Runner
from fdrl_ros.federation.protocol.message import (
    Envelope,
    GlobalPolicy,
    MaskedUpdate,
    RoundStatus,
)
import fdrl_ros.msg as ros
from fdrl_ros.nodes.common import qos
from fdrl_ros.nodes.observer import Observer
from fdrl_ros.nodes.parties.weights_topic import (
    BELOW,
    CHUNK,
    chunks_of,
    PolicyPublisher,
    PolicyReader,
    SHORT,
)
from node.conftest import Live, PLAN, play
import numpy as np
import pytest
import rclpy
from rclpy.context import Context
from rclpy.executors import SingleThreadedExecutor

SIZE = 5 * CHUNK + 1000
FIVE_MILLION = 4 * 5_000_000
GENERATOR = np.random.default_rng(5)


def policy(size: int = SIZE) -> GlobalPolicy:
    """Return a policy with random weights and their digest; nobody here checks its signature."""
    weights = GENERATOR.bytes(size)
    digest = hashlib.sha256(weights).digest()
    envelope = Envelope('test', 1, 1, 'key_authority', 1)
    return GlobalPolicy(envelope, weights, digest, (), b'', False, True, '')


def test_chunks_out_of_order_or_of_other_weights_are_dropped():
    heard: list[tuple[Any, bytes | None]] = []
    reader, sent = PolicyReader(SIZE, lambda *said: heard.append(said)), policy()
    reader.take(ros.GlobalPolicy(digest=sent.digest))
    chunks = list(chunks_of(sent.weights, sent.digest))
    other = list(chunks_of(bytes(SIZE), bytes(32)))
    strange = ros.Piece(digest=sent.digest, piece=2**32 - 1)
    long = ros.Piece(digest=sent.digest, piece=1, data=bytes(CHUNK + 1))
    for chunk in (*chunks[1:], chunks[0], chunks[2], strange, long, other[3], *chunks[1:]):
        reader.take_chunk(chunk)
    assert [weights for _, weights in heard] == [sent.weights]


def test_bytes_of_another_digest_are_never_used_and_the_next_time_counts():
    heard: list[bytes | None] = []
    reader, sent = PolicyReader(SIZE, lambda _, weights: heard.append(weights)), policy()
    reader.take(ros.GlobalPolicy(digest=sent.digest))
    for chunk in chunks_of(bytes(SIZE), sent.digest):
        reader.take_chunk(chunk)
    assert not heard
    for chunk in chunks_of(sent.weights, sent.digest):
        reader.take_chunk(chunk)
    assert heard == [sent.weights]


class Room:
    """A sender and readers in nodes of their own."""

    def __init__(self, domain: int) -> None:
        self.context = Context()
        rclpy.init(context=self.context, domain_id=domain)
        self.executor = SingleThreadedExecutor(context=self.context)
        self.heard: list[tuple[Any, bytes | None]] = []
        self.nodes: list[Any] = []
        self.sending = False
        make = self.node('sender').create_publisher
        self.out = PolicyPublisher(make, ros.GlobalPolicy, '/policy', self._start, qos.RELEASED)

    def _start(self) -> None:
        self.sending = True

    def node(self, name: str) -> Any:
        node = rclpy.create_node(name, context=self.context)
        self.executor.add_node(node)
        self.nodes.append(node)
        return node

    def add_reader(self, size: int = SIZE) -> None:
        node = self.node(f'reader_{len(self.nodes)}')
        reader = PolicyReader(size, lambda *said: self.heard.append(said))
        reader.subscribe(node.create_subscription, ros.GlobalPolicy, '/policy')

    def spin(self, until: Callable[[], Any], seconds: float = 20.0) -> bool:
        deadline = time.monotonic() + seconds
        while not until() and time.monotonic() < deadline:
            self.executor.spin_once(timeout_sec=0.002)
            self.sending = self.sending and self.out.publish_burst()
        return bool(until())

    def close(self) -> None:
        for node in self.nodes:
            node.destroy_node()
        rclpy.shutdown(context=self.context)


@pytest.fixture
def room(federation_domain: int) -> Iterator[Room]:
    made = Room(federation_domain)
    yield made
    made.close()


@pytest.mark.parametrize('size', [SIZE, FIVE_MILLION])
def test_long_weights_reach_readers_before_and_after(room, size):
    room.add_reader(size)
    first, second = policy(size), policy(size)
    room.out.publish(first, Time(sec=1))
    assert room.spin(lambda: len(room.heard) == 1)
    room.add_reader(size)
    assert room.spin(lambda: len(room.heard) == 2)
    room.out.publish(second, Time(sec=2))
    assert room.spin(lambda: len(room.heard) == 4)
    found = [weights for _, weights in room.heard]
    assert found == [first.weights, first.weights, second.weights, second.weights]
    assert all(not len(message.weights) for message, _ in room.heard)


def test_short_weights_travel_in_their_message(room):
    room.add_reader(SHORT)
    sent = policy(SHORT)
    room.out.publish(sent, Time(sec=1))
    assert room.spin(lambda: room.heard)
    message, beside = room.heard[0]
    assert message.weights.tobytes() == sent.weights and beside is None
    assert not room.sending


def test_who_comes_late_gets_the_policies_of_the_last_rounds(room):
    sent = [policy(SHORT) for _ in range(10)]
    for number, each in enumerate(sent):
        room.out.publish(each, Time(sec=number))
    room.add_reader(SHORT)
    assert room.spin(lambda: len(room.heard) == 8)
    assert [bytes(message.digest) for message, _ in room.heard] == [e.digest for e in sent[-8:]]


def test_chunks_of_an_earlier_policy_are_not_sent_any_more(room):
    counted: list[ros.Piece] = []
    node = room.node('counting')
    node.create_subscription(ros.Piece, f'/policy/{BELOW}', counted.append, qos.CHUNKS)
    room.add_reader()
    room.out.publish(policy(), Time(sec=1))
    room.out.publish(newer := policy(), Time(sec=2))
    assert room.spin(lambda: room.heard)
    assert [weights for _, weights in room.heard] == [newer.weights]
    assert all(bytes(each.digest) == newer.digest for each in counted)


# The whole federation.


LARGE = Plan().changed(
    {
        **PLAN.to_mapping(),
        'learner': {'hidden': 600, 'epochs': 1},
        'rounds': {'rounds': 1, 'open_timeout': 10.0, 'train_timeout': 60.0},
    }
)


def test_a_large_model_ends_with_the_policy_of_the_in_process_driver(
    tmp_path, federation_domain, robot_domain
):
    assert 4 * LARGE.network.layout.n_parameters > SHORT
    directory, played = tmp_path / 'federation', tmp_path / 'played'
    layout = prepare(directory, LARGE)
    for name in LARGE.hospitals:
        open_records(layout, name, LARGE)
    shutil.copytree(directory, played)
    digest = play(Layout(played), LARGE)
    settings = BringupSettings(
        directory=str(directory), federation_domain=federation_domain, robot_domain=robot_domain
    )
    with (
        Observer(
            layout.roster(), federation_domain, n_parameters=LARGE.network.layout.n_parameters
        ) as watch,
        Runner(settings, layout.log) as runner,
    ):
        live = Live(runner, watch, settings)
        live.start()
        live.wait(lambda: watch.finished and live.policy(1) is not None, 120.0)
        assert live.policy(1).digest == digest
        chunks = [e for e in live.heard if isinstance(getattr(e, 'message', None), MaskedUpdate)]
        assert max(each.message.chunk for each in chunks) >= 39
        attempts = [e.message.envelope.attempt for e in live.heard if _is_status(e)]
        assert max(attempts) == 1
        live.wait_for_health('/federation/aggregator', 'FINISHED')
        servers = '/federation/aggregator', '/federation/key_authority'
        live.wait(lambda: all('refused' in live.health(each) for each in servers))
        assert [live.health(each)['refused'] for each in servers] == ['0', '0']
        assert not live.deaths


def _is_status(event: Any) -> bool:
    return isinstance(event, ReceivedMessage) and isinstance(event.message, RoundStatus)
