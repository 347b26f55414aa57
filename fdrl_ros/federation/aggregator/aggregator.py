# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The aggregator: runs the rounds, adds ciphertexts, holds no secret key (FDRL Alg. 1)."""

from collections.abc import Iterable
from typing import Any

from fdrl_ros.errors import (
    CryptoError,
    LateError,
    LedgerHeadError,
    MessageError,
    RosterError,
    RoundError,
)
from fdrl_ros.federation.aggregator.decryption_request import Asking
from fdrl_ros.federation.aggregator.inbox import Inbox
from fdrl_ros.federation.aggregator.updates import check_update
from fdrl_ros.federation.protocol.attempt import attempt_of
from fdrl_ros.federation.protocol.channel import Channel
from fdrl_ros.federation.protocol.ledger_watch import LedgerWatch
from fdrl_ros.federation.protocol.message import (
    Decline,
    DeclineReason,
    EncryptionKey,
    GlobalPolicy,
    MaskedUpdate,
    Message,
    Objection,
    Order,
    Phase,
    Reveal,
    RoundKey,
    RoundStatus,
    Settle,
    Shares,
    Verdict,
    Wanted,
)
from fdrl_ros.federation.protocol.objection import Objections
from fdrl_ros.federation.protocol.orders import Orders
from fdrl_ros.federation.protocol.party import Job, Outcome
from fdrl_ros.federation.protocol.recovery import recover_aggregator
from fdrl_ros.federation.protocol.store import Store
from fdrl_ros.federation.protocol.update_codec import open_key, Terms
from fdrl_ros.federation.settings import RoundSettings


class Aggregator:
    """
    Moves a round through OPEN, SHARE, TRAIN, SETTLE, REVEAL and SUM to RELEASED.

    Whoever is missing when a phase's deadline passes is left behind, and the others go on if they
    are enough. Else the attempt fails, and all admitted hospitals may take part in the next one.
    Once enough survivors signed the survivor set, the round is for that set or for none: then
    there is no other attempt, only patience.
    """

    takes = (
        Decline,
        EncryptionKey,
        GlobalPolicy,
        MaskedUpdate,
        Objection,
        Order,
        Reveal,
        RoundKey,
        Settle,
        Shares,
        Verdict,
        Wanted,
    )

    def __init__(self, channel: Channel, settings: RoundSettings, store: Store) -> None:
        """Go on from the state in `store`, or begin with round 1."""
        self._channel = channel
        self._settings = settings
        self._store = store
        self._timeouts = {
            Phase.OPEN: settings.open_timeout,
            Phase.SHARE: settings.share_timeout,
            Phase.TRAIN: settings.train_timeout,
            Phase.SETTLE: settings.settle_timeout,
            Phase.REVEAL: settings.reveal_timeout,
            Phase.SUM: settings.sum_timeout,
            Phase.FAILED: settings.retry_delay,
        }
        self._quorum = max(settings.quorum, channel.roster.quorum)
        self._threshold = channel.roster.threshold
        self._orders = Orders(channel, store)
        recover_aggregator(self._orders, channel, store)
        self._round = store.get_number('round', 1)
        self._attempt = store.get_number('attempt', 0)
        self._phase = Phase.WAITING
        self._deadline: float | None = None
        self._policy_digest = b''
        self._policy_round: int | None = None
        self._terms: Terms | None = None
        self._watch = LedgerWatch(store)
        at = self._round, self._attempt
        self._inbox = Inbox.load(channel.roster, store, at) or self._new_inbox()
        self._failure = ''
        self._objections = Objections(channel)
        self._absent: set[str] = set()
        self._slow: set[str] = set()
        self._acknowledged = (-1, 0)
        self._declined: dict[str, Decline] = {}  # in this round
        self._unaccounted: dict[str, str] = {}  # in this attempt
        self.exhausted = ''
        """Why no further round can be paid for; empty while one can."""
        self._asking = Asking(channel, self._inbox)

    @property
    def phase(self) -> Phase:
        """The present phase."""
        return self._phase

    @property
    def round(self) -> int:
        """The present round."""
        return self._round

    @property
    def left_out(self) -> dict[str, str]:
        """Hospitals that take no part in the present round, with the reason in words."""
        said = {name: decline.detail for name, decline in self._declined.items()}
        return said | self._unaccounted

    def start(self, now: float) -> Outcome:
        """Say where the federation stands; rounds begin when the first policy is there."""
        self._orders.note()
        return self._say('waiting for the key authority', now)

    # What the others say.

    def handle(self, message: Message, now: float) -> Outcome:
        """Take a message; see :class:`Party`."""
        match message:
            case EncryptionKey():
                self._channel.accept(message, 'key_authority')
                self._terms = open_key(message)
                return self._begin(now) if self._agreed() else self._take_new_key(now)
            case GlobalPolicy():
                return self._take_policy(message, now)
            case Verdict():
                return self._take_verdict(message, now)
            case Wanted():
                self._channel.accept(message, 'key_authority')
                return self._asking.relay(message)
            case Order():
                return self._obey(message, now)
            case Objection():
                return self._objections.hear(message)
            case Decline():
                return self._take_decline(message, now)
        sender = message.envelope.sender
        if not isinstance(message, self.takes):
            raise RoundError(sender, f'{type(message).__name__} to the aggregator')
        self._channel.accept(message, 'hospital')
        if isinstance(message, RoundKey):
            self._slow.add(sender)  # if it is late, it is not away: it is waited for the next time
        if sender in self._unaccounted:
            raise RoundError(sender, 'is left out of this attempt: its ledger was refused')
        if not self._inbox.check(message, self._phase, self._orders.admitted):
            return self._pull(now)
        if isinstance(message, MaskedUpdate):
            assert self._terms
            check_update(message, self._terms.codec, self._terms.public, self._policy_digest)
            try:
                self._watch.take(message)
            except LedgerHeadError as error:
                return self._leave_out(error, now)
        if isinstance(message, RoundKey):
            self._declined.pop(sender, None)
        self._inbox.add(message)
        return self._pull(now) + self._advance(now, in_time=True)

    def _take_decline(self, message: Decline, now: float) -> Outcome:
        """Go on without a hospital that takes no part in this round."""
        sender = self._channel.accept(message, 'hospital').name
        round = message.envelope.round
        if round != self._round:
            refusal = LateError if round < self._round else RoundError
            raise refusal(sender, f'declines round {round}, now at {self._round}')
        if message.reason not in set(DeclineReason) or not message.detail.isprintable():
            raise MessageError(sender, f'declines for {message.reason}: {message.detail[:80]!r}')
        if sender in self._declined or self._phase is Phase.FINISHED:
            return Outcome()
        self._declined[sender] = message
        note = f'{sender} takes no part in round {round}: {message.detail}'
        return Outcome(notes=(note,)) + self._advance(now, in_time=True)

    def _leave_out(self, error: LedgerHeadError, now: float) -> Outcome:
        """Go on without a hospital whose ledger was refused, and tell it which head was seen."""
        self._unaccounted[error.sender] = error.detail
        note = f'{error.sender} is left out of round {self._round}: {error.detail}'
        heads = self._watch.acknowledge(self._channel, (self._round, self._attempt))
        return Outcome((heads,), notes=(note,)) + self._advance(now, in_time=True)

    def finish(self, job: Job, result: Any, now: float) -> Outcome:
        """Take the hash of the sum, and ask for its decryption."""
        if isinstance(result, Exception):
            raise result
        asking, found = result
        if asking is not self._asking or self._phase is not Phase.SUM:
            return Outcome()  # the round went on without it
        if isinstance(found, CryptoError):
            return self._fail(now, f'the updates cannot be added: {found}')
        if isinstance(found, Exception):
            raise found
        self._asking.sum_hash = found
        return self._asking.request()

    def tick(self, now: float) -> Outcome:
        """End the phases whose deadline has passed."""
        if self._deadline is None or now < self._deadline:
            return self._pull(now)
        return self._advance(now, in_time=False)

    def _obey(self, order: Order, now: float) -> Outcome:
        """Do what an operator orders; nothing that was trained is lost by a pause."""
        self._orders.take(order, (self._round, self._attempt))
        hospital, phase, by = order.hospital, self._phase, f'by {order.envelope.sender}'
        match order.action:
            case 'pause' if phase is not Phase.FINISHED:
                return self._enter(Phase.PAUSED, now, f'paused {by}')
            case 'resume' if phase is Phase.PAUSED:
                return self._enter(Phase.WAITING, now, f'resumed {by}') + self._begin(now)
            case 'stop':
                return self._enter(Phase.FINISHED, now, f'stopped {by}')
            case 'withdraw':
                left = len(self._orders.admitted)
                told = f'{hospital} was withdrawn {by}: {left} hospitals are left'
                if left <= self._quorum:
                    told += f', and a round needs {self._quorum}'
                if hospital in self._inbox.keys and Phase.OPEN <= phase <= Phase.REVEAL:
                    return self._fail(now, told)
                return Outcome(notes=(told,))
        return Outcome()

    def _pull(self, now: float) -> Outcome:
        """Ask hospitals for more of their updates."""
        if self._phase is not Phase.TRAIN:
            return Outcome()
        return Outcome(tuple(self._inbox.updates.ask(self._channel, now)))

    def _take_policy(self, message: GlobalPolicy, now: float) -> Outcome:
        sender = self._channel.accept(message, 'key_authority').name
        round = message.envelope.round
        if self._policy_round is not None and round <= self._policy_round:
            same = round < self._policy_round or message.digest == self._policy_digest
            refusal = LateError if same else RoundError
            raise refusal(sender, f'policy of round {round} is not newer')
        self._policy_round, self._policy_digest = round, message.digest
        if round < self._round:
            return self._begin(now)
        # The released round is over, also when this aggregator was away when it ended.
        self._round = round
        released = self._enter(Phase.RELEASED, now, message.reason)
        self._round, self._attempt = round + 1, 0
        self._declined = {}
        self._store.put_number('attempt', 0)
        self._store.put_number('round', self._round)
        self._inbox = self._new_inbox()
        return released + self._begin(now)

    def _terms_digest(self) -> bytes:
        if self._terms is None:
            return b''
        return self._terms.digest(self._policy_digest, self._channel.roster)

    def _agreed(self) -> bool:
        """Tell whether the present attempt, if there is one, rests on what counts now."""
        under_way = Phase.OPEN <= self._phase <= Phase.SUM
        return not under_way or self._inbox.terms == self._terms_digest()

    def _take_new_key(self, now: float) -> Outcome:
        """End an attempt whose updates nobody can decrypt any more."""
        why = 'the key authority has a new key'
        return self._abandon(now, why) if self._inbox.revealing else self._fail(now, why)

    def _take_verdict(self, message: Verdict, now: float) -> Outcome:
        self._channel.accept(message, 'key_authority')
        ours = attempt_of(message.envelope) == (self._round, self._attempt)
        if self._phase is Phase.SUM and not message.accepted and ours:
            self._asking.refused = len(self._inbox.reveals)
            return self._fail(now, f'the key authority refused: {message.reason}')
        return Outcome()

    # How a round goes on.

    def _advance(self, now: float, *, in_time: bool) -> Outcome:
        """
        Go on if everybody answered, or if enough did and the deadline passed.

        :param in_time: whether the deadline of this phase is still to come.
        """
        inbox = self._inbox
        match self._phase:
            case Phase.OPEN if why := self._unpaid():
                return self._exhaust(now, why)
            case Phase.OPEN:
                return self._gather(now, set(inbox.keys), set(self._orders.admitted), in_time)
            case Phase.SHARE:
                return self._gather(now, set(inbox.shares), set(inbox.keyed), in_time)
            case Phase.TRAIN:
                assert self._terms
                chunks = self._terms.codec.scheme.ciphertexts
                sent = {n for n in inbox.members if inbox.updates.is_complete(n, chunks)}
                return self._gather(now, sent, set(inbox.members), in_time)
            case Phase.SETTLE if len(inbox.settles) >= self._threshold:
                inbox.reveal()
                return self._enter(Phase.REVEAL, now, f'{len(inbox.settles)} survivors signed')
            case Phase.REVEAL if not inbox.lacking() and len(inbox.reveals) > self._asking.refused:
                self._store.sync()
                entered = self._enter(Phase.SUM, now, f'{len(inbox.reveals)} survivors revealed')
                assert self._terms
                return entered + Outcome(jobs=(self._asking.adding(self._terms.public),))
            case _ if in_time:
                return Outcome()
            case Phase.REVEAL if self._asking.refused:
                return self._abandon(now, self._failure)
            case Phase.SETTLE | Phase.REVEAL:
                answers = inbox.settles if self._phase is Phase.SETTLE else inbox.reveals
                late = set(inbox.survivors) - set(answers)
                return self._fail(now, f'no answer in time from {_names(late)}')
            case Phase.SUM:
                self._deadline = now + self._timeouts[Phase.SUM]
                return self._say('waiting for the key authority', now) + self._asking.request()
            case Phase.FAILED:
                return self._open(now, f'again: {self._failure}')
        return Outcome()

    def _gather(self, now: float, here: set[str], wanted: set[str], in_time: bool) -> Outcome:
        """
        Go on in OPEN, SHARE or TRAIN with the hospitals that answered.

        :param here: hospitals that answered.
        :param wanted: hospitals that may answer; nothing waits for those that are left out.
        """
        missing, awaited = wanted - here, wanted - here - self.left_out.keys()
        if in_time and awaited:
            if self._phase is Phase.OPEN and awaited <= self._absent and len(here) >= self._quorum:
                # Who was away the last time too gets the moment that one needs who is back.
                soon = now + self._settings.absent_timeout
                self._deadline = min(soon, self._deadline or soon)
            return Outcome()
        if len(here) < self._quorum:
            if self._phase is not Phase.OPEN:
                late = f'no answer in time from {_names(awaited)}'
                return self._fail(now, late if awaited else f'left out: {_names(missing)}')
            # In a new attempt, whose number is ahead of those that hospitals know of.
            return Outcome() if in_time else self._open(now, f'waiting for {_names(missing)}')
        reason = f'without {_names(missing)}' if missing else 'all hospitals answered'
        names, inbox = tuple(name for name in self._orders.admitted if name in here), self._inbox
        if self._phase is Phase.OPEN:
            inbox.keyed, self._absent, self._slow = names, missing - self._slow, set()
            return self._enter(Phase.SHARE, now, reason)
        if self._phase is Phase.SHARE:
            inbox.members = names
            return self._inbox.deliver(self._channel) + self._enter(Phase.TRAIN, now, reason)
        inbox.settle(names)
        self._note('settle', survivors=names, dropped=tuple(sorted(missing)))
        return self._enter(Phase.SETTLE, now, reason)

    def _unpaid(self) -> str:
        """Say why the admitted hospitals cannot pay for a further round; nothing if they can."""
        admitted = self._orders.admitted
        spent = {
            name: decline.detail
            for name, decline in self._declined.items()
            if decline.reason == DeclineReason.BUDGET and name in admitted
        }
        # With too few admitted ones, the operator admits more.
        if not len(admitted) >= self._quorum > len(admitted) - len(spent):
            return ''
        first, detail = min(spent.items())
        others = f' (and {len(spent) - 1} more)' if len(spent) > 1 else ''
        why = f'{first}: {detail}{others}'
        return f'the privacy budget does not pay for round {self._round}: {why}'

    def _exhaust(self, now: float, why: str) -> Outcome:
        """End the federation: spent budgets never come back."""
        self.exhausted = why
        self._note('fail', reason=why)
        return self._enter(Phase.FINISHED, now, why)

    def _begin(self, now: float) -> Outcome:
        """Open the next attempt if everything for it is there."""
        if self._orders.over:
            return self._enter(Phase.FINISHED, now, 'stopped by an operator')
        ready = self._terms is not None and self._policy_round == self._round - 1
        if self._phase is Phase.SUM and ready:
            return self._asking.request()  # the key authority was away
        if not ready or self._phase not in (Phase.WAITING, Phase.RELEASED):
            return Outcome()
        if self._round > self._settings.rounds:
            return self._enter(Phase.FINISHED, now, 'all rounds are done')
        if self._orders.paused:
            return self._enter(Phase.PAUSED, now, 'paused by an operator')
        return self._open(now, 'again after a restart' if self._attempt else 'a new round')

    def _open(self, now: float, reason: str) -> Outcome:
        """Open a new attempt, or go on in one whose survivors are fixed."""
        inbox = self._inbox
        if self._asking.abandoned:
            return self._enter(Phase.SUM, now, reason) + self._asking.request()
        agreed = inbox.terms == self._terms_digest()
        if inbox.revealing:
            if not agreed or self._asking.is_hopeless(self._orders.admitted, self._threshold):
                return self._abandon(now, self._failure)
            again = inbox.deliver(self._channel) + self._enter(Phase.REVEAL, now, reason)
            return again + self._advance(now, in_time=True)
        if inbox.survivors and self._phase is Phase.WAITING and agreed:
            again = inbox.deliver(self._channel) + self._enter(Phase.SETTLE, now, reason)
            return again + self._advance(now, in_time=True)
        try:
            self._channel.check_roster()
        except RosterError as error:
            return self._fail(now, str(error))
        self._attempt += 1
        self._unaccounted = {}
        self._store.put_number('attempt', self._attempt)
        self._inbox = self._new_inbox()
        self._note('open', members=tuple(self._orders.admitted), reason=reason)
        return self._enter(Phase.OPEN, now, reason)

    def _new_inbox(self) -> Inbox:
        of = (self._round, self._attempt)
        inbox = Inbox(self._channel.roster, self._store, of, self._terms_digest())
        self._asking = Asking(self._channel, inbox)
        return inbox

    def _abandon(self, now: float, why: str) -> Outcome:
        """End a round that can never be summed any more: the older policy is released anew."""
        self._asking.abandoned = True
        if lacking := self._inbox.lacking():
            why = f'too few shares of {_names(lacking)}; {why}'
        return self._enter(Phase.SUM, now, f'abandoned: {why}') + self._asking.request()

    def _fail(self, now: float, reason: str) -> Outcome:
        """End this attempt; the next one opens after a moment, so that failures cannot spin."""
        if self._phase in (Phase.PAUSED, Phase.FINISHED):
            return Outcome()
        if reason != self._failure:
            self._note('fail', reason=reason)
        self._failure = reason
        return self._enter(Phase.FAILED, now, reason)

    def _note(self, kind: str, **fields: Any) -> None:
        of = {'round': self._round, 'attempt': self._attempt}
        self._channel.journal.append(kind, **of, **fields)

    def _enter(self, phase: Phase, now: float, reason: str) -> Outcome:
        self._phase = phase
        timeout = self._timeouts.get(phase)
        self._deadline = None if timeout is None else now + timeout
        return self._say(reason, now)

    def _say(self, reason: str, now: float) -> Outcome:
        inbox = self._inbox
        at = (self._round, self._attempt)
        messages: list[Message] = []
        if self._watch.changed or at != self._acknowledged:
            # Before the status: hospitals take part on heads alone that are as new as it is.
            messages.append(self._watch.acknowledge(self._channel, at))
            self._acknowledged = at
        status = self._channel.seal(
            RoundStatus,
            *at,
            phase=int(self._phase),
            keyed=inbox.keyed,
            members=inbox.members or inbox.keyed or tuple(self._orders.admitted),
            survivors=inbox.survivors,
            time_left=0.0 if self._deadline is None else self._deadline - now,
            policy_digest=self._policy_digest,
            roster_digest=self._channel.roster.digest_bytes,
            terms_digest=self._terms_digest(),
            reason=reason,
        )
        note = f'round {at[0]} attempt {at[1]}: {self._phase.name}, {reason}'
        return Outcome((*messages, status), notes=(note,))


def _names(names: Iterable[str]) -> str:
    return ', '.join(sorted(names)) or 'nobody'
