# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The aggregator's node: runs the rounds, and takes the orders of operators."""

from collections.abc import Mapping
import functools

from fdrl_ros.deployment.namespaces import beside
from fdrl_ros.deployment.parties.channel import open_channel
from fdrl_ros.federation.aggregator.aggregator import Aggregator
from fdrl_ros.federation.protocol import message as protocol
from fdrl_ros.federation.protocol.store import Store
import fdrl_ros.msg as ros
from fdrl_ros.nodes.common import qos
from fdrl_ros.nodes.common.diagnostics import Health, Level
from fdrl_ros.nodes.parties.conversion import to_ros
from fdrl_ros.nodes.parties.server_node import ServerNode
import fdrl_ros.srv as srv
from rclpy.task import Future


class AggregatorNode(ServerNode):
    """Moves the aggregator's messages; asks the key authority by a service."""

    executable = 'aggregator'
    groups = ('rounds',)

    def open(self) -> None:
        """Make the publishers and the key authority's client."""
        super().open()
        self._request: protocol.DecryptRequest | None = None
        self._client = self.create_client(srv.Decrypt, 'key_authority/decrypt')
        self.keep(lambda: self.destroy_client(self._client))

    def begin(self) -> None:
        """Offer to take orders; listen to what hospitals spend, if Prometheus reads it."""
        super().begin()
        if self.metrics is not None:
            for name in self.addressees(protocol.Wanted):
                topic = f'{beside(self.federation_namespace, name)}/privacy'
                take = functools.partial(self._take_privacy, name)
                self.hear(ros.Privacy, topic, take, qos.HEARD)
        self.serve(srv.Order, '~/order', protocol.Order)
        self.every(0.1, self._ask)

    def make_party(self, prepared: object, store: Store) -> Aggregator:
        """Put the aggregator together."""
        return Aggregator(open_channel(self.layout, self.member, store), self.plan().rounds, store)

    def send(self, message: protocol.Message) -> None:
        """Publish, or ask the key authority."""
        if isinstance(message, protocol.DecryptRequest) and self.link is None:
            self._request = message
            self._ask()
        else:
            super().send(message)

    def _take_privacy(self, hospital: str, told: ros.Privacy) -> None:
        if self.metrics is not None:
            self.metrics.note_epsilon(hospital, told.unit, told.epsilon)

    def _ask(self) -> None:
        """Send the request as soon as the key authority is there, unless its time is over."""
        request = self._request
        if request is None or not self._client.service_is_ready():
            return
        self._request = None
        party = self.party
        asking = (protocol.Phase.INSPECT, protocol.Phase.SUM)
        if not isinstance(party, Aggregator) or party.phase not in asking:
            return
        future = self._client.call_async(to_ros(request, srv.Decrypt.Request()))
        future.add_done_callback(self._answered)

    def _answered(self, future: 'Future[srv.Decrypt.Response]') -> None:
        response = future.result()
        if response is not None and not response.received:
            self.get_logger().warning(f'the key authority refused: {response.reason}')

    def left_out(self) -> Mapping[str, str]:
        """Return which hospitals take no part, and why."""
        party = self.party
        return party.left_out if isinstance(party, Aggregator) else {}

    def health(self) -> Health:
        """Add the phase and why, and who takes no part; a spent budget is an error."""
        health, party = super().health(), self.party
        if not isinstance(party, Aggregator) or self.fault:
            return health
        left_out = {f'left out {name}': why for name, why in party.left_out.items()}
        told = {'phase': party.phase.name, 'reason': party.reason}
        values = {**health.values, **told, **left_out}
        if party.exhausted:
            return Health(Level.ERROR, party.exhausted, values)
        summary = f'round {party.round}: {party.phase.name}'
        retries = party.phase is protocol.Phase.OPEN and party.attempt > 1
        if retries or party.phase in (protocol.Phase.FAILED, protocol.Phase.PAUSED):
            ordered = party.orders.paused and not party.orders.paused_for
            level = health.level if ordered and not left_out else Level.WARN
            return Health(level, f'{summary}, {party.reason}', values)
        if left_out:
            return Health(Level.WARN, f'{summary}, without {", ".join(party.left_out)}', values)
        return Health(health.level, summary, values)


NODE = AggregatorNode
