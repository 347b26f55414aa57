# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Watch, change, drop and sign anew the messages of a federation in one process."""

from dataclasses import replace

from fdrl_ros.federation.protocol.message import Decline, DeclineReason
from support.federation_bench import Bench


class Interception:
    """Keeps every message of some kinds, and may change or drop it on its way."""

    def __init__(self, bench: Bench, *kinds: type, change=lambda message: [message]) -> None:
        self.messages: list = []
        self.change = change
        post = bench.driver.post

        def tapped(message):
            if isinstance(message, kinds):
                self.messages.append(message)
                for each in self.change(message):
                    post(each)
            else:
                post(message)

        bench.driver.post = tapped


def resealed(bench, message, **changes):
    """Return a message of the same sender with other content and a good signature."""
    sender = message.envelope.sender
    envelope = replace(message.envelope, counter=bench.stores[sender].next_counter())
    changed = replace(message, envelope=envelope, **changes)
    return changed.signed_by(bench.identities[sender])


def declining(bench, message):
    """Return what its sender says instead of a message if its ledger has a gap."""
    counter = bench.stores[message.sender].next_counter()
    envelope, reason = replace(message.envelope, counter=counter), int(DeclineReason.LEDGER)
    return [Decline(envelope, reason, 'a gap').signed_by(bench.identities[message.sender])]


def refusals(bench, kind):
    return [(name, error) for name, error in bench.driver.refused if isinstance(error, kind)]
