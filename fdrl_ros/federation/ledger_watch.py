# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Remembers the newest privacy-ledger head of each hospital: a shorter ledger is refused."""

from fdrl_ros.errors import MessageError
from fdrl_ros.federation.message import MaskedUpdate
from fdrl_ros.federation.store import Store


class LedgerWatch:
    """
    The heads seen so far, durable.

    A ledger that was cut or restored from a backup would hide spending; its head is older than
    the one that came with an earlier update.
    """

    def __init__(self, store: Store) -> None:
        """Keep the heads in `store`."""
        self._store = store

    def check(self, update: MaskedUpdate) -> None:
        """
        Refuse an update whose ledger is older than the newest one seen of its hospital.

        :raises MessageError: if so, or if what it had before this round is not what was seen.
        """
        sender = update.envelope.sender
        seen = self._store.get(f'ledger {sender}')
        if seen is None:
            return
        round, known, head = _number(seen[:8]), _number(seen[8:16]), seen[16:]
        if update.envelope.round == round:
            # The same update in another attempt: the same head.
            before, digest = update.ledger_entries, update.ledger_head
        else:
            before, digest = update.ledger_base_entries, update.ledger_base_head
        if before < known:
            raise MessageError(
                sender, f'its privacy ledger shrank: {before} entries where {known} were seen'
            )
        if before == known and digest != head:
            raise MessageError(sender, f'its privacy ledger was rewritten up to entry {known}')

    def remember(self, update: MaskedUpdate) -> None:
        """Note the head of an update that was checked."""
        numbers = (update.envelope.round, update.ledger_entries)
        value = b''.join(each.to_bytes(8, 'little') for each in numbers) + update.ledger_head
        self._store.put(f'ledger {update.envelope.sender}', value)


def _number(data: bytes) -> int:
    return int.from_bytes(data, 'little')
