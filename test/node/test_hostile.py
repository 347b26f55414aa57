# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Bad messages on the wire: refused, counted, and the round goes on as if they had not been."""

from collections.abc import Iterator
import time
from typing import Any

from fdrl_ros.crypto.keys.keystore import KEY_FILE, load_identity
from fdrl_ros.crypto.keys.signing import Identity
from fdrl_ros.deployment.bringup import hospital_graph
from fdrl_ros.errors import OrderError
from fdrl_ros.federation.protocol.message import Phase
from fdrl_ros.federation.protocol.orders import sign_order
import fdrl_ros.msg as ros
from fdrl_ros.nodes.common import qos
from fdrl_ros.nodes.parties.operator_calls import deliver
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


def test_strangers_are_refused_operators_obeyed_and_the_round_goes_on(live, reference, stranger):
    # With a hospital missing the round stays open for as long as both need.
    late = live.begin_without_the_last()
    live.wait(lambda: stranger.listen() or len(stranger.keys) >= 2)
    speak_without_a_key(live, stranger)
    order_about(live)
    live.runner.start(hospital_graph(live.settings, late))
    assert live.finish() == reference.digest
    assert live.order('roll-back', '1') == (0, 'key_authority: roll back 1')
    live.wait(lambda: live.policy(3) is not None)
    older, newest = live.policy(1), live.policy(3)
    assert newest.digest == older.digest != live.policy(2).digest
    assert newest.rolled_back and not newest.contributors
    assert not live.deaths


def speak_without_a_key(live, stranger: Stranger) -> None:
    """Send what nobody may believe, and wait until it was refused and counted."""
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

    live.wait(counted)
    live.wait(lambda: int(live.health('/hospital_1/trainer').get('refused', 0)) >= 1)


def order_about(live) -> None:
    """Have orders refused that no operator gives now, and others carried out."""
    domain, now = live.settings.federation_domain, time.time()
    for sender, words in (
        ('operator', 'bad signature on Order'),
        ('hospital_1', 'a hospital cannot speak as operator'),
    ):
        order = sign_order(Identity.generate(sender), 'federation', 'stop', now)
        with pytest.raises(OrderError, match=f'the aggregator refused: {words}'):
            deliver(order, domain, '')
    operator = load_identity(live.layout.keys / 'operator' / KEY_FILE, 'operator')
    order = sign_order(operator, 'federation', 'stop', now - 3600.0)
    with pytest.raises(OrderError, match=r'refused: stop was signed 36\d\d s before'):
        deliver(order, domain, '')
    order = sign_order(operator, 'federation', 'pause', time.time())
    deliver(order, domain, '')
    with pytest.raises(OrderError, match='refused: pause is not newer than the last order taken'):
        deliver(order, domain, '')
    live.wait(lambda: live.phase is Phase.PAUSED)
    assert live.order('resume') == (0, 'aggregator: resume')
    live.wait(lambda: live.phase is Phase.OPEN)
    code, said = live.order('roll-back', '7')
    assert code == 1 and 'there is no older policy of round 7' in said
