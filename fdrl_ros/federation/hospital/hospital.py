# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The hospital's side of a round: share, train, mask, encrypt, sign, reveal (FDRL Alg. 1)."""

from typing import Any

from fdrl_ros.crypto.he.quantisation import EncryptionSettings
from fdrl_ros.crypto.keys.roster import SERVERS
from fdrl_ros.errors import (
    BudgetExceededError,
    CryptoError,
    LateError,
    LedgerError,
    MessageError,
    PolicyError,
    RoundError,
    TrainingStopped,
)
from fdrl_ros.federation.hospital.local_update import LocalUpdate
from fdrl_ros.federation.hospital.round_log import RoundLog, Written
from fdrl_ros.federation.hospital.round_participant import AGGREGATOR, Part, Setup
from fdrl_ros.federation.hospital.round_seeds import RoundSeeds
from fdrl_ros.federation.protocol.attempt import attempt_of, check_set, Try
from fdrl_ros.federation.protocol.channel import Channel
from fdrl_ros.federation.protocol.message import (
    Decline,
    DeclineReason,
    Delivery,
    EncryptionKey,
    GlobalPolicy,
    HospitalPolicy,
    LedgerHeads,
    Message,
    MOST_DETAIL,
    Phase,
    RoundKey,
    RoundStatus,
    Settle,
    Wanted,
)
from fdrl_ros.federation.protocol.objection import Objections
from fdrl_ros.federation.protocol.party import Job, Outcome, Report, Stopped
from fdrl_ros.federation.protocol.recovery import recall_hospital
from fdrl_ros.federation.protocol.store import Store
from fdrl_ros.federation.protocol.update_codec import open_key, Terms
from fdrl_ros.learner.learner import Learner
from fdrl_ros.policy import decode_weights, digest_of, encode_weights, NetworkShape
from fdrl_ros.privacy.ledger.chain import Head
import numpy as np

AHEAD = 8
"""Attempts ahead of the present one of which messages are kept: they may overtake its status."""

TAKING_PART = (Phase.OPEN, Phase.SHARE, Phase.TRAIN, Phase.SETTLE, Phase.REVEAL)


class Hospital:
    """
    One hospital in the federation.

    What it says in an attempt follows from the round's seed and the update of the round, which
    are both durable, as is what it sent and signed. So after a restart it says the same again and
    takes part on; a retry masks the same noised update.
    """

    takes = (
        Delivery,
        EncryptionKey,
        GlobalPolicy,
        LedgerHeads,
        RoundKey,
        RoundStatus,
        Settle,
        Wanted,
    )

    def __init__(
        self,
        channel: Channel,
        learner: Learner,
        shape: NetworkShape,
        store: Store,
        seeds: RoundSeeds,
        *,
        unit: str,
        delta: float,
        quorum: int,
        release: bool,
        encryption: EncryptionSettings,
        personal: tuple[str, ...] = (),
    ) -> None:
        """
        Bind a hospital to its learner and its identity.

        :param seeds: where the secrets of its rounds come from.
        :param unit: privacy unit of the learner's epsilon.
        :param delta: of the learner's guarantee.
        :param quorum: fewest members of a round that this hospital takes part in.
        :param release: whether to publish its own policy after each round.
        :param encryption: what this hospital agreed to encrypt by.
        :param personal: layers that never leave this hospital, except in a released own policy.
        """
        self._channel = channel
        self._learner = learner
        self._shape = shape
        self._seeds = seeds
        self._unit = unit
        self._delta = delta
        self._quorum = max(quorum, channel.roster.quorum)
        self._release = release
        self._personal = personal
        self._encryption = encryption
        self._shared = shape.shared(personal)
        self._member = channel.roster.member(channel.name)
        self._terms: Terms | None = None
        self._policy: GlobalPolicy | None = None
        self._weights = np.zeros(shape.n_parameters, dtype=np.float32)
        self._status: RoundStatus | None = None
        self._parts: dict[Try, Part] = {}
        self._busy = False
        self._declined = 0
        self._acknowledged: dict[str, tuple[Try, Head]] = {}
        self._released = 0
        self._lacking = ''
        self.problem = ''
        """Why this hospital takes no part any more; empty while it does."""
        self.restored = False
        """Whether a server saw entries that the ledger lacks: its epsilon is then too low."""
        self._objections = Objections(channel)
        self._log = RoundLog(store, shape.n_parameters)
        recall_hospital(self._log, channel, store, seeds)

    @property
    def policy(self) -> GlobalPolicy | None:
        """The newest global policy that was checked."""
        return self._policy

    @property
    def round(self) -> int:
        """The round that this hospital works at."""
        return self._try()[0]

    @property
    def acknowledged(self) -> bool:
        """
        Whether the ledger contains the heads that both servers acknowledged last.

        Those of the aggregator must be as new as its status, those of the key authority as its
        policy: older ones may lack what was spent since, and may be replayed.
        """
        status, policy = self._status, self._policy
        if self.restored or status is None or policy is None or len(self._acknowledged) < 2:
            return False
        (aggregator, _), (authority, _) = (self._acknowledged[server] for server in SERVERS)
        return aggregator >= attempt_of(status.envelope) and authority[0] >= policy.envelope.round

    def start(self, now: float) -> Outcome:
        """Begin: a hospital waits for the servers to speak."""
        return Outcome()

    def tick(self, now: float) -> Outcome:
        """Let time pass: a hospital follows the aggregator's deadlines."""
        return Outcome()

    def handle(self, message: Message, now: float) -> Outcome:
        """Take a message; see :class:`Party`."""
        match message:
            case GlobalPolicy():
                return self._take_policy(message)
            case LedgerHeads():
                return self._take_heads(message)
            case EncryptionKey():
                self._take_encryption_key(message)
            case RoundKey():
                self._channel.accept(message, 'hospital')
                self._part(message).take_key(message)
            case Delivery():
                self._take_delivery(message)
            case Settle():
                self._take_settle(message)
            case RoundStatus():
                return self._take_status(message)
            case Wanted():
                return self._take_wanted(message)
            case _:
                kind = type(message).__name__
                raise RoundError(message.envelope.sender, f'{kind} to a hospital')
        return self._advance()

    def finish(self, job: Job, result: Any, now: float) -> Outcome:
        """Take the result of training or of encryption."""
        self._busy = False
        if isinstance(result, TrainingStopped):
            return Outcome(notes=(str(result),))
        if isinstance(result, BudgetExceededError):
            return self._decline(DeclineReason.BUDGET, str(result))
        if isinstance(result, CryptoError):
            return Outcome(notes=(f'nothing sent in round {self.round}: {result}',))
        if isinstance(result, Exception):
            raise result
        if isinstance(result, LocalUpdate):
            self._log.keep(result)
            self.problem = ''
            note = f'trained round {result.round}: epsilon {result.result.epsilon:.3f} spent'
            return Outcome(notes=(note,)) + self._advance()
        of, setup, written = result
        if of == self._try():
            self._log.keep_sent(of, setup.digest, written)
        return self._advance()

    # What the others say.

    def _take_policy(self, message: GlobalPolicy) -> Outcome:
        sender = self._channel.accept(message, 'key_authority').name
        round, attempt = attempt_of(message.envelope)
        newest = self._policy.envelope.round if self._policy else self._log.over - 1
        if round <= newest:
            other = self._policy and round == newest and message.digest != self._policy.digest
            raise (RoundError if other else LateError)(sender, f'policy of {round} is not newer')
        try:
            weights = decode_weights(message.weights, self._shape.n_parameters)
        except PolicyError as error:
            raise MessageError(sender, str(error)) from error
        if digest_of(weights) != message.digest:
            raise MessageError(sender, 'the digest is not that of the weights')
        self._log.check(message, self._channel.name)
        self._log.note_summed(message, self._channel.name)
        self._policy, self._weights = message, weights
        what = {'policy': message.digest, 'included': self._channel.name in message.contributors}
        self._channel.journal.append('policy', round=round, attempt=attempt, **what)
        # The round is over: nothing may be derived from its seed any more.
        self._log.end(round)
        self._seeds.forget(round)
        self._parts = {of: part for of, part in self._parts.items() if of[0] > round}
        update = self._log.update
        notes: tuple[str, ...] = ()
        if self._release and update and update.round == round and not what['included']:
            notes = (f'own policy of round {round} not released: the sum left this hospital out',)
        return Outcome(notes=notes) + self._own_policy() + self._advance()

    def _take_heads(self, message: LedgerHeads) -> Outcome:
        """
        Compare the ledger with the head that a server acknowledges.

        A ledger without it was restored from an older copy, and nothing here can say what it
        lacks. This hospital then takes no part until its newest ledger is put back.
        """
        sender = message.envelope.sender
        self._channel.accept(message, sender if sender in SERVERS else SERVERS[0])
        head = message.head(self._channel.name) or Head(0, b'')
        notes: tuple[str, ...] = ()
        if head.entries:
            by = f'the {sender.replace("_", " ")}'
            try:
                self._learner.verify_ledger(head, by)
            except LedgerError as error:
                if not self.restored:
                    notes = (f'no part in any round: {error}',)
                self.restored, self.problem = True, str(error)
                self._lacking = f'its privacy ledger lacks the head {head} that {by} saw'
        self._acknowledged[sender] = attempt_of(message.envelope), head
        return Outcome(notes=notes) + self._own_policy() + self._advance()

    def _take_encryption_key(self, message: EncryptionKey) -> None:
        sender = self._channel.accept(message, 'key_authority').name
        if (message.n_parameters, message.personal) != (self._shared.size, self._personal):
            raise MessageError(
                sender,
                f'{message.n_parameters} parameters without the layers {message.personal}: this '
                f'hospital shares {self._shared.size}, without {self._personal}',
            )
        if message.members < len(self._channel.roster.hospitals):
            raise MessageError(sender, f'sums of {message.members} updates overflow')
        terms, ours = open_key(message), self._encryption
        found = (message.limit, terms.codec.kind, message.bits)
        if found != (ours.limit, ours.scheme, ours.bits):
            raise MessageError(sender, f'limit, scheme and bits {found}: agreed was {ours}')
        self._terms = terms

    def _take_delivery(self, message: Delivery) -> None:
        sender = self._channel.accept(message, 'aggregator').name
        if message.to != self._channel.name:
            raise RoundError(sender, f'shares for {message.to}')
        self._part(message).take_delivery(message)

    def _take_wanted(self, message: Wanted) -> Outcome:
        sender = self._channel.accept(message, 'aggregator').name
        of = attempt_of(message.envelope)
        sent = self._log.sent(of) if of == self._try() else None
        if sent is None or message.to != self._channel.name:
            raise RoundError(sender, f'wants an update of {of} from {message.to}')
        return Outcome(self._part(message).chunks(sent, message.first, message.count))

    def _take_settle(self, message: Settle) -> None:
        self._channel.accept(message, 'hospital')
        self._part(message).take_settle(message)

    def _take_status(self, message: RoundStatus) -> Outcome:
        envelope = message.envelope
        sender = self._channel.accept(message, 'aggregator').name
        of = attempt_of(envelope)
        if of < self._try():
            raise RoundError(sender, f'status of a past attempt, now at {self._try()}')
        if (objection := self._objections.raised_by(message)) is not None:
            return objection
        part = self._parts.get(of) or Part(self._channel, self._seeds, self._log, of)
        part.take_lists(message)
        self._parts[of] = part
        self._status = message
        self._parts = {key: part for key, part in self._parts.items() if key >= of}
        return self._advance()

    def _part(self, message: Message) -> Part:
        """
        Return the part in the attempt that a message belongs to.

        :raises RoundError: if it is over, or too far ahead to keep anything of it.
        """
        of, now_at = attempt_of(message.envelope), self._try()
        round, attempt = now_at
        near = (round, attempt + AHEAD) if of[0] == round else (round + 1, AHEAD)
        if self._status is None:
            near = of if of in self._parts or len(self._parts) < AHEAD else (0, 0)
        if not now_at <= of <= near:
            refusal = LateError if of < now_at else RoundError
            raise refusal(
                message.envelope.sender, f'{type(message).__name__} of {of}, now at {now_at}'
            )
        if of not in self._parts:
            self._parts[of] = Part(self._channel, self._seeds, self._log, of)
        return self._parts[of]

    # What this hospital does about it.

    def _try(self) -> Try:
        """Return the present attempt; after a restart the one before which nothing is said."""
        return attempt_of(self._status.envelope) if self._status else self._log.floor

    def _advance(self) -> Outcome:
        """Do whatever the present phase asks of this hospital and was not done yet."""
        status, name = self._status, self._channel.name
        if status is None or status.phase not in TAKING_PART:
            return Outcome()
        if self.restored:
            return self._decline(DeclineReason.LEDGER, self._lacking)
        if not self._up_to_date():
            return Outcome()
        part = self._part(status)
        try:
            if status.phase == Phase.OPEN:
                return self._announce_key(status)
            if name not in status.keyed:
                return Outcome()
            hospitals = [member.name for member in self._channel.roster.hospitals]
            check_set(status.keyed, hospitals, self._quorum, AGGREGATOR)
            return self._take_part(part, status)
        except (RoundError, CryptoError) as error:
            note = f'no part in round {status.envelope.round}: {error}'
            return Outcome(notes=(note,)) if part.first(note) else Outcome()

    def _announce_key(self, status: RoundStatus) -> Outcome:
        """Publish this attempt's keys, if there will be an update to mask with them."""
        round = status.envelope.round
        if self._declined == round:
            return Outcome()
        self._channel.check_roster()
        if not self._has_update(round):
            try:
                self._learner.check_affordable(round)
            except BudgetExceededError as error:
                return self._decline(DeclineReason.BUDGET, str(error))
        return Outcome(self._part(status).say_key())

    def _decline(self, reason: DeclineReason, why: str) -> Outcome:
        """Tell the aggregator, once a round, that this hospital takes no part in it."""
        of = self._try()
        if self._declined == of[0]:
            return Outcome()
        self._declined, self.problem = of[0], self.problem or why
        detail = ' '.join(why.split()).encode()[:MOST_DETAIL].decode('utf-8', 'ignore')
        declined = self._channel.seal(Decline, *of, reason=int(reason), detail=detail)
        return Outcome((declined,), notes=(f'no part in round {of[0]}: {why}',))

    def _take_part(self, part: Part, status: RoundStatus) -> Outcome:
        """Go on in an attempt whose list of keys this hospital is on."""
        name = self._channel.name
        # Said again after a restart: others may have started again too.
        outcome = Outcome(part.say_key())
        keys = part.key_list(status.keyed, status.terms_digest)
        if keys is None:
            return outcome
        if status.phase == Phase.SHARE:
            return outcome + Outcome(part.share(keys))
        setup = part.setup(keys, status) if name in status.members else None
        doubts = (f'somebody lies: {each}' for each in part.contradictions(keys, status))
        outcome += Outcome(notes=tuple(filter(part.first, doubts)))
        if setup is None:
            return outcome
        if status.phase == Phase.TRAIN:
            return outcome + self._work(part, setup)
        if name in status.survivors:
            outcome += Outcome(part.settle(setup, status.survivors))
            if status.phase == Phase.REVEAL:
                outcome += Outcome(part.reveal(setup, status.survivors))
        return outcome

    def _work(self, part: Part, setup: Setup) -> Outcome:
        """Train if this round's update is not there yet; then mask, encrypt and send it."""
        of = self._try()
        sent = self._log.sent(of)
        if sent is not None and sent.setup_digest != setup.digest:
            raise RoundError(AGGREGATOR, 'the update of this attempt was masked for other members')
        if sent is not None:
            return Outcome(part.send(sent))
        if self._busy:
            return Outcome()
        self._busy = True
        if self._has_update(of[0]):
            return Outcome(jobs=(self._encryption_job(part, setup),))
        return Outcome(jobs=(self._training_job(of[0]),))

    def _training_job(self, round: int) -> Job:
        assert self._policy
        weights, base = self._weights.copy(), self._policy.digest
        if self._log.update is not None:
            personal = np.ones(weights.size, dtype=bool)
            personal[self._shared] = False
            weights[personal] = self._log.update.result.weights[personal]

        def train(report: Report, stopped: Stopped) -> LocalUpdate:
            result = self._learner.train(weights, round, report=report, stopped=stopped)
            return LocalUpdate(round, base, result)

        return Job('train', train)

    def _encryption_job(self, part: Part, setup: Setup) -> Job:
        assert self._log.update and self._terms
        codec, public = self._terms.codec, self._terms.public
        update, of = self._log.update, self._try()
        base, share = self._weights, self._member.size / self._channel.roster.n_max
        shared = self._shared
        uniforms = self._learner.rounding(of[0], codec.n_parameters)

        def encrypt(report: Report, stopped: Stopped) -> tuple[Try, Setup, Written]:
            weights = update.result.weights[shared]
            slots = codec.encode(weights, base[shared], share, uniforms)
            mask = part.mask(setup, codec.masked_slots(), codec.scheme.plain_modulus)
            return of, setup, self._log.write(of, codec.encrypt(slots, mask, public))

        return Job('encrypt', encrypt)

    def _own_policy(self) -> Outcome:
        """
        Publish this hospital's own policy of the round that just ended, if it chose to.

        The key authority must have acknowledged the ledger head that the update was trained on,
        which it sees in a sum alone: a hospital that the sum leaves out releases nothing.
        """
        update, policy = self._log.update, self._policy
        if not (self._release and policy and update and update.round == policy.envelope.round):
            return Outcome()
        _, seen = self._acknowledged.get('key_authority', ((0, 0), Head(0, b'')))
        unseen = seen.entries < update.result.ledger_entries
        if self.restored or unseen or self._released == update.round:
            return Outcome()
        self._released = update.round
        released = self._channel.seal(
            HospitalPolicy,
            *attempt_of(policy.envelope),
            weights=encode_weights(update.result.weights),
            digest=digest_of(update.result.weights),
            unit=self._unit,
            epsilon=update.result.epsilon,
            delta=self._delta,
            secure=self._learner.secure,
        )
        return Outcome((released,))

    def _up_to_date(self) -> bool:
        """Whether this hospital starts from what the aggregator says that all start from."""
        policy, status, terms = self._policy, self._status, self._terms
        if policy is None or status is None or terms is None or not self.acknowledged:
            return False
        ours = terms.digest(policy.digest, self._channel.roster)
        return status.terms_digest == ours and status.envelope.round == policy.envelope.round + 1

    def _has_update(self, round: int) -> bool:
        update = self._log.update
        base = self._policy.digest if self._policy else b''
        return update is not None and (update.round, update.base) == (round, base)
