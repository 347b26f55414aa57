# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Find out whether a party's state file was lost, or is an older copy, from the journal beside it.

A party writes what binds it into its state file first, then into its journal, and sends it last.
The file keeps the journal's head too. So the journal is ahead of an intact file by one entry at
most, and what binds the party by that entry is in the file. If not, the file is not the newest:
whatever the journal tells of was sent, and must never be sent otherwise. Each party's state
recovers by its own rule: `HospitalState.recover`, `AggregatorState.recover` and
`KeyAuthorityState.recover`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
import logging

from fdrl_ros.federation.journal.journal import BEHIND
from fdrl_ros.federation.journal.reader import Entry
from fdrl_ros.federation.protocol.channel import Channel
from fdrl_ros.federation.protocol.store import Store

log = logging.getLogger(__name__)

_MICRO = 10**6


@dataclass(frozen=True)
class MissedEntries:
    """
    The newest entries of a party's journal, which its state file had not noted.

    :param noted: entries that the state file knows of.
    :param written: entries of the journal.
    """

    channel: Channel
    store: Store
    noted: int
    written: int

    @classmethod
    def find(cls, channel: Channel, store: Store) -> 'MissedEntries | None':
        """Return them if there are any; messages are then counted from where they never were."""
        found = channel.journal.behind()
        if found is not None or channel.journal.is_new:
            store.skip_counters(int(channel.clock() * _MICRO))
        return None if found is None else cls(channel, store, found[0].head.entries, found[1])

    def __iter__(self) -> Iterator[Entry]:
        """Yield them, oldest first."""
        return self.channel.journal.unseen()

    @property
    def is_loss(self) -> bool:
        """Whether they are more than a kill between an entry and its note leaves out."""
        return self.written - self.noted > 1

    def warn(self, then: str = '') -> None:
        """Log that the state is not the newest, and what follows from that."""
        log.warning(
            'the state file of %s was lost or is an older copy: it knows of %d of the %d entries '
            'of the journal beside it%s',
            self.channel.name,
            self.noted,
            self.written,
            then and f'; {then}',
        )

    def settle(self, rows: dict[str, bytes]) -> None:
        """Keep what came of them; from then on they count as noted."""
        self.store.replace([BEHIND], rows)
