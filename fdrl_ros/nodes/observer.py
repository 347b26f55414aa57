# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Observe the whole system: call no service, publish nothing, return events as plain values."""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import fields
from functools import partial
from queue import Empty, Full, Queue
import threading
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray
from fdrl_ros.crypto.keys.roster import Roster
from fdrl_ros.deployment.events import (
    Event,
    HospitalProgress,
    NodeHealth,
    OperationEnded,
    PoliciesListed,
    PrivacySpent,
    ReceivedMessage,
    RejectedMessage,
)
from fdrl_ros.deployment.interfaces import OBSERVER
from fdrl_ros.deployment.namespaces import absolute, FEDERATION
from fdrl_ros.errors import MessageError, ReplayError
from fdrl_ros.federation.protocol import message as protocol
from fdrl_ros.federation.protocol.channel import MessageVerifier, OBSERVED
from fdrl_ros.federation.protocol.party import worth_logging
import fdrl_ros.msg as ros
from fdrl_ros.nodes.common import qos
from fdrl_ros.nodes.common.listening import spin_once
from fdrl_ros.nodes.common.service_call import node_in
from fdrl_ros.nodes.parties.conversion import from_ros
from fdrl_ros.nodes.parties.topics import PROTOCOL_TOPICS, WITH_WEIGHTS
from fdrl_ros.nodes.parties.weights_topic import PolicyReader
from fdrl_ros.runtime.closeable import Closeable
from rclpy.experimental import EventsExecutor
from rclpy.node import Node
from rclpy.qos import QoSProfile

WAITING = 10000
"""Events that wait for :meth:`Observer.poll`; more are dropped."""

_REPLACED = ros.PolicyStatus.STATUS_REPLACED
_VALUING = ros.PolicyStatus.STATUS_VALUING


class Observer(Closeable):
    """
    Listens in the domains of the federation and the robots.

    Use it in a `with` and call :meth:`poll`. Messages of the protocol are checked against the
    roster; the others are not signed: they are for people to look at, nothing may depend on them.
    """

    def __init__(
        self,
        roster: Roster,
        federation_domain: int,
        robots: tuple[str, ...] = (),
        robot_domain: int | None = None,
        *,
        namespace: str = '',
        n_parameters: int = 0,
        name: str = OBSERVER,
        kinds: Iterable[type[protocol.Message]] = OBSERVED,
    ) -> None:
        """
        Join the domains.

        :param roster: whom to believe, and whose progress to look at.
        :param namespace: in front of those of the nodes; others are not listened to.
        :param n_parameters: of the policies; without it only short ones are heard.
        :param name: of the node.
        :param kinds: of messages of the protocol that are listened to.
        """
        kinds, self._name = set(kinds), name
        self._verifier = MessageVerifier(roster)
        self._refused = 0
        self._events: Queue[Event] = Queue(WAITING)
        self._ending = threading.Event()
        self._joined = ExitStack()
        self._size = 4 * n_parameters
        self._namespace = absolute(namespace)
        self.federation = federation = self._join(federation_domain)
        """The node in the federation's domain."""
        for kind in kinds - {protocol.HospitalPolicy}:
            entry = PROTOCOL_TOPICS[kind]
            topic = self._topic(FEDERATION, entry.name)
            self._subscribe_message(federation, kind, topic, entry.type, entry.hearing)
        for name in (member.name for member in roster.hospitals):
            if (released := protocol.HospitalPolicy) in kinds:
                topic = self._topic(name, 'policy')
                self._subscribe_message(federation, released, topic, ros.HospitalPolicy, qos.HEARD)
            topic = self._topic(name, 'progress')
            self._subscribe_event(federation, topic, ros.Progress, HospitalProgress, qos.EVENT)
            topic = self._topic(name, 'privacy')
            self._subscribe_event(federation, topic, ros.Privacy, PrivacySpent, qos.HEARD)
        if robot_domain is not None:
            room = self._join(robot_domain)
            for name in robots:
                topic = self._topic(name, 'outcome')
                self._subscribe_event(room, topic, ros.Outcome, OperationEnded, qos.EVENT)
                room.create_subscription(
                    ros.Policies,
                    self._topic(name, 'policies'),
                    partial(self._receive_policies, name),
                    qos.HEARD,
                )

    @property
    def finished(self) -> bool:
        """Whether the aggregator said, and signed, that the federation has ended."""
        return self._verifier.finished

    def poll(self, timeout: float) -> list[Event]:
        """
        Return what was heard since the last call.

        :param timeout: longest wait for the first event, second.
        """
        with suppress(Empty):
            events = [self._events.get(timeout=timeout)]
            while not self._events.empty():
                events.append(self._events.get_nowait())
            return events
        return []

    def close(self) -> None:
        """Leave the domains."""
        self._ending.set()
        self._joined.close()

    def _topic(self, place: str, name: str) -> str:
        return absolute(self._namespace, place, name)

    def _join(self, domain: int) -> Node:
        """Make a node in a domain and a thread that listens for it."""
        node = self._joined.enter_context(node_in(domain, self._name))
        executor = EventsExecutor(context=node.context)
        executor.add_node(node)

        def listen() -> None:
            while not self._ending.is_set():
                spin_once(executor, node)

        thread = threading.Thread(target=listen, name=f'observer {domain}', daemon=True)
        self._joined.callback(executor.remove_node, node)
        self._joined.callback(thread.join, 5.0)
        node.create_subscription(
            DiagnosticArray, '/diagnostics', self._receive_diagnostics, qos.EVENT
        )
        thread.start()
        return node

    def _queue_event(self, event: Event) -> None:
        """Keep an event for :meth:`poll`; on a listening thread."""
        with suppress(Full):
            self._events.put_nowait(event)

    def _subscribe_message(
        self,
        node: Node,
        kind: type[protocol.Message],
        topic: str,
        type_: type[object],
        profile: QoSProfile,
    ) -> None:
        """Hear a kind of message of the protocol; long weights on this very thread."""

        def receive(source: Any, weights: bytes | None = None) -> None:
            try:
                apart = {} if weights is None else {'weights': weights}
                message = from_ros(source, kind, **apart)
                self._verifier.accept(message)
            except ReplayError:
                return  # said again, to who came late
            except MessageError as error:
                self._refused += 1
                if worth_logging(self._refused):
                    self._queue_event(RejectedMessage(str(error)))
                return
            self._queue_event(ReceivedMessage(message))

        if kind in WITH_WEIGHTS:
            PolicyReader(self._size, receive).subscribe(node.create_subscription, type_, topic)
        else:
            node.create_subscription(type_, topic, receive, profile)

    def _subscribe_event(
        self, node: Node, topic: str, type_: type[object], kind: type[Any], profile: QoSProfile
    ) -> None:
        """Hear messages whose fields are those of an event, beside whose topic it is."""
        owner, *names = (field.name for field in fields(kind))
        known = {owner: topic.split('/')[-2]}

        def copy(source: Any) -> None:
            self._queue_event(kind(**known, **{name: getattr(source, name) for name in names}))

        node.create_subscription(type_, topic, copy, profile)

    def _receive_policies(self, robot: str, source: ros.Policies) -> None:
        standing = [each for each in source.policies if each.status != _REPLACED]
        valuing = tuple(each.name for each in standing if each.status == _VALUING)
        rounds = {each.name: each.round for each in standing}
        self._queue_event(PoliciesListed(robot, rounds, valuing))

    def _receive_diagnostics(self, source: DiagnosticArray) -> None:
        for event in health_in(source, self._namespace):
            self._queue_event(event)


def health_in(source: DiagnosticArray, namespace: str) -> Iterator[NodeHealth]:
    """Yield the health of the nodes of a namespace; of others, nothing."""
    for status in source.status:
        node = status.name.partition(': ')[0]
        if absolute(*node.split('/')[:-2]) == namespace:
            values = {pair.key: pair.value for pair in status.values}
            yield NodeHealth(node, status.level[0], status.message, values)
