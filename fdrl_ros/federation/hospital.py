# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The hospital's side of a round: key, train, mask, encrypt, sign, settle (FDRL Alg. 1)."""

from secrets import token_bytes
from typing import Any

from fdrl_ros.crypto.encryption import PublicContext
from fdrl_ros.crypto.masking import net_mask, RoundSecret
from fdrl_ros.errors import (
    BudgetExceededError,
    CryptoError,
    MessageError,
    PolicyError,
    RoundError,
)
from fdrl_ros.federation.channel import Channel
from fdrl_ros.federation.local_update import LocalUpdate
from fdrl_ros.federation.message import (
    EncryptionKey,
    GlobalPolicy,
    hash_of_chunks,
    HospitalPolicy,
    MaskedUpdate,
    Message,
    Phase,
    RoundKey,
    RoundStatus,
    Settle,
)
from fdrl_ros.federation.party import Job, Outcome, Report, Stopped
from fdrl_ros.federation.round_log import RoundLog
from fdrl_ros.federation.store import Store
from fdrl_ros.federation.update import check_round_key, open_key, UpdateCodec
from fdrl_ros.policy import decode_weights, digest_of, encode_weights, NetworkShape
from fdrl_ros.trainer.learner import Learner, TrainingStopped
import numpy as np

Try = tuple[int, int]  # a round and the attempt at it


class Hospital:
    """
    One hospital in the federation.

    It keeps the update of the present round durably, so that a retry masks the same noised
    update again. Its mask secrets live in memory alone: after a restart it takes part from the
    next attempt on, and says so by announcing a new round key.
    """

    takes = (EncryptionKey, GlobalPolicy, RoundKey, RoundStatus)

    def __init__(
        self,
        channel: Channel,
        learner: Learner,
        shape: NetworkShape,
        store: Store,
        *,
        unit: str,
        delta: float,
        quorum: int,
        release: bool,
    ) -> None:
        """
        Bind a hospital to its learner and its identity.

        :param unit: privacy unit of the learner's epsilon.
        :param delta: of the learner's guarantee.
        :param quorum: fewest members of a round that this hospital takes part in.
        :param release: whether to publish its own policy after each round.
        """
        self._channel = channel
        self._learner = learner
        self._shape = shape
        self._unit = unit
        self._delta = delta
        self._quorum = max(quorum, 3)
        self._release = release
        self._member = channel.roster.member(channel.name)
        self._codec: UpdateCodec | None = None
        self._public: PublicContext | None = None
        self._policy: GlobalPolicy | None = None
        self._weights = np.zeros(shape.n_parameters, dtype=np.float32)
        self._status: RoundStatus | None = None
        self._secret: RoundSecret | None = None
        self._secret_of: Try | None = None
        self._keyed: Try | None = None
        self._keys: dict[Try, dict[str, bytes]] = {}
        self._self_seed = b''
        self._sent: Try | None = None
        self._masked_for: tuple[str, ...] = ()
        self._settled: Try | None = None
        self._update_hash = b''
        self._busy = False
        self._declined = 0
        self._log = RoundLog(store, shape.n_parameters)

    @property
    def policy(self) -> GlobalPolicy | None:
        """The newest global policy that was checked."""
        return self._policy

    @property
    def round(self) -> int:
        """The round that this hospital works at."""
        return self._status.envelope.round if self._status else 0

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
            case EncryptionKey():
                self._take_encryption_key(message)
            case RoundKey():
                self._take_round_key(message)
            case RoundStatus():
                self._take_status(message)
            case _:
                raise RoundError(
                    message.envelope.sender, f'{type(message).__name__} to a hospital'
                )
        return self._advance()

    def finish(self, job: Job, result: Any, now: float) -> Outcome:
        """Take the result of training or of encryption."""
        self._busy = False
        if isinstance(result, TrainingStopped):
            return Outcome(notes=(str(result),))
        if isinstance(result, BudgetExceededError):
            self._declined = self.round
            return Outcome(notes=(f'no part in round {self.round}: {result}',))
        if isinstance(result, CryptoError):
            return Outcome(notes=(f'nothing sent in round {self.round}: {result}',))
        if isinstance(result, Exception):
            raise result
        if isinstance(result, LocalUpdate):
            self._log.keep(result)
            note = f'trained round {result.round}: epsilon {result.result.epsilon:.3f} spent'
            return Outcome(notes=(note,)) + self._advance()
        return self._send(*result) + self._advance()

    # What the others say.

    def _take_policy(self, message: GlobalPolicy) -> Outcome:
        sender = self._channel.accept(message, 'key_authority').name
        newest = self._policy.envelope.round if self._policy else self._log.round - 2
        if message.envelope.round <= newest:
            raise RoundError(sender, f'policy of round {message.envelope.round} is not newer')
        try:
            weights = decode_weights(message.weights, self._shape.n_parameters)
        except PolicyError as error:
            raise MessageError(sender, str(error)) from error
        if digest_of(weights) != message.digest:
            raise MessageError(sender, 'the digest is not that of the weights')
        self._log.check(message, self._channel.name)
        self._policy, self._weights = message, weights
        return self._own_policy() + self._advance()

    def _take_encryption_key(self, message: EncryptionKey) -> None:
        sender = self._channel.accept(message, 'key_authority').name
        if message.n_parameters != self._shape.n_parameters:
            raise MessageError(
                sender,
                f'{message.n_parameters} parameters, this hospital trains '
                f'{self._shape.n_parameters}',
            )
        if message.members < len(self._channel.roster.hospitals):
            raise MessageError(sender, f'sums of {message.members} updates overflow')
        self._codec, self._public = open_key(message)

    def _take_round_key(self, message: RoundKey) -> None:
        envelope = message.envelope
        sender = self._channel.accept(message, 'hospital').name
        now_at = self._try()
        if (envelope.round, envelope.attempt) < now_at:
            raise RoundError(sender, f'round key of a past attempt, now at {now_at}')
        if self._status is not None and envelope.round > now_at[0] + 1:
            raise RoundError(sender, f'round key of round {envelope.round}, now at {now_at}')
        # A key may overtake the status that opens its attempt. The first of a sender counts:
        # a second one comes from a restart, and the aggregator then opens a new attempt.
        keys = self._keys.setdefault((envelope.round, envelope.attempt), {})
        check_round_key(message, [key for name, key in keys.items() if name != sender])
        keys.setdefault(sender, message.public_key)

    def _take_status(self, message: RoundStatus) -> None:
        envelope = message.envelope
        sender = self._channel.accept(message, 'aggregator').name
        if (envelope.round, envelope.attempt) < self._try() or (envelope.round < self._log.round):
            raise RoundError(sender, f'status of a past attempt, now at {self._try()}')
        self._status = message
        # What came before the first status could be of any round.
        last = envelope.round + 1
        self._keys = {
            key: value
            for key, value in self._keys.items()
            if key >= self._try() and key[0] <= last
        }

    # What this hospital does about it.

    def _try(self) -> Try:
        if self._status is None:
            return (0, 0)
        return (self._status.envelope.round, self._status.envelope.attempt)

    def _advance(self) -> Outcome:
        """Do whatever the present phase asks of this hospital and was not done yet."""
        status = self._status
        if status is None or self._codec is None or self._policy is None:
            return Outcome()
        match status.phase:
            case Phase.OPEN:
                return self._announce_key()
            case Phase.TRAIN if self._channel.name in status.members:
                return self._work(status)
            case Phase.SETTLE if self._channel.name in status.survivors:
                return self._settle(status)
        return Outcome()

    def _announce_key(self) -> Outcome:
        """Draw this attempt's secret and publish its public key."""
        round, attempt = self._try()
        if self._keyed == (round, attempt) or self._declined == round or not self._up_to_date():
            return Outcome()
        if not self._has_update(round):
            try:
                self._learner.check_affordable(round)
            except BudgetExceededError as error:
                self._declined = round
                return Outcome(notes=(f'no part in round {round}: {error}',))
        self._secret, self._secret_of = RoundSecret.generate(), (round, attempt)
        self._self_seed = token_bytes(32)
        self._keyed = (round, attempt)
        key = self._channel.seal(RoundKey, round, attempt, public_key=self._secret.public)
        return Outcome((key,))

    def _work(self, status: RoundStatus) -> Outcome:
        """Train if this round's update is not there yet; else mask, encrypt and send it."""
        round, attempt = self._try()
        if len(set(status.members)) < self._quorum or not self._up_to_date():
            note = f'no part in round {round}: {len(status.members)} members or another policy'
            return Outcome(notes=(note,))
        if self._secret_of != (round, attempt):
            # Restarted within the attempt: the secret is gone, so ask for a new attempt by a
            # second key, which serves for nothing else.
            announced = self._announce_key()
            self._secret, self._secret_of = None, None
            return announced
        settled = self._log.settled(round)
        if settled and set(settled) != set(status.members):
            # Two sums of one round over different sets would show their difference.
            return Outcome(notes=(f'round {round} was settled for {", ".join(settled)}',))
        keys = self._keys.get((round, attempt), {})
        others = [name for name in status.members if name != self._channel.name]
        if self._busy or self._sent == (round, attempt) or any(n not in keys for n in others):
            return Outcome()
        self._busy = True
        if self._has_update(round):
            return Outcome(jobs=(self._encryption_job(tuple(others), keys),))
        return Outcome(jobs=(self._training_job(round),))

    def _training_job(self, round: int) -> Job:
        weights, base = self._weights, self._policy_digest()

        def train(report: Report, stopped: Stopped) -> LocalUpdate:
            result = self._learner.train(weights, round, report=report, stopped=stopped)
            return LocalUpdate(round, base, result)

        return Job('train', train)

    def _encryption_job(self, others: tuple[str, ...], keys: dict[str, bytes]) -> Job:
        assert self._log.update and self._secret and self._codec and self._public
        round, attempt = self._try()
        codec, public, secret, update = self._codec, self._public, self._secret, self._log.update
        base, name, federation = self._weights, self._channel.name, self._channel.roster.federation
        share, seed = self._member.size / self._channel.roster.n_max, self._self_seed
        self._masked_for = (*others, name)
        uniforms = self._learner.rounding(round, codec.n_parameters)
        # One secret serves one update: it is used up here.
        self._secret = None

        def encrypt(report: Report, stopped: Stopped) -> tuple[Try, tuple[bytes, ...]]:
            slots = codec.encode(update.result.weights, base, share, uniforms)
            mask = net_mask(
                secret,
                {other: keys[other] for other in others},
                federation=federation,
                round=round,
                attempt=attempt,
                mine=name,
                count=slots.size,
                modulus=codec.scheme.plain_modulus,
            )
            both = mask.reshape(slots.shape) + codec.self_mask(seed)
            return (round, attempt), codec.encrypt(slots, both, public)

        return Job('encrypt', encrypt)

    def _send(self, of: Try, chunks: tuple[bytes, ...]) -> Outcome:
        """Sign and send the chunks, once it is durably known what was sent."""
        if of != self._try() or self._log.update is None:
            return Outcome()
        round, attempt = of
        self._update_hash = hash_of_chunks(chunks)
        self._log.note_sent(round, self._update_hash)
        self._sent = of
        result = self._log.update.result
        return Outcome(
            tuple(
                self._channel.seal(
                    MaskedUpdate,
                    round,
                    attempt,
                    chunk=number,
                    chunks=len(chunks),
                    base_digest=self._log.update.base,
                    ciphertext=chunk,
                    ledger_entries=result.ledger_entries,
                    ledger_head=result.ledger_head,
                    ledger_base_entries=result.ledger_base_entries,
                    ledger_base_head=result.ledger_base_head,
                    ledger_links=b'' if number else result.ledger_links,
                )
                for number, chunk in enumerate(chunks)
            )
        )

    def _settle(self, status: RoundStatus) -> Outcome:
        """Sign the survivor set, if it is the set whose masks this hospital added."""
        round, attempt = self._try()
        if self._sent != (round, attempt) or self._settled == (round, attempt):
            return Outcome()
        survivors = status.survivors
        if len(survivors) != len(self._masked_for) or set(survivors) != set(self._masked_for):
            return Outcome(notes=(f'refused the survivor set {survivors} of round {round}',))
        # Told for one survivor set of a round only, whatever happens afterwards.
        self._log.note_settled(round, survivors)
        self._settled = (round, attempt)
        settle = self._channel.seal(
            Settle,
            round,
            attempt,
            survivors=survivors,
            update_hash=self._update_hash,
            self_seed=self._self_seed,
        )
        return Outcome((settle,))

    def _own_policy(self) -> Outcome:
        """Publish this hospital's own policy of the round that just ended, if it chose to."""
        if not (self._release and self._policy and self._log.update):
            return Outcome()
        round = self._policy.envelope.round
        if self._log.update.round != round:
            return Outcome()
        weights = self._log.update.result.weights
        released = self._channel.seal(
            HospitalPolicy,
            round,
            self._policy.envelope.attempt,
            weights=encode_weights(weights),
            digest=digest_of(weights),
            unit=self._unit,
            epsilon=self._log.update.result.epsilon,
            delta=self._delta,
            secure=self._learner.secure,
        )
        return Outcome((released,))

    def _policy_digest(self) -> bytes:
        return self._policy.digest if self._policy else b''

    def _up_to_date(self) -> bool:
        """Whether this hospital holds the policy that the round starts from."""
        return self._status is not None and self._status.policy_digest == self._policy_digest()

    def _has_update(self, round: int) -> bool:
        update = self._log.update
        return update is not None and (update.round, update.base) == (
            round,
            self._policy_digest(),
        )
