# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What the aggregator asks the key authority at the end of an attempt."""

from typing import Any

from fdrl_ros.crypto.encryption import PublicContext
from fdrl_ros.federation.channel import Channel
from fdrl_ros.federation.inbox import Inbox
from fdrl_ros.federation.message import DecryptRequest, hash_of_sums
from fdrl_ros.federation.party import Outcome


class Asking:
    """The request to decrypt, made anew from an inbox each time that it is sent."""

    def __init__(self, channel: Channel, inbox: Inbox) -> None:
        """Ask nothing yet."""
        self._channel = channel
        self._inbox = inbox
        self.sum_hash = b''
        """SHA-256 over the sums; the request waits for it."""
        self.abandoned = False
        """Whether the round is to end with the older policy."""
        self.reveals = 0
        """How many reveals the newest request had."""

    def add(self, public: PublicContext) -> bytes:
        """Add the survivors' ciphertexts chunk by chunk, and return the hash of the sums."""
        return hash_of_sums(map(public.add, self._inbox.columns()))

    def request(self) -> Outcome:
        """Send the request, for the first time or again; nothing while there is no sum."""
        inbox = self._inbox
        if not self.abandoned and not self.sum_hash:
            return Outcome()
        self.reveals = len(inbox.reveals)
        parts: dict[str, Any] = {
            'keys': tuple(inbox.keys[name] for name in inbox.keyed),
            'members': inbox.members,
            'survivors': inbox.survivors,
            'updates': tuple(inbox.chunks()),
            'settles': tuple(inbox.settles.values()),
            'reveals': tuple(inbox.reveals.values()),
        }
        if self.abandoned:
            parts = dict.fromkeys(parts, ())
        request = self._channel.seal(DecryptRequest, *inbox.of, **parts, sum_hash=self.sum_hash)
        return Outcome((request,))
