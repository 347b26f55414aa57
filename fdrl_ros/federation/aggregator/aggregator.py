# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The aggregator's side of a round, phase by phase (FDRL Alg. 1). It holds no secret key.

OPEN: gather round keys. SHARE: gather sealed shares and deliver them. TRAIN: gather masked
updates. INSPECT: let the key authority look at each of them, and leave out what is malformed.
SKETCH: gather signed projections of the masks, and let the key authority leave out what is too
long by them. SETTLE: gather signatures on the survivor set. REVEAL: gather the survivors' shares.
SUM: add the ciphertexts and ask the key authority to decrypt that sum. RELEASED: begin the next
round.

Hospitals that are missing when a phase's deadline passes are left behind, and the others go on if
they are enough. Else the attempt fails, and all admitted hospitals may take part in the next one.
Once enough survivors signed the survivor set, the round is for that set or for none: then there is
no other attempt. The round is abandoned, and the older policy released anew, if hospitals are
silent too often, or too long for such a set, and others are enough for another round.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from fdrl_ros.crypto.masking.buckets import kept, most_kept, within
from fdrl_ros.crypto.masking.share_sealing import check_ends, PARCEL_BYTES
from fdrl_ros.crypto.masking.sketch import Sketch
from fdrl_ros.errors import (
    CryptoError,
    FdrlError,
    LateError,
    LedgerHeadError,
    MessageError,
    OtherKeysError,
    RosterError,
    RoundError,
)
from fdrl_ros.federation.aggregator.state import AggregatorState
from fdrl_ros.federation.protocol import message as protocol
from fdrl_ros.federation.protocol.attempt import (
    delivery_digest,
    read_reveal,
    read_round_key,
    settle_digest,
    split,
)
from fdrl_ros.federation.protocol.blame import (
    judge_complaint,
    key_shown,
    note_blame,
    note_missing_blames,
    restored,
    restores,
    source,
    WORDS,
    wrong_shares,
)
from fdrl_ros.federation.protocol.channel import Channel, RosterMismatches, Takes
from fdrl_ros.federation.protocol.ledger_watch import LedgerWatch
from fdrl_ros.federation.protocol.message import Fault, Message, Phase, shortened, UNDER_WAY
from fdrl_ros.federation.protocol.orders import StandingOrders
from fdrl_ros.federation.protocol.party import Effects, Job, Report, Stopped
from fdrl_ros.federation.protocol.request_parts import split_request
from fdrl_ros.federation.protocol.sketches import (
    bound_of,
    disputed,
    false_sketches,
    MOST_SKETCHES,
    read_sketch,
)
from fdrl_ros.federation.protocol.store import Store
from fdrl_ros.federation.protocol.update_codec import open_key, Terms
from fdrl_ros.federation.settings import RoundSettings

ANSWERS = (
    protocol.RoundKey,
    protocol.Shares,
    protocol.MaskedUpdate,
    protocol.Sketch,
    protocol.Settle,
    protocol.Reveal,
)
"""Kinds of messages with which hospitals answer to the phases of an attempt."""

_MOST_SILENCES = MOST_SKETCHES  # attempts of a round that may fail for one hospital's silence
_SILENT_ROUNDS = 2  # rounds abandoned for a hospital's silence until it is blamed
_NO_PROOF: dict[str, Any] = {'keyed': (), 'keys_digest': b''}  # evidence of a blame without any
_PATIENCE = 3  # attempts that wait for hospitals without whom too few of a bucket are left
_FORESIGHT = 100  # rounds in whose buckets those that are there may be summed without them


@dataclass
class _Decryption:
    """
    What becomes of one attempt's sum; it is made anew after a restart.

    :param sum_hash: SHA-256 over the sums; the request waits for it.
    :param refused: how many reveals the newest request had that the key authority refused.
    :param parts: fields of each part of the newest request.
    """

    sum_hash: bytes = b''
    refused: int = 0
    parts: list[dict[str, Any]] = field(default_factory=list)


class Aggregator:
    """Moves the rounds: a plain object that a driver moves; see :class:`Party`."""

    takes: Takes = {
        **dict.fromkeys(ANSWERS, ('hospital',)),
        protocol.Complaint: ('hospital',),
        protocol.Decline: ('hospital',),
        protocol.EncryptionKey: ('key_authority',),
        protocol.GlobalPolicy: ('key_authority',),
        protocol.Objection: ('hospital',),
        protocol.Opening: ('hospital',),
        protocol.Order: ('operator',),
        protocol.Verdict: ('key_authority',),
        protocol.Wanted: ('key_authority',),
    }

    def __init__(self, channel: Channel, settings: RoundSettings, store: Store) -> None:
        """Go on from the state in `store`, or begin with round 1."""
        self.channel = channel
        self._settings = settings
        self._timeouts = {
            Phase.OPEN: settings.open_timeout,
            Phase.SHARE: settings.share_timeout,
            Phase.TRAIN: settings.train_timeout,
            Phase.INSPECT: settings.sum_timeout,
            Phase.SKETCH: settings.settle_timeout,
            Phase.SETTLE: settings.settle_timeout,
            Phase.REVEAL: settings.reveal_timeout,
            Phase.SUM: settings.sum_timeout,
            Phase.FAILED: settings.retry_delay,
        }
        self._quorum = max(settings.quorum, channel.roster.quorum)
        self.orders = StandingOrders(channel, store)
        self.state = AggregatorState(channel.roster, store)
        """What the aggregator keeps of the round."""
        self.state.recover(self.orders, channel)
        self.state.load()
        self.phase = Phase.WAITING
        """The present phase."""
        self._deadline: float | None = None
        self._policy_digest = b''
        self._policy_round: int | None = None
        self._terms: Terms | None = None
        self.watch = LedgerWatch(store)
        self._failure = ''
        self._mismatches = RosterMismatches(channel)
        self._absent: set[str] = set()
        self._slow: set[str] = set()
        self._acknowledged = (-1, 0)
        self._declined: dict[str, protocol.Decline] = {}  # in this round
        self._unaccounted: dict[str, str] = {}  # in this attempt
        self._decryption = _Decryption()
        self._sent: tuple[str, ...] = ()  # whose whole update is here, until it is inspected
        self._nonce = b''
        self._silent: set[str] = set()  # in this attempt, once others had trained
        self._disputed: set[tuple[str, str]] = set()
        self.exhausted = ''
        """Why no further round can be paid for; empty while one can."""
        self.reason = ''
        """Why the phase is what it is, as the last status says."""

    @property
    def round(self) -> int:
        """The present round."""
        return self.state.record.round

    @property
    def attempt(self) -> int:
        """The present attempt at the round."""
        return self.state.record.attempt

    @property
    def left_out(self) -> dict[str, str]:
        """Hospitals that take no part in the present round, with the reason in words."""
        declined = {name: decline.detail for name, decline in self._declined.items()}
        return declined | self._unaccounted | self.orders.guilty

    @property
    def _needed(self) -> tuple[str, ...]:
        """Whom this attempt waits for: admitted, and in the round's sum, if that is bound."""
        bound, admitted = self.state.record.bound, self.orders.admitted
        return tuple(name for name in admitted if not bound or name in bound)

    @property
    def _fewest(self) -> int:
        """How many hospitals an attempt needs: all, if shares were revealed for its sum before."""
        return max(self._quorum, len(self.state.record.bound))

    def start(self, now: float) -> Effects:
        """Publish where the federation stands; rounds begin when the first policy is there."""
        self.orders.note()
        blames = self.state.blames()
        note_missing_blames(self.channel.journal, blames)  # it may have been killed before
        return Effects(blames) + self._publish_status('waiting for the key authority', now)

    def tick(self, now: float) -> Effects:
        """End the phases whose deadline has passed."""
        if self._deadline is None or now < self._deadline:
            return self._pull(now)
        return self._advance(now, in_time=False)

    def handle(self, message: Message, now: float) -> Effects:
        """Take a message; see :class:`Party`."""
        if isinstance(message, protocol.Order):
            return self._obey(message, now)
        self.channel.check(message, self.takes, 'the aggregator')
        match message:
            case protocol.Complaint():
                return self._take_complaint(message, now)
            case protocol.Decline():
                return self._take_decline(message, now)
            case protocol.Opening():
                return self._take_opening(message, now)
            case protocol.Wanted():
                return self._relay(message)
            case protocol.Verdict():
                return self._take_verdict(message, now)
            case protocol.GlobalPolicy():
                return self._take_policy(message, now)
            case protocol.EncryptionKey():
                return self._take_key(message, now)
            case protocol.Objection():
                return self._mismatches.take(message)
        return self._take_answer(message, now)

    def finish(self, job: Job, result: object, now: float) -> Effects:
        """Take the hash of the sum, and ask for its decryption."""
        if isinstance(result, Exception):
            raise result
        assert isinstance(result, tuple)
        decryption, found = result
        if decryption is not self._decryption or self.phase is not Phase.SUM:
            return Effects()  # the round went on without it
        if isinstance(found, CryptoError):
            return self._fail(now, f'the updates cannot be added: {found}')
        if isinstance(found, Exception):
            raise found
        decryption.sum_hash = found
        return self._request()

    # What hospitals answer, and how a phase ends.

    def _take_answer(self, message: Message, now: float) -> Effects:
        """
        Keep what a hospital sends in an attempt, and go on if it was the last answer.

        :raises MessageError: if it does not belong into this attempt as it stands.
        """
        sender, attempt = message.sender, message.id
        if isinstance(message, protocol.RoundKey):
            self._slow.add(sender)  # if it is late, it is not away: it is waited for the next time
        if sender in self._unaccounted:
            raise RoundError(sender, f'is left out of this attempt: {self._unaccounted[sender]}')
        if attempt != self.state.record.id:
            refusal = LateError if attempt < self.state.record.id else RoundError
            raise refusal(
                sender, f'{type(message).__name__} of {attempt}, now at {self.state.record.id}'
            )
        try:
            new = self._check_answer(message)
        except (LedgerHeadError, OtherKeysError) as error:
            return self._leave_out(error, now)
        except MessageError as error:
            if not isinstance(message, protocol.Sketch) or isinstance(error, RoundError):
                raise
            self._sent = tuple(name for name in self._sent if name != sender)
            return self._blame_alone([sender], Fault.MALFORMED) + self._advance(now, in_time=True)
        if not new:  # after a restart a hospital sends the same again
            return self._pull(now) + self._show_again(message)
        if isinstance(message, protocol.Reveal) and (evidence := self._false_reveal(message)):
            return self._convict(Fault.REVEAL, {sender: evidence}, now)
        self.state.add(message)
        return self._pull(now) + self._advance(now, in_time=True)

    def _check_answer(self, message: Message) -> bool:
        """Check an answer of any kind; return whether it is to be kept."""
        match message:
            case protocol.RoundKey():
                return self._check_key(message)
            case protocol.Shares():
                return self._check_shares(message)
            case protocol.MaskedUpdate():
                return self._check_update(message)
            case protocol.Sketch():
                return self._check_sketch(message)
            case protocol.Settle() | protocol.Reveal():
                return self._check_settled(message)
        raise AssertionError(f'an answer of kind {type(message).__name__}')

    def _is_new(self, message: Message, *, known: bool, awaited: bool) -> bool:
        """
        Tell whether a message is to be checked and kept.

        :raises RoundError: if it is new, and not awaited in this phase.
        """
        if not known and not awaited:
            # Who answers to an attempt that was paused or given up cannot know of that yet.
            over = self.phase not in UNDER_WAY or self.state.abandoned
            refusal = LateError if over else RoundError
            raise refusal(message.sender, f'{type(message).__name__} in phase {self.phase.name}')
        return not known

    def _advance(self, now: float, *, in_time: bool) -> Effects:
        """
        Go on if everybody answered, or if enough did and the deadline passed.

        :param in_time: whether the deadline of this phase is still to come.
        """
        match self.phase:
            case Phase.OPEN:
                return self._end_open(now, in_time)
            case Phase.SHARE:
                return self._end_share(now, in_time)
            case Phase.TRAIN:
                return self._end_train(now, in_time)
            case Phase.SKETCH:
                return self._end_sketch(now, in_time)
            case Phase.SETTLE:
                return self._end_settle(now, in_time)
            case Phase.REVEAL:
                return self._end_reveal(now, in_time)
            case Phase.INSPECT | Phase.SUM if not in_time:
                self._deadline = now + self._timeouts[self.phase]
                status = self._publish_status('waiting for the key authority', now)
                return status + self._request()
            case Phase.FAILED if not in_time:
                return self._open(now, f'again: {self._failure}')
        return Effects()

    def _gathered(
        self, now: float, here: set[str], wanted: set[str], in_time: bool
    ) -> tuple[str, ...] | Effects:
        """
        Return the hospitals that OPEN, SHARE or TRAIN ends with, or what to do before it ends.

        :param here: hospitals that answered.
        :param wanted: hospitals that may answer; nothing waits for those that are left out.
        """
        missing, awaited = wanted - here, wanted - here - self.left_out.keys()
        answered = here
        if not in_time or not awaited:
            # Nobody takes part who has too few neighbours that do, or all without witnesses.
            here = set(self.channel.roster.neighbourhoods.able(here))
        if in_time and awaited:
            if self.phase is Phase.OPEN and awaited <= self._absent and len(here) >= self._fewest:
                # A hospital that was away the last time gets the moment that it needs if it is
                # back.
                soon = now + self._settings.absent_timeout
                self._deadline = min(soon, self._deadline or soon)
            return Effects()
        if len(here) < self._fewest:
            why, bound = self._told(missing), self.state.record.bound
            # Whether others wait in vain who would be enough without those that are missing.
            left = {*self.orders.admitted} - missing if bound else answered
            enough = len(left) >= self._quorum
            if self.phase is not Phase.OPEN:
                self._silent |= missing - self.orders.guilty.keys()
                return self._fail_silent(now, why) if enough else self._fail(now, why)
            if in_time:
                return Effects()
            if bound and enough and self._waited_long('for keys', self._settings.open_timeout):
                return self._abandon(now, why)
            # In a new attempt, whose number is ahead of those that hospitals know of.
            every = {each.name for each in self.channel.roster.hospitals}
            others = _names(every.difference(self.orders.admitted))
            told = f'too few hospitals are admitted: an operator can admit {others}'
            return self._open(now, f'waiting for {_names(missing)}' if missing else told)
        return tuple(name for name in self.orders.admitted if name in here)

    # Phase OPEN: begin an attempt and gather round keys.

    def _begin(self, now: float) -> Effects:
        """Open the next attempt if everything for it is there."""
        if self.orders.over:
            return self._enter(Phase.FINISHED, now, 'stopped by an operator')
        ready = self._terms is not None and self._policy_round == self.round - 1
        if self.phase in (Phase.INSPECT, Phase.SUM) and ready:
            return self._request()  # the key authority was away
        if not ready or self.phase not in (Phase.WAITING, Phase.RELEASED):
            return Effects()
        if self.round > self._settings.rounds:
            return self._enter(Phase.FINISHED, now, 'all rounds are done')
        # The round for which the aggregator paused by itself is released first.
        if self.orders.paused and not (self.orders.paused_for and self.state.abandoned):
            since = f', since {why}' if (why := self.orders.paused_for) else ''
            return self._enter(Phase.PAUSED, now, f'paused until an operator resumes{since}')
        again = 'again after a restart or a pause'
        return self._open(now, again if self.attempt else 'a new round')

    def _open(self, now: float, reason: str) -> Effects:
        """Open a new attempt, or go on in one whose survivors are fixed."""
        state, agreed = self.state, self.state.record.terms == self._terms_digest()
        if state.abandoned:
            return self._enter(Phase.SUM, now, reason) + self._request()
        if state.revealing:
            if not agreed or self._is_hopeless():
                return self._abandon(now, self._failure)
            again = self._hand_on() + self._enter(Phase.REVEAL, now, reason)
            return again + self._advance(now, in_time=True)
        # Nothing is revealed in this attempt: who was withdrawn meanwhile is not summed.
        admitted = {*state.record.survivors} <= {*self.orders.admitted}
        if state.record.survivors and self.phase is Phase.WAITING and agreed and admitted:
            again = self._hand_on() + self._enter(Phase.SETTLE, now, reason)
            return again + self._advance(now, in_time=True)
        most = max(self._silences.values(), default=0)
        if state.sketchings >= MOST_SKETCHES or most >= _MOST_SILENCES:
            return self._end_unsummed(now)
        try:
            self.channel.check_roster()
        except RosterError as error:
            return self._fail(now, str(error))
        self._unaccounted, self._silent = {}, set()
        state.open((self.round, self.attempt + 1), self._terms_digest())
        self._decryption = _Decryption()
        if (ended := self._end_with_too_few(now)) is not None:
            return ended
        self._note('open', members=self._needed, reason=reason)
        return self._enter(Phase.OPEN, now, reason)

    def _check_key(self, message: protocol.RoundKey) -> bool:
        sender = message.sender
        if sender not in self._needed:
            raise RoundError(sender, 'is not admitted, or not in the sum that this round must be')
        roster = self.channel.roster
        keys, known = read_round_key(message, roster), self.state.keys.get(sender)
        try:
            keys.check()
        except CryptoError as error:
            raise MessageError(sender, str(error)) from error
        if known is not None and read_round_key(known, roster) != keys:
            raise OtherKeysError(sender, 'other round keys than before in the same attempt')
        declined = self._declined.get(sender)
        if declined is not None and declined.reason == protocol.DeclineReason.LEDGER:
            del self._declined[sender]  # its ledger was mended: the next attempt waits for it
        new = self._is_new(message, known=known is not None, awaited=self.phase is Phase.OPEN)
        if new:
            self._declined.pop(sender, None)
        return new

    def _end_open(self, now: float, in_time: bool) -> Effects:
        if why := self._unpaid():
            self.exhausted = why  # spent budgets never come back
            self._note('fail', reason=why)
            return self._enter(Phase.FINISHED, now, why)
        here, needed = set(self.state.keys), set(self._needed)
        names = self._gathered(now, here, needed, in_time)
        if isinstance(names, Effects):
            return names
        self.state.fix(names)
        missing = needed - here
        self._absent, self._slow = missing - self._slow, set()
        return self._hand_on_keys() + self._enter(Phase.SHARE, now, _without(missing))

    def _hand_on_keys(self) -> Effects:
        """Tell each keyed hospital what its peers published for it."""
        record, effects = self.state.record, Effects()
        for to in sorted(record.keyed):
            found = self.state.peer_keys(to)
            effects += self.channel.send(protocol.PeerKeys, record.id, to=to, **found)
        return effects

    def _take_decline(self, message: protocol.Decline, now: float) -> Effects:
        """Go on without a hospital that takes no part in this round."""
        sender, round = message.sender, message.envelope.round
        if round != self.round:
            refusal = LateError if round < self.round else RoundError
            raise refusal(sender, f'declines round {round}, now at {self.round}')
        if message.reason not in set(protocol.DeclineReason) or not message.detail.isprintable():
            raise MessageError(sender, f'declines for {message.reason}: {message.detail[:80]!r}')
        if sender in self._declined or self.phase is Phase.FINISHED:
            return Effects()
        self._declined[sender] = message
        note = f'{sender} takes no part in round {round}: {message.detail}'
        return Effects(notes=(note,)) + self._advance(now, in_time=True)

    @property
    def _spent(self) -> dict[str, str]:
        """Admitted hospitals whose budget does not pay for this round, with what they say."""
        return {
            name: decline.detail
            for name, decline in self._declined.items()
            if decline.reason == protocol.DeclineReason.BUDGET and name in self.orders.admitted
        }

    def _unpaid(self) -> str:
        """Explain why the admitted hospitals cannot pay for a further round; empty if they can."""
        admitted, spent = self.orders.admitted, self._spent
        # With too few admitted ones, the operator admits more.
        able = self._most(len(admitted))
        if not able >= self._quorum > self._most(len(admitted) - len(spent)):
            return ''
        first, detail = min(spent.items())
        others = f' (and {len(spent) - 1} more)' if len(spent) > 1 else ''
        why = f'{first}: {detail}{others}'
        return f'the privacy budget does not pay for round {self.round}: {why}'

    # Phase SHARE: gather sealed shares, and deliver to each member what is for it.

    def _check_shares(self, message: protocol.Shares) -> bool:
        sender, state = message.sender, self.state
        known, awaited = sender in state.shares, self.phase is Phase.SHARE
        if not self._is_new(message, known=known, awaited=awaited):
            return False
        if sender not in state.record.keyed:
            raise RoundError(sender, 'shares of a hospital whose keys are not in the list')
        if message.keys_digest != state.key_list.digest:
            raise RoundError(sender, 'shares for another list of keys')
        keys = state.key_list
        parcels = split(message.parcels, PARCEL_BYTES, keys.holders(sender), sender, 'parcels')
        try:
            for holder, parcel in parcels.items():
                check_ends(keys, sender, holder, parcel)
        except CryptoError as error:
            raise MessageError(sender, str(error)) from error
        return True

    def _end_share(self, now: float, in_time: bool) -> Effects:
        here, keyed = set(self.state.shares), set(self.state.record.keyed)
        names = self._gathered(now, here, keyed, in_time)
        if isinstance(names, Effects):
            return names
        # Before they train: whom too few are with in a bucket trains and pays for nothing.
        if len(members := self._kept(names)) < self._fewest:
            self._silent |= keyed - here - self.orders.guilty.keys()
            return self._fail_alone(now, names)
        self.state.fix(self.state.record.keyed, members)
        return self._deliver() + self._enter(Phase.TRAIN, now, _without(keyed - {*members}))

    def _kept(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return the hospitals, of some, of whom enough are in one bucket to be summed."""
        return kept(self.channel.roster.buckets_of(self.round), names)

    def _fail_alone(self, now: float, names: tuple[str, ...]) -> Effects:
        """
        Wait for whoever would be summed with these hospitals, of whom enough are there.

        Some may never come. If it was in vain in some attempts, and in a later round these could
        be summed without the others, this one ends with the older policy. If they could not, and
        those who are missing are guilty or have spent their budget, all rounds end.
        """
        record, there = self.state.record, {*names}
        missing = {*self._needed, *self.orders.guilty} - there
        why = self._told(missing, there - {*self._kept(names)})
        self.state.note_silences(self._silent)
        when = 'after training' if record.members else 'before training'
        if record.bound or self.state.note_wait(when) < _PATIENCE:
            return self._fail(now, why)
        if record.members:
            # Who shared, and is with too few in a bucket, did not have to train, but is there.
            there |= self.state.shares.keys() - {*record.members}
        later = range(self.round + 1, min(self._settings.rounds, self.round + _FORESIGHT) + 1)
        dealt = map(self.channel.roster.buckets_of, later)
        if any(len(kept(buckets, tuple(there))) >= self._fewest for buckets in dealt):
            silent = self._most_silent()
            if not record.members:  # who is back did not stop this attempt
                silent = [name for name in silent if name not in there]
            # Once is no reason for blame: they may have crashed.
            return self._abandon(now, why, silent, _SILENT_ROUNDS)
        if {*self._needed} - there - self._spent.keys():
            return self._fail(now, why)
        self.exhausted = f'{why}, and nobody else can pay or is admitted'
        self._note('fail', reason=self.exhausted)
        return self._enter(Phase.FINISHED, now, self.exhausted)

    @property
    def _silences(self) -> dict[str, int]:
        """In how many attempts of this round admitted hospitals were silent."""
        admitted = self.orders.admitted
        return {name: count for name, count in self.state.silences.items() if name in admitted}

    def _told(self, missing: Collection[str], alone: Collection[str] = ()) -> str:
        """Say who is missing, and of whom too few are in one bucket without these."""
        left_out = self.left_out.keys() & missing
        groups = {
            'too few of one bucket:': {*alone},
            'no answer in time from': {*missing} - left_out,
            'left out:': left_out,
        }
        told = (f'{why} {_names(names)}' for why, names in groups.items() if names)
        return '; '.join(told)

    def _waited_long(self, what: str, timeout: float) -> bool:
        """
        Note a wait in vain; tell whether those of this round are as long as training may take.

        :param timeout: length of one wait, second.
        """
        waits = self.state.note_wait(what)
        return waits >= _MOST_SILENCES and waits * timeout >= self._settings.train_timeout

    def _most_silent(self) -> list[str]:
        """
        Return the admitted hospitals that were silent most often in this round.

        That is in more than half as many attempts as the one that was in most: some may take
        turns, and who was late once beside them is none of them.
        """
        silences = self._silences
        most = max(silences.values(), default=0)
        return [name for name, count in silences.items() if 2 * count > most]

    def _most(self, left: int) -> int:
        """Return how many of the hospitals that are left can be summed, in the best of rounds."""
        roster = self.channel.roster
        every = len(roster.hospitals)
        return most_kept(every, roster.buckets, every - left)

    def _hand_on(self) -> Effects:
        """Send all that hospitals need of each other again, after a restart."""
        return self._hand_on_keys() + self._deliver()

    def _deliver(self) -> Effects:
        """Hand each member what the others sealed for it."""
        record, effects = self.state.record, Effects()
        for to in sorted(record.members):
            dealers = [name for name in self.state.dealers(to) if name != to]
            shares = tuple(self.state.shares[name].bare() for name in dealers)
            dealt = self.state.dealt(to, dealers)
            effects += self.channel.send(
                protocol.Delivery, record.id, to=to, shares=shares, **dealt
            )
        return effects

    # Phase TRAIN: gather masked updates, chunk by chunk.

    def _check_update(self, message: protocol.MaskedUpdate) -> bool:
        """
        Check a chunk of an update, and that the sender's privacy ledger has all that was seen.

        :raises LedgerHeadError: if the ledger lacks something.
        """
        sender, state, terms = message.sender, self.state, self._terms
        known, awaited = state.updates.is_known(message), self.phase is Phase.TRAIN
        if not self._is_new(message, known=known, awaited=awaited):
            return False
        assert terms is not None
        if sender not in state.record.members:
            raise RoundError(sender, 'update of a hospital that is no member of this attempt')
        chunks, number = terms.codec.scheme.ciphertexts, message.chunk
        wrong = message.chunks != chunks or not 0 <= number < chunks
        if wrong or state.updates.has(sender, number):
            raise MessageError(sender, f'chunk {number} of {message.chunks}')
        if message.setup_digest != state.setup_digest:
            raise RoundError(sender, 'masked for other members')
        if message.base_digest != self._policy_digest:
            raise RoundError(sender, 'trained from another policy')
        try:
            terms.public.residues(message.ciphertext)
        except CryptoError as error:
            raise MessageError(sender, str(error)) from error
        self.watch.take(message)
        return True

    def _leave_out(self, error: LedgerHeadError | OtherKeysError, now: float) -> Effects:
        """Go on without a hospital that lost what it had, and tell it which head was seen."""
        self._unaccounted[error.sender] = error.detail
        note = f'{error.sender} is left out of round {self.round}: {error.detail}'
        heads = self.watch.acknowledge(self.channel, self.state.record.id)
        return heads + Effects(notes=(note,)) + self._advance(now, in_time=True)

    def _pull(self, now: float) -> Effects:
        """Ask hospitals for more of their updates, a little at a time."""
        if self.phase is not Phase.TRAIN:
            return Effects()
        pulled = Effects()
        for name, (first, count) in self.state.updates.wanted(now):
            chunks = {'to': name, 'first': first, 'count': count}
            pulled += self.channel.send(protocol.Wanted, self.state.record.id, **chunks)
        return pulled

    def _end_train(self, now: float, in_time: bool) -> Effects:
        members = set(self.state.record.members)
        here = self.state.updates.whole() & members
        missing = members - here
        if not in_time or not missing - self.left_out.keys():
            # Whatever it says of itself now: the others trained with it, and it was to take part.
            self._silent |= missing - self.orders.guilty.keys()
            there = here | (self.state.shares.keys() - members)
            if self.channel.roster.buckets and len(here) < self._fewest <= len(there):
                return self._fail_alone(now, tuple(sorted(here)))
        names = self._gathered(now, here, members, in_time)
        if isinstance(names, Effects):
            return names
        # Before they project: of whom is not summed, nobody has to see projections.
        whole = self._summable(now, names)
        if isinstance(whole, Effects):
            return whole
        self._sent, self._disputed = whole, set()
        assert self._terms
        if not self._terms.codec.scheme.inspected:
            return self._fix_survivors(now)
        return self._enter(Phase.INSPECT, now, _without(members - here)) + self._request()

    # Phases INSPECT and SKETCH: let the key authority look at each update, and bound it.

    def _take_inspection(self, message: protocol.Verdict, now: float) -> Effects:
        """Leave out whose update the key authority refused, and go on with the others."""
        if not message.accepted:
            return self._fail(now, f'the key authority refused: {message.reason}')
        if not message.inspected or message.bounded != bool(self.state.sketches):
            return Effects()  # it is under way
        refused = [name for name in self._sent if name in message.refused]
        why = 'its privacy ledger lacks what the key authority saw'
        self._unaccounted |= dict.fromkeys(message.unaccounted, why)
        self._silent |= {*message.unaccounted}.intersection(self._sent)
        without = {*refused, *message.unaccounted}
        self._sent = tuple(name for name in self._sent if name not in without)
        evidence = dict.fromkeys(refused, {'verdicts': (message,)})
        blamed = self._publish_blame(Fault.UPDATE, evidence)
        assert self._terms
        if self._terms.codec.bound is None or self.state.sketches:
            return blamed + self._fix_survivors(now)
        self._nonce = message.nonce
        self.state.note_sketching()
        return blamed + self._enter(Phase.SKETCH, now, 'all updates are sent')

    def _check_sketch(self, message: protocol.Sketch) -> bool:
        sender, state = message.sender, self.state
        known, awaited = sender in state.sketches, self.phase is Phase.SKETCH
        if not self._is_new(message, known=known, awaited=awaited):
            return False
        asked = (state.setup_digest, self._nonce)
        if sender not in self._sent or (message.setup_digest, message.nonce) != asked:
            raise RoundError(sender, 'signed projections that were not asked for')
        assert self._terms
        read_sketch(message, state.key_list, state.record.members, self._terms.codec)
        return True

    def _end_sketch(self, now: float, in_time: bool) -> Effects:
        """Go on with those who signed, once no two of them contradict each other."""
        state = self.state
        signed = tuple(name for name in self._sent if name in state.sketches)
        missing = set(self._sent) - set(signed)
        if in_time and (missing - self.left_out.keys() or not signed):
            return Effects()
        self._silent |= missing - self.orders.guilty.keys()
        disputes = self._disputes(signed)
        if new := set(disputes) - self._disputed:
            # All have the whole time to open masks: who lies at the last moment is found too.
            self._sent, self._disputed = signed, self._disputed | new
            self._deadline = now + self._timeouts[Phase.SKETCH]
            return self._show_disputes(new)
        if disputes and in_time:
            return Effects()
        # Who did not open a disputed mask in time is away, or lies: which of both is not known.
        silent = {name for pair in disputes for name in pair}
        self._silent |= silent
        self._sent = tuple(name for name in signed if name not in silent)
        if len(self._sent) < self._fewest:
            return self._fix_survivors(now)  # which fails, and says why
        return self._enter(Phase.INSPECT, now, 'projections were signed') + self._request()

    def _end_unsummed(self, now: float) -> Effects:
        """
        Abandon a round whose attempts fail: hospitals are silent, or sign no more projections.

        Who was silent most often is not admitted any more, so that the others do not train and
        pay again for a round that ends in the same way. If most attempts failed for other
        reasons, as restarts, nobody is blamed.
        """
        silent = self._most_silent()
        if 2 * self.state.silent_attempts(silent) < _MOST_SILENCES:
            silent = []
        why = 'hospitals sign no more projections of its updates'
        if (most := max(self._silences.values(), default=0)) >= _MOST_SILENCES:
            why = f'no answer that counts came from {_names(silent)} in {most} attempts'
        return self._abandon(now, why, silent)

    def _blame_alone(self, names: Collection[str], fault: Fault) -> Effects:
        """Admit hospitals no more on this aggregator's word, which is no proof."""
        return self._publish_blame(fault, dict.fromkeys(names, _NO_PROOF))

    def _show_disputes(self, pairs: Collection[tuple[str, str]], to: str = '') -> Effects:
        """
        Show each end of some pairs what the other one signed.

        :param to: the only end to show it to; all if empty.
        """
        effects, state = Effects(), self.state
        for one, other in sorted(pairs):
            for end, peer in ((one, other), (other, one)):
                if to in ('', end):
                    sketch = state.sketches[peer]
                    effects += self.channel.send(
                        protocol.Dispute, state.record.id, to=end, sketch=sketch
                    )
        return effects

    def _show_again(self, message: Message) -> Effects:
        """Show open disputes to a hospital that signed again: it could not answer before."""
        if not isinstance(message, protocol.Sketch) or self.phase is not Phase.SKETCH:
            return Effects()
        sender, here = message.sender, set(self._sent)
        pairs = [pair for pair in self._disputed if sender in pair and here.issuperset(pair)]
        return self._show_disputes(pairs, sender)

    def _disputes(self, names: tuple[str, ...]) -> list[tuple[str, str]]:
        """Return the pairs of hospitals that signed different projections of their mask."""
        assert self._terms
        codec, state = self._terms.codec, self.state
        keys, members = state.key_list, state.record.members
        values = {name: read_sketch(state.sketches[name], keys, members, codec) for name in names}
        return list(disputed(values))

    def _take_opening(self, message: protocol.Opening, now: float) -> Effects:
        """
        Convict who lied about a mask that one of its ends showed.

        :raises RoundError: if there is no such dispute.
        """
        sender, peer, state = message.sender, message.peer, self.state
        pair = (min(sender, peer), max(sender, peer))
        ours, known = message.id == state.record.id, pair in self._disputed
        over = self.phase is not Phase.SKETCH or not set(pair) <= set(self._sent)
        if message.id < state.record.id or (ours and known and over):
            raise LateError(sender, f'opens a mask with {peer[:40]!r} after the dispute')
        if not (ours and known) or message.keys_digest != state.key_list.digest:
            raise RoundError(sender, f'opens a mask with {peer[:40]!r} that is not in dispute')
        assert self._terms
        bound, members = bound_of(self._terms.codec), state.record.members
        try:
            key, _ = key_shown(state.key_list, members, sender, (sender, peer), message.secret)
        except CryptoError as error:
            raise MessageError(sender, str(error)) from error
        (true,) = Sketch(self._nonce, state.setup_digest, bound).of_masks([key])
        evidence = {}
        for name, other in (pair, pair[::-1]):
            sketch = state.sketches.get(name)
            keys, codec = state.key_list, self._terms.codec
            if sketch and read_sketch(sketch, keys, members, codec)[other] != true:
                shown = self._shown(name, (sender, peer), message.secret)
                evidence[name] = {'sketches': (sketch,), **shown}
        if evidence and state.record.bound:  # the next attempt is for the same survivors without
            return self._convict(Fault.SKETCH, evidence, now)
        blamed = self._publish_blame(Fault.SKETCH, evidence)
        self._sent = tuple(name for name in self._sent if name not in evidence)
        return blamed + self._advance(now, in_time=True)

    def _shown(self, guilty: str, ends: tuple[str, ...], secret: bytes) -> dict[str, Any]:
        """Return what proves of which mask a secret is: fields of Blame."""
        shown: dict[str, Any] = {'ends': ends, 'secret': secret}
        if len(ends) == 1:
            return shown | self._listed(guilty)
        (other,) = {*ends} - {guilty}
        keys = self.state.key_list
        pairs = keys.pair(guilty, other) + keys.pair(other, guilty)
        dealt = (self.state.shares[guilty].bare(),)
        return shown | {'pairs': pairs, 'dealt': dealt, **self.state.dealt(other, [guilty])}

    def _listed(self, guilty: str) -> dict[str, Any]:
        """Return what proves which keys a hospital published: fields of Blame."""
        path = self.state.key_paths[guilty]
        return {'keys': (self.state.keys[guilty],), 'keys_path': path}

    def _fix_survivors(self, now: float) -> Effects:
        """Go on with those whose whole update is here, and in order."""
        members, names = set(self.state.record.members), self._summable(now, self._sent)
        if isinstance(names, Effects):
            return names
        dropped = members - set(names)
        self.state.fix_survivors(names)
        self._note('settle', survivors=names, dropped=tuple(sorted(dropped)))
        return self._enter(Phase.SETTLE, now, _without(dropped))

    def _summable(self, now: float, names: tuple[str, ...]) -> tuple[str, ...] | Effects:
        """Return the hospitals that can be summed; fail the attempt if these are too few."""
        members, graph = self.state.record.members, self.channel.roster.neighbourhoods
        if len(names) < self._fewest:
            missing = {*members} - {*names}
            alone = missing - self._silent - self.left_out.keys()
            return self._fail_silent(now, self._told(missing - alone, alone))
        if len(whole := self._kept(names)) < self._fewest:
            return self._fail_alone(now, names)
        if lacking := graph.lacking(members, whole):
            return self._fail_silent(now, f'too few hold shares of {_names(lacking)}')
        signing = len(graph.witnesses.intersection(whole))
        if signing < graph.agreeing:
            return self._fail_silent(now, f'{signing} witnesses are too few')
        return whole

    # Phases SETTLE and REVEAL: gather signatures on the survivors, then their shares.

    def _check_settled(self, message: protocol.Settle | protocol.Reveal) -> bool:
        sender, state, record = message.sender, self.state, self.state.record
        answers = state.settles if isinstance(message, protocol.Settle) else state.reveals
        # Once survivors are fixed in whatever phase: it is sent once, and needed later.
        if not self._is_new(message, known=sender in answers, awaited=bool(record.survivors)):
            return False
        told = settle_digest(state.setup_digest, record.survivors)
        if sender not in record.survivors or message.settle_digest != told:
            raise RoundError(sender, 'signed other survivors')
        if isinstance(message, protocol.Settle) and sender not in self._witnesses:
            raise RoundError(sender, 'signed the survivors, and is no witness')
        if isinstance(message, protocol.Reveal):
            read_reveal(message, state.key_list, set(record.members))
            dealers = [name for name in state.dealers(sender) if name != sender]
            delivered = delivery_digest(state.dealt(sender, dealers)['parcels'])
            if message.delivery_digest != delivered:
                raise RoundError(sender, 'reveals shares of other parcels than were delivered')
        elif message.update_hash != state.updates.hashes((sender,)):
            # Who lost its state made its update anew; the key authority would refuse the sum.
            raise RoundError(sender, 'signed another update than it sent')
        return True

    def _end_settle(self, now: float, in_time: bool) -> Effects:
        signed = len(self.state.settles)
        if signed >= self.channel.roster.neighbourhoods.agreeing:
            self.state.fix_round()
            return self._enter(Phase.REVEAL, now, f'{signed} survivors signed')
        if in_time:
            return Effects()
        late = self._witnesses.intersection(self.state.record.survivors) - {*self.state.settles}
        self._silent |= late
        return self._fail_silent(now, self._told(late))

    @property
    def _witnesses(self) -> frozenset[str]:
        """Hospitals that sign who survived."""
        return self.channel.roster.neighbourhoods.witnesses

    def _end_reveal(self, now: float, in_time: bool) -> Effects:
        state, decryption = self.state, self._decryption
        if state.restorable and len(state.reveals) > decryption.refused:
            state.sync()
            reason = f'{len(state.reveals)} survivors revealed'
            return self._enter(Phase.SUM, now, reason) + Effects(jobs=(self._adding_job(),))
        if in_time:
            return Effects()
        if decryption.refused:
            return self._abandon(now, self._failure)
        late = {*state.record.survivors} - {*state.reveals}
        why, others = self._told(late), {*self.orders.admitted} - late
        if len(others) >= self._quorum and self._waited_long(
            'for shares', self._settings.reveal_timeout
        ):
            return self._abandon(now, why, late, _SILENT_ROUNDS)
        return self._fail(now, why)

    def _fail_silent(self, now: float, why: str) -> Effects:
        """End an attempt that too few went on with, and keep who was silent in it."""
        self.state.note_silences(self._silent)
        return self._fail(now, why)

    def _is_hopeless(self) -> bool:
        """Tell whether too few can reveal any more, or all who can have, and it was no use."""
        state = self.state
        can = {*state.reveals, *(set(state.record.survivors) & set(self.orders.admitted))}
        no_use = len(state.reveals) == self._decryption.refused == len(can)
        lacking = self.channel.roster.neighbourhoods.lacking(state.record.members, can)
        return bool(lacking) or no_use

    # Phase SUM: add the ciphertexts, and ask the key authority to decrypt that very sum.

    def _adding_job(self) -> Job:
        """Return the job that adds the survivors' ciphertexts and hashes the sums."""
        assert self._terms
        public, updates, decryption = self._terms.public, self.state.updates, self._decryption
        survivors = self.state.record.survivors
        buckets = within(self.channel.roster.buckets_of(self.round), survivors)

        def add(report: Report, stopped: Stopped) -> tuple[_Decryption, bytes | FdrlError]:
            try:
                columns = updates.columns(buckets)
                return decryption, protocol.hash_of_sums(map(public.add, columns))
            except FdrlError as error:
                return decryption, error

        return Job('sum', add)

    def _request(self) -> Effects:
        """Send the request to decrypt, for the first time or again; nothing while no sum is."""
        state, record, decryption = self.state, self.state.record, self._decryption
        inspecting = self.phase is Phase.INSPECT
        if not (inspecting or state.abandoned or decryption.sum_hash):
            return Effects()
        survivors = self._sent if inspecting else record.survivors
        proof: dict[str, tuple[object, ...] | bytes] = {
            'keys': tuple(state.keys[name] for name in record.keyed),
            'members': record.members,
            'survivors': survivors,
            'update_hashes': state.updates.hashes(survivors),
            'settles': tuple(state.settles.values()),
            'reveals': tuple(state.reveals.values()),
            'sketches': tuple(
                state.sketches[name] for name in survivors if name in state.sketches
            ),
        }
        if state.abandoned:
            proof = {name: type(value)() for name, value in proof.items()}
        decryption.parts = split_request(proof | {'sum_hash': decryption.sum_hash})
        return self._send_part(0)

    def _send_part(self, number: int) -> Effects:
        """
        Send a part of the request.

        :raises RoundError: if there is no such part.
        """
        parts = self._decryption.parts
        if not 0 <= number < len(parts):
            raise RoundError('key_authority', f'wants part {number} of a request')
        fields = parts[number]
        return self.channel.send(protocol.DecryptRequest, self.state.record.id, **fields)

    def _relay(self, message: protocol.Wanted) -> Effects:
        """
        Hand on the chunks, or the part of the request, that the key authority asks for.

        :raises RoundError: if there is nothing to ask for.
        """
        record, decryption = self.state.record, self._decryption
        inspecting = self.phase is Phase.INSPECT
        wanted = inspecting or (decryption.sum_hash and not self.state.abandoned)
        if message.id != record.id or not wanted:
            refusal = LateError if message.id < record.id else RoundError
            raise refusal(message.sender, f'wants updates of {message.id}, now at {record.id}')
        if message.part:
            return self._send_part(message.part)
        survivors = self._sent if inspecting else record.survivors
        updates = self.state.updates.items(survivors, message.first, message.count)
        return self.channel.send(protocol.Relay, record.id, first=message.first, updates=updates)

    def _take_verdict(self, message: protocol.Verdict, now: float) -> Effects:
        ours = message.id == self.state.record.id
        if self.phase is Phase.INSPECT and ours:
            return self._take_inspection(message, now)
        if self.phase is Phase.SUM and not message.accepted and ours:
            if dealers := self._false_dealers():
                return self._convict(Fault.DEAL, dealers, now)
            if liars := self._false_sketches():
                return self._convict(Fault.SKETCH, liars, now)
            self._decryption.refused = len(self.state.reveals)
            return self._fail(now, f'the key authority refused: {message.reason}')
        return Effects()

    def _abandon(
        self, now: float, why: str, silent: Collection[str] = (), often: int = 1
    ) -> Effects:
        """
        End a round that can never be summed any more: the older policy is released anew.

        If too few would be left without those who are to blame, it may be a fault of this
        aggregator: nobody is blamed, and no round begins until an operator resumes.

        :param silent: hospitals for whose silence it ends.
        :param often: how many rounds end so until a hospital is blamed for it.
        """
        rounds = self.state.silent_rounds
        to_blame = {name for name in silent if rounds[name] + 1 >= often}
        left = {*self.orders.admitted} - to_blame
        able = self.channel.roster.neighbourhoods.able(left)
        if to_blame and min(self._most(len(left)), len(able)) < self._quorum:
            silence = f'no answer came in time from {_names(to_blame)} (are share_timeout, '
            silence += 'train_timeout, settle_timeout and reveal_timeout long enough?)'
            self._note('fail', reason=f'paused, since {silence}')
            # If it was not their fault, earlier rounds do not count against them either.
            self.state.abandon(forgotten=to_blame, kept=self.orders.pausing(silence))
            blames: tuple[protocol.Blame, ...] = ()
        else:
            blames = self._blames(Fault.SILENT, dict.fromkeys(to_blame, _NO_PROOF))
            kept = self.orders.convicting(dict.fromkeys(to_blame, WORDS[Fault.SILENT]))
            self.state.abandon(silent, forgotten=to_blame, kept=kept, blames=blames)
        blamed = self._tell(blames)
        return blamed + self._enter(Phase.SUM, now, f'abandoned: {why}') + self._request()

    # In any phase: who is proven guilty is left out from then on.

    def _take_complaint(self, message: protocol.Complaint, now: float) -> Effects:
        """
        Convict a dealer whose parcel is bad, or who complains about one that is in order.

        :raises RoundError: if it is of another attempt, or of other keys.
        """
        sender, record = message.sender, self.state.record
        if message.id != record.id or sender not in record.members:
            refusal = LateError if message.id < record.id else RoundError
            raise refusal(sender, f'complains about attempt {message.id}, now at {record.id}')
        roster = self.channel.roster
        guilty, fault = judge_complaint(message, self.state.key_list, roster)
        return self._convict(fault, {guilty: {'complaints': (message,)}}, now)

    def _false_reveal(self, message: protocol.Reveal) -> dict[str, Any]:
        """Return what proves that a holder revealed another share than it was dealt, if so."""
        state, record, holder = self.state, self.state.record, message.sender
        dealers = state.dealers(holder)
        parcels = {name: state.parcel(name, holder)[0] for name in dealers}
        wrong = wrong_shares(message, state.key_list, record.members, record.survivors, parcels)
        if not any(wrong):
            return {}
        dealt = tuple(state.shares[name].bare() for name in dealers)
        return {'reveals': (message,), 'dealt': dealt, **state.dealt(holder, dealers)}

    def _false_dealers(self) -> dict[str, dict[str, Any]]:
        """Return what proves it for each member whose revealed shares restore no secret of it."""
        state, record = self.state, self.state.record
        found: dict[str, dict[str, Any]] = {}
        if not state.restorable:
            return found
        for dealer, shares in state.revealed().items():
            kind = 'self_seed' if dealer in record.survivors else 'mask_secret'
            if not restores(state.key_list, dealer, kind, shares):
                parcels = [state.parcel(dealer, holder) for holder in shares]
                found[dealer] = {
                    'ends': tuple(shares),
                    'dealt': (state.shares[dealer].bare(),),
                    'parcels': b''.join(parcel for parcel, _ in parcels),
                    'paths': b''.join(path for _, path in parcels),
                    'shares': b''.join(shares.values()),
                    **self._listed(dealer),
                }
        return found

    def _false_sketches(self) -> dict[str, dict[str, Any]]:
        """Return what proves it for each survivor that lied about a mask that is known now."""
        state, record, terms = self.state, self.state.record, self._terms
        if terms is None or terms.codec.bound is None or not state.sketches:
            return {}
        if not state.restorable:
            return {}
        keys = state.key_list
        secrets = {name: restored(keys, name, each) for name, each in state.revealed().items()}
        seeds = {name: secrets.pop(name) for name in record.survivors}
        signed = [state.sketches[name] for name in record.survivors]
        sketch = Sketch(signed[0].nonce, state.setup_digest, terms.codec.bound)
        lies = false_sketches(signed, keys, record.members, seeds, secrets, sketch)
        return {
            lie.guilty: {
                'sketches': (lie.sketch,),
                **self._shown(lie.guilty, lie.ends, lie.secret),
            }
            for lie in lies
        }

    def _convict(self, fault: Fault, evidence: dict[str, dict[str, Any]], now: float) -> Effects:
        """
        Leave hospitals out from now on, and publish what proves that they are guilty.

        Nothing that was trained is lost: the attempt begins anew without them, unless the sum can
        still be had. If shares were revealed already, the next attempt has the same survivors.

        :param evidence: fields of :class:`~fdrl_ros.federation.protocol.message.Blame` for each.
        """
        state, record = self.state, self.state.record
        effects = self._publish_blame(fault, evidence)
        if self.phase not in UNDER_WAY:
            return effects
        if state.revealing and fault not in (Fault.DEAL, Fault.SKETCH):
            return effects + self._advance(now, in_time=True)
        if record.bound or state.revealing:
            state.reopen(self.channel.roster.buckets_of(self.round))
        return effects + self._fail(now, f'{_names(evidence)} {WORDS[fault]}')

    def _publish_blame(self, fault: Fault, evidence: dict[str, dict[str, Any]]) -> Effects:
        if not (blames := self._blames(fault, evidence)):
            return Effects()
        guilty = {blame.guilty: WORDS[fault] for blame in blames}
        self.state.keep_blames(blames, self.orders.convicting(guilty))
        return self._tell(blames)

    def _tell(self, blames: Iterable[protocol.Blame]) -> Effects:
        """Publish who is left out from now on, once that is kept."""
        effects = Effects()
        for blame in blames:
            fault = Fault(blame.fault)
            note_blame(self.channel.journal, blame, WORDS[fault])
            told = f'{blame.guilty} is left out from now on: {source(fault)} that it '
            told += f'{WORDS[fault]}. {_way_back(fault)}'
            effects += Effects((blame,), notes=(told,))
        return effects

    def _blames(
        self, fault: Fault, evidence: dict[str, dict[str, Any]]
    ) -> tuple[protocol.Blame, ...]:
        """Sign what proves that hospitals are guilty, of those that are not known to be."""
        new = sorted(evidence.keys() - self.orders.guilty.keys())
        return tuple(self._blame(name, fault, evidence[name]) for name in new)

    def _blame(self, name: str, fault: Fault, evidence: dict[str, Any]) -> protocol.Blame:
        record = self.state.record
        proof: dict[str, Any] = {
            'keyed': record.keyed,
            'keys_digest': self._keys_digest(),
            'keys': (),
            'keys_path': b'',
            'terms_digest': record.terms,
            'members': record.members,
            'survivors': record.survivors,
            'complaints': (),
            'reveals': (),
            'verdicts': (),
            'sketches': (),
            'secret': b'',
            'ends': (),
            'dealt': (),
            'parcels': b'',
            'paths': b'',
            'pairs': b'',
            'shares': b'',
        }
        proof |= evidence
        return self.channel.sign(
            protocol.Blame, *record.id, guilty=name, fault=int(fault), **proof
        )

    def _end_with_too_few(self, now: float) -> Effects | None:
        """End the round with the older policy, or all rounds, if too few are not guilty."""
        guilty, bound = self.orders.guilty, self.state.record.bound
        hospitals = {member.name for member in self.channel.roster.hospitals}
        left = set(self._needed) if bound else hospitals - guilty.keys()
        able = self.channel.roster.neighbourhoods.able(left)
        most = len(self._kept(tuple(left))) if bound else self._most(len(left))
        few = most < self._fewest
        if not (few or len(able) < self._fewest) or not (guilty or bound):
            return None
        faults = ', '.join(f'{name} (it {why})' for name, why in sorted(guilty.items()))
        why = f'{len(left)} hospitals are left without {faults or "others"}, '
        why += f'{most} can be summed at most, ' if most < len(left) else ''
        why += f'{self._fewest} are needed' if few else 'too few of them neighbours or witnesses'
        if bound:
            return self._abandon(now, why)
        self.exhausted = why
        self._note('fail', reason=why)
        return self._enter(Phase.FINISHED, now, why)

    # Phase RELEASED: the round is over, the next one begins.

    def _take_policy(self, message: protocol.GlobalPolicy, now: float) -> Effects:
        sender, round = message.sender, message.envelope.round
        if self._policy_round is not None and round <= self._policy_round:
            same = round < self._policy_round or message.digest == self._policy_digest
            refusal = LateError if same else RoundError
            raise refusal(sender, f'policy of round {round} is not newer')
        self._policy_round, self._policy_digest = round, message.digest
        if round < self.round:
            return self._begin(now)
        # The released round is over, also when this aggregator was away when it ended.
        told = (
            shortened(f'rolled back: {message.reason}') if message.rolled_back else message.reason
        )
        released = self._enter(Phase.RELEASED, now, told, (round, self.attempt))
        self._declined, self._unaccounted = {}, {}
        self.state.open((round + 1, 0), self._terms_digest())
        self._decryption = _Decryption()
        return released + self._begin(now)

    # What every attempt rests on: the encryption key, and what operators order.

    def _take_key(self, message: protocol.EncryptionKey, now: float) -> Effects:
        self._terms = open_key(message)
        if self.phase not in UNDER_WAY or self.state.record.terms == self._terms_digest():
            return self._begin(now)
        # Nobody can decrypt the updates of this attempt any more.
        why = 'the key authority has a new key'
        return self._abandon(now, why) if self.state.revealing else self._fail(now, why)

    def _terms_digest(self) -> bytes:
        if self._terms is None:
            return b''
        return self._terms.digest(self._policy_digest, self.channel.roster)

    def _obey(self, order: protocol.Order, now: float) -> Effects:
        """Do what an operator orders; nothing that was trained is lost by a pause."""
        hospital, phase, by = order.hospital, self.phase, f'by {order.sender}'
        # An end for want of hospitals is over as soon as an operator admits enough.
        lasts = not self.exhausted or order.action in ('pause', 'resume')
        ended = phase is Phase.FINISHED and lasts
        self.orders.take(order, self.state.record.id, ended=ended)
        match order.action:
            case 'pause':
                return self._enter(Phase.PAUSED, now, f'paused {by}')
            case 'resume' if phase is Phase.PAUSED:
                return self._enter(Phase.WAITING, now, f'resumed {by}') + self._begin(now)
            case 'stop':
                self.exhausted = ''
                return self._enter(Phase.FINISHED, now, f'stopped {by}')
            case 'admit':
                self.state.forget_silences(hospital)
                self._declined.pop(hospital, None)
                told = f'{hospital} was admitted {by}'
                if phase is Phase.OPEN:
                    return self._publish_status(told, now)
                if phase is Phase.FINISHED and self.exhausted:
                    return self._enter(Phase.WAITING, now, told) + self._begin(now)
                return Effects(notes=(told,))
            case 'withdraw':
                left = len(self.orders.admitted)
                told = f'{hospital} was withdrawn {by}: {left} hospitals are left'
                if left == self._quorum:
                    told += ', and a round needs all of them'
                elif left < self._quorum:
                    told += f', and no round begins with fewer than {self._quorum}'
                if hospital in self.state.keys and phase in UNDER_WAY - {Phase.SUM}:
                    return self._fail(now, told)
                return Effects(notes=(told,))
        return Effects()

    # How phases change.

    def _fail(self, now: float, reason: str) -> Effects:
        """End this attempt; the next one opens after a moment, so that failures cannot spin."""
        if self.phase in (Phase.PAUSED, Phase.FINISHED):
            return Effects()
        if reason != self._failure:
            self._note('fail', reason=reason)
        self._failure = reason
        return self._enter(Phase.FAILED, now, reason)

    def _note(self, kind: str, **fields: str | tuple[str, ...]) -> None:
        self.channel.journal.append(kind, round=self.round, attempt=self.attempt, **fields)

    def _enter(
        self, phase: Phase, now: float, reason: str, at: tuple[int, int] | None = None
    ) -> Effects:
        self.phase = phase
        if phase is not Phase.FINISHED:
            self.exhausted = ''
        timeout = self._timeouts.get(phase)
        self._deadline = None if timeout is None else now + timeout
        return self._publish_status(reason, now, at)

    def _keys_digest(self) -> bytes:
        return self.state.key_list.keys_digest if self.state.record.keyed else b''

    def _publish_status(
        self, reason: str, now: float, at: tuple[int, int] | None = None
    ) -> Effects:
        """
        Publish phase and lists of the round, after the ledger heads that are as new.

        :param at: round and attempt; the present one unless given.
        """
        record = self.state.record
        at = at or record.id
        heads = Effects()
        if self.watch.changed or at != self._acknowledged:
            # Before the status: hospitals take part on heads alone that are as new as it is.
            heads = self.watch.acknowledge(self.channel, at)
            self._acknowledged = at
        marks = self.channel.roster.neighbourhoods.marks
        # An abandoned attempt has no lists any more, and no others.
        members = () if self.state.abandoned else record.members or record.keyed or self._needed
        status = self.channel.send(
            protocol.RoundStatus,
            at,
            phase=int(self.phase),
            keyed=marks(record.keyed),
            members=marks(members),
            survivors=marks(record.survivors),
            time_left=0.0 if self._deadline is None else self._deadline - now,
            policy_digest=self._policy_digest,
            roster_digest=self.channel.roster.digest_bytes,
            terms_digest=self._terms_digest(),
            nonce=self._nonce if self.phase is Phase.SKETCH else b'',
            keys_digest=self._keys_digest(),
            reason=reason,
        )
        self.reason = reason
        note = f'round {at[0]} attempt {at[1]}: {self.phase.name}, {reason}'
        return heads + status + Effects(notes=(note,))


def _names(names: Iterable[str]) -> str:
    return ', '.join(sorted(names)) or 'nobody'


def _way_back(fault: Fault) -> str:
    forgive = ' fdrl operator forgive, and' if fault is Fault.UPDATE else ''
    return f'Once its operators have mended that:{forgive} fdrl operator admit'


def _without(missing: set[str]) -> str:
    return f'without {_names(missing)}' if missing else 'all hospitals answered'
