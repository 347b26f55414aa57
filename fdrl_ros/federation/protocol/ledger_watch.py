# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Remembers each hospital's newest privacy-ledger head: only what descends from it is taken."""

from collections.abc import Mapping
from pathlib import Path

from fdrl_ros.errors import LedgerHeadError
from fdrl_ros.federation.protocol.channel import Channel
from fdrl_ros.federation.protocol.message import AttemptId, LedgerHeads, MaskedUpdate
from fdrl_ros.federation.protocol.party import Effects
from fdrl_ros.federation.protocol.store import peek, Store
from fdrl_ros.privacy.ledger.chain import DIGEST, Head, MOST_LINKS

_SEEN = 'ledger '


class LedgerWatch:
    """
    The heads seen so far, durable as soon as anything is done with the updates that had them.

    A ledger that was cut or restored from a backup would hide spending, also when it has grown
    since past what was seen. So an update brings the links of the newest entries, and whoever
    remembers a head walks from there: the walk ends at the update's head only if its ledger has
    every entry that was ever seen. The links reach further back than one round, since others may
    have missed updates, and the hospital cannot know which.
    """

    def __init__(self, store: Store) -> None:
        """Keep the heads in `store`."""
        self._store = store
        self.changed = False
        """Whether a head was noted since the last acknowledgement."""

    def head(self, hospital: str) -> Head | None:
        """Return the newest head that was seen of a hospital, if one was."""
        saved = self._store.get(_SEEN + hospital)
        return None if saved is None else _from_bytes(saved)[1]

    def acknowledge(
        self, channel: Channel, of: AttemptId, paths: Mapping[str, bytes] | None = None
    ) -> Effects:
        """
        Sign for every hospital its newest head, after making all of them durable.

        :param channel: of this server.
        :param of: round and attempt in which it is said.
        :param paths: of the updates in the policy of that attempt, by hospital.
        """
        if self.changed:
            self._store.sync()
        self.changed = False
        paths = paths or {}
        heads = {
            name.removeprefix(_SEEN): _from_bytes(value)[1].to_bytes()
            for name, value in self._store.matching(f'{_SEEN}*').items()
        }

        def told(to: str) -> LedgerHeads:
            head, path = heads.get(to, b''), paths.get(to, b'')
            return channel.sign(LedgerHeads, *of, to=to, head=head, path=path)

        return Effects(tuple(told(each.name) for each in channel.roster.hospitals))

    def take(self, update: MaskedUpdate) -> None:
        """
        Check the ledger's head in the first chunk of an update, and remember it.

        :raises LedgerHeadError: if the ledger does not go on from the newest head seen of its
            hospital, if it charged nothing for the round, or if the links do not lead to its head.
        """
        sender, round = update.sender, update.envelope.round
        if update.chunk:
            if update.ledger_links:
                raise LedgerHeadError(sender, f'has links in chunk {update.chunk}: expected in 0')
            return
        saved = self._store.get(_SEEN + sender)
        seen = None if saved is None else _from_bytes(saved)
        if problem := _problem(update, seen):
            raise LedgerHeadError(sender, f'its privacy ledger {problem}')
        head = Head(update.ledger_entries, update.ledger_head)
        if saved != (value := round.to_bytes(8, 'little') + head.to_bytes()):
            self._store.note(_SEEN + sender, value)
            self.changed = True


def heads_seen(path: Path) -> dict[str, Head]:
    """
    Read the newest head of each hospital out of a party's state file, also while it runs.

    :param path: file of an aggregator's or key authority's :class:`Store`.
    :raises StoreError: if it cannot be read.
    """
    found = peek(path, f'{_SEEN}*')
    return {name.removeprefix(_SEEN): _from_bytes(value)[1] for name, value in found}


def _problem(update: MaskedUpdate, seen: tuple[int, Head] | None) -> str:
    """
    Say why an update's ledger cannot be the one that had a head before; nothing if it can.

    :param seen: the newest head, and the round of the update that it came with.
    """
    base = Head(update.ledger_base_entries, update.ledger_base_head)
    now = Head(update.ledger_entries, update.ledger_head)
    links = update.ledger_links
    count, part = divmod(len(links), DIGEST)
    if len(base.digest) != DIGEST or len(now.digest) != DIGEST:
        return f'has a head of {len(now.digest)} bytes: expected {DIGEST}'
    if part or count > MOST_LINKS or count > now.entries:
        return f'has {len(links)} bytes of links for {now.entries} entries'
    if now.entries <= base.entries:
        return f'charged nothing for the round: {base.entries} entries before, {now.entries} after'
    heads = [('before the round', base)]
    if seen is not None:
        round, head = seen
        # The same update in another attempt has the same head; a later one begins there or after.
        reached = now if update.envelope.round == round else base
        if reached.entries < head.entries:
            return f'shrank: {reached.entries} entries where {head.entries} were seen'
        heads.append(('seen', head))
    first = now.entries - count
    for when, head in heads:
        if head.entries < first:
            return f'has links from entry {first + 1} on, and the head {when} is {head}'
        *_, last = head.followed(links[(head.entries - first) * DIGEST :])
        if last != now:
            return f'was rewritten: its links do not lead from the head {when}, {head}, to {now}'
    return ''


def _from_bytes(data: bytes) -> tuple[int, Head]:
    """Return the round and the head of a saved value."""
    return int.from_bytes(data[:8], 'little'), Head.from_bytes(data[8:])
