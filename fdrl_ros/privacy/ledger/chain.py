# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The entries of one ledger in memory: what was spent, and where, without searching."""

from collections.abc import Sequence

from fdrl_ros.privacy.accountant.accountant import Account, Charge, epsilon_pld
from fdrl_ros.privacy.ledger.entry import Entry, Head, Owner


class Chain:
    """
    Entries in their order, each bound to the one before; it can only grow.

    `account` tells at once what one more would cost; its last digits depend on what it was asked
    before. Those of :meth:`epsilon` do not.
    """

    def __init__(self, owner: Owner) -> None:
        """
        Begin with no entry.

        :raises PrivacyError: if the owner's delta cannot be.
        """
        self.owner = owner
        self.account = Account(owner.delta)
        self._entries: list[Entry] = []
        self._by_block: dict[tuple[int, int], Entry] = {}
        self._rounds: dict[int, tuple[int, int]] = {}

    @property
    def entries(self) -> Sequence[Entry]:
        """All entries, oldest first."""
        return tuple(self._entries)

    @property
    def head(self) -> Head:
        """How many entries there are, and the hash of the last."""
        return self.head_at(len(self._entries))

    def head_at(self, count: int) -> Head:
        """Return the head that the ledger had with so many entries."""
        return Head(count, self._entries[count - 1].digest if count else self.owner.digest)

    def head_before(self, round: int) -> Head:
        """Return the head that the ledger had before the first block of a round."""
        return self.head_at(self._rounds.get(round, (len(self._entries), 0))[0])

    def links(self, most: int) -> bytes:
        """Return the links of the newest entries, at most so many, oldest first."""
        count = len(self._entries)
        newest = self._entries[max(0, count - most) :]
        return b''.join(entry.link for entry in newest)

    def blocks(self, round: int) -> int:
        """Return how many blocks of a round there are."""
        return self._rounds.get(round, (0, 0))[1]

    def get(self, round: int, block: int) -> Entry | None:
        """Return the entry of a block."""
        return self._by_block.get((round, block))

    def next(self, round: int, block: int, charge: Charge, inputs: bytes) -> Entry:
        """Make the entry that would follow, without adding it."""
        count, last = self.head
        return Entry.after(last, count + 1, round, block, charge, inputs)

    def fits(self, entry: Entry) -> bool:
        """Tell whether an entry follows the last one, for a block that has none yet."""
        count, last = self.head
        new = (entry.round, entry.block) not in self._by_block
        return entry.number == count + 1 and new and entry.fits(last)

    def add(self, entry: Entry) -> None:
        """
        Add an entry that fits.

        :raises PrivacyError: if its charge cannot be.
        """
        self.account.add(entry.charge)
        before, blocks = self._rounds.get(entry.round, (len(self._entries), 0))
        self._rounds[entry.round] = (before, blocks + 1)
        self._by_block[entry.round, entry.block] = entry
        self._entries.append(entry)

    def history(self) -> tuple[Charge, ...]:
        """Return every charge, oldest first."""
        return tuple(entry.charge for entry in self._entries)

    def epsilon(self) -> float:
        """Return what is spent, by the tight accountant."""
        return epsilon_pld(self.history(), self.owner.delta)

    def epsilons_rdp(self) -> list[float]:
        """Return what was spent after each entry, by the quick upper bound."""
        grown, epsilons = Account(self.owner.delta), []
        for charge in self.history():
            grown.add(charge)
            epsilons.append(grown.epsilon_rdp())
        return epsilons

    def contradiction(self, seen: Head) -> str:
        """Say why this cannot be a ledger that once had a head; nothing if it can."""
        count = len(self._entries)
        if seen.entries > count:
            return (
                f'has {count} entries and had {seen.entries}: an old copy was restored, or its '
                'end was cut'
            )
        if self.head_at(seen.entries) != seen:
            return f'was rewritten: entry {seen.entries} is not the one seen before'
        return ''
