# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Verify roster signatures and counters for read-only observers."""

from fdrl_ros.crypto.keys.roster import Member, Roster
from fdrl_ros.errors import MessageError, ReplayError
from fdrl_ros.federation.protocol.channel import check_signed
from fdrl_ros.federation.protocol.message import (
    GlobalPolicy,
    HospitalPolicy,
    MaskedUpdate,
    Message,
    Phase,
    RoundStatus,
)

SENDER_ROLES: dict[type[Message], str] = {
    GlobalPolicy: 'key_authority',
    HospitalPolicy: 'hospital',
    MaskedUpdate: 'hospital',
    RoundStatus: 'aggregator',
}
"""Kinds that an observer takes, and the role that may send each."""


class MessageVerifier:
    """Checks every message as a party does, without a key of its own; sends nothing."""

    def __init__(self, roster: Roster) -> None:
        """
        Begin without any message.

        :param roster: of the observed federation.
        """
        self.finished = False
        """Whether the aggregator's newest status is FINISHED."""
        self._roster = roster
        self._heard: dict[tuple[str, type[Message]], int] = {}

    def accept(self, message: Message) -> Member:
        """
        Check signature, role and counter of a message.

        :returns: the sender as the roster names it.
        :raises SignatureError: unless a member of the right role signed exactly this.
        :raises RoundError: if it belongs to another federation.
        :raises ReplayError: if its counter is not above the last one received.
        :raises MessageError: if observers do not take this kind, or its phase does not exist.
        """
        kind, sender = type(message), message.envelope.sender
        if kind not in SENDER_ROLES:
            raise MessageError(sender, f'an observer takes no {kind.__name__}')
        member = check_signed(self._roster, message, SENDER_ROLES[kind])
        if isinstance(message, RoundStatus) and message.phase not in set(Phase):
            raise MessageError(sender, f'there is no phase {message.phase}')
        counter = message.envelope.counter
        if counter <= self._heard.get((member.name, kind), -1):
            raise ReplayError(member.name, f'{kind.__name__} counter {counter}')
        self._heard[member.name, kind] = counter
        if isinstance(message, RoundStatus):
            self.finished = message.phase == Phase.FINISHED
        return member
