# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
What a hospital keeps of a round: one durable record, and what it received in an attempt.

The record is what the hospital's promises rest on. It trains one update a round and masks it anew
in each attempt. In one attempt it sends one masked update and signs one survivor set, and in one
round it reveals shares for one survivor set. A policy must be the sum of updates that were sent.
Privacy ledger, keys and seeds are kept apart from it.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
import hashlib
from pathlib import Path
import re

from fdrl_ros.crypto.keys.roster import Roster
from fdrl_ros.crypto.masking.buckets import Buckets, FEWEST, within
from fdrl_ros.crypto.masking.round_secret import AttemptSecrets, RoundSeed
from fdrl_ros.crypto.masking.share_sealing import KeyList
from fdrl_ros.crypto.masking.sharing import SharePair
from fdrl_ros.errors import CryptoError, RoundError, StoreError
from fdrl_ros.federation.protocol import message as protocol
from fdrl_ros.federation.protocol.attempt import is_summed
from fdrl_ros.federation.protocol.channel import Channel, check_signed
from fdrl_ros.federation.protocol.encoding import encode
from fdrl_ros.federation.protocol.message import AttemptId, Message, Phase, UNDER_WAY
from fdrl_ros.federation.protocol.recovery import MissedEntries
from fdrl_ros.federation.protocol.sketches import MOST_SKETCHES
from fdrl_ros.federation.protocol.store import Place, Store
from fdrl_ros.learner.learner import TrainingResult
from fdrl_ros.privacy.ledger.chain import DIGEST
from fdrl_ros.runtime.durable import erase_secret

SPARE = 512
"""Ledger links that always go along with an update: a server may have been restored."""

UPDATE = 'update'
RECORD = 'state'
_SPOOL = 'sent'


@dataclass(frozen=True)
class LocalUpdate:
    """
    The result of local training for one round: masked anew in each attempt, never redone.

    :param base: digest of the policy that training started from.
    """

    round: int
    base: bytes
    result: TrainingResult = field(metadata={'flat': True})


@dataclass(frozen=True)
class Sent:
    """
    A masked and encrypted update of one attempt, on disk before any of it is sent.

    :param update_hash: hash of its chunks, 32 bytes.
    :param chunks: where each chunk lies in the spool.
    """

    round: int
    attempt: int
    setup_digest: bytes
    update_hash: bytes
    chunks: tuple[Place, ...]

    @property
    def id(self) -> AttemptId:
        """The attempt that it belongs to."""
        return self.round, self.attempt


@dataclass(frozen=True)
class Signed:
    """The survivor set that was signed in an attempt, sorted."""

    attempt: int
    survivors: tuple[str, ...]


@dataclass(frozen=True)
class Sketched:
    """The nonce of the projections that were signed in an attempt."""

    attempt: int
    nonce: bytes


@dataclass(frozen=True)
class Projected:
    """Projections of a hospital's masks in an attempt, to be signed."""

    attempt: AttemptId
    setup: bytes
    parcels_root: bytes
    nonce: bytes
    values: bytes


@dataclass(frozen=True)
class Promises:
    """
    What binds this hospital in one round.

    :param sent: hashes of the updates that were sent in its attempts.
    :param signed: survivor sets, one an attempt.
    :param revealed: the survivor set that shares were revealed for, with an empty name between two
        buckets; empty before.
    :param sketched: projections that were signed, of at most :data:`MOST_SKETCHES` attempts.
    :param ring: seed of the roster's ring when shares were revealed: with other neighbours the
        parts of a sum that get known may be others.
    :param guilty: hospitals that were proven guilty in this round: shares may be revealed again
        for the same set without them.
    """

    round: int
    sent: tuple[bytes, ...] = ()
    signed: tuple[Signed, ...] = ()
    revealed: tuple[str, ...] = ()
    guilty: tuple[str, ...] = ()
    sketched: tuple[Sketched, ...] = ()
    ring: str = ''

    def check_sketching(self, attempt: int, nonce: bytes) -> None:
        """
        Refuse to sign other projections in an attempt, or too many in a round.

        :raises RoundError: if so: all together would show more and more of the update.
        """
        now = Sketched(attempt, nonce)
        if any(each.attempt == attempt and each != now for each in self.sketched):
            raise RoundError('aggregator', f'other projections in attempt {attempt} than before')
        if now not in self.sketched and len(self.sketched) >= MOST_SKETCHES:
            raise RoundError(
                'aggregator', f'projections were signed in {MOST_SKETCHES} attempts of this round'
            )

    def check_revealing(
        self, survivors: Collection[str], ring: str, buckets: Buckets = ()
    ) -> None:
        """
        Refuse a set of which shares must not be revealed any more.

        Two sums of one round over different sets would show their difference. That of hospitals
        that were proven guilty may be shown, and a bucket may be left out if too few others are
        left of it.

        :param ring: seed of the roster's ring.
        :param buckets: in which survivors are summed; one of all unless given.
        :raises RoundError: if shares were revealed for another set, even less who is guilty, or
            with other neighbours.
        """
        wanted = {frozenset(each) for each in within(buckets or (tuple(survivors),), survivors)}
        before = {frozenset(each) for each in self.summed}
        if before and ring != self.ring:
            raise RoundError('aggregator', 'other neighbours than shares were revealed for before')
        if before and wanted not in (before, self.owed):
            names = ', '.join(filter(None, self.revealed))
            raise RoundError(
                'aggregator', f'another survivor set than {names} in round {self.round}'
            )

    @property
    def owed(self) -> set[frozenset[str]]:
        """Those buckets without whoever is guilty, but for those of which too few are left."""
        left = {frozenset(each).difference(self.guilty) for each in self.summed}
        return {each for each in left if len(each) >= FEWEST}

    @property
    def summed(self) -> Buckets:
        """The buckets in which those survivors were to be summed."""
        buckets, names = [], list(self.revealed)
        while names:
            end = names.index('') if '' in names else len(names)
            buckets.append(tuple(names[:end]))
            names = names[end + 1 :]
        return tuple(buckets)


@dataclass(frozen=True)
class HospitalRecord:
    """
    The durable state of a hospital in the rounds.

    :param phase: the phase that this hospital waits in: TRAIN once it knows its members, SETTLE
        once its update is on disk, REVEAL once it signed, SUM once it revealed, then RELEASED.
    :param round: with `attempt`: nothing is sent in any attempt before this one.
    :param received: keys and shares that the attempt rests on; their senders may be gone later.
    :param over: the newest round that is over: nothing is sent in it ever again.
    :param ledger_seen: entries of the ledger that both servers saw.
    :param begun: whether no seeds are left of a time that this record knows nothing of.
    """

    phase: Phase = Phase.WAITING
    round: int = 0
    attempt: int = 0
    received: tuple[bytes, ...] = ()
    over: int = 0
    sending: tuple[Sent, ...] = ()
    promises: tuple[Promises, ...] = ()
    ledger_seen: int = 0
    begun: bool = False

    @property
    def id(self) -> AttemptId:
        """Round and attempt."""
        return self.round, self.attempt

    def of(self, round: int) -> Promises:
        """Return what binds in a round."""
        return next((each for each in self.promises if each.round == round), Promises(round))

    def promising(self, promises: Promises) -> 'HospitalRecord':
        """Return this record with other promises of a round."""
        others = (each for each in self.promises if each.round != promises.round)
        ordered = sorted((*others, promises), key=lambda each: each.round)
        return replace(self, promises=tuple(ordered))

    def with_sent(self, round: int, update_hash: bytes) -> 'HospitalRecord':
        """Return this record with an update that was sent."""
        promises = self.of(round)
        if update_hash in promises.sent:
            return self
        return self.promising(replace(promises, sent=(*promises.sent, update_hash)))

    def with_sketched(self, attempt: AttemptId, nonce: bytes) -> 'HospitalRecord':
        """Return this record with projections that were signed in an attempt."""
        promises, now = self.of(attempt[0]), Sketched(attempt[1], nonce)
        if now in promises.sketched:
            return self
        return self.promising(replace(promises, sketched=(*promises.sketched, now)))

    def with_signed(self, attempt: AttemptId, survivors: Iterable[str]) -> 'HospitalRecord':
        """Return this record with the survivor set that was signed in an attempt."""
        promises, signed = self.of(attempt[0]), Signed(attempt[1], tuple(sorted(survivors)))
        if signed in promises.signed:
            return self
        others = (each for each in promises.signed if each.attempt != signed.attempt)
        return self.promising(replace(promises, signed=(*others, signed)))

    def with_revealed(
        self, round: int, survivors: Collection[str], ring: str = '', buckets: Buckets = ()
    ) -> 'HospitalRecord':
        """Return this record with the survivor set that shares were revealed for."""
        names: list[str] = []
        for bucket in within(buckets or (tuple(survivors),), survivors):
            names += ('', *sorted(bucket)) if names else sorted(bucket)
        revealed = tuple(names)
        return self.promising(replace(self.of(round), revealed=revealed, ring=ring))

    def with_guilty(self, round: int, name: str) -> 'HospitalRecord':
        """Return this record with a hospital that was proven guilty."""
        promises = self.of(round)
        if name in promises.guilty:
            return self
        return self.promising(replace(promises, guilty=(*promises.guilty, name)))

    def since(self, round: int) -> 'HospitalRecord':
        """Return this record without the promises of rounds before one."""
        return replace(self, promises=tuple(each for each in self.promises if each.round >= round))


_LATEST = 10**19
_NAME = re.compile(r'round_(\d{1,19})\.seed(\.draft.*)?')


class RoundSeeds:
    """
    One private file a round: a hospital that is killed goes on with the very same secrets.

    Without a directory the seeds live in memory, for simulation.
    """

    def __init__(self, directory: Path | None, *, federation: str, name: str) -> None:
        """Keep the seeds of one hospital in its own directory."""
        self._directory = directory
        self._federation, self._name = federation, name
        self._seeds: dict[int, RoundSeed] = {}
        self._last = 0

    def of(self, round: int) -> RoundSeed:
        """
        Return the seed of a round; the first call draws it, and stores it durably.

        :raises KeyFileError: if its file is damaged, open to others, or cannot be written.
        :raises CryptoError: if the round is over: a second seed would mask the same update anew.
        """
        if round <= self._last:
            raise CryptoError(f'round {round} is over: its seed was erased')
        if round not in self._seeds:
            federation, name = self._federation, self._name
            self._seeds[round] = (
                RoundSeed.draw(federation=federation, round=round, name=name)
                if self._directory is None
                else RoundSeed.at(
                    _path(self._directory, round), federation=federation, round=round, name=name
                )
            )
        return self._seeds[round]

    def erase(self) -> None:
        """
        Erase every seed: who knows nothing of what was said with it must not use it again.

        :raises KeyFileError: if a file cannot be removed.
        """
        before, self._last = self._last, 0
        self.forget(_LATEST)
        self._last = before

    def forget(self, last: int) -> None:
        """
        Erase the seeds of all rounds up to one that is over.

        :raises KeyFileError: if a file cannot be removed.
        """
        self._last = max(last, self._last)
        self._seeds = {round: seed for round, seed in self._seeds.items() if round > last}
        if self._directory is None:
            return
        for path in sorted(self._directory.glob('round_*.seed*')):  # drafts last: second links
            found = _NAME.fullmatch(path.name)
            if found and int(found[1]) <= last:
                erase_secret(path)


def _path(directory: Path, round: int) -> Path:
    return directory / f'round_{round}.seed'


class HospitalState:
    """Keeps a hospital's record and its update; each change is durable when it returns."""

    def __init__(self, store: Store, n_parameters: int) -> None:
        """
        Go on from what the store holds.

        :raises StoreError: if it is damaged.
        """
        self._store = store
        self._writing = ''
        self.record = store.load(RECORD, HospitalRecord) or HospitalRecord()
        self.update = store.load(UPDATE, LocalUpdate)
        """The newest result of local training."""
        if self.update and self.update.result.weights.size != n_parameters:
            raise StoreError(f'the state file {store.path} is damaged: not {n_parameters} weights')

    def _save(self, record: HospitalRecord) -> None:
        self._store.put(RECORD, encode(record))
        self.record = record

    @property
    def floor(self) -> AttemptId:
        """
        Return the attempt before which nothing is sent any more, also after a restart.

        Masking for other members in an older attempt again would put the same self mask on both
        updates, and one reveal would take it off both: two sums of one round.
        """
        return max((self.record.over + 1, 0), self.record.id)

    # TRAIN

    def keep_received(self, attempt: AttemptId, messages: Iterable[Message]) -> None:
        """Keep the keys and shares that an attempt rests on."""
        received = tuple(each.to_bytes() for each in messages)
        round, number = attempt
        self._save(
            replace(self.record, phase=Phase.TRAIN, round=round, attempt=number, received=received)
        )

    def received(self, attempt: AttemptId) -> list[Message]:
        """Return what :meth:`keep_received` kept of an attempt; nothing if it was of another."""
        if self.record.id != attempt:
            return []
        return [protocol.message_from_bytes(each) for each in self.record.received]

    def keep_update(self, update: LocalUpdate) -> None:
        """
        Keep the result of local training, before anything of it is sent, on whatever thread.

        Large weights take the disk half a second; :attr:`update` changes when the job is over.
        """
        self._store.put(UPDATE, encode(update))

    def write_chunks(self, attempt: AttemptId, setup: bytes, chunks: Iterable[bytes]) -> Sent:
        """
        Write a masked update to disk, chunk by chunk, on whatever thread.

        :raises StoreError: if there is no room.
        """
        self._writing = _spool(attempt)
        spool = self._store.spool(self._writing)
        places, hashes = [], []
        try:
            for chunk in chunks:
                places.append(spool.append(chunk))
                hashes.append(hashlib.sha256(chunk).digest())
            spool.sync()
        finally:
            self._writing = ''
        return Sent(*attempt, setup, protocol.hash_of_hashes(hashes), tuple(places))

    def keep_sent(self, sent: Sent) -> None:
        """Note what is about to be sent, so that after a restart the same is sent again."""
        record = self.record.with_sent(sent.round, sent.update_hash)
        self._save(replace(record, phase=Phase.SETTLE, sending=(sent,)))
        # Not before: until now the update of the last attempt may have to be sent again.
        self._store.erase_spools(_SPOOL, but=_spool(sent.id))

    def sent(self, attempt: AttemptId) -> Sent | None:
        """Return what was sent in an attempt, or was about to be."""
        return next((each for each in self.record.sending if each.id == attempt), None)

    def chunk(self, sent: Sent, number: int) -> bytes:
        """
        Read a chunk of what was sent.

        :raises StoreError: if it is not there any more.
        """
        return self._store.opened(_spool(sent.id)).read(sent.chunks[number])

    def links(self) -> bytes:
        """
        Return the links of the ledger that go along with the update.

        They reach back to the newest head that both servers saw, and further by :data:`SPARE`.
        """
        assert self.update is not None
        result = self.update.result
        first = min(self.record.ledger_seen, result.ledger_base_entries)
        count = max(SPARE, result.ledger_entries - first)
        return result.ledger_links[-DIGEST * count :]

    # SETTLE and REVEAL

    def keep_signed(self, attempt: AttemptId, survivors: Iterable[str]) -> None:
        """
        Note the survivor set that is about to be signed.

        :raises RoundError: if another one was signed in this attempt.
        """
        round, number = attempt
        for signed in self.record.of(round).signed:
            if signed.attempt == number:
                if signed.survivors != tuple(sorted(survivors)):
                    named = ', '.join(signed.survivors)
                    where = f'attempt {number}'
                    raise RoundError('aggregator', f'another survivor set than {named} in {where}')
        record = self.record.with_signed(attempt, survivors)
        if record is not self.record:
            self._save(replace(record, phase=Phase.REVEAL))

    def keep_revealed(
        self, round: int, survivors: Collection[str], ring: str, buckets: Buckets = ()
    ) -> None:
        """
        Note the survivor set that shares are about to be revealed for.

        :raises RoundError: as :meth:`Promises.check_revealing`.
        """
        promises = self.record.of(round)
        promises.check_revealing(survivors, ring, buckets)
        record = self.record.with_revealed(round, survivors, ring, buckets)
        if record.of(round).revealed != promises.revealed:
            self._save(replace(record, phase=Phase.SUM))

    def keep_sketched(self, attempt: AttemptId, nonce: bytes) -> None:
        """
        Note the projections that are about to be signed.

        :raises RoundError: as :meth:`Promises.check_sketching`.
        """
        round, number = attempt
        self.record.of(round).check_sketching(number, nonce)
        self._save(self.record.with_sketched(attempt, nonce))

    def keep_guilty(self, round: int, name: str) -> None:
        """Note a hospital that was proven guilty in a round."""
        if self.record.with_guilty(round, name) is not self.record:
            self._save(self.record.with_guilty(round, name))

    # RELEASED

    def check_policy(self, policy: protocol.GlobalPolicy, name: str, path: bytes) -> None:
        """
        Refuse a policy that left this hospital out, or summed what it never sent.

        :param name: of this hospital.
        :param path: that shows which update of it was summed, if one was.
        :raises MessageError: if so.
        """
        sender, round = policy.sender, policy.envelope.round
        promises = self.record.of(round)
        if name in policy.contributors:
            if not any(is_summed(policy, name, each, path) for each in promises.sent):
                raise RoundError(sender, f'round {round} summed an update that was never sent')
        elif any(name in each for each in promises.owed) and not policy.rolled_back:
            raise RoundError(sender, f'round {round} left this hospital out')

    def end(self, policy: protocol.GlobalPolicy, name: str) -> None:
        """
        Forget what was needed up to a round that is over, and the chunks of its update.

        The promises of the round itself stay: after a restart its policy comes once more. So do
        chunks of the next round, which have to be sent again. If the policy has this hospital's
        update, both servers saw its ledger.
        """
        record, round, update = self.record, policy.envelope.round, self.update
        if update and update.round == round and name in policy.contributors:
            record = replace(record, ledger_seen=update.result.ledger_entries)
        phase = record.phase if record.round > round else Phase.RELEASED
        self._save(replace(record.since(round), phase=phase, over=max(round, record.over)))
        if any(each.round <= round for each in record.sending):
            self._store.erase_spools(_SPOOL, but=self._writing)

    # After a restart

    def recover(self, channel: Channel, seeds: RoundSeeds) -> None:
        """
        Close every attempt that the journal tells of, if this state does not know of all of them.

        The seeds of rounds that are over are erased, as at every start.

        That is safe: what is masked or revealed in a later attempt has nothing to do with what
        was, and the promises of a round, whom shares were revealed for above all, are known again.
        Without a journal too nothing tells what was said with the round's seed: it is erased.
        """
        missed = MissedEntries.find(channel, self._store)
        if channel.journal.is_new or (not self.record.begun and missed is None):
            seeds.erase()
        if not self.record.begun:
            self._save(replace(self.record, begun=True))
        if missed is not None:
            self._close_attempts(missed, in_buckets=channel.roster.buckets > 0)
        seeds.forget(self.record.over)

    def _close_attempts(self, missed: MissedEntries, *, in_buckets: bool) -> None:
        record = known = self.record
        last, over = (0, 0), 0
        for entry in missed:
            round, fields = entry.round, entry.fields
            match entry.kind:
                case 'sent':
                    record = record.with_sent(round, bytes.fromhex(fields['update']))
                case 'projected':
                    nonce = bytes.fromhex(fields['nonce'])
                    record = record.with_sketched((round, entry.attempt), nonce)
                case 'signed':
                    record = record.with_signed((round, entry.attempt), fields['survivors'])
                case 'revealed':
                    # In which buckets is not known any more: none of that round is summed again.
                    alone = tuple((name,) for name in fields['seeds'])
                    told = alone if in_buckets else ()
                    record = record.with_revealed(round, fields['seeds'], '', told)
                case 'policy':  # as :meth:`end` forgets
                    record, known = record.since(round), known.since(round)
                    over = max(over, round)
            if entry.kind in ('sent', 'projected', 'signed', 'revealed'):
                last = max(last, (round, entry.attempt))
        rows = {}
        if record != known or missed.is_loss:
            record = replace(record, over=max(over, record.over))
            if last >= record.id:
                record = replace(record, round=last[0], attempt=last[1] + 1, received=())
            self.record, rows = record, {RECORD: encode(record)}
            missed.warn(
                f'it takes part again after attempt {last[1]} of round {max(last[0], over)}; '
                'layers that it kept to itself begin as the global policy has them'
            )
        missed.settle(rows)


def _spool(attempt: AttemptId) -> str:
    return f'{_SPOOL}-{attempt[0]}-{attempt[1]}'


@dataclass(frozen=True, repr=False)
class Setup:
    """
    What an update is masked under, and the shares that its masks can be taken off with.

    :param digest: of keys and members, 32 bytes.
    :param members: hospitals that take part, this one too, sorted.
    :param shares: of each member with whom this one masks, and of itself, in their order.
    :param delivery: digest of the parcels that the others' shares were in.
    """

    digest: bytes
    members: tuple[str, ...]
    shares: dict[str, SharePair]
    delivery: bytes


@dataclass(repr=False)
class Received:
    """
    What this hospital received in one attempt, and what it made of it; not durable.

    :param own: this hospital's round key, once it was published.
    :param keys: what its peers published for it.
    :param parcels_root: of the shares that it dealt in this process; empty before.
    :param sketch: this hospital's projections, once they were signed.
    :param settles: signatures of other survivors.
    :param lists: bitmaps of keyed hospitals, members and survivors; the first sent ones count.
    :param done: what was sent or reported in this process, so that it is done once.
    :param survivors_digest: of the survivors as the aggregator named them.
    :param signed_digest: of the survivors that this hospital signed.
    """

    attempt: AttemptId
    own: protocol.RoundKey | None = None
    keys: protocol.PeerKeys | None = None
    delivery: protocol.Delivery | None = None
    settles: dict[str, protocol.Settle] = field(default_factory=dict)
    lists: dict[str, bytes] = field(default_factory=dict)
    done: set[str] = field(default_factory=set)
    secrets: AttemptSecrets | None = None
    key_list: KeyList | None = None
    parcels_root: bytes = b''
    setup: Setup | None = None
    sketch: protocol.Sketch | None = None
    survivors_digest: bytes = b''
    signed_digest: bytes = b''

    @classmethod
    def load(cls, state: HospitalState, attempt: AttemptId) -> 'Received':
        """Begin with what was kept of an attempt: its senders may be gone by now."""
        received = cls(attempt)
        for message in state.received(attempt):
            if isinstance(message, protocol.PeerKeys):
                received.keys = message
            elif isinstance(message, protocol.Delivery):
                received.delivery = message
        return received

    def first_time(self, what: str) -> bool:
        """Tell whether something is done for the first time in this process."""
        if what in self.done:
            return False
        self.done.add(what)
        return True

    def take_lists(self, status: protocol.RoundStatus) -> None:
        """
        Keep the lists of this attempt.

        :raises RoundError: if one is another than before.
        """
        if status.phase not in UNDER_WAY - {Phase.OPEN}:
            return  # the lists of other phases are for people
        for what in ('keyed', 'members', 'survivors'):
            marks = getattr(status, what)
            if what == 'members' and status.phase == Phase.SHARE:
                continue
            if marks and self.lists.setdefault(what, marks) != marks:
                raise RoundError(status.sender, f'changed the {what} of an attempt')

    def take_keys(self, message: protocol.PeerKeys, roster: Roster) -> None:
        """
        Keep what the aggregator says that the peers published for this hospital.

        :raises MessageError: if one did not sign it in this attempt, or it is other than before.
        """
        for key in message.keys:
            check_signed(roster, key, 'hospital')
            if key.id != message.id:
                raise RoundError(key.sender, f'signed for attempt {key.id}')
        before = self.keys or message
        if (before.keys, before.pairs) != (message.keys, message.pairs):
            raise RoundError(message.sender, 'other round keys than before in the same attempt')
        self.keys = message

    def take_delivery(self, message: protocol.Delivery) -> None:
        """
        Keep the parcels of shares that are for this hospital.

        :raises RoundError: if they are others than before.
        """
        before = self.delivery or message
        if (before.shares, before.parcels) != (message.shares, message.parcels):
            raise RoundError(message.sender, 'other shares than before in this attempt')
        self.delivery = message

    def take_settle(self, message: protocol.Settle, witnesses: Collection[str]) -> None:
        """
        Keep another survivor's signature on the survivor set.

        :raises RoundError: if it is no witness, or the aggregator named other survivors to this
            hospital: one lies.
        """
        sender = message.sender
        if sender not in witnesses:
            raise RoundError(sender, 'signed survivors, and is no witness')
        self.settles.setdefault(sender, message)
        if self.survivors_digest and message.settle_digest != self.survivors_digest:
            raise RoundError(sender, 'signed other survivors than this hospital was told of')
