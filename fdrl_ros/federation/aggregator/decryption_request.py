# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What the aggregator asks the key authority at the end of an attempt."""

from collections.abc import Collection
from typing import Any

from fdrl_ros.crypto.he.encryption import PublicContext
from fdrl_ros.errors import FdrlError, RoundError
from fdrl_ros.federation.aggregator.inbox import Inbox
from fdrl_ros.federation.protocol.attempt import attempt_of
from fdrl_ros.federation.protocol.channel import Channel
from fdrl_ros.federation.protocol.message import DecryptRequest, hash_of_sums, Relay, Wanted
from fdrl_ros.federation.protocol.party import Job, Outcome, Report, Stopped


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
        self.refused = 0
        """How many reveals the newest request had that the key authority refused."""

    def adding(self, public: PublicContext) -> Job:
        """Return the job that adds the survivors' ciphertexts: this, and the sums' hash."""
        inbox = self._inbox

        def add(report: Report, stopped: Stopped) -> tuple['Asking', bytes | FdrlError]:
            try:
                columns = inbox.updates.columns(inbox.survivors)
                return self, hash_of_sums(map(public.add, columns))
            except FdrlError as error:
                return self, error

        return Job('sum', add)

    def is_hopeless(self, admitted: Collection[str], threshold: int) -> bool:
        """Tell whether too few can reveal any more, or all who can have, and it was no use."""
        inbox = self._inbox
        can = {*inbox.reveals, *(set(inbox.survivors) & set(admitted))}
        no_use = self.refused == len(can) or inbox.lacking()
        return len(can) < threshold or (len(inbox.reveals) == len(can) and bool(no_use))

    def request(self) -> Outcome:
        """Send the request, for the first time or again; nothing while there is no sum."""
        inbox = self._inbox
        if not self.abandoned and not self.sum_hash:
            return Outcome()
        parts: dict[str, Any] = {
            'keys': tuple(inbox.keys[name] for name in inbox.keyed),
            'members': inbox.members,
            'survivors': inbox.survivors,
            'update_hashes': inbox.updates.hashes(inbox.survivors),
            'settles': tuple(inbox.settles.values()),
            'reveals': tuple(inbox.reveals.values()),
        }
        if self.abandoned:
            parts = {name: type(value)() for name, value in parts.items()}
        request = self._channel.seal(DecryptRequest, *inbox.of, **parts, sum_hash=self.sum_hash)
        return Outcome((request,))

    def relay(self, wanted: Wanted) -> Outcome:
        """
        Hand on the chunks that the key authority asks for.

        :raises RoundError: if there is nothing to ask for.
        """
        inbox, sender = self._inbox, wanted.envelope.sender
        if attempt_of(wanted.envelope) != inbox.of or not self.sum_hash or self.abandoned:
            raise RoundError(sender, f'wants updates of {attempt_of(wanted.envelope)}')
        updates = inbox.updates.items(inbox.survivors, wanted.first, wanted.count)
        relay = self._channel.seal(Relay, *inbox.of, first=wanted.first, updates=updates)
        return Outcome((relay,))
