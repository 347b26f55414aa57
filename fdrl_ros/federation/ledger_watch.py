# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Remembers the newest privacy-ledger head of each hospital: a shorter ledger is refused."""

from pathlib import Path

from fdrl_ros.errors import MessageError
from fdrl_ros.federation.message import MaskedUpdate
from fdrl_ros.federation.store import peek, Store
from fdrl_ros.privacy.ledger_entry import Head

_DIGEST = 32
_SEEN = 'ledger '
_DOUBTED = 'doubted ledger '


class LedgerWatch:
    """
    The heads seen so far, durable.

    A ledger that was cut or restored from a backup would hide spending; its head is older than
    the one that came with an earlier update. Such a ledger could grow again, past the number of
    entries that were seen: so whoever was refused once is refused until what it had before a
    round is the very head that was seen, which only the true ledger can show.
    """

    def __init__(self, store: Store) -> None:
        """Keep the heads in `store`."""
        self._store = store

    def check(self, update: MaskedUpdate) -> None:
        """
        Refuse an update whose ledger is older than the newest one seen of its hospital.

        :raises MessageError: if so, if what it had before this round is not what was seen, or if
            it charged nothing for the round.
        """
        sender = update.envelope.sender
        base = Head(update.ledger_base_entries, update.ledger_base_head)
        now = Head(update.ledger_entries, update.ledger_head)
        saved = self._store.get(_SEEN + sender)
        seen = None if saved is None else _from_bytes(saved)
        # The same update in another attempt has the same head.
        again = seen is not None and seen[0] == update.envelope.round
        problem = _problem(base, now)
        if not problem and seen is not None:
            problem = _contradiction(now if again else base, seen[1])
            if not problem and self._doubted(sender) and (now if again else base) != seen[1]:
                problem = f'was refused and has not shown the head seen, {seen[1]}, since'
        if problem:
            if seen is not None:
                self._store.put(_DOUBTED + sender, b'yes')
            raise MessageError(sender, f'its privacy ledger {problem}')

    def remember(self, update: MaskedUpdate) -> None:
        """Note the head of an update that was checked."""
        sender = update.envelope.sender
        numbers = (update.envelope.round, update.ledger_entries)
        value = b''.join(each.to_bytes(8, 'little') for each in numbers) + update.ledger_head
        self._store.put(_SEEN + sender, value)
        if self._doubted(sender):
            self._store.put(_DOUBTED + sender, b'no')

    def _doubted(self, sender: str) -> bool:
        return self._store.get(_DOUBTED + sender) == b'yes'


def heads_seen(path: Path) -> dict[str, Head]:
    """
    Read the newest head of each hospital out of a party's state file, also while it runs.

    :param path: file of an aggregator's or key authority's :class:`Store`.
    :raises StoreError: if it cannot be read.
    """
    found = peek(path, f'{_SEEN}*')
    return {name.removeprefix(_SEEN): _from_bytes(value)[1] for name, value in found.items()}


def _problem(base: Head, now: Head) -> str:
    """Say what is wrong with the heads of an update by themselves."""
    if len(base.digest) != _DIGEST or len(now.digest) != _DIGEST:
        return f'has a head of {len(now.digest)} bytes: expected {_DIGEST}'
    if now.entries <= base.entries:
        return f'charged nothing for the round: {base.entries} entries before, {now.entries} after'
    return ''


def _contradiction(before: Head, seen: Head) -> str:
    """Say why a ledger with one head cannot go on from another."""
    if before.entries < seen.entries:
        return f'shrank: {before.entries} entries where {seen.entries} were seen'
    if before.entries == seen.entries and before.digest != seen.digest:
        return f'was rewritten up to entry {seen.entries}'
    return ''


def _from_bytes(data: bytes) -> tuple[int, Head]:
    """Return the round and the head of a saved value."""
    round, entries = (int.from_bytes(data[at : at + 8], 'little') for at in (0, 8))
    return round, Head(entries, data[16:])
