# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The aggregator: runs the rounds, adds ciphertexts, holds no secret key (FDRL Alg. 1)."""

from collections.abc import Callable, Iterable
import json
from typing import Any

from fdrl_ros.crypto.encryption import PublicContext
from fdrl_ros.errors import CryptoError, MessageError, RoundError
from fdrl_ros.federation.channel import Channel
from fdrl_ros.federation.ledger_watch import LedgerWatch
from fdrl_ros.federation.message import (
    DecryptRequest,
    EncryptionKey,
    GlobalPolicy,
    hash_of_sums,
    MaskedUpdate,
    Message,
    Phase,
    RoundKey,
    RoundStatus,
    Settle,
    Verdict,
)
from fdrl_ros.federation.party import Job, Outcome, Report, Stopped
from fdrl_ros.federation.settings import RoundSettings
from fdrl_ros.federation.store import Store
from fdrl_ros.federation.update import check_round_key, open_key, UpdateCodec


class Aggregator:
    """
    Moves a round from OPEN through TRAIN, SETTLE and SUM to RELEASED.

    A deadline that passes with a hospital missing ends the attempt and opens the next one, in
    which every admitted hospital may take part again: those that answer go on if they are enough,
    and with fewer the round waits. Updates masked for one attempt are of no use in another.
    """

    takes = (EncryptionKey, GlobalPolicy, MaskedUpdate, RoundKey, Settle, Verdict)

    def __init__(self, channel: Channel, settings: RoundSettings, store: Store) -> None:
        """Go on from the state in `store`, or begin with round 1."""
        self._channel = channel
        self._settings = settings
        self._store = store
        self._timeouts = {
            Phase.OPEN: settings.open_timeout,
            Phase.TRAIN: settings.train_timeout,
            Phase.SETTLE: settings.settle_timeout,
            Phase.SUM: settings.sum_timeout,
            Phase.FAILED: settings.retry_delay,
        }
        self._quorum = max(settings.quorum, channel.roster.quorum)
        self._round = store.get_number('round', 1)
        self._attempt = store.get_number('attempt', 0)
        withdrawn = json.loads(store.get('withdrawn') or b'[]')
        self._admitted = [m.name for m in channel.roster.hospitals if m.name not in withdrawn]
        self._paused = store.get('paused') == b'yes'
        self._over = store.get('stopped') == b'yes'
        settling = json.loads(store.get('settling') or b'[0, []]')
        self._settling: tuple[int, list[str]] = (settling[0], settling[1])
        self._phase = Phase.WAITING
        self._deadline: float | None = None
        self._policy_digest = b''
        self._policy_round: int | None = None
        self._codec: UpdateCodec | None = None
        self._public: PublicContext | None = None
        self._watch = LedgerWatch(store)
        self._members: tuple[str, ...] = ()
        self._keyed: dict[str, bytes] = {}
        self._updates: dict[str, dict[int, MaskedUpdate]] = {}
        self._settles: dict[str, Settle] = {}
        self._failure = ''
        self._request: dict[str, Any] | None = None

    @property
    def phase(self) -> Phase:
        """The present phase."""
        return self._phase

    @property
    def round(self) -> int:
        """The present round."""
        return self._round

    def start(self, now: float) -> Outcome:
        """Say where the federation stands; rounds begin when the first policy is there."""
        return self._say('waiting for the key authority', now)

    # What the operator may ask.

    def pause(self, now: float) -> Outcome:
        """End the present attempt and wait for :meth:`resume`; nothing trained is lost."""
        self._set_paused(True)
        if self._phase is Phase.FINISHED:
            return Outcome()
        return self._enter(Phase.PAUSED, now, 'paused by the operator')

    def resume(self, now: float) -> Outcome:
        """Go on with the round that was paused."""
        self._set_paused(False)
        return self._open(now, 'resumed') if self._phase is Phase.PAUSED else Outcome()

    def stop(self, now: float) -> Outcome:
        """End the federation after the last released policy."""
        self._over = True
        self._store.put('stopped', b'yes')
        return self._enter(Phase.FINISHED, now, 'stopped by the operator')

    def admit(self, hospital: str, now: float) -> Outcome:
        """
        Let a hospital of the roster take part from the next attempt on.

        :raises RoundError: if the roster does not name it.
        """
        return self._change_members(hospital, True, now)

    def withdraw(self, hospital: str, now: float) -> Outcome:
        """
        Leave a hospital out from the next attempt on.

        :raises RoundError: if the roster does not name it.
        """
        return self._change_members(hospital, False, now)

    def _change_members(self, hospital: str, admitted: bool, now: float) -> Outcome:
        names = [member.name for member in self._channel.roster.hospitals]
        if hospital not in names:
            raise RoundError(hospital, 'the roster names no such hospital')
        wanted = {*self._admitted, hospital} if admitted else {*self._admitted} - {hospital}
        self._admitted = [name for name in names if name in wanted]
        withdrawn = [name for name in names if name not in wanted]
        self._store.put('withdrawn', json.dumps(withdrawn).encode())
        leaves = not admitted and hospital in (*self._members, *self._keyed)
        if leaves and self._phase in (Phase.OPEN, Phase.TRAIN, Phase.SETTLE):
            return self._fail(now, f'{hospital} was withdrawn')
        return Outcome()

    def _set_paused(self, paused: bool) -> None:
        self._paused = paused
        self._store.put('paused', b'yes' if paused else b'no')

    # What the others say.

    def handle(self, message: Message, now: float) -> Outcome:
        """Take a message; see :class:`Party`."""
        match message:
            case EncryptionKey():
                self._channel.accept(message, 'key_authority')
                self._codec, self._public = open_key(message)
                return self._begin(now)
            case GlobalPolicy():
                return self._take_policy(message, now)
            case Verdict():
                self._channel.accept(message, 'key_authority')
                if self._phase is Phase.SUM and not message.accepted and self._is_now(message):
                    return self._fail(now, f'the key authority refused: {message.reason}')
                return Outcome()
            case RoundKey():
                return self._take_round_key(message, now)
            case MaskedUpdate():
                return self._take_update(message, now)
            case Settle():
                return self._take_settle(message, now)
        raise RoundError(message.envelope.sender, f'{type(message).__name__} to the aggregator')

    def finish(self, job: Job, result: Any, now: float) -> Outcome:
        """Take the sum, and ask for its decryption."""
        if isinstance(result, CryptoError):
            return self._fail(now, f'the updates cannot be added: {result}')
        if isinstance(result, Exception):
            raise result
        round_attempt, sum_hash = result
        if self._phase is not Phase.SUM or round_attempt != (self._round, self._attempt):
            return Outcome()
        self._request = {
            'updates': tuple(self._chunks()),
            'settles': tuple(self._settles[name] for name in self._members),
            'sum_hash': sum_hash,
        }
        return self._ask()

    def tick(self, now: float) -> Outcome:
        """End the phases whose deadline has passed."""
        if self._deadline is None or now < self._deadline:
            return Outcome()
        if self._phase is Phase.OPEN:
            if len(self._keyed) >= self._quorum and not self._signed():
                return self._train(now)
            self._deadline = now + self._timeouts[Phase.OPEN]
            return self._say(f'waiting for {_names(self._wanted() - set(self._keyed))}', now)
        if self._phase is Phase.SUM:
            self._deadline = now + self._timeouts[Phase.SUM]
            waiting = self._say('waiting for the key authority', now)
            return waiting + (self._ask() if self._request else Outcome())
        if self._phase is Phase.FAILED:
            return self._open(now, f'again: {self._failure}')
        late = {
            Phase.TRAIN: set(self._members) - {n for n in self._members if self._complete(n)},
            Phase.SETTLE: set(self._members) - set(self._settles),
        }[self._phase]
        return self._fail(now, f'no answer in time from {_names(late)}')

    def _take_policy(self, message: GlobalPolicy, now: float) -> Outcome:
        sender = self._channel.accept(message, 'key_authority').name
        round = message.envelope.round
        if self._policy_round is not None and round <= self._policy_round:
            raise RoundError(sender, f'policy of round {round} is not newer')
        self._policy_round, self._policy_digest = round, message.digest
        if round < self._round:
            return self._begin(now)
        # The released round is over, also when this aggregator was away when it ended.
        self._round = round
        released = self._enter(Phase.RELEASED, now, message.reason)
        self._round, self._attempt = round + 1, 0
        self._store.put_number('round', self._round)
        self._store.put_number('attempt', 0)
        return released + self._begin(now)

    def _take_round_key(self, message: RoundKey, now: float) -> Outcome:
        sender = self._channel.accept(message, 'hospital').name
        self._check_now(message)
        if sender not in self._admitted:
            raise RoundError(sender, 'is not admitted')
        check_round_key(message, [key for name, key in self._keyed.items() if name != sender])
        if self._keyed.get(sender, message.public_key) != message.public_key:
            return self._fail(now, f'{sender} started again')
        if self._phase is not Phase.OPEN:
            if sender in self._members:
                return self._fail(now, f'{sender} started again')
            raise RoundError(sender, f'round key in phase {self._phase.name}')
        self._keyed[sender] = message.public_key
        return self._train(now) if set(self._keyed) >= self._wanted() else Outcome()

    def _take_update(self, message: MaskedUpdate, now: float) -> Outcome:
        sender = self._channel.accept(message, 'hospital').name
        self._check_now(message)
        if self._phase is not Phase.TRAIN or sender not in self._members:
            raise RoundError(sender, f'update in phase {self._phase.name}')
        assert self._codec
        if (
            message.chunks != self._codec.scheme.ciphertexts
            or not 0 <= message.chunk < message.chunks
            or message.chunk in self._updates.get(sender, {})
        ):
            raise MessageError(sender, f'chunk {message.chunk} of {message.chunks}')
        if len(message.ciphertext) != self._codec.scheme.ciphertext_bytes:
            raise MessageError(sender, f'a ciphertext of {len(message.ciphertext)} bytes')
        if message.base_digest != self._policy_digest:
            raise RoundError(sender, 'trained from another policy')
        self._watch.take(message)
        self._updates.setdefault(sender, {})[message.chunk] = message
        if not all(self._complete(name) for name in self._members):
            return Outcome()
        self._settling = (self._round, list(self._members))
        self._store.put('settling', json.dumps(self._settling).encode())
        return self._enter(Phase.SETTLE, now, 'all updates arrived')

    def _take_settle(self, message: Settle, now: float) -> Outcome:
        sender = self._channel.accept(message, 'hospital').name
        self._check_now(message)
        if self._phase is not Phase.SETTLE or sender not in self._members:
            raise RoundError(sender, f'signature on survivors in phase {self._phase.name}')
        if message.survivors != self._members:
            raise RoundError(sender, f'signed other survivors: {message.survivors}')
        self._settles[sender] = message
        if set(self._settles) != set(self._members):
            return Outcome()
        entered = self._enter(Phase.SUM, now, 'all survivors signed')
        return entered + Outcome(jobs=(Job('sum', self._adder()),))

    # How a round goes on.

    def _begin(self, now: float) -> Outcome:
        """Open the next attempt if everything for it is there."""
        if self._over:
            return self._enter(Phase.FINISHED, now, 'stopped by the operator')
        ready = self._codec is not None and self._policy_round == self._round - 1
        if not ready or self._phase not in (Phase.WAITING, Phase.RELEASED):
            return Outcome()
        if self._round > self._settings.rounds:
            return self._enter(Phase.FINISHED, now, 'all rounds are done')
        if self._paused:
            return self._enter(Phase.PAUSED, now, 'paused by the operator')
        return self._open(now, 'a new round')

    def _open(self, now: float, reason: str) -> Outcome:
        self._attempt += 1
        self._store.put_number('attempt', self._attempt)
        self._members, self._keyed, self._updates, self._settles = (), {}, {}, {}
        self._request = None
        if not self._signed() <= set(self._admitted):
            return self._abandon(now)
        return self._enter(Phase.OPEN, now, reason)

    def _signed(self) -> set[str]:
        """
        Return the survivor set that hospitals may have signed in this round, if any.

        They sign no other in it: two sums over different sets would show their difference.
        """
        round, members = self._settling
        return set(members) if round == self._round else set()

    def _wanted(self) -> set[str]:
        """Return the hospitals that the next attempt is for."""
        return self._signed() or set(self._admitted)

    def _abandon(self, now: float) -> Outcome:
        """End a round that can never be summed any more: the older policy is released anew."""
        self._request = {'updates': (), 'settles': (), 'sum_hash': b''}
        gone = _names(self._signed() - set(self._admitted))
        return self._enter(Phase.SUM, now, f'abandoned: {gone} signed and is gone') + self._ask()

    def _ask(self) -> Outcome:
        """Send the request to the key authority, for the first time or again."""
        assert self._request is not None
        request = self._channel.seal(DecryptRequest, self._round, self._attempt, **self._request)
        return Outcome((request,))

    def _train(self, now: float) -> Outcome:
        wanted = self._wanted()
        self._members = tuple(
            name for name in self._admitted if name in self._keyed and name in wanted
        )
        missing = wanted - set(self._members)
        reason = f'without {_names(missing)}' if missing else 'all hospitals are here'
        return self._enter(Phase.TRAIN, now, reason)

    def _fail(self, now: float, reason: str) -> Outcome:
        """End this attempt; the next one opens after a moment, so that failures cannot spin."""
        self._failure = reason
        return self._enter(Phase.FAILED, now, reason)

    def _enter(self, phase: Phase, now: float, reason: str) -> Outcome:
        self._phase = phase
        timeout = self._timeouts.get(phase)
        self._deadline = None if timeout is None else now + timeout
        return self._say(reason, now)

    def _say(self, reason: str, now: float) -> Outcome:
        survivors = self._phase in (Phase.SETTLE, Phase.SUM)
        status = self._channel.seal(
            RoundStatus,
            self._round,
            self._attempt,
            phase=int(self._phase),
            members=self._members if self._members else tuple(self._admitted),
            survivors=self._members if survivors else (),
            time_left=0.0 if self._deadline is None else self._deadline - now,
            policy_digest=self._policy_digest,
            reason=reason,
        )
        note = f'round {status.envelope.round} attempt {status.envelope.attempt}: '
        return Outcome((status,), notes=(note + f'{self._phase.name}, {reason}',))

    def _adder(self) -> Callable[[Report, Stopped], tuple[tuple[int, int], bytes]]:
        """Return the job that adds the ciphertexts chunk by chunk."""
        assert self._codec and self._public
        now_at, public = (self._round, self._attempt), self._public
        columns = [
            [self._updates[name][chunk].ciphertext for name in self._members]
            for chunk in range(self._codec.scheme.ciphertexts)
        ]

        def add(report: Report, stopped: Stopped) -> tuple[tuple[int, int], bytes]:
            return now_at, hash_of_sums(public.add(column) for column in columns)

        return add

    def _chunks(self) -> Iterable[MaskedUpdate]:
        for name in self._members:
            for chunk in sorted(self._updates[name]):
                yield self._updates[name][chunk]

    def _complete(self, name: str) -> bool:
        assert self._codec
        return len(self._updates.get(name, {})) == self._codec.scheme.ciphertexts

    def _is_now(self, message: Message) -> bool:
        envelope = message.envelope
        return (envelope.round, envelope.attempt) == (self._round, self._attempt)

    def _check_now(self, message: Message) -> None:
        envelope = message.envelope
        if not self._is_now(message):
            raise RoundError(
                envelope.sender,
                f'of round {envelope.round} attempt {envelope.attempt}, '
                f'now at round {self._round} attempt {self._attempt}',
            )


def _names(names: Iterable[str]) -> str:
    return ', '.join(sorted(names)) or 'nobody'
