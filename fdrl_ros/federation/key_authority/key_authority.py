# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The key authority: re-adds the signed ciphertexts, decrypts that sum and nothing else."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fdrl_ros.crypto.he.encryption import CkksScheme, SecretContext
from fdrl_ros.crypto.he.quantisation import EncryptionSettings
from fdrl_ros.errors import CryptoError, FdrlError, RoundError
from fdrl_ros.federation.key_authority.released import Released, Validation
from fdrl_ros.federation.key_authority.request import check_request, Checked, leftover_of
from fdrl_ros.federation.key_authority.sum import Summing
from fdrl_ros.federation.protocol.attempt import attempt_of
from fdrl_ros.federation.protocol.channel import Channel
from fdrl_ros.federation.protocol.ledger_watch import LedgerWatch
from fdrl_ros.federation.protocol.message import (
    DecryptRequest,
    EncryptionKey,
    GlobalPolicy,
    LedgerHeads,
    Message,
    Order,
    Relay,
    Verdict,
    Wanted,
)
from fdrl_ros.federation.protocol.orders import note_order, take_order, unnoted
from fdrl_ros.federation.protocol.party import Job, Outcome, Report, Stopped
from fdrl_ros.federation.protocol.recovery import recover_key_authority
from fdrl_ros.federation.protocol.store import Store
from fdrl_ros.federation.protocol.update_codec import fed_avg, Terms, UpdateCodec
from fdrl_ros.policy import digest_of, encode_weights, NetworkShape
from fdrl_ros.privacy.ledger.entry import DIGEST
import numpy as np

Step = Callable[[np.ndarray, np.ndarray], np.ndarray]

KEPT = 100
"""Released policies that can be rolled back to."""


class KeyAuthority:
    """
    Holds the secret key of the homomorphic encryption.

    It decrypts at most one sum per round, over all attempts: one that it added itself from
    ciphertexts which their hospitals signed, for a survivor set that enough survivors signed and
    revealed shares for. The masks come off that sum alone, so no decryption shows the update of
    one hospital.
    """

    takes = (DecryptRequest, Order, Relay)

    def __init__(
        self,
        channel: Channel,
        shape: NetworkShape,
        start: np.ndarray,
        secret: SecretContext,
        settings: EncryptionSettings,
        validate: Callable[[np.ndarray], Validation],
        store: Store,
        *,
        secure: bool,
        personal: tuple[str, ...] = (),
        step: Step = fed_avg,
    ) -> None:
        """
        Go on from the state in `store`, or begin with the public starting policy.

        :param start: weights of the public starting policy, shape (n_parameters,).
        :param secret: of the scheme that roster, network and settings ask for.
        :param validate: test of a new policy on public patients.
        :param secure: whether every hospital draws its noise from the secure source.
        :param personal: layers that each hospital keeps to itself: here they stay as they began.
        :param step: from the weights and the average update of a round to the next weights.
        """
        self._channel = channel
        self._shape = shape
        self._start = start
        self._validate = validate
        self._store = store
        self._secure = secure
        self._shared = shape.shared(personal)
        self._step = step
        self._codec = UpdateCodec.agree(
            self._shared.size,
            len(channel.roster.hospitals),
            settings.bits,
            settings.limit,
            settings.scheme,
        )
        if secret.scheme != self._codec.scheme:
            raise CryptoError('the secret key is of another scheme than settings and roster ask')
        self._secret = secret
        self._public = secret.public
        self._announced: dict[str, Any] = {
            'context': secret.public_bytes(),
            'n_parameters': self._codec.n_parameters,
            'personal': personal,
            'members': self._codec.quantisation.members,
            'bits': settings.bits,
            'limit': settings.limit,
        }
        self._watch = LedgerWatch(store)
        saved = store.get('released')
        self._released = (
            Released.from_bytes(saved, shape.n_parameters)
            if saved
            else Released(0, 0, start, (), b'', False, 'public starting policy')
        )
        recover_key_authority(channel, store, self._released.round)
        self._busy = False
        self._refused = (0, '')
        self._summing: Summing | None = None

    @property
    def round(self) -> int:
        """The newest round whose policy was released."""
        return self._released.round

    def start(self, now: float) -> Outcome:
        """Announce the encryption key and the newest policy."""
        key = self._channel.seal(EncryptionKey, 0, 0, **self._announced)
        note_order(self._channel, self._store)
        if (self._channel.journal.newest_round('release') or 0) < self._released.round:
            self._note_release()  # killed between the two
        self._channel.journal.append('key', digest=bytes.fromhex(self._public.digest))
        saved = self._store.get('summed')
        summed = Released.from_bytes(saved, self._shape.n_parameters) if saved else None
        jobs: tuple[Job, ...] = ()
        if summed and summed.round == self._released.round + 1:
            self._busy = True
            jobs = (Job('validate', lambda report, stopped: self._validated(summed)),)
        return Outcome((key, self._acknowledge(), self._policy_message()), jobs)

    def tick(self, now: float) -> Outcome:
        """Ask for updates that did not come."""
        return self._pull(now)

    def handle(self, message: Message, now: float) -> Outcome:
        """Take a request to decrypt; see :class:`Party`."""
        if isinstance(message, Relay):
            return self._take_relay(message, now)
        if isinstance(message, Order):
            return self._roll_back(message)
        if not isinstance(message, DecryptRequest):
            raise RoundError(
                message.envelope.sender, f'{type(message).__name__} to the key authority'
            )
        sender = self._channel.accept(message, 'aggregator').name
        if message.envelope.round == self._released.round:
            # The answer to an earlier request was lost. There is no second decryption.
            return Outcome((self._policy_message(),))
        if self._busy:
            return Outcome()  # the answer is on its way
        try:
            if message.envelope.round != self._released.round + 1:
                raise RoundError(sender, f'the next round is {self._released.round + 1}')
            self._channel.check_roster()
            checked = self._checked(message) if message.survivors else None
        except FdrlError as error:
            return self._verdict(message, False, str(error))
        accepted = self._verdict(message, True, '')
        if checked is None:
            return accepted + self._begin(lambda: self._abandoned(message), message)
        if self._summing is None or not self._summing.go_on(checked):
            base = digest_of(self._released.weights)
            watch = self._watch.take
            self._summing = Summing(checked, self._channel, self._public, base, watch)
        return accepted + self._pull(now)

    def _pull(self, now: float) -> Outcome:
        """Ask the aggregator for more of the updates, or decrypt when all are here."""
        summing = self._summing
        if summing is None or self._busy:
            return Outcome()
        of = attempt_of(summing.checked.request.envelope)
        if summing.is_whole:
            self._summing = None
            return self._begin(lambda: self._decrypt(summing), summing.checked.request)
        return Outcome(
            tuple(
                self._channel.seal(Wanted, *of, to='aggregator', first=first, count=count)
                for first, count in summing.wanted(now)
            )
        )

    def _take_relay(self, message: Relay, now: float) -> Outcome:
        sender, summing = self._channel.accept(message, 'aggregator').name, self._summing
        of = attempt_of(message.envelope)
        if summing is None or of != attempt_of(summing.checked.request.envelope):
            raise RoundError(sender, f'updates of {of} that were not asked for')
        try:
            summing.take(message)
        except FdrlError as error:
            self._summing = None
            return self._verdict(summing.checked.request, False, str(error))
        return self._pull(now)

    def _begin(self, work: Callable[[], Released], request: DecryptRequest) -> Outcome:
        """Do on the worker what ends the round, unless it is refused."""
        self._busy = True

        def decrypt(
            report: Report, stopped: Stopped
        ) -> Released | tuple[DecryptRequest, FdrlError]:
            try:
                return work()
            except FdrlError as error:
                return request, error

        return Outcome(jobs=(Job('decrypt', decrypt),))

    def finish(self, job: Job, result: Any, now: float) -> Outcome:
        """Publish the policy, or the reason why there is none."""
        self._busy = False
        if isinstance(result, tuple):
            request, error = result
            return self._verdict(request, False, str(error))
        if isinstance(result, Exception):
            raise result
        return self._release(result)

    def _checked(self, request: DecryptRequest) -> Checked:
        announced = EncryptionKey(request.envelope, **self._announced)
        terms = Terms.of(self._codec, self._public, announced)
        digest = terms.digest(digest_of(self._released.weights), self._channel.roster)
        return check_request(request, self._channel, digest)

    def _roll_back(self, order: Order) -> Outcome:
        """
        End the present round with the weights of an older one, signed anew, as an operator orders.

        :raises RoundError: if its policy is not there, or a sum is being decrypted.
        """
        used = take_order(order, self._channel, self._store)
        operator, older = order.envelope.sender, order.to_round
        weights = self._weights_of(older)
        if self._busy or weights is None or older >= self._released.round:
            self._store.replace((), used)
            why = 'a sum is being decrypted: order again after this round'
            raise RoundError(
                operator, why if self._busy else f'there is no older policy of round {older}'
            )
        round = self._released.round + 1
        used |= unnoted(order, self._channel, (round, 0), f'roll back to round {older}')
        reason = f'rolled back to the policy of round {older} by {operator}'
        return self._release(Released(round, 0, weights, (), b'', True, reason), used)

    def _release(self, released: Released, used: dict[str, bytes] | None = None) -> Outcome:
        """Keep and publish the outcome of a round, in one step with the order that it obeys."""
        kept = {'released': released.to_bytes(), f'policy {released.round}': released.to_bytes()}
        self._store.replace([f'policy {released.round - KEPT}'], kept | (used or {}))
        self._released, self._summing = released, None
        note_order(self._channel, self._store)
        self._note_release()
        note = f'released the policy of round {released.round}: {released.reason}'
        # First the heads: hospitals release their own policies on acknowledged ones alone.
        return Outcome((self._acknowledge(), self._policy_message()), notes=(note,))

    def _acknowledge(self) -> LedgerHeads:
        released = self._released
        return self._watch.acknowledge(self._channel, (released.round, released.attempt))

    def _weights_of(self, round: int) -> np.ndarray | None:
        """Return the weights of an older policy that is kept; those of 0 are the public start."""
        saved = self._store.get(f'policy {round}')
        if saved is None:
            return None if round else self._start
        return Released.from_bytes(saved, self._shape.n_parameters).weights

    def _note_release(self) -> None:
        """Write down whose updates made the newest policy."""
        released, contributors = self._released, {}
        before = self._weights_of(released.round - 1)
        assert before is not None
        for place, name in enumerate(released.contributors):
            contributors[name] = {
                'size': released.sizes[place],
                'update': released.update_hashes[DIGEST * place : DIGEST * (place + 1)],
                'ledger': self._watch.head(name),
            }
        self._channel.journal.append(
            'release',
            round=released.round,
            attempt=released.attempt,
            contributors=contributors,
            before=digest_of(before),
            policy=digest_of(released.weights),
            rolled_back=released.rolled_back,
            reason=released.reason,
        )

    def _decrypt(self, summing: Summing) -> Released:
        """
        Take off the masks, decrypt once, validate.

        :raises FdrlError: if the request is refused; a later one may bring what it lacked.
        """
        checked = summing.checked
        request, survivors = checked.request, checked.survivors
        leftover = leftover_of(checked, self._codec)
        # One decryption per round, durably decided before it happens: were this process killed
        # here, it would decrypt the very same sum again, and no other.
        round = f'{request.envelope.round} '.encode()
        chosen = round + request.sum_hash
        begun = self._store.get('decrypting') or b''
        if begun.startswith(round) and begun != chosen:
            return self._rolled_back(request, 'another sum of this round was begun')
        if begun != chosen:
            self._store.replace((), {'decrypting': chosen, **self._served()})
        of, journal = request.envelope, self._channel.journal
        if (journal.newest_round('decrypt') or 0) < of.round:
            place = {'round': of.round, 'attempt': of.attempt}
            journal.append('decrypt', **place, sum=request.sum_hash)
        try:
            slots = np.stack([self._secret.decrypt(each) for each in summing.sums])
            slots = self._codec.unmask(slots, leftover)
            sizes = [self._channel.roster.member(name).size for name in survivors]
            average = self._codec.average(slots, sizes, self._channel.roster.n_max)
        except CryptoError as error:
            return self._rolled_back(request, f'the sum is not one of honest updates: {error}')
        weights = self._released.weights.copy()
        weights[self._shared] = self._step(weights[self._shared], average)
        summed = Released(
            request.envelope.round,
            request.envelope.attempt,
            weights,
            survivors,
            b''.join(checked.hashes[name] for name in survivors),
            False,
            '',
            tuple(sizes),
        )
        # After a crash it is validated and released from the store.
        self._store.put('summed', summed.to_bytes())
        return self._validated(summed)

    def _served(self) -> dict[str, bytes]:
        """
        Count one more round that this secret key decrypts.

        :raises CryptoError: if its flooding covers no more.
        """
        name = f'served {self._public.digest}'
        count, scheme = self._store.get_number(name), self._codec.scheme
        if isinstance(scheme, CkksScheme) and count >= scheme.decryptions:
            raise CryptoError(f'the secret key has served {count} rounds: start with a new one')
        return {name: str(count + 1).encode()}

    def _abandoned(self, request: DecryptRequest) -> Released:
        return self._rolled_back(request, 'the round was abandoned')

    def _rolled_back(self, request: DecryptRequest, reason: str) -> Released:
        """End the round with the older weights."""
        envelope = request.envelope
        weights = self._released.weights
        return Released(envelope.round, envelope.attempt, weights, (), b'', True, reason)

    def _validated(self, summed: Released) -> Released:
        """Keep the summed policy if it does on public patients, else the older weights."""
        validation = self._validate(summed.weights)
        return replace(
            summed,
            weights=summed.weights if validation.passed else self._released.weights,
            rolled_back=not validation.passed,
            reason=validation.reason,
        )

    def _policy_message(self) -> GlobalPolicy:
        released = self._released
        return self._channel.seal(
            GlobalPolicy,
            released.round,
            released.attempt,
            weights=encode_weights(released.weights),
            digest=digest_of(released.weights),
            contributors=released.contributors,
            update_hashes=released.update_hashes,
            rolled_back=released.rolled_back,
            secure=self._secure,
            reason=released.reason,
        )

    def _verdict(self, request: DecryptRequest, accepted: bool, reason: str) -> Outcome:
        envelope = request.envelope
        verdict = self._channel.seal(
            Verdict, envelope.round, envelope.attempt, accepted=accepted, reason=reason
        )
        if accepted:
            return Outcome((verdict,))
        if (envelope.round, reason) != self._refused:
            # The same again says nothing new, and must not fill the disk.
            self._refused = (envelope.round, reason)
            of = {'round': envelope.round, 'attempt': envelope.attempt}
            self._channel.journal.append('refuse', **of, reason=reason)
        note = f'refused to decrypt round {envelope.round}: {reason}'
        return Outcome((verdict,), notes=(note,))
