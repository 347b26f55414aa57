# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Who looks on believes the aggregator of the roster, and nobody who speaks in its place."""

import time

from fdrl_ros.crypto.keys.keystore import KEY_FILE, load_identity
from fdrl_ros.crypto.keys.signing import Identity
from fdrl_ros.deployment.events import ReceivedMessage, RejectedMessage
from fdrl_ros.deployment.layout import Layout
from fdrl_ros.deployment.namespaces import FEDERATION
from fdrl_ros.federation.protocol.message import Envelope, Phase, RoundStatus
from fdrl_ros.nodes.observer import Observer
from fdrl_ros.nodes.parties.conversion import to_ros
from fdrl_ros.nodes.parties.topics import PROTOCOL_TOPICS
import rclpy
from rclpy.context import Context


def test_forged_end_is_told_of_and_ends_no_run(directory, federation_domain):
    layout = Layout(directory)
    roster = layout.roster()
    envelope = Envelope(roster.federation, 1, 0, 'aggregator', 10**6)
    end = RoundStatus(
        envelope, int(Phase.FINISHED), b'', b'', b'', 0.0, b'', b'', b'', b'', b'', ''
    )
    key = load_identity(layout.keys / 'aggregator' / KEY_FILE, 'aggregator')
    entry = PROTOCOL_TOPICS[RoundStatus]
    context = Context()
    rclpy.init(context=context, domain_id=federation_domain)
    node = rclpy.create_node('speaker', context=context)
    try:
        speaker = node.create_publisher(entry.type, f'/{FEDERATION}/{entry.name}', entry.sending)
        with Observer(roster, federation_domain) as watch:
            for signer, expected in (
                (Identity.generate('aggregator'), RejectedMessage),
                (key, ReceivedMessage),
            ):
                speaker.publish(to_ros(end.signed_by(signer), entry.type()))
                events, deadline = [], time.monotonic() + 10.0
                while not events and time.monotonic() < deadline:
                    events = watch.poll(0.1)
                assert [type(each) for each in events] == [expected], events
                assert watch.finished is (expected is ReceivedMessage)
    finally:
        node.destroy_node()
        rclpy.shutdown(context=context)
