# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Publish and receive policies whose weights are too long for one message.

Weights of at most 256 KiB travel inside their message. Longer weights follow it in chunks on the
topic `weights` below the message's: reliable, latched for late joiners, and at a bounded rate, so
that small messages pass beside them. The message then carries their digest alone. Chunks are not
signed; the receiver uses only bytes that have the digest in the signed message.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
import hashlib
from typing import Any, Final

from builtin_interfaces.msg import Time
from fdrl_ros.federation.protocol.message import GlobalPolicy, HospitalPolicy
import fdrl_ros.msg as ros
from fdrl_ros.nodes.common import qos
from fdrl_ros.nodes.common.managed_node import ManagedNode
from fdrl_ros.nodes.parties.conversion import to_ros
from rclpy.qos import QoSProfile

SHORT: Final = 2**18
"""Most bytes of weights that travel in their message."""

CHUNK: Final = 61440
"""
Bytes of a full chunk: with its header it fits into one datagram.

The middleware would cut larger chunks into fragments, and a small message would then wait for up
to two seconds (benchmark/transport.py).
"""

BURST: Final = 6
"""Chunks published in one call of the timer."""

PERIOD: Final = 0.004
"""Time between two bursts, second: 92 MB/s, three quarters of a gigabit network."""

BELOW: Final = 'weights'
"""Name of the chunks' topic below the message's topic."""

Subscribe = Callable[[type[Any], str, Callable[[Any], None], QoSProfile], None]
"""Makes a subscription of a ROS type on a topic."""


def chunks_of(weights: bytes, digest: bytes) -> Iterator[ros.Piece]:
    """Cut weights into messages, one at a time."""
    whole = memoryview(weights)
    for number, start in enumerate(range(0, len(weights), CHUNK)):
        chunk = ros.Piece(piece=number)
        chunk.digest.frombytes(digest)
        chunk.data.frombytes(whole[start : start + CHUNK])
        yield chunk


class PolicyPublisher:
    """Publishes policies on one topic, and long weights in chunks below it."""

    def __init__(
        self,
        make: Callable[..., Any],
        kind: type[object],
        topic: str,
        start: Callable[[], None],
        profile: QoSProfile = qos.LATCHED,
    ) -> None:
        """
        Make the publishers.

        :param make: makes a publisher from a ROS type, a topic and a QoS profile.
        :param kind: ROS type of the policies.
        :param profile: of the messages; long weights are kept of the newest policy alone.
        :param start: has :meth:`publish_burst` called every :data:`PERIOD` until it returns False.
        """
        self._kind = kind
        self._messages = make(kind, topic, profile)
        self._chunks = make(ros.Piece, f'{topic}/{BELOW}', qos.CHUNKS)
        self._start = start
        self._rest: Iterator[ros.Piece] = iter(())

    def publish(self, policy: GlobalPolicy | HospitalPolicy, stamp: Time) -> None:
        """Publish a policy; chunks of an earlier one that are not out yet are dropped."""
        long = len(policy.weights) > SHORT
        message = to_ros(replace(policy, weights=b'') if long else policy, self._kind())
        message.header.stamp = stamp
        self._messages.publish(message)
        self._rest = iter(())
        if long:
            self._rest = chunks_of(policy.weights, policy.digest)
            self._start()

    def publish_burst(self) -> bool:
        """
        Publish a few chunks.

        :returns: whether there are more.
        """
        for _ in range(BURST):
            chunk = next(self._rest, None)
            if chunk is None:
                return False
            self._chunks.publish(chunk)
        return True


class PolicyPublishers:
    """The policy publishers of one node, driven by one timer that runs only when needed."""

    def __init__(self, node: ManagedNode) -> None:
        """Begin without publishers."""
        self._node = node
        self._publishers: list[PolicyPublisher] = []
        self._timer: Any = None

    def add(
        self,
        kind: type[object],
        topic: str,
        make: Callable[..., Any] | None = None,
        profile: QoSProfile = qos.LATCHED,
    ) -> PolicyPublisher:
        """
        Make a publisher of policies.

        :param make: makes the ROS publishers; the node's unless given.
        :param profile: of the messages.
        """
        made = PolicyPublisher(make or self._node.publisher, kind, topic, self._run, profile)
        self._publishers.append(made)
        return made

    def begin(self) -> None:
        """Make the timer, on activation."""
        self._timer = self._node.every(PERIOD, self._publish_bursts)
        self._timer.cancel()

    def _run(self) -> None:
        if self._timer.is_canceled():
            self._timer.reset()

    def _publish_bursts(self) -> None:
        more = [each.publish_burst() for each in self._publishers]
        if not any(more):
            self._timer.cancel()


class PolicyReader:
    """Joins the policies of one topic with the chunks of their weights."""

    def __init__(self, size: int, then: Callable[[Any, bytes | None], None]) -> None:
        """
        Wait for policies.

        :param size: bytes of the weights.
        :param then: takes a policy and, if they came in chunks, its weights.
        """
        self._size = size
        self._then = then
        self._waiting: Any = None
        self._digest, self._buffer, self._hash = b'', bytearray(), hashlib.sha256()
        self._joined: bytes | None = None

    def subscribe(self, subscribe: Subscribe, kind: type[object], topic: str) -> None:
        """Subscribe to policies, and to chunks if the weights are that long."""
        if self._size > SHORT:
            subscribe(ros.Piece, f'{topic}/{BELOW}', self.take_chunk, qos.CHUNKS)
        subscribe(kind, topic, self.take, qos.HEARD)

    def take(self, policy: Any) -> None:
        """Take a policy; the newest counts."""
        if self._size <= SHORT or len(policy.weights):
            self._waiting = None
            self._then(policy, None)
            return
        self._waiting = policy
        self._join()

    def take_chunk(self, chunk: ros.Piece) -> None:
        """
        Take a chunk; one sender's chunks arrive in order, and chunks out of order are dropped.

        Its hash goes on with each chunk, so that no callback takes long. Memory is bounded by the
        size of the weights, whatever is sent.
        """
        digest = bytes(chunk.digest)
        if chunk.piece == 0 and (digest != self._digest or self._joined is not None):
            self._discard(digest)
        count = len(self._buffer)
        expected = min(CHUNK, self._size - count)
        in_order = digest == self._digest and chunk.piece * CHUNK == count
        if not in_order or self._joined is not None or len(chunk.data) != expected:
            return
        data = memoryview(chunk.data)
        self._buffer += data
        self._hash.update(data)
        if len(self._buffer) < self._size:
            return
        if self._hash.digest() != digest:
            self._discard(b'')  # somebody else's bytes: wait for the next time
            return
        self._joined, self._buffer = bytes(self._buffer), bytearray()
        self._join()

    def _discard(self, digest: bytes) -> None:
        """Begin to collect the weights that have a digest."""
        self._digest, self._buffer, self._hash = digest, bytearray(), hashlib.sha256()
        self._joined = None

    def _join(self) -> None:
        """Hand on the policy that waits, if its weights are here."""
        policy = self._waiting
        if policy is not None and self._joined and bytes(policy.digest) == self._digest:
            self._waiting = None
            self._then(policy, self._joined)
