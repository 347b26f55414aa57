# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Which message of the protocol travels on which topic, and how."""

from dataclasses import dataclass

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


PROTOCOL_TOPICS: dict[type[Message], ProtocolTopic] = {
    protocol.RoundStatus: ProtocolTopic('round', ros.RoundStatus, qos.LATCHED),
    protocol.EncryptionKey: ProtocolTopic('key', ros.EncryptionKey, qos.LATCHED),
    protocol.RoundKey: ProtocolTopic('round_key', ros.RoundKey, qos.LATCHED),
    protocol.Shares: ProtocolTopic('shares', ros.Shares, qos.LATCHED),
    protocol.Delivery: ProtocolTopic('delivery', ros.Delivery, qos.LATCHED),
    protocol.Complaint: ProtocolTopic('complaint', ros.Complaint, qos.KEPT),
    protocol.Blame: ProtocolTopic('blame', ros.Blame, qos.KEPT),
    protocol.MaskedUpdate: ProtocolTopic('update', ros.MaskedUpdate, qos.KEPT),
    protocol.Wanted: ProtocolTopic('wanted', ros.Wanted, qos.EXCHANGED),
    protocol.Relay: ProtocolTopic('relay', ros.Relay, qos.EXCHANGED),
    protocol.Sketch: ProtocolTopic('sketch', ros.Sketch, qos.LATCHED),
    protocol.Dispute: ProtocolTopic('dispute', ros.Dispute, qos.KEPT),
    protocol.Opening: ProtocolTopic('opening', ros.Opening, qos.KEPT),
    protocol.Settle: ProtocolTopic('settle', ros.Settle, qos.LATCHED),
    protocol.Reveal: ProtocolTopic('reveal', ros.Reveal, qos.LATCHED),
    protocol.Objection: ProtocolTopic('objection', ros.Objection, qos.LATCHED),
    protocol.Decline: ProtocolTopic('decline', ros.Decline, qos.LATCHED),
    protocol.LedgerHeads: ProtocolTopic('ledger_heads', ros.LedgerHeads, qos.LATCHED),
    protocol.GlobalPolicy: ProtocolTopic('policy', ros.GlobalPolicy, qos.LATCHED),
    protocol.Verdict: ProtocolTopic('verdict', ros.Verdict, qos.EXCHANGED),
}
"""HospitalPolicy travels below its hospital's namespace, DecryptRequest is a service."""

WITH_WEIGHTS = (protocol.GlobalPolicy, protocol.HospitalPolicy)
"""Kinds whose weights, if they are long, follow the message in chunks (parties.weights_topic)."""

ADDRESSED: tuple[type[Message], ...] = (protocol.Delivery, protocol.Dispute, protocol.Wanted)
"""Kinds that are for one party each, on a topic of its own: nobody else has to hear them."""
