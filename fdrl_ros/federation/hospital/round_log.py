# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What a hospital durably notes of its rounds: its update, what it sent, signed and revealed."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
import hashlib
import json
from typing import Any

from fdrl_ros.errors import MessageError, RoundError
from fdrl_ros.federation.hospital.local_update import LocalUpdate
from fdrl_ros.federation.journal.entry import Entry
from fdrl_ros.federation.protocol.attempt import Try
from fdrl_ros.federation.protocol.encoding import encode, Reader
from fdrl_ros.federation.protocol.message import (
    GlobalPolicy,
    hash_of_hashes,
    Message,
    message_from_bytes,
)
from fdrl_ros.federation.protocol.spool import Place
from fdrl_ros.federation.protocol.store import Store
from fdrl_ros.privacy.ledger.chain import DIGEST

SPARE = 512
"""Links of a ledger that always go along: a server may have been put back some rounds."""

HASH = 32
"""Bytes of the hash of an update."""

_SPOOL = 'sent'


@dataclass(frozen=True)
class Sent:
    """A masked update as it was or is about to be sent: once in an attempt, and never another."""

    of: Try
    setup_digest: bytes
    update_hash: bytes
    chunks: tuple[Place, ...]


@dataclass(frozen=True)
class Written:
    """Where the chunks of an update lie on disk, and their hash."""

    update_hash: bytes
    chunks: tuple[Place, ...]


@dataclass(frozen=True)
class Heard:
    """Messages of others that a hospital's part in an attempt rests on."""

    round: int
    attempt: int
    messages: tuple[bytes, ...]


class RoundLog:
    """
    The memory that a hospital's promises rest on.

    An update is trained once a round and masked anew in each attempt; in one attempt one update
    is sent and one survivor set signed, in one round one survivor set revealed for; a policy must
    be made of an update that was really sent.
    """

    def __init__(self, store: Store, n_parameters: int) -> None:
        """Go on from what the store holds."""
        self._store = store
        self._writing = ''
        saved = store.get('update')
        self.update = LocalUpdate.from_bytes(saved, n_parameters) if saved else None

    @property
    def over(self) -> int:
        """Return the newest round that is over for good: nothing is said in it ever again."""
        return self._store.get_number('over')

    @property
    def floor(self) -> Try:
        """
        Return the attempt before which nothing is said any more, also after a restart.

        Who masked for other members in an older attempt again would put the same self mask on
        both, and one reveal would take it off both: two sums of one round.
        """
        heard = self._heard()
        return max((self.over + 1, 0), (heard.round, heard.attempt))

    def keep(self, update: LocalUpdate) -> None:
        """Note the result of local training, before anything of it is sent."""
        self._store.put('update', update.to_bytes())
        self.update = update

    def write(self, of: Try, chunks: Iterable[bytes]) -> Written:
        """
        Write to disk what may be sent, chunk by chunk, on whatever thread.

        :raises StoreError: if there is no room.
        """
        self._writing = _spool(of)
        spool = self._store.spool(self._writing)
        places, hashes = [], []
        try:
            for chunk in chunks:
                places.append(spool.append(chunk))
                hashes.append(hashlib.sha256(chunk).digest())
            spool.sync()
        finally:
            self._writing = ''
        return Written(hash_of_hashes(hashes), tuple(places))

    def keep_sent(self, of: Try, setup_digest: bytes, written: Written) -> None:
        """Note what is about to be sent, so that after a restart the same is sent again."""
        before = self._store.get(f'sent {of[0]}') or b''
        head = {
            'of': of,
            'setup': setup_digest.hex(),
            'hash': written.update_hash.hex(),
            'chunks': written.chunks,
        }
        self._store.replace(
            (),
            {f'sent {of[0]}': before + written.update_hash, 'sending': json.dumps(head).encode()},
        )
        # Not before: until now what was sent last may have to be said again.
        self._store.erase_spools(_SPOOL, but=_spool(of))

    def keep_heard(self, of: Try, messages: Iterable[Message]) -> None:
        """Note whose keys and shares an attempt rests on: their senders may be gone later."""
        heard = Heard(*of, tuple(message.to_bytes() for message in messages))
        self._store.put('heard', encode(heard))

    def heard(self, of: Try) -> list[Message]:
        """Return what :meth:`keep_heard` noted of an attempt; nothing if it was of another."""
        heard = self._heard()
        if (heard.round, heard.attempt) != of:
            return []
        return [message_from_bytes(each) for each in heard.messages]

    def _heard(self) -> Heard:
        saved = self._store.get('heard')
        return Heard(0, 0, ()) if saved is None else Reader(saved).read(Heard)

    def sent(self, of: Try) -> Sent | None:
        """Return what was sent in an attempt, or was about to be."""
        head = json.loads(self._store.get('sending') or b'null')
        if head is None or tuple(head['of']) != of:
            return None
        chunks = tuple((start, count) for start, count in head['chunks'])
        return Sent(of, bytes.fromhex(head['setup']), bytes.fromhex(head['hash']), chunks)

    def note_summed(self, policy: GlobalPolicy, name: str) -> None:
        """Note that a released policy has this hospital's update: both servers saw its ledger."""
        update = self.update
        if update and update.round == policy.envelope.round and name in policy.contributors:
            self._store.put_number('ledger seen', update.result.ledger_entries)

    def links(self) -> bytes:
        """
        Return the links of the ledger that go along with the update.

        They reach back to the newest head that both servers saw, and further by :data:`SPARE`.
        """
        assert self.update is not None
        result = self.update.result
        first = min(self._store.get_number('ledger seen'), result.ledger_base_entries)
        count = max(SPARE, result.ledger_entries - first)
        return result.ledger_links[-DIGEST * count :]

    def fields(self, sent: Sent, number: int) -> dict[str, Any]:
        """
        Return the fields of the message that brings a chunk of what was sent.

        :raises StoreError: if it is not there any more.
        """
        assert self.update is not None
        result = self.update.result
        return {
            'chunk': number,
            'chunks': len(sent.chunks),
            'base_digest': self.update.base,
            'setup_digest': sent.setup_digest,
            'ciphertext': self._store.opened(_spool(sent.of)).read(sent.chunks[number]),
            'ledger_entries': result.ledger_entries,
            'ledger_head': result.ledger_head,
            'ledger_base_entries': result.ledger_base_entries,
            'ledger_base_head': result.ledger_base_head,
            'ledger_links': b'' if number else self.links(),
        }

    def note_settled(self, of: Try, survivors: tuple[str, ...]) -> None:
        """
        Note the survivor set that is about to be signed.

        :raises RoundError: if another one was signed in this attempt.
        """
        self._promise(f'settled {of[0]} {of[1]}', survivors, f'attempt {of[1]}')

    def note_revealed(self, round: int, survivors: tuple[str, ...]) -> None:
        """
        Note the survivor set that shares are about to be revealed for.

        :raises RoundError: if they were revealed for another one in this round: two sums of one
            round over different sets would show their difference.
        """
        self._promise(f'revealed {round}', survivors, f'round {round}')

    def revealed(self, round: int) -> tuple[str, ...]:
        """Return the survivor set that shares were revealed for; empty if they were not."""
        return tuple(json.loads(self._store.get(f'revealed {round}') or b'[]'))

    def _promise(self, name: str, survivors: Collection[str], where: str) -> None:
        value = json.dumps(sorted(survivors)).encode()
        before = self._store.get(name)
        if before is not None and before != value:
            others = ', '.join(json.loads(before))
            raise RoundError('aggregator', f'another survivor set than {others} in {where}')
        if before is None:
            self._store.put(name, value)

    def missing(self, entries: Iterable[Entry]) -> dict[str, bytes]:
        """
        Return what the store should have of entries of the journal, and has not.

        :param entries: in their order.
        """
        values: dict[str, bytes] = {}
        for entry in entries:
            round, fields = entry.round, entry.fields
            match entry.kind:
                case 'sent':
                    name, update = f'sent {round}', bytes.fromhex(fields['update'])
                    before = values.get(name) or self._store.get(name) or b''
                    if update not in _hashes(before):
                        values[name] = before + update
                case 'signed':
                    name = f'settled {round} {entry.attempt}'
                    values[name] = json.dumps(sorted(fields['survivors'])).encode()
                case 'revealed':
                    values[f'revealed {round}'] = json.dumps(sorted(fields['seeds'])).encode()
                case 'policy':  # as :meth:`end` forgets
                    values = {n: v for n, v in values.items() if int(n.split(' ')[1]) >= round}
        return {name: value for name, value in values.items() if self._store.get(name) != value}

    def closed(self, attempt: Try, over: int) -> dict[str, bytes]:
        """
        Return what the store has to hold for nothing to be said in some attempts ever again.

        :param attempt: the last of them.
        :param over: the newest round that is over for good.
        """
        closed = {'over': str(max(over, self.over)).encode()}
        heard = self._heard()
        if attempt >= (heard.round, heard.attempt):
            closed['heard'] = encode(Heard(attempt[0], attempt[1] + 1, ()))
        return closed

    def check(self, policy: GlobalPolicy, name: str) -> None:
        """
        Refuse a policy that left this hospital out, or summed what it never sent.

        :param name: of this hospital.
        :raises MessageError: if so.
        """
        sender, round = policy.envelope.sender, policy.envelope.round
        if len(policy.update_hashes) != HASH * len(policy.contributors):
            raise MessageError(sender, 'not one update hash per contributor')
        if name in policy.contributors:
            at = HASH * policy.contributors.index(name)
            known = _hashes(self._store.get(f'sent {round}') or b'')
            if policy.update_hashes[at : at + HASH] not in known:
                raise RoundError(sender, f'round {round} summed an update that was never sent')
        elif name in self.revealed(round) and not policy.rolled_back:
            raise RoundError(sender, f'round {round} left this hospital out')

    def end(self, round: int) -> None:
        """
        Forget what was needed up to a round that is over, and the chunks of its update.

        After a restart a hospital hears once more that the round before is over, and has chunks
        of the next one to send again.
        """
        past = []
        for name in self._store.matching('s* *') | self._store.matching('revealed *'):
            kind, number, *_ = name.split(' ')
            if kind in ('sent', 'settled', 'revealed') and int(number) < round:
                past.append(name)
        self._store.replace(past, {'over': str(max(round, self.over)).encode()})
        of = json.loads(self._store.get('sending') or b'null')
        if of is not None and of['of'][0] <= round:
            self._store.erase_spools(_SPOOL, but=self._writing)


def _hashes(joined: bytes) -> set[bytes]:
    return {joined[start : start + HASH] for start in range(0, len(joined), HASH)}


def _spool(of: Try) -> str:
    return f'{_SPOOL}-{of[0]}-{of[1]}'
