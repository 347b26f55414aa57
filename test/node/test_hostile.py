# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Bad messages on the wire: refused, counted, and the round goes on as if they had not been."""

from collections.abc import Iterator
from typing import Any

from fdrl_ros.deployment.bringup import hospital_graph, server_graph
from fdrl_ros.federation.protocol.message import Phase
import fdrl_ros.msg as ros
from fdrl_ros.nodes.common import qos
import pytest
import rclpy
from rclpy.context import Context
from rclpy.executors import SingleThreadedExecutor
from rclpy.serialization import serialize_message


class Stranger:
    """Somebody on the network without a key."""

    def __init__(self, domain: int) -> None:
        self.context = Context()
        rclpy.init(context=self.context, domain_id=domain)
        self.node = rclpy.create_node('stranger', context=self.context)
        self.executor = SingleThreadedExecutor(context=self.context)
        self.executor.add_node(self.node)
        self.keys: list[Any] = []
        self.node.create_subscription(
            ros.RoundKey, '/federation/round_key', self.keys.append, qos.HEARD
        )
        self.key = self.node.create_publisher(ros.RoundKey, '/federation/round_key', qos.KEPT)
        self.update = self.node.create_publisher(ros.MaskedUpdate, '/federation/update', qos.KEPT)
        self.policy = self.node.create_publisher(
            ros.GlobalPolicy, '/federation/policy', qos.LATCHED
        )

    def listen(self) -> None:
        self.executor.spin_once(timeout_sec=0.02)

    def close(self) -> None:
        self.node.destroy_node()
        rclpy.shutdown(context=self.context)


@pytest.fixture
def stranger(settings) -> Iterator[Stranger]:
    made = Stranger(settings.federation_domain)
    yield made
    made.close()


def test_bad_messages_are_refused_and_the_round_goes_on(live, reference, stranger):
    *early, late = ('hospital_1', 'hospital_2', 'hospital_3')
    live.runner.start(server_graph(live.settings))
    for name in early:
        live.runner.start(hospital_graph(live.settings, name))
    # With a hospital missing the round stays open for as long as the stranger needs.
    live.wait(
        lambda: stranger.listen() or live.phase is Phase.OPEN and len(stranger.keys) >= 2, 30
    )

    replayed = stranger.keys[0]
    unsigned = ros.MaskedUpdate()
    unsigned.envelope.sender = 'hospital_1'
    unsigned.envelope.federation = 'federation'
    huge = ros.MaskedUpdate()
    huge.envelope.sender = 'hospital_1'
    huge.envelope.counter = 2**64 - 1
    shortened = ros.RoundKey(envelope=replayed.envelope)
    forged = ros.GlobalPolicy()
    forged.envelope.federation = 'federation'
    forged.envelope.sender = 'key_authority'
    forged.envelope.round = 99
    stranger.key.publish(replayed)
    stranger.key.publish(shortened)
    for each in (unsigned, huge):
        stranger.update.publish(each)
        stranger.update.publish(serialize_message(each)[:40])
    stranger.policy.publish(forged)

    def counted() -> bool:
        health = live.health('/federation/aggregator')
        return (
            int(health.get('refused replayed', 0)) >= 1
            and int(health.get('refused unsigned', 0)) >= 3
            and int(health.get('refused malformed', 0)) >= 1
        )

    live.wait(counted, 30.0)
    live.wait(lambda: int(live.health('/hospital_1/trainer').get('refused', 0)) >= 1, 10.0)
    live.runner.start(hospital_graph(live.settings, late))
    assert live.finish() == reference.digest
    assert not live.deaths
