# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Report parties that have different rosters: otherwise one would wait for ever in silence."""

from collections import Counter

from fdrl_ros.errors import RoundError
from fdrl_ros.federation.protocol.attempt import attempt_of
from fdrl_ros.federation.protocol.channel import Channel
from fdrl_ros.federation.protocol.message import Objection, RoundStatus
from fdrl_ros.federation.protocol.party import Outcome, worth_logging


class RosterMismatches:
    """
    A hospital's objections to the aggregator's roster, and what the aggregator logs of them.

    Each roster is reported once. A sender of ever new rosters is logged ever more seldom, so that
    it cannot fill the log.
    """

    def __init__(self, channel: Channel) -> None:
        """Begin without a known difference."""
        self._channel = channel
        self._reported: dict[str, bytes] = {}
        self._logged: Counter[str] = Counter()

    def object_to(self, status: RoundStatus) -> Outcome | None:
        """
        Return a hospital's objection to the aggregator's roster, or None if both have the same.

        :raises RoundError: if it objected to this roster before.
        """
        sender, digest, roster = (
            status.envelope.sender,
            status.roster_digest,
            self._channel.roster,
        )
        if digest == roster.digest_bytes:
            return None
        problem = (
            f'{sender} goes by roster {digest.hex()[:16]}, {self._channel.name} by number '
            f'{roster.serial}, {roster.digest[:16]}: give both the newest one'
        )
        if self._reported.get(sender) == digest:
            raise RoundError(sender, problem)
        self._reported[sender] = digest
        objection = self._channel.seal(
            Objection,
            *attempt_of(status.envelope),
            roster_serial=roster.serial,
            roster_digest=roster.digest_bytes,
        )
        notes = self._notes(sender, f'no part in the rounds: {problem}')
        return Outcome((objection,), notes=notes)

    def take(self, objection: Objection) -> Outcome:
        """
        Log at the aggregator that a hospital takes no part, and why.

        :raises MessageError: unless a hospital sent it, and it is new.
        """
        sender = self._channel.accept(objection, 'hospital').name
        digest, roster = objection.roster_digest, self._channel.roster
        if digest == roster.digest_bytes or self._reported.get(sender) == digest:
            return Outcome()
        self._reported[sender] = digest
        problem = (
            f'{sender} takes no part: it goes by roster {objection.roster_serial}, '
            f'{digest.hex()[:16]}, {self._channel.name} by number {roster.serial}, '
            f'{roster.digest[:16]}: give both the newest one'
        )
        return Outcome(notes=self._notes(sender, problem))

    def _notes(self, sender: str, problem: str) -> tuple[str, ...]:
        self._logged[sender] += 1
        return (problem,) if worth_logging(self._logged[sender]) else ()
