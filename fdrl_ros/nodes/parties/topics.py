# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Which message of the protocol travels on which topic, and how."""

from dataclasses import dataclass

from fdrl_ros.deployment.interfaces import protocol_topics
from fdrl_ros.federation.protocol import message as protocol
from fdrl_ros.federation.protocol.message import Message
import fdrl_ros.msg as ros
from fdrl_ros.nodes.common import qos
from rclpy.qos import QoSProfile


@dataclass(frozen=True)
class ProtocolTopic:
    """
    One topic below the federation's namespace.

    :param name: below the namespace; below it again the addressee's name, if there is one.
    :param type: ROS type.
    :param sending: QoS of the publisher; subscriptions use qos.HEARD or, where it is volatile,
        the same.
    """

    name: str
    type: type[object]
    sending: QoSProfile

    @property
    def hearing(self) -> QoSProfile:
        """Return the QoS of the subscription."""
        return self.sending if self.sending is qos.EXCHANGED else qos.HEARD


_SENDING: dict[type[Message], QoSProfile] = {
    protocol.RoundStatus: qos.LATCHED,
    protocol.EncryptionKey: qos.LATCHED,
    protocol.RoundKey: qos.LATCHED,
    protocol.PeerKeys: qos.LATCHED,
    protocol.Shares: qos.LATCHED,
    protocol.Delivery: qos.LATCHED,
    protocol.Complaint: qos.KEPT,
    protocol.Blame: qos.KEPT,
    protocol.MaskedUpdate: qos.KEPT,
    protocol.Wanted: qos.EXCHANGED,
    protocol.Relay: qos.EXCHANGED,
    protocol.Sketch: qos.LATCHED,
    protocol.Dispute: qos.KEPT,
    protocol.Opening: qos.KEPT,
    protocol.Settle: qos.LATCHED,
    protocol.Reveal: qos.LATCHED,
    protocol.Objection: qos.LATCHED,
    protocol.Decline: qos.LATCHED,
    protocol.LedgerHeads: qos.LATCHED,
    protocol.GlobalPolicy: qos.RELEASED,
    protocol.Verdict: qos.EXCHANGED,
}

PROTOCOL_TOPICS: dict[type[Message], ProtocolTopic] = {
    kind: ProtocolTopic(name, getattr(ros, kind.__name__), _SENDING[kind])
    for kind, (name, _) in protocol_topics().items()
}
"""HospitalPolicy travels below its hospital's namespace, DecryptRequest is a service."""

WITH_WEIGHTS = (protocol.GlobalPolicy, protocol.HospitalPolicy)
"""Kinds whose weights, if they are long, follow the message in chunks (parties.weights_topic)."""

ADDRESSED: tuple[type[Message], ...] = tuple(
    kind for kind, (_, addressed) in protocol_topics().items() if addressed
)
"""Kinds that are for one party each, on a topic of its own: nobody else has to hear them."""
