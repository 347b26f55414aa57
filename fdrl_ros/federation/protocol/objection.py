# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What is said between parties that go by different rosters: otherwise one waits in silence."""

from collections import Counter

from fdrl_ros.errors import RoundError
from fdrl_ros.federation.protocol.attempt import attempt_of
from fdrl_ros.federation.protocol.channel import Channel
from fdrl_ros.federation.protocol.message import Objection, RoundStatus
from fdrl_ros.federation.protocol.party import Outcome, worth_telling


class Objections:
    """
    What a hospital objects, and what the aggregator hears of it, to each roster once.

    Who comes with ever new rosters is told of ever more seldom: that must not fill the log.
    """

    def __init__(self, channel: Channel) -> None:
        """Know of no difference."""
        self._channel = channel
        self._other: dict[str, bytes] = {}
        self._told: Counter[str] = Counter()

    def raised_by(self, status: RoundStatus) -> Outcome | None:
        """
        Return a hospital's objection if the aggregator goes by another roster, for the first time.

        :raises RoundError: if it does so again.
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
        if self._other.get(sender) == digest:
            raise RoundError(sender, problem)
        self._other[sender] = digest
        objection = self._channel.seal(
            Objection,
            *attempt_of(status.envelope),
            roster_serial=roster.serial,
            roster_digest=roster.digest_bytes,
        )
        notes = self._notes(sender, f'no part in the rounds: {problem}')
        return Outcome((objection,), notes=notes)

    def hear(self, objection: Objection) -> Outcome:
        """
        Say in the aggregator's log that a hospital takes no part, and why.

        :raises MessageError: unless a hospital says it, and says it anew.
        """
        sender = self._channel.accept(objection, 'hospital').name
        digest, roster = objection.roster_digest, self._channel.roster
        if digest == roster.digest_bytes or self._other.get(sender) == digest:
            return Outcome()
        self._other[sender] = digest
        problem = (
            f'{sender} takes no part: it goes by roster {objection.roster_serial}, '
            f'{digest.hex()[:16]}, {self._channel.name} by number {roster.serial}, '
            f'{roster.digest[:16]}: give both the newest one'
        )
        return Outcome(notes=self._notes(sender, problem))

    def _notes(self, sender: str, problem: str) -> tuple[str, ...]:
        self._told[sender] += 1
        return (problem,) if worth_telling(self._told[sender]) else ()
