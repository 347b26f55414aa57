# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The hospital's side of a round, phase by phase (FDRL Alg. 1; masks after Bonawitz et al. 2017).

OPEN: publish this attempt's round keys. SHARE: seal shares of its secrets for the others. TRAIN:
train once a round, mask, encrypt and send. SKETCH: sign projections of the masks. SETTLE: sign the
survivor set. REVEAL: reveal the shares that take the masks off the survivors' sum. RELEASED: check
the new policy, forget the rest. FINISHED: make the home policy, if this hospital has one.

Everything that is sent in an attempt follows from the round's seed, the durable record of
:mod:`fdrl_ros.federation.hospital.state` and what the others sent, so a hospital that is killed
sends the same again.
"""

from dataclasses import dataclass

from fdrl_ros.crypto.he.schemes import EncryptionSettings
from fdrl_ros.crypto.keys.roster import SERVERS
from fdrl_ros.crypto.masking.masks import net_mask
from fdrl_ros.crypto.masking.merkle import root_and_paths
from fdrl_ros.crypto.masking.round_secret import AttemptSecrets
from fdrl_ros.crypto.masking.share_sealing import (
    deal,
    KeyList,
    open_parcel,
    own_keys,
    PARCEL_BYTES,
    seal_shares,
    SealError,
)
from fdrl_ros.crypto.masking.sketch import Sketch, write_values
from fdrl_ros.errors import (
    BudgetExceededError,
    CryptoError,
    LateError,
    LedgerError,
    MessageError,
    PolicyError,
    PrivacyError,
    RoundError,
    TrainingStopped,
)
from fdrl_ros.federation.hospital.state import (
    HospitalState,
    LocalUpdate,
    Projected,
    Received,
    RoundSeeds,
    Sent,
    Setup,
)
from fdrl_ros.federation.protocol import message as protocol
from fdrl_ros.federation.protocol.attempt import (
    check_enough,
    check_hospitals,
    check_whole,
    delivery_digest,
    parts,
    peer_key_list,
    settle_digest,
    setup_digest,
)
from fdrl_ros.federation.protocol.blame import (
    check_blame,
    check_dealt,
    note_blame,
    PROVEN,
    source,
    WORDS,
)
from fdrl_ros.federation.protocol.channel import (
    Channel,
    check_signed,
    RosterMismatches,
    Takes,
)
from fdrl_ros.federation.protocol.chunk_requests import chunk_numbers, FIRST
from fdrl_ros.federation.protocol.message import (
    AttemptId,
    Message,
    Phase,
    shortened,
    UNDER_WAY,
)
from fdrl_ros.federation.protocol.party import Effects, Job, Party, Report, Stopped
from fdrl_ros.federation.protocol.sketches import bound_of, keys_of_masks, read_sketch
from fdrl_ros.federation.protocol.store import Store
from fdrl_ros.federation.protocol.update_codec import open_key, Terms
from fdrl_ros.learner.learner import HomeLearner, HomePolicy, Learner
from fdrl_ros.policy import decode_weights, digest_of, encode_weights
from fdrl_ros.policy.layout import TensorLayout
from fdrl_ros.privacy.ledger.chain import Head
from fdrl_ros.privacy.stated import stated
import numpy as np

AHEAD = 8
"""Future attempts whose messages are kept: they may arrive before the status that begins one."""

AGGREGATOR = 'aggregator'
TAKING_PART = (
    Phase.OPEN,
    Phase.SHARE,
    Phase.TRAIN,
    Phase.SKETCH,
    Phase.SETTLE,
    Phase.REVEAL,
)
"""Phases in which a hospital has something to do."""


@dataclass(frozen=True)
class HospitalSettings:
    """
    What a hospital agreed to.

    :param encryption: how its updates are quantised and encrypted.
    :param unit: privacy unit of the learner's epsilon.
    :param delta: of the learner's guarantee.
    :param quorum: fewest members of a round that this hospital takes part in.
    :param release: whether to publish its home policy, and its own policy after each round whose
        members all do.
    :param personal: layers that never leave this hospital, except in a released own policy.
    """

    encryption: EncryptionSettings
    unit: str = 'patient'
    delta: float = 0.0
    quorum: int = 0
    release: bool = False
    personal: tuple[str, ...] = ()


class Hospital(Party):
    """One hospital in the federation: a plain object that a driver moves; see :class:`Party`."""

    takes: Takes = {
        protocol.Blame: (AGGREGATOR,),
        protocol.Delivery: (AGGREGATOR,),
        protocol.Dispute: (AGGREGATOR,),
        protocol.EncryptionKey: ('key_authority',),
        protocol.GlobalPolicy: ('key_authority',),
        protocol.LedgerHeads: SERVERS,
        protocol.PeerKeys: (AGGREGATOR,),
        protocol.RoundStatus: (AGGREGATOR,),
        protocol.Settle: ('hospital',),
        protocol.Wanted: (AGGREGATOR,),
    }

    def __init__(
        self,
        channel: Channel,
        learner: Learner,
        layout: TensorLayout,
        store: Store,
        seeds: RoundSeeds,
        settings: HospitalSettings,
    ) -> None:
        """
        Go on from the state in `store`.

        :param seeds: where the secrets of its rounds come from.
        """
        self.channel = channel
        self._roster = channel.roster
        self._name = channel.name
        self._learner = learner
        self._layout = layout
        self.seeds = seeds
        self._settings = settings
        self._quorum = max(settings.quorum, channel.roster.quorum)
        self._shared = layout.shared(settings.personal)
        self.terms: Terms | None = None
        self.policy: protocol.GlobalPolicy | None = None
        """The newest global policy that was checked."""
        self._weights = np.zeros(layout.n_parameters, dtype=np.float32)
        self.status: protocol.RoundStatus | None = None
        self.attempts: dict[AttemptId, Received] = {}
        """What was received, by attempt."""
        self._busy = False
        self._declined: tuple[int, int, str] | None = None  # round, reason and detail
        self._seeded = 0  # the round in which it last signed that its noise is
        self._acknowledged: dict[str, tuple[AttemptId, Head]] = {}
        self._shown: tuple[AttemptId, bytes] = ((0, 0), b'')  # which update is in which policy
        self._early_policy: protocol.GlobalPolicy | None = None
        self._released = 0
        self._blamed: set[tuple[int, str, protocol.Fault]] = set()
        self._early_blames: dict[tuple[str, int], protocol.Blame] = {}
        self.home: HomePolicy | None = None
        """The home policy, once it is made after the last round."""
        self._released_home = b''
        self._lacking = ''
        self.problem = ''
        """Why this hospital takes no part any more; empty while it does."""
        self.restored = False
        """Whether a server saw entries that the ledger lacks: its epsilon is then too low."""
        self._mismatches = RosterMismatches(channel)
        self.state = HospitalState(store, layout.n_parameters)
        """What this hospital keeps of the round."""
        self.state.recover(channel, seeds)

    @property
    def round(self) -> int:
        """The round that this hospital works at."""
        return self._attempt[0]

    @property
    def acknowledged(self) -> bool:
        """
        Whether the ledger contains the heads that both servers acknowledged last.

        Those of the aggregator must be as new as its status, those of the key authority as its
        policy: older ones may lack what was spent since, and may be replayed.
        """
        status, policy = self.status, self.policy
        if self.restored or status is None or policy is None or len(self._acknowledged) < 2:
            return False
        (aggregator, _), (authority, _) = (self._acknowledged[server] for server in SERVERS)
        return aggregator >= status.id and authority[0] >= policy.envelope.round

    @property
    def accounted(self) -> bool:
        """
        Whether the ledger has all that was spent, so that its epsilon may be stated.

        After the last round it has that once the home policy is made: the servers do not see
        what that costs, so an older copy of the ledger may lack it, and is charged anew first.
        """
        if not self.acknowledged or not isinstance(self._learner, HomeLearner):
            return self.acknowledged
        assert self.status and self.policy
        return self.status.phase != Phase.FINISHED or self._home_of(self.policy) is not None

    def handle(self, message: Message, now: float) -> Effects:
        """Take a message; see :class:`Party`."""
        self.channel.check(message, self.takes, 'a hospital')
        match message:
            case protocol.RoundStatus():
                return self._take_status(message)
            case protocol.PeerKeys():
                if message.to != self._name:
                    raise RoundError(message.sender, f'keys for {message.to}')
                self._received(message).take_keys(message, self._roster)
            case protocol.Delivery():
                if message.to != self._name:
                    raise RoundError(message.sender, f'shares for {message.to}')
                self._received(message).take_delivery(message)
            case protocol.Settle():
                received = self._received(message)
                received.take_settle(message, self._roster.neighbourhoods.witnesses)
                agreeing = self._roster.neighbourhoods.agreeing
                revealing = self.status and self.status.phase == Phase.REVEAL
                few = len(received.settles) + 1 < agreeing
                if few or not revealing or 'reveal' in received.done:
                    return Effects()  # nothing is revealed for so few, and all of it once
            case protocol.Blame():
                return self._take_blame(message)
            case protocol.Dispute():
                return self._take_dispute(message)
            case protocol.Wanted():
                return self._take_wanted(message)
            case protocol.GlobalPolicy():
                return self._take_policy(message)
            case protocol.EncryptionKey():
                self._take_encryption_key(message)
                return self._take_early_blames() + self._advance()
            case protocol.LedgerHeads():
                return self._take_heads(message)
        return self._advance()

    def finish(self, job: Job, result: object, now: float) -> Effects:
        """Take the result of training or of encryption."""
        self._busy = False
        if isinstance(result, TrainingStopped):
            return Effects(notes=(str(result),))
        if isinstance(result, BudgetExceededError):
            return self._decline(protocol.DeclineReason.BUDGET, str(result))
        if isinstance(result, HomePolicy):
            self.home = result
            chosen = f'round {result.round}: the {result.chosen} policy was chosen for use at home'
            notes = (*result.notes, chosen)
            return Effects(notes=notes) + self._release_home_policy() + self._advance()
        if isinstance(result, CryptoError):
            return Effects(notes=(f'nothing sent in round {self.round}: {result}',))
        if isinstance(result, Exception):
            raise result
        if isinstance(result, LocalUpdate):
            self.state.update = result
            self.problem = ''
            note = (
                f'trained round {result.round}: epsilon {stated(result.result.epsilon, 3)} spent'
            )
            return Effects(notes=(note,)) + self._advance()
        if isinstance(result, Projected):
            return self._send_sketch(result) + self._advance()
        if isinstance(result, Sent) and result.id == self._attempt:
            self.state.keep_sent(result)
        return self._advance()

    # Which attempt this hospital is in, and what it does there.

    @property
    def _attempt(self) -> AttemptId:
        """The present attempt; after a restart the one before which nothing is sent."""
        return self.status.id if self.status else self.state.floor

    def _received(self, message: Message) -> Received:
        """
        Return what was received in the attempt that a message belongs to.

        :raises RoundError: if it is over, or too far ahead to keep anything of it.
        """
        attempt, present = message.id, self._attempt
        near = (present[0], present[1] + AHEAD)
        if attempt[0] != present[0]:
            near = (present[0] + 1, AHEAD)
        if self.status is None:
            room = attempt in self.attempts or len(self.attempts) < AHEAD
            near = attempt if room else (0, 0)
        if not present <= attempt <= near:
            refusal = LateError if attempt < present else RoundError
            raise refusal(
                message.sender, f'{type(message).__name__} of {attempt}, now at {present}'
            )
        if attempt not in self.attempts:
            self.attempts[attempt] = Received.load(self.state, attempt)
        return self.attempts[attempt]

    def _take_status(self, message: protocol.RoundStatus) -> Effects:
        attempt = message.id
        if attempt < self._attempt:
            raise RoundError(message.sender, f'status of a past attempt, now at {self._attempt}')
        if (objection := self._mismatches.object_to(message)) is not None:
            return objection
        try:
            for marks in (message.keyed, message.members, message.survivors):
                self._named(marks)
        except CryptoError as error:
            raise MessageError(message.sender, str(error)) from error
        if attempt in self.attempts or message.phase in UNDER_WAY:
            received = self.attempts.get(attempt) or Received.load(self.state, attempt)
            received.take_lists(message)
            self.attempts[attempt] = received
        self.status = message
        self.attempts = {key: each for key, each in self.attempts.items() if key >= attempt}
        return self._take_early_blames() + self._release_own_policy() + self._advance()

    def _advance(self) -> Effects:
        """Do what the present phase asks of this hospital and was not done yet."""
        if self.policy is not None and self.acknowledged and not self._busy:
            # Nothing of the round is asked for again, so nobody may draw its noise again.
            self._learner.forget(self.policy.envelope.round)
        status = self.status
        if status is not None and status.phase == Phase.FINISHED:
            return self._go_home()
        if status is None or status.phase not in TAKING_PART:
            return Effects()
        if self.restored:
            return self._decline(protocol.DeclineReason.LEDGER, self._lacking)
        if not self._up_to_date():
            return Effects()
        received, effects = self._received(status), Effects()
        try:
            if status.phase == Phase.OPEN:
                return self._open(received, status)
            keyed = self._named(status.keyed)
            if self._name in keyed:
                check_enough(keyed, self._quorum, AGGREGATOR)
                # Published again after a restart: others may have started again too, and if these
                # are other keys, nobody waits for this hospital.
                effects = self._publish_key(received)
                effects += self._take_part(received, status)
        except (RoundError, CryptoError) as error:
            note = f'no part in round {status.envelope.round}: {error}'
            effects += Effects(notes=(note,) if received.first_time(note) else ())
        return effects

    def _up_to_date(self) -> bool:
        """Whether this hospital starts from what the aggregator says that all start from."""
        status = self.status
        if status is None or not self._own_terms or not self.acknowledged:
            return False
        return (status.envelope.round, status.terms_digest) == (self._next, self._own_terms)

    @property
    def _next(self) -> int:
        """The round that starts from this hospital's policy; -1 without one."""
        return self.policy.envelope.round + 1 if self.policy else -1

    @property
    def _own_terms(self) -> bytes:
        """The digest of what all must agree on in that round; empty while it is not known."""
        if self.policy is None or self.terms is None:
            return b''
        return self.terms.digest(self.policy.digest, self._roster)

    def _take_part(self, received: Received, status: protocol.RoundStatus) -> Effects:
        """Go through the phases after OPEN, as far as the aggregator is."""
        keys = self._key_list(received, status)
        if keys is None:
            return Effects()
        if status.phase == Phase.SHARE:
            return self._share(received, keys)
        member = self._name in self._named(status.members)
        effects = self._open_shares(received, keys, status) if member else Effects()
        setup = received.setup
        doubts = self._contradictions(received, keys, status)
        effects += Effects(notes=tuple(filter(received.first_time, doubts)))
        if setup is None:
            return effects
        if status.phase == Phase.TRAIN:
            return effects + self._train(received, setup)
        if status.phase == Phase.SKETCH:
            return effects + self._sketch(received, setup, status.nonce)
        survivors = self._named(status.survivors)
        if self._name in survivors:
            effects += self._settle(received, setup, survivors)
            if status.phase == Phase.REVEAL:
                effects += self._reveal(received, setup, survivors)
        return effects

    def _named(self, marks: bytes) -> tuple[str, ...]:
        """Return the hospitals of a list of the status, which was read before."""
        return self._roster.neighbourhoods.named(marks)

    def _decline(self, reason: protocol.DeclineReason, why: str) -> Effects:
        """Tell the aggregator that this hospital takes no part in the round."""
        round = self.round
        if self._has_declined(round):
            return Effects()
        self._declined = round, int(reason), shortened(' '.join(why.split()))
        self.problem = self.problem or why
        return self._say_declined() + Effects(notes=(f'no part in round {round}: {why}',))

    def _has_declined(self, round: int) -> bool:
        return self._declined is not None and self._declined[0] == round

    def _say_declined(self) -> Effects:
        assert self._declined
        _, reason, detail = self._declined
        return self.channel.send(protocol.Decline, self._attempt, reason=reason, detail=detail)

    # Phase OPEN: publish this attempt's keys.

    def _open(self, received: Received, status: protocol.RoundStatus) -> Effects:
        """Publish the keys, if there will be an update to mask with them."""
        round = status.envelope.round
        if self._has_declined(round):
            # Again in each attempt: the aggregator forgets it when it starts again, or is told to.
            return self._say_declined() if received.first_time('declined') else Effects()
        if self._name not in self._named(status.members):
            note = f'not among those whom attempt {status.envelope.attempt} waits for'
            return Effects(notes=(note,)) if received.first_time(note) else Effects()
        self.channel.check_roster()
        if not self._has_update(round):
            try:
                self._learner.check_affordable(round)
            except BudgetExceededError as error:
                return self._decline(protocol.DeclineReason.BUDGET, str(error))
        return self._publish_key(received)

    def _publish_key(self, received: Received) -> Effects:
        if received.own is not None:
            return Effects()
        keys = own_keys(self._secrets(received), self._roster.neighbourhoods)
        received.own = self.channel.sign(
            protocol.RoundKey,
            *received.attempt,
            keys_root=keys.root,
            mask_keys=keys.mask,
            sealing_keys=keys.sealing,
            seed_hash=keys.seed_hash,
            release=self._settings.release,
        )
        return Effects((received.own,))

    def _secrets(self, received: Received) -> AttemptSecrets:
        if received.secrets is None:
            round, attempt = received.attempt
            received.secrets = self.seeds.of(round).attempt(attempt)
        return received.secrets

    # Phase SHARE: seal shares of this attempt's two secrets for each keyed hospital.

    def _key_list(self, received: Received, status: protocol.RoundStatus) -> KeyList | None:
        """
        Return the list that shares are made along, or None while it is not delivered.

        :raises MessageError: if what was delivered is not of the keyed hospitals.
        :raises CryptoError: if no shares can be made along it.
        """
        if received.key_list is None and received.keys is not None:
            assert received.own is not None
            received.key_list = peer_key_list(
                self._roster, received.keys, received.own, self._named(status.keyed), status
            )
        return received.key_list

    def _share(self, received: Received, keys: KeyList) -> Effects:
        if not received.first_time('shares'):
            return Effects()
        parcels = [*seal_shares(self._secrets(received), keys).values()]
        received.parcels_root, _ = root_and_paths(parcels)
        return self.channel.send(
            protocol.Shares,
            received.attempt,
            keys_digest=keys.digest,
            parcels_root=received.parcels_root,
            parcels=b''.join(parcels),
        )

    # Phase TRAIN: open the others' shares, train, mask, encrypt and send.

    def _open_shares(
        self, received: Received, keys: KeyList, status: protocol.RoundStatus
    ) -> Effects:
        """
        Open what the other members sealed for this one, once it is delivered.

        :param status: names the members who mask with each other.
        :returns: a complaint about each parcel that cannot be opened; then there is no set-up.
        :raises RoundError: if what was delivered is not of these members.
        :raises CryptoError: if a parcel is not its dealer's.
        """
        members, sender = self._named(status.members), status.sender
        delivery, effects = received.delivery, Effects()
        if received.setup is None and delivery and 'complaint' not in received.done:
            check_hospitals(members, keys.members, self._roster.quorum, sender)
            check_whole(members, keys.buckets, sender)
            dealers = keys.graph.holders(self._name, set(members))
            others = tuple(name for name in dealers if name != self._name)
            if len(dealers) < keys.threshold:
                raise RoundError(sender, f'{len(others)} peers of this hospital are too few')
            if (dealt := tuple(each.sender for each in delivery.shares)) != others:
                raise RoundError(sender, f'delivered shares of {dealt}')
            secrets = self._secrets(received)
            shares = deal(secrets, keys, self._name)
            rooms = [keys.rooms[name] for name in others]
            for message, parcel, path in parts(
                delivery, delivery.shares, PARCEL_BYTES, delivery.parcels, rooms
            ):
                name = message.sender
                check_dealt(keys, message, self._name, parcel, path, self._roster)
                try:
                    secret = secrets.sealing(name)
                    shares[name] = open_parcel(keys, name, self._name, parcel, secret)
                except SealError as error:
                    effects += self._complain(received, keys, message, parcel, path, error)
            if effects.messages:
                received.first_time('complaint')
                return effects
            shares = dict(sorted(shares.items()))
            self.state.keep_received(received.attempt, filter(None, (received.keys, delivery)))
            setup, delivered = setup_digest(keys, members), delivery_digest(delivery.parcels)
            received.setup = Setup(setup, members, shares, delivered)
        if received.setup is not None and members != received.setup.members:
            raise RoundError(sender, f'changed the members to {members}')
        return effects

    def _complain(
        self,
        received: Received,
        keys: KeyList,
        shares: protocol.Shares,
        parcel: bytes,
        path: bytes,
        fault: SealError,
    ) -> Effects:
        """Prove that a dealer's parcel is bad, by the secret that it was sealed for."""
        dealer = shares.sender
        complaint = self.channel.send(
            protocol.Complaint,
            received.attempt,
            dealer=dealer,
            keys_digest=keys.digest,
            shares=shares,
            parcel=parcel,
            path=path,
            pairs=keys.pair(dealer, self._name) + keys.pair(self._name, dealer),
            secret=self._secrets(received).sealing(dealer).to_bytes(),
        )
        return complaint + Effects(notes=(f'complains about {dealer}: {fault}',))

    def _take_blame(self, message: protocol.Blame) -> Effects:
        """
        Check a proof of guilt, and keep it: the round may go on without the guilty hospital.

        :raises MessageError: if it proves nothing, or is of a round that is over.
        """
        round, attempt = message.id
        if self.terms is None or round > min(self.round, self._next):
            # After a restart it may come before the terms, the policy or the status of its round.
            if message.guilty not in {each.name for each in self._roster.hospitals}:
                raise MessageError(message.sender, f'blames {message.guilty[:40]!r}, no hospital')
            if message.fault not in set(protocol.Fault):
                raise MessageError(message.sender, f'blames for {message.fault}, no fault')
            self._early_blames[message.guilty, message.fault] = message
            return Effects()
        guilty = message.guilty
        if round < max(self.round, self._next):
            raise LateError(message.sender, f'blames {guilty[:40]!r} in round {round}')
        fault = check_blame(message, self._roster, self.terms.codec, self._own_terms)
        if (round, guilty, fault) in self._blamed:
            return Effects()
        self._blamed.add((round, guilty, fault))
        if fault in PROVEN:
            self.state.keep_guilty(round, guilty)
        note_blame(self.channel.journal, message, WORDS[fault])
        note = f'attempt {attempt} of round {round}: {source(fault)} that {guilty} {WORDS[fault]}'
        if guilty == self._name:
            self.problem = note
        return Effects(notes=(note,)) + self._advance()

    def _take_early_blames(self) -> Effects:
        """Take proofs that came too early for this hospital to check, if it can by now."""
        early, self._early_blames, effects = self._early_blames, {}, Effects()
        for message in early.values():
            try:
                effects += self._take_blame(message)
            except LateError:
                continue
            except MessageError as error:
                effects += Effects(notes=(str(error),))
        return effects

    def _contradictions(
        self, received: Received, keys: KeyList, status: protocol.RoundStatus
    ) -> list[str]:
        """Name what others sent that cannot be if the aggregator told this hospital the truth."""
        if not status.survivors:
            return []
        if not received.survivors_digest:
            setup = setup_digest(keys, self._named(status.members))
            received.survivors_digest = settle_digest(setup, self._named(status.survivors))
        told = received.survivors_digest
        return [
            f'somebody lies: {name} signed other survivors than this hospital was told of'
            for name, each in received.settles.items()
            if each.settle_digest != told
        ]

    def _train(self, received: Received, setup: Setup) -> Effects:
        """Train if this round's update is not there yet; then mask, encrypt and send it."""
        attempt = received.attempt
        sent = self.state.sent(attempt)
        if sent is not None and sent.setup_digest != setup.digest:
            raise RoundError(AGGREGATOR, 'the update of this attempt was masked for other members')
        if sent is not None:
            return self._send(received, sent)
        if self._busy:
            return Effects()
        self._busy = True
        if self._has_update(attempt[0]):
            return Effects(jobs=(self._encryption_job(received, setup),))
        return Effects(jobs=(self._training_job(attempt[0]),))

    def _has_update(self, round: int) -> bool:
        update = self.state.update
        base = self.policy.digest if self.policy else b''
        return update is not None and (update.round, update.base) == (round, base)

    def _training_job(self, round: int) -> Job:
        assert self.policy
        own, base = self.with_own_layers(), self.policy.digest
        weights = self._weights.copy() if own is None else own

        def train(report: Report, stopped: Stopped) -> LocalUpdate:
            result = self._learner.train(weights, round, report=report, stopped=stopped)
            update = LocalUpdate(round, base, result)
            self.state.keep_update(update)
            return update

        return Job('train', train)

    def with_own_layers(self) -> np.ndarray | None:
        """Return the global weights with the layers kept here; None if none were."""
        update, weights = self.state.update, self._weights.copy()
        if update is None or self._shared.size == weights.size:
            return None
        personal = np.ones(weights.size, dtype=bool)
        personal[self._shared] = False
        weights[personal] = update.result.weights[personal]
        return weights

    def _encryption_job(self, received: Received, setup: Setup) -> Job:
        assert self.state.update and self.terms
        codec, public = self.terms.codec, self.terms.public
        update, attempt, shared = self.state.update, received.attempt, self._shared
        size = self._roster.member(self._name).size
        base, share = self._weights, size / self._roster.n_max
        learner = self._learner
        secrets, keys = self._secrets(received), received.key_list
        assert keys is not None
        peers = {*keys.masking(self._name, setup.shares)} - {self._name}
        others = {name: keys.mask_key(name, self._name) for name in peers}

        def encrypt(report: Report, stopped: Stopped) -> Sent:
            uniforms = learner.rounding(attempt[0], codec.n_parameters)
            weights = update.result.weights[shared]
            slots = codec.encode(weights, base[shared], share, uniforms)
            # The pair masks with its peers plus the self mask (FDRL Eq. 6).
            mask = net_mask(
                secrets,
                others,
                count=codec.slots,
                modulus=codec.scheme.plain_modulus,
                setup=setup.digest,
                members=setup.members,
            )
            chunks = codec.encrypt(slots, mask, public)
            return self.state.write_chunks(attempt, setup.digest, chunks)

        return Job('encrypt', encrypt)

    def _send(self, received: Received, sent: Sent) -> Effects:
        """Send the first chunks of what is on disk; the aggregator asks for the others."""
        update = self.state.update
        if update is None or not received.first_time('update'):
            return Effects()
        ledger = Head(update.result.ledger_entries, update.result.ledger_head)
        self._note(received, 'sent', update=sent.update_hash, ledger=ledger)
        return self._chunks(sent, 0, FIRST)

    def _take_wanted(self, message: protocol.Wanted) -> Effects:
        sent = self.state.sent(message.id) if message.id == self._attempt else None
        if sent is None or message.to != self._name:
            raise RoundError(message.sender, f'wants an update of {message.id} from {message.to}')
        return self._chunks(sent, message.first, message.count)

    def _chunks(self, sent: Sent, first: int, count: int) -> Effects:
        """Sign chunks of what is on disk; the first one brings the ledger's links."""
        assert self.state.update is not None
        base, result, links = self.state.update.base, self.state.update.result, self.state.links()
        secure = self._learner.secure
        if not secure:
            self._seeded = sent.id[0]
        return Effects(
            tuple(
                self.channel.sign(
                    protocol.MaskedUpdate,
                    *sent.id,
                    chunk=number,
                    chunks=len(sent.chunks),
                    base_digest=base,
                    setup_digest=sent.setup_digest,
                    ciphertext=self.state.chunk(sent, number),
                    ledger_entries=result.ledger_entries,
                    ledger_head=result.ledger_head,
                    ledger_base_entries=result.ledger_base_entries,
                    ledger_base_head=result.ledger_base_head,
                    ledger_links=b'' if number else links,
                    secure=secure,
                )
                for number in chunk_numbers(first, count, len(sent.chunks))
            )
        )

    # Phase SKETCH: sign projections of the masks, so that the key authority can bound the update.

    def _sketch(self, received: Received, setup: Setup, nonce: bytes) -> Effects:
        """
        Project the masks of the update that was sent, once in an attempt.

        :raises RoundError: if other projections were signed in this attempt, or enough in this
            round.
        """
        attempt, sent, terms = received.attempt, self.state.sent(received.attempt), self.terms
        if sent is None or sent.setup_digest != setup.digest or received.sketch is not None:
            return Effects()
        assert terms is not None and received.key_list is not None
        bound = bound_of(terms.codec)
        self.state.record.of(attempt[0]).check_sketching(attempt[1], nonce)
        if self._busy:
            return Effects()
        self._busy = True
        secrets, keys, root = self._secrets(received), received.key_list, received.parcels_root

        def project(report: Report, stopped: Stopped) -> Projected:
            masks = keys_of_masks(secrets, keys, setup.members)
            values = Sketch(nonce, setup.digest, bound).of_masks(masks)
            # Of the keys that the masks are made by, also if others were shown before a restart.
            dealt = root or root_and_paths([*seal_shares(secrets, keys).values()])[0]
            written = write_values(values, bound.scheme.plain_modulus)
            return Projected(attempt, setup.digest, dealt, nonce, written)

        return Effects(jobs=(Job('project', project),))

    def _send_sketch(self, projected: Projected) -> Effects:
        received = self.attempts.get(projected.attempt)
        if received is None or projected.attempt != self._attempt:
            return Effects()
        self.state.keep_sketched(projected.attempt, projected.nonce)
        self._note(received, 'projected', nonce=projected.nonce)
        received.sketch = self.channel.sign(
            protocol.Sketch,
            *projected.attempt,
            setup_digest=projected.setup,
            parcels_root=projected.parcels_root,
            nonce=projected.nonce,
            values=projected.values,
        )
        return Effects((received.sketch,))

    def _take_dispute(self, message: protocol.Dispute) -> Effects:
        """
        Show what the mask of a pair is whose other end signed something else.

        That one knows it, and lied: nothing of an honest hospital is shown.

        :raises RoundError: if it did not lie.
        """
        sender, theirs = message.sender, message.sketch
        if message.to != self._name or message.id != self._attempt:
            raise RoundError(sender, f'a dispute of {message.to} in attempt {message.id}')
        received, terms = self._received(message), self.terms
        setup, ours, keys = received.setup, received.sketch, received.key_list
        if setup is None or ours is None or keys is None or terms is None:
            raise RoundError(sender, 'a dispute about projections that were not signed')
        peer = check_signed(self._roster, theirs, 'hospital').name
        others = {*keys.masking(self._name, setup.shares)} - {self._name}
        asked = (ours.setup_digest, ours.nonce)
        same = theirs.id == message.id and (theirs.setup_digest, theirs.nonce) == asked
        if not same or peer not in others:
            raise RoundError(peer, 'signed other projections than those in dispute')
        mine, its = (
            read_sketch(each, keys, setup.members, terms.codec) for each in (ours, theirs)
        )
        if mine[peer] == its[self._name]:
            raise RoundError(sender, f'there is no dispute with {peer}')
        secret = self._secrets(received).mask(peer).to_bytes()
        opening = self.channel.send(
            protocol.Opening, message.id, peer=peer, keys_digest=keys.digest, secret=secret
        )
        return opening + Effects(notes=(f'{peer} lies about the mask of this pair',))

    # Phase SETTLE: sign the survivor set, one in an attempt.

    def _settle(self, received: Received, setup: Setup, survivors: tuple[str, ...]) -> Effects:
        """
        Sign the survivors that the aggregator names; who is no witness only keeps them.

        :raises RoundError: if they cannot be, or others were signed or revealed for before.
        """
        attempt, settled = received.attempt, settle_digest(setup.digest, survivors)
        if received.signed_digest and received.signed_digest != settled:
            raise RoundError(AGGREGATOR, f'other survivors than were signed: {survivors}')
        sent = None if received.signed_digest else self.state.sent(attempt)
        if sent is None or sent.setup_digest != setup.digest:
            return Effects()
        check_hospitals(survivors, setup.members, self._roster.quorum, AGGREGATOR)
        buckets = self._roster.buckets_of(attempt[0])
        check_whole(survivors, buckets, AGGREGATOR)
        promises = self.state.record.of(attempt[0])
        promises.check_revealing(survivors, self._roster.ring_seed, buckets)
        self.state.keep_signed(attempt, survivors)
        received.signed_digest = settled
        self._note(received, 'signed', survivors=survivors)
        if self._name not in self._roster.neighbourhoods.witnesses:
            return Effects()
        return self.channel.send(
            protocol.Settle, attempt, settle_digest=settled, update_hash=sent.update_hash
        )

    # Phase REVEAL: reveal shares for the survivor set, one in a round.

    def _reveal(self, received: Received, setup: Setup, survivors: tuple[str, ...]) -> Effects:
        """
        Reveal shares once enough witnesses signed the same set.

        Of each member whose shares it holds, one share, in their order: of the self seed of who
        survived, of the mask secret of who did not; never both.

        :raises RoundError: if shares were revealed for another set before, or too few of the
            survivors hold shares of one member.
        """
        settled, graph = settle_digest(setup.digest, survivors), self._roster.neighbourhoods
        settles = received.settles.items()
        signed = {name for name, each in settles if each.settle_digest == settled}
        if 'reveal' in received.done or received.signed_digest != settled:
            return Effects()
        there = set(survivors)
        agreed = {*signed, self._name} & graph.witnesses & there
        if len(agreed) < graph.agreeing:
            return Effects()
        if lacking := graph.lacking(setup.shares, survivors):
            raise RoundError(AGGREGATOR, f'too few survivors hold shares of {min(lacking)}')
        ring, buckets = self._roster.ring_seed, self._roster.buckets_of(received.attempt[0])
        self.state.keep_revealed(received.attempt[0], survivors, ring, buckets)
        received.first_time('reveal')
        dropped = tuple(name for name in setup.members if name not in there)
        self._note(received, 'revealed', seeds=survivors, masks=dropped)
        shares = (
            pair.self_seed if name in there else pair.mask_secret
            for name, pair in sorted(setup.shares.items())
        )
        return self.channel.send(
            protocol.Reveal,
            received.attempt,
            settle_digest=settled,
            delivery_digest=setup.delivery,
            shares=b''.join(shares),
        )

    def _note(
        self, received: Received, kind: str, **fields: bytes | Head | tuple[str, ...]
    ) -> None:
        round, attempt = received.attempt
        self.channel.journal.append(kind, round=round, attempt=attempt, **fields)

    # Phase RELEASED: check the policy of the round, end it, and start from there.

    def _take_policy(self, message: protocol.GlobalPolicy) -> Effects:
        sender, (round, attempt) = message.sender, message.id
        newest = self.policy.envelope.round if self.policy else self.state.record.over - 1
        if round <= newest:
            other = self.policy and round == newest and message.digest != self.policy.digest
            raise (RoundError if other else LateError)(sender, f'policy of {round} is not newer')
        try:
            weights = decode_weights(message.weights, self._layout.n_parameters)
        except PolicyError as error:
            raise MessageError(sender, str(error)) from error
        if digest_of(weights) != message.digest:
            raise MessageError(sender, 'the digest is not that of the weights')
        shown, path = self._shown
        if self._name in message.contributors and shown != message.id:
            self._early_policy = message  # what shows that its own update is in it comes next
            return Effects()
        self.state.check_policy(message, self._name, path)
        included = self._name in message.contributors
        if message.secure and included and self._seeded == round:
            raise RoundError(sender, 'calls noise secure that this hospital signed as seeded')
        self.policy, self._weights = message, weights
        what = {'policy': message.digest, 'included': included}
        self.channel.journal.append('policy', round=round, attempt=attempt, **what)
        # The round is over: nothing may be derived from its seed any more.
        self.state.end(message, self._name)
        self.seeds.forget(round)
        self.attempts = {key: each for key, each in self.attempts.items() if key[0] > round}
        update = self.state.update
        notes: tuple[str, ...] = ()
        if self._settings.release and update and update.round == round and not included:
            notes = (f'own policy of round {round} not released: the sum left this hospital out',)
        early = self._take_early_blames()
        return early + Effects(notes=notes) + self._release_own_policy() + self._advance()

    def _is_seen(self, update: LocalUpdate) -> bool:
        """Return whether the key authority acknowledged the ledger of an update."""
        _, seen = self._acknowledged.get('key_authority', ((0, 0), Head(0, b'')))
        return not self.restored and seen.entries >= update.result.ledger_entries

    def _release_own_policy(self) -> Effects:
        """
        Publish this hospital's own policy of the round that just ended, if all chose to.

        The key authority must have acknowledged the ledger head that the update was trained on,
        which it sees in a sum alone: a hospital that the sum leaves out releases nothing.

        The policies of all but one hospital, taken off the sum, give the update of the last one.
        So every member of the attempt must have signed that it releases its own.
        """
        update, policy, chosen = self.state.update, self.policy, self._settings
        if not (chosen.release and policy and update and update.round == policy.envelope.round):
            return Effects()
        seen = self.acknowledged and self._is_seen(update)
        if not seen or self._released == update.round:
            return Effects()
        over = self.status is None or self.status.phase == Phase.FINISHED
        if over and isinstance(self._learner, HomeLearner):
            return Effects()  # the home policy takes its place, and may be charged already
        self._released = update.round
        if not self._roster.neighbourhoods.is_complete:
            why = 'not all members are peers, so nobody knows whether all release theirs'
            return Effects(notes=(f'own policy of round {update.round} not released: {why}',))
        attempt = Received.load(self.state, policy.id)
        others = [each.sender for each in attempt.delivery.shares] if attempt.delivery else []
        # Servers that lie may have the sum of another attempt, and name this one.
        promises = self.state.record.of(update.round)
        summed = {name for each in promises.signed for name in each.survivors}
        keys = attempt.keys.keys if attempt.keys else ()
        chose = {key.sender for key in keys if key.release}
        silent = sorted({*others, *summed} - {*promises.guilty, self._name} - chose)
        if silent or not others:
            why = f'{silent[0]} keeps its own' if silent else 'its attempt is forgotten'
            return Effects(notes=(f'own policy of round {update.round} not released: {why}',))
        return Effects((self._signed(update.result.weights, update.result.epsilon),))

    def _signed(self, weights: np.ndarray, epsilon: float) -> protocol.HospitalPolicy:
        """Sign a policy of this hospital, of the round whose policy came last."""
        assert self.policy
        return self.channel.sign(
            protocol.HospitalPolicy,
            *self.policy.id,
            weights=encode_weights(weights),
            digest=digest_of(weights),
            unit=self._settings.unit,
            epsilon=epsilon,
            delta=self._settings.delta,
            secure=self._learner.secure,
        )

    # Phase FINISHED: make the home policy.

    def _go_home(self) -> Effects:
        """
        Make the home policy once the rounds are over, if the learner makes one.

        The ledger must contain what both servers saw. If rounds go on later, the next end of them
        makes another one.
        """
        policy, status = self.policy, self.status
        if self._busy or policy is None or status is None or not self.acknowledged:
            return Effects()
        if policy.envelope.round + 1 != status.envelope.round:
            return Effects()  # the policy of the last round is still on its way
        if not isinstance(self._learner, HomeLearner) or self._home_of(policy) is not None:
            return Effects()
        self._busy = True
        return Effects(jobs=(self.home_job(),))

    def home_job(self) -> Job:
        """
        Return the job that makes the home policy of the newest global policy.

        :raises RoundError: before the first policy came, or if the learner makes none.
        """
        policy, learner, own = self.policy, self._learner, self.with_own_layers()
        if policy is None or not isinstance(learner, HomeLearner):
            raise RoundError(self._name, 'no policy came yet, or its learner makes no home policy')
        weights, round = self._weights.copy(), policy.envelope.round

        def home(report: Report, stopped: Stopped) -> HomePolicy:
            return learner.home(weights, round, own=own, report=report, stopped=stopped)

        return Job('home', home)

    def _home_of(self, policy: protocol.GlobalPolicy) -> HomePolicy | None:
        home = self.home
        if home is None or (home.round, home.base) != (policy.envelope.round, policy.digest):
            return None
        return home

    def signed_home(self) -> protocol.HospitalPolicy | None:
        """Sign the home policy for the hospital's own robots; None if it is not made yet."""
        home = self._home_of(self.policy) if self.policy else None
        return None if home is None else self._signed(home.weights, home.epsilon)

    def _release_home_policy(self) -> Effects:
        """
        Publish the home policy, if this hospital chose to; it takes the place of the own policy.

        No sum uncovers another hospital with it: it has nothing of an update that was summed, and
        noise of its own. The last update must have been acknowledged, as for
        :meth:`_release_own_policy`. Entries of the ledger for the home policy itself reach the
        servers with the next update only.
        """
        update, signed = self.state.update, self.signed_home()
        if not self._settings.release or signed is None or self._released_home == signed.digest:
            return Effects()
        if self.restored or (update is not None and not self._is_seen(update)):
            return Effects(
                notes=('home policy not released: the key authority saw no such ledger',)
            )
        self._released_home = signed.digest
        return Effects((signed,))

    # What every round rests on: the encryption key, and the ledger heads that the servers saw.

    def _take_encryption_key(self, message: protocol.EncryptionKey) -> None:
        sender, ours = message.sender, self._settings
        if (message.n_parameters, message.personal) != (self._shared.size, ours.personal):
            raise MessageError(
                sender,
                f'{message.n_parameters} parameters without the layers {message.personal}: this '
                f'hospital shares {self._shared.size}, without {ours.personal}',
            )
        if message.members < len(self._roster.hospitals):
            raise MessageError(sender, f'sums of {message.members} updates overflow')
        terms, agreed = open_key(message), ours.encryption
        found = (message.limit, terms.codec.kind, message.bits, message.norm, message.projections)
        if found != (
            agreed.limit,
            agreed.scheme,
            agreed.bits,
            agreed.norm,
            agreed.projections,
        ):
            raise MessageError(
                sender, f'limit, scheme, bits, norm, projections {found}: agreed was {agreed}'
            )
        self.terms = terms

    def _take_heads(self, message: protocol.LedgerHeads) -> Effects:
        """
        Compare the ledger with the head that a server acknowledges.

        A ledger without it was restored from an older copy, and nothing here can tell what it
        lacks. This hospital then takes no part until its newest ledger is put back.
        """
        sender = message.sender
        if message.to != self._name:
            raise RoundError(sender, f'heads for {message.to}')
        try:
            head = Head.from_bytes(message.head) if message.head else Head(0, b'')
        except PrivacyError as error:
            raise MessageError(sender, str(error)) from error
        before, _ = self._acknowledged.get(sender, ((0, 0), None))
        if message.id < before:
            raise LateError(sender, f'heads of {message.id}, after those of {before}')
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
        self._acknowledged[sender] = message.id, head
        effects, early = Effects(notes=notes), self._early_policy
        if sender == 'key_authority':
            self._shown = message.id, message.path
            if early is not None and early.id == message.id:
                self._early_policy = None
                effects += self._take_policy(early)
        return effects + self._release_own_policy() + self._advance()
