# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What one who only looks on believes: messages of roster members that are new, nothing else."""

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

SPEAKERS: dict[type[Message], str] = {
    GlobalPolicy: 'key_authority',
    HospitalPolicy: 'hospital',
    MaskedUpdate: 'hospital',
    RoundStatus: 'aggregator',
}
"""Kinds that a witness takes, and the role that may say each."""


class Witness:
    """Checks every message as a party does, but has no key of its own and sends nothing."""

    def __init__(self, roster: Roster) -> None:
        """
        Know nothing yet.

        :param roster: of the federation that is looked at.
        """
        self.finished = False
        """Whether the aggregator's newest word is that the federation has ended."""
        self._roster = roster
        self._heard: dict[tuple[str, type[Message]], int] = {}

    def accept(self, message: Message) -> Member:
        """
        Check who says it, that this role may, and that it is new.

        :returns: the sender as the roster names it.
        :raises SignatureError: unless a member of the right role signed exactly this.
        :raises RoundError: if it belongs to another federation.
        :raises ReplayError: if its counter is not above the last one heard.
        :raises MessageError: if a witness does not take this kind, or its phase is none.
        """
        kind, sender = type(message), message.envelope.sender
        if kind not in SPEAKERS:
            raise MessageError(sender, f'a witness takes no {kind.__name__}')
        member = check_signed(self._roster, message, SPEAKERS[kind])
        if isinstance(message, RoundStatus) and message.phase not in set(Phase):
            raise MessageError(sender, f'there is no phase {message.phase}')
        counter = message.envelope.counter
        if counter <= self._heard.get((member.name, kind), -1):
            raise ReplayError(member.name, f'{kind.__name__} counter {counter}')
        self._heard[member.name, kind] = counter
        if isinstance(message, RoundStatus):
            self.finished = message.phase == Phase.FINISHED
        return member
