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

        :raises MessageError: if so, or if the same length has another head.
        """
        sender = update.envelope.sender
        seen = self._store.get(f'ledger {sender}')
        if seen is None:
            return
        entries, head = int.from_bytes(seen[:8], 'little'), seen[8:]
        if update.ledger_entries < entries:
            raise MessageError(
                sender,
                f'its privacy ledger shrank from {entries} to {update.ledger_entries} entries',
            )
        if update.ledger_entries == entries and update.ledger_head != head:
            raise MessageError(sender, f'its privacy ledger was rewritten at entry {entries}')

    def remember(self, update: MaskedUpdate) -> None:
        """Note the head of an update that was checked."""
        value = update.ledger_entries.to_bytes(8, 'little') + update.ledger_head
        self._store.put(f'ledger {update.envelope.sender}', value)
