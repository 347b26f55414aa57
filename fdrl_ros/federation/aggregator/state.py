# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
What the aggregator keeps of a round: one durable record, and the messages of the attempt.

Before the survivors are fixed a restart costs one attempt, which is cheap. From then on messages
and updates are durable: an aggregator that is killed goes on in the same attempt, with the same
survivors. Updates lie on disk as their hospitals signed them; in memory are their hashes alone.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
import hashlib
import json
from typing import Any

from fdrl_ros.crypto.keys.roster import Roster
from fdrl_ros.crypto.masking.buckets import Buckets, kept
from fdrl_ros.crypto.masking.share_sealing import (
    KeyList,
    PARCEL_BYTES,
    tree_of_keys,
)
from fdrl_ros.errors import MessageError, StoreError
from fdrl_ros.federation.protocol import message as protocol
from fdrl_ros.federation.protocol.attempt import key_list, read_reveal, setup_digest
from fdrl_ros.federation.protocol.blame import PROVEN
from fdrl_ros.federation.protocol.channel import Channel
from fdrl_ros.federation.protocol.chunk_requests import (
    chunk_numbers,
    ChunkRange,
    ChunkRequests,
    FIRST,
)
from fdrl_ros.federation.protocol.encoding import encode
from fdrl_ros.federation.protocol.message import AttemptId, Message, Phase
from fdrl_ros.federation.protocol.orders import forget_orders, StandingOrders
from fdrl_ros.federation.protocol.recovery import MissedEntries
from fdrl_ros.federation.protocol.store import Place, Spool, Store

AT_ONCE = 2
"""Hospitals whose updates are asked for at the same time; the others wait their turn."""

RECORD = 'state'
_RECEIVED = 'received '
_BLAME = 'blame '
_SKETCHINGS = 'attempts with projections'
_WAITS = 'waits'
_SILENCES = 'attempts silent after training'
_SILENT_ROUNDS = 'rounds ended for silence'
_OF_ROUND = (f'{_BLAME}*', _SKETCHINGS, f'{_WAITS}*', _SILENCES)  # forgotten with the round
_SPOOL = 'updates'


@dataclass(frozen=True)
class Chunk:
    """Where a chunk's message lies in the spool, and the SHA-256 of its ciphertext."""

    place: Place
    digest: bytes


@dataclass(frozen=True)
class UpdateIndex:
    """The chunks of one hospital's update, by their number."""

    hospital: str
    chunks: tuple[Chunk, ...]


@dataclass(frozen=True)
class AggregatorRecord:
    """
    The durable state of the aggregator in the rounds.

    :param phase: from where a restarted aggregator goes on: OPEN for a new attempt, SETTLE once
        the survivors are fixed, REVEAL once the round is for them or for none, SUM once it is
        abandoned.
    :param terms: digest of what the attempt rests on.
    :param keyed: hospitals whose keys shares are made for.
    :param members: hospitals that mask with each other.
    :param survivors: hospitals whose updates are summed.
    :param updates: the survivors' updates, once they are fixed.
    :param bound: hospitals whose sum this round must be, as shares were revealed for it in an
        earlier attempt; less those that were proven guilty since. Empty before.
    """

    phase: Phase = Phase.WAITING
    round: int = 1
    attempt: int = 0
    terms: bytes = b''
    keyed: tuple[str, ...] = ()
    members: tuple[str, ...] = ()
    survivors: tuple[str, ...] = ()
    updates: tuple[UpdateIndex, ...] = ()
    bound: tuple[str, ...] = ()

    @property
    def id(self) -> AttemptId:
        """Round and attempt."""
        return self.round, self.attempt


@dataclass
class _Progress:
    """The chunks of one hospital that arrived, of so many, and what was asked of it."""

    count: int
    chunks: dict[int, Chunk] = field(default_factory=dict)
    pull: ChunkRequests = field(default_factory=lambda: ChunkRequests(FIRST))

    @property
    def is_whole(self) -> bool:
        return len(self.chunks) == self.count


class UpdateSpool:
    """
    The chunks of one attempt's updates on disk, and what to ask of whom next.

    A survivor is known only at the deadline, so nothing is added up before; and the key authority
    will ask for every chunk as its hospital signed it.
    """

    def __init__(
        self, store: Store, attempt: AttemptId, index: Sequence[UpdateIndex] = ()
    ) -> None:
        """
        Begin with what was fixed before a restart, if anything was.

        :raises StoreError: if its spool is not there any more.
        """
        self._store = store
        self._name = f'{_SPOOL}-{attempt[0]}-{attempt[1]}'
        self._spool: Spool | None = store.opened(self._name) if index else None
        self._hospitals = {
            each.hospital: _Progress(len(each.chunks), dict(enumerate(each.chunks)))
            for each in index
        }
        self._turn: list[str] = []
        store.erase_spools(_SPOOL, but=self._name)

    def index(self, names: Sequence[str]) -> tuple[UpdateIndex, ...]:
        """Make whole updates durable, and return where their chunks lie."""
        if self._spool is not None:
            self._spool.sync()
        return tuple(UpdateIndex(name, tuple(self._ordered(name))) for name in names)

    def is_known(self, message: protocol.MaskedUpdate) -> bool:
        """Tell whether this chunk is here; if it is the first, its sender sends all anew."""
        here = self._hospitals.get(message.sender)
        known = here and here.chunks.get(message.chunk)
        if not here or not known:
            return False
        if known.digest != hashlib.sha256(message.ciphertext).digest():
            return False
        if not message.chunk:
            here.pull.hurry()
        return True

    def has(self, name: str, number: int) -> bool:
        """Tell whether a hospital's chunk of that number is here."""
        return name in self._hospitals and number in self._hospitals[name].chunks

    def add(self, message: protocol.MaskedUpdate) -> None:
        """Keep a chunk."""
        if self._spool is None:
            self._spool = self._store.spool(self._name)
        here = self._hospitals.setdefault(message.sender, _Progress(message.chunks))
        digest = hashlib.sha256(message.ciphertext).digest()
        here.chunks[message.chunk] = Chunk(self._spool.append(message.to_bytes()), digest)

    def whole(self) -> set[str]:
        """Return the hospitals whose whole update is here."""
        return {name for name, here in self._hospitals.items() if here.is_whole}

    def wanted(self, now: float) -> Iterator[tuple[str, ChunkRange]]:
        """Yield what to ask of whom: a little at a time, of a few at a time."""
        hospitals = self._hospitals
        self._turn = [name for name in self._turn if not hospitals[name].is_whole]
        for name in [name for name in self._turn if hospitals[name].pull.is_late(now)]:
            # It is asked once more, but others need not wait for it.
            yield from self._next(name, now)
            self._turn.remove(name)
            hospitals[name] = hospitals.pop(name)
        for name, here in hospitals.items():
            if len(self._turn) == AT_ONCE:
                break
            if name not in self._turn and not here.is_whole:
                self._turn.append(name)
                here.pull.wait()
        for name in self._turn:
            yield from self._next(name, now)

    def _next(self, name: str, now: float) -> Iterator[tuple[str, ChunkRange]]:
        here = self._hospitals[name]
        return ((name, ask) for ask in here.pull.next(here.chunks, here.count, now))

    def chunk(self, name: str, number: int) -> protocol.MaskedUpdate:
        """Return a chunk as its hospital signed it."""
        assert self._spool is not None
        place = self._hospitals[name].chunks[number].place
        message = protocol.message_from_bytes(self._spool.read(place))
        assert isinstance(message, protocol.MaskedUpdate)
        return message

    def columns(self, buckets: Buckets) -> Iterator[Iterator[bytes]]:
        """Yield the ciphertexts of each place in the update, of each bucket's hospitals."""
        for number in range(self._hospitals[buckets[0][0]].count):
            for names in buckets:
                yield (self.chunk(name, number).ciphertext for name in names)

    def items(
        self, names: Sequence[str], first: int, count: int
    ) -> tuple[protocol.MaskedUpdate, ...]:
        """Return the chunks of all these hospitals from some place on: of each the first, ..."""
        every = len(names) * self._hospitals[names[0]].count
        return tuple(
            self.chunk(names[item % len(names)], item // len(names))
            for item in chunk_numbers(first, count, every)
        )

    def hashes(self, names: Sequence[str]) -> bytes:
        """Return the hash of each of these hospitals' updates."""
        return b''.join(
            protocol.hash_of_hashes(each.digest for each in self._ordered(name)) for name in names
        )

    def _ordered(self, name: str) -> Iterator[Chunk]:
        chunks = self._hospitals[name].chunks
        return (chunks[number] for number in sorted(chunks))


class AggregatorState:
    """Keeps the aggregator's record, and the messages of the attempt by kind and sender."""

    def __init__(self, roster: Roster, store: Store) -> None:
        """
        Read the record; then :meth:`recover`, and :meth:`load` reads what was received.

        :raises StoreError: if it is damaged.
        """
        self._roster = roster
        self._store = store
        self.record = store.load(RECORD, AggregatorRecord) or AggregatorRecord()

    def recover(self, orders: StandingOrders, channel: Channel) -> None:
        """Go on above every attempt that the journal tells of, by all orders that it tells of."""
        missed = MissedEntries.find(channel, self._store)
        if missed is None:
            return
        newest = known = self.record.id
        for entry in missed:
            newest = max(newest, (entry.round, entry.attempt))
            if entry.kind == 'operator':
                orders.keep(entry.fields['action'], entry.fields['hospital'])
            elif entry.kind == 'blame':
                orders.convict(entry.fields['hospital'], entry.fields['fault'])
        if newest > known or missed.is_loss:
            forget_orders(channel, self._store)
            missed.warn(f'it goes on after attempt {newest[1]} of round {newest[0]}')
        if newest > known:
            if newest[0] > known[0]:
                self._store.replace(_OF_ROUND, {})
            self.record = AggregatorRecord(Phase.WAITING, *newest)
        missed.settle({RECORD: encode(self.record)})

    def load(self) -> None:
        """
        Go on from the messages and updates of the record's attempt, after any recovery.

        Recovery may leave that attempt behind: the updates of an older copy are erased by then.

        :raises StoreError: if they are damaged or missing.
        """
        self._begin()
        try:
            if self.record.survivors:
                for data in self._store.matching(f'{_RECEIVED}*').values():
                    self._take_back(protocol.message_from_bytes(data))
        except MessageError as error:
            raise StoreError(f'the state of the aggregator is damaged: {error}') from error

    def _take_back(self, message: Message) -> None:
        """Keep what was kept, but no signature of no witness, which older versions kept too."""
        witnesses = self._roster.neighbourhoods.witnesses
        if not isinstance(message, protocol.Settle) or message.sender in witnesses:
            self._keep(message)

    def _begin(self) -> None:
        self.keys: dict[str, protocol.RoundKey] = {}
        self.shares: dict[str, protocol.Shares] = {}
        self.sketches: dict[str, protocol.Sketch] = {}
        self.settles: dict[str, protocol.Settle] = {}
        self.reveals: dict[str, protocol.Reveal] = {}
        self.updates = UpdateSpool(self._store, self.record.id, self.record.updates)
        self._counts: Counter[str] = Counter()
        self._restorable = 0
        self.__dict__.pop('key_list', None)
        self.__dict__.pop('setup_digest', None)
        self.__dict__.pop('key_paths', None)
        self.__dict__.pop('_members', None)

    @property
    def revealing(self) -> bool:
        """Whether enough survivors signed: the round is for this set, or for none."""
        return self.record.phase is Phase.REVEAL

    @property
    def abandoned(self) -> bool:
        """Whether the round is to end with the older policy."""
        return self.record.phase is Phase.SUM

    @cached_property
    def key_list(self) -> KeyList:
        """Return the list of keys that shares are made along, once it is fixed."""
        record = self.record
        keys = [self.keys[name] for name in record.keyed]
        return key_list(self._roster, keys, record.id, record.terms)

    @cached_property
    def setup_digest(self) -> bytes:
        """Return what the members' masks are bound to, once they are fixed."""
        return setup_digest(self.key_list, self.record.members)

    def open(self, attempt: AttemptId, terms: bytes) -> None:
        """Begin an attempt durably, with nothing received."""
        phase = Phase.OPEN if attempt[1] else Phase.WAITING
        bound = self.record.bound if attempt[0] == self.record.round else ()
        if attempt[0] != self.record.round:
            self._store.replace(_OF_ROUND, {})
        self._save(AggregatorRecord(phase, *attempt, terms, bound=bound))
        self._begin()

    @property
    def sketchings(self) -> int:
        """In how many attempts of this round hospitals were asked for projections."""
        return self._store.get_number(_SKETCHINGS)

    def note_sketching(self) -> None:
        """Note durably that hospitals are about to be asked for projections."""
        self._store.put_number(_SKETCHINGS, self.sketchings + 1)

    def note_wait(self, what: str) -> int:
        """
        Note durably that hospitals were waited for in vain.

        :param what: of the kinds of waits, which are counted apart.
        :returns: how many waits of that kind there were in this round; after :meth:`reopen` they
            count from zero.
        """
        row = f'{_WAITS} {what}'
        waits = self._store.get_number(row) + 1
        self._store.put_number(row, waits)
        return waits

    @property
    def silences(self) -> Counter[str]:
        """In how many attempts of this round hospitals were silent once others had trained."""
        return self._counts_of(_SILENCES)

    @property
    def silent_rounds(self) -> Counter[str]:
        """In how many rounds that were abandoned for it hospitals were silent most often."""
        return self._counts_of(_SILENT_ROUNDS)

    def silent_attempts(self, names: Iterable[str]) -> int:
        """Return in how many attempts of this round any of these hospitals was silent."""
        found = self._numbers(_SILENCES)
        return len({number for name in names for number in found.get(name, [])})

    def note_silences(self, names: Iterable[str]) -> None:
        """Note durably, and once, that hospitals were silent in this attempt."""
        if names := list(names):
            noted = _noted(self._numbers(_SILENCES), names, self.record.attempt)
            self._store.put(_SILENCES, noted)

    def forget_silences(self, name: str) -> None:
        """Forget that a hospital was silent."""
        for row in (_SILENCES, _SILENT_ROUNDS):
            found = self._numbers(row)
            if found.pop(name, None):
                self._store.put(row, json.dumps(found).encode())

    def _counts_of(self, row: str) -> Counter[str]:
        return Counter({name: len(numbers) for name, numbers in self._numbers(row).items()})

    def _numbers(self, row: str) -> dict[str, list[int]]:
        return dict(json.loads(self._store.get(row) or b'{}'))

    def keep_blames(self, blames: Iterable[protocol.Blame], kept: Mapping[str, bytes]) -> None:
        """
        Keep proofs of guilt durably: who starts again needs them until the round is over.

        They stay if an operator admits the hospital, and something else is said of it then.

        :param kept: what else the store keeps in the same step.
        """
        self._store.replace((), dict(map(_blame_row, blames)) | dict(kept))

    def blames(self) -> tuple[protocol.Blame, ...]:
        """Return the proofs of guilt of this round."""
        blames = map(protocol.message_from_bytes, self._store.matching(f'{_BLAME}*').values())
        return tuple(
            each
            for each in blames
            if isinstance(each, protocol.Blame) and each.envelope.round == self.record.round
        )

    def reopen(self, buckets: Buckets) -> None:
        """
        Leave an attempt durably in which shares were revealed, but cannot be used.

        The next attempt is for the same survivors without hospitals whose guilt is proven: honest
        ones reveal again for no other set. With buckets it is also without the rest of a bucket of
        which too few are left. If no bucket is left, the remaining survivors stay, so that nobody
        else is admitted and the round is abandoned.
        """
        record = self.record
        guilty = {each.guilty for each in self.blames() if each.fault in PROVEN}
        bound = tuple(name for name in record.bound or record.survivors if name not in guilty)
        bound = kept(buckets, bound) or bound
        self.record = AggregatorRecord(Phase.OPEN, *record.id, record.terms, bound=bound)
        self._store.replace([f'{_WAITS}*'], {RECORD: encode(self.record)})

    def abandon(
        self,
        silent: Iterable[str] = (),
        *,
        forgotten: Collection[str] = (),
        kept: Mapping[str, bytes] | None = None,
        blames: Iterable[protocol.Blame] = (),
    ) -> None:
        """
        Decide durably that this round ends with the older policy.

        :param silent: hospitals for whose silence it does.
        :param forgotten: hospitals whose silence does not count any more: they are blamed for it,
            or it was not their fault.
        :param kept: what else the store keeps in the same step.
        :param blames: kept in the same step.
        """
        before = self.record
        record = AggregatorRecord(Phase.SUM, *before.id, before.terms, bound=before.bound)
        rounds = self._numbers(_SILENT_ROUNDS)
        left = {name: found for name, found in rounds.items() if name not in forgotten}
        counted = [name for name in silent if name not in forgotten]
        rows = {_SILENT_ROUNDS: _noted(left, counted, record.round)}
        rows |= dict(map(_blame_row, blames))
        self._store.replace((), {**(kept or {}), **rows, RECORD: encode(record)})
        self.record = record

    def _save(self, record: AggregatorRecord) -> None:
        self._store.put(RECORD, encode(record))
        self.record = record

    def add(self, message: Message) -> None:
        """Keep a message that was checked; durably if the survivors are fixed."""
        self._keep(message)
        if self.record.survivors:
            self._store.note(*_row(message))

    def fix(self, keyed: tuple[str, ...], members: tuple[str, ...] = ()) -> None:
        """Fix whose keys shares are made for, then who mask with each other."""
        self.__dict__.pop('_members', None)
        self.record = replace(self.record, keyed=keyed, members=members)

    def fix_survivors(self, names: tuple[str, ...]) -> None:
        """Fix the survivors, durably with all that was received so far."""
        updates = self.updates.index(names)
        fixed = replace(self.record, phase=Phase.SETTLE, survivors=names, updates=updates)
        kept = (*self.keys.values(), *self.shares.values(), *self.sketches.values())
        received = dict(map(_row, kept))
        self._store.replace([f'{_RECEIVED}*'], {**received, RECORD: encode(fixed)})
        self.record = fixed

    def fix_round(self) -> None:
        """Fix durably that the round is for these survivors or for none."""
        self._save(replace(self.record, phase=Phase.REVEAL))

    def sync(self) -> None:
        """Make durable what was added."""
        self._store.sync()

    def peer_keys(self, hospital: str) -> dict[str, Any]:
        """Return what the keyed peers of a hospital published for it: fields of PeerKeys."""
        keys, graph = self.key_list, self.key_list.graph
        peers = [name for name in keys.holders(hospital) if name != hospital]
        places = [(name, graph.place(name, hospital)) for name in peers]
        return {
            'keys': tuple(self.keys[name].bare() for name in peers),
            'pairs': b''.join(keys.keys[name].pair(place) for name, place in places),
            'paths': b''.join(keys.keys[name].tree[1][place] for name, place in places),
            'own_path': self.key_paths[hospital],
        }

    @cached_property
    def key_paths(self) -> dict[str, bytes]:
        """Return what shows that each hospital's keys are in the list."""
        _, paths = tree_of_keys(self.key_list.keys)
        return paths

    def parcel(self, dealer: str, holder: str) -> tuple[bytes, bytes]:
        """Return what a member dealt to another one, or to itself, and its path."""
        message, place = self.shares[dealer], bisect_left(self.key_list.holders(dealer), holder)
        start = PARCEL_BYTES * place
        return message.parcels[start : start + PARCEL_BYTES], message.tree[1][place]

    def dealt(self, holder: str, dealers: Iterable[str]) -> dict[str, Any]:
        """Return what members dealt to one holder: fields of Delivery and Blame."""
        names = tuple(dealers)
        parcels = [self.parcel(name, holder) for name in names]
        return {
            'parcels': b''.join(parcel for parcel, _ in parcels),
            'paths': b''.join(path for _, path in parcels),
        }

    def dealers(self, holder: str) -> tuple[str, ...]:
        """Return the members whose shares one holds, itself among them, in order."""
        return self.key_list.graph.holders(holder, self._members)

    @cached_property
    def _members(self) -> frozenset[str]:
        return frozenset(self.record.members)

    @property
    def restorable(self) -> bool:
        """Whether enough holders revealed shares of each member."""
        return self._restorable == len(self.record.members) > 0

    def revealed(self) -> dict[str, dict[str, bytes]]:
        """Return the revealed shares of each member, by their holders."""
        found: dict[str, dict[str, bytes]] = {name: {} for name in self.record.members}
        for holder, message in sorted(self.reveals.items()):
            for dealer, share in read_reveal(message, self.key_list, self._members).items():
                found[dealer][holder] = share
        return found

    def _count(self, holder: str) -> None:
        """Count the shares that a holder revealed."""
        for dealer in self._roster.neighbourhoods.holders(holder, self._members):
            self._counts[dealer] += 1
            self._restorable += self._counts[dealer] == self._roster.neighbourhoods.threshold

    def _keep(self, message: Message) -> None:
        sender = message.sender
        match message:
            case protocol.RoundKey():
                self.keys[sender] = message
            case protocol.Shares():
                self.shares[sender] = message
            case protocol.MaskedUpdate():
                self.updates.add(message)
            case protocol.Sketch():
                self.sketches[sender] = message
            case protocol.Settle():
                self.settles[sender] = message
            case protocol.Reveal():
                if sender not in self.reveals:
                    self._count(sender)
                self.reveals[sender] = message


def _noted(numbers: dict[str, list[int]], names: Iterable[str], number: int) -> bytes:
    """Return what the store keeps once each of some names has a number, too."""
    new = {name: sorted({*numbers.get(name, []), number}) for name in names}
    return json.dumps(numbers | new).encode()


def _blame_row(blame: protocol.Blame) -> tuple[str, bytes]:
    return f'{_BLAME}{blame.guilty} {blame.fault}', blame.to_bytes()


def _row(message: Message) -> tuple[str, bytes]:
    """Return name and bytes of a message in the store."""
    name = f'{_RECEIVED}{type(message).__name__} {message.sender}'
    return name, message.to_bytes()
