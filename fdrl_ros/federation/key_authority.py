# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The key authority: re-adds the signed ciphertexts, decrypts that sum and nothing else."""

from collections.abc import Callable
from dataclasses import dataclass, replace
import json
from typing import Any

from fdrl_ros.crypto.encryption import SecretContext
from fdrl_ros.crypto.quantisation import EncryptionSettings
from fdrl_ros.errors import CryptoError, FdrlError, MessageError, RoundError
from fdrl_ros.federation.aggregator import hash_of_sums
from fdrl_ros.federation.channel import Channel
from fdrl_ros.federation.ledger_watch import LedgerWatch
from fdrl_ros.federation.message import (
    DecryptRequest,
    EncryptionKey,
    GlobalPolicy,
    hash_of_chunks,
    MaskedUpdate,
    Message,
    Verdict,
)
from fdrl_ros.federation.party import Job, Outcome, Report, Stopped
from fdrl_ros.federation.store import Store
from fdrl_ros.federation.update import UpdateCodec
from fdrl_ros.policy import decode_weights, digest_of, encode_weights, NetworkShape
import numpy as np


@dataclass(frozen=True)
class Validation:
    """What a test of a policy on public patients found."""

    passed: bool
    reason: str


@dataclass(frozen=True)
class Released:
    """A policy as it was released, kept durably so that it can be said again."""

    round: int
    attempt: int
    weights: np.ndarray
    contributors: tuple[str, ...]
    update_hashes: bytes
    rolled_back: bool
    reason: str

    def to_bytes(self) -> bytes:
        """Serialise for the store: a JSON line, then the weights."""
        head = {
            'round': self.round,
            'attempt': self.attempt,
            'contributors': self.contributors,
            'update_hashes': self.update_hashes.hex(),
            'rolled_back': self.rolled_back,
            'reason': self.reason,
        }
        return json.dumps(head).encode() + b'\n' + encode_weights(self.weights)

    @classmethod
    def from_bytes(cls, data: bytes, n_parameters: int) -> 'Released':
        """Read back what :meth:`to_bytes` wrote."""
        line, weights = data.split(b'\n', 1)
        head = json.loads(line)
        head['contributors'] = tuple(head['contributors'])
        head['update_hashes'] = bytes.fromhex(head['update_hashes'])
        return cls(weights=decode_weights(weights, n_parameters), **head)


class KeyAuthority:
    """
    Holds the secret key of the homomorphic encryption.

    It decrypts at most one sum per round, over all attempts: one that it added itself from
    ciphertexts which their hospitals signed, for a survivor set that every survivor signed. The
    masks cancel in that sum alone, so no decryption shows the update of one hospital.
    """

    takes = (DecryptRequest,)

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
    ) -> None:
        """
        Go on from the state in `store`, or begin with the public starting policy.

        :param start: weights of the public starting policy, shape (n_parameters,).
        :param secret: of the scheme that roster, network and settings ask for.
        :param validate: test of a new policy on public patients.
        :param secure: whether every hospital draws its noise from the secure source.
        """
        self._channel = channel
        self._shape = shape
        self._settings = settings
        self._validate = validate
        self._store = store
        self._secure = secure
        self._codec = UpdateCodec.agree(
            shape.n_parameters, len(channel.roster.hospitals), settings.bits, settings.limit
        )
        if secret.scheme != self._codec.scheme:
            raise CryptoError('the secret key is of another scheme than settings and roster ask')
        self._secret = secret
        self._public = secret.public
        self._watch = LedgerWatch(store)
        saved = store.get('released')
        self._released = (
            Released.from_bytes(saved, shape.n_parameters)
            if saved
            else Released(0, 0, start, (), b'', False, 'public starting policy')
        )
        self._busy = False

    @property
    def round(self) -> int:
        """The newest round whose policy was released."""
        return self._released.round

    def start(self, now: float) -> Outcome:
        """Announce the encryption key and the newest policy."""
        key = self._channel.seal(
            EncryptionKey,
            0,
            0,
            context=self._secret.public_bytes(),
            n_parameters=self._shape.n_parameters,
            members=self._codec.quantisation.members,
            bits=self._settings.bits,
            limit=self._settings.limit,
        )
        saved = self._store.get('summed')
        summed = Released.from_bytes(saved, self._shape.n_parameters) if saved else None
        jobs: tuple[Job, ...] = ()
        if summed and summed.round == self._released.round + 1:
            self._busy = True
            jobs = (Job('validate', lambda report, stopped: self._validated(summed)),)
        return Outcome((key, self._policy_message()), jobs)

    def tick(self, now: float) -> Outcome:
        """Let time pass: the key authority only answers."""
        return Outcome()

    def handle(self, message: Message, now: float) -> Outcome:
        """Take a request to decrypt; see :class:`Party`."""
        if not isinstance(message, DecryptRequest):
            raise RoundError(
                message.envelope.sender, f'{type(message).__name__} to the key authority'
            )
        self._channel.accept(message, 'aggregator')
        if message.envelope.round == self._released.round:
            # The answer to an earlier request was lost. There is no second decryption.
            return Outcome((self._policy_message(),))
        try:
            self._check(message)
        except FdrlError as error:
            return self._verdict(message, False, str(error))
        self._busy = True
        return self._verdict(message, True, '') + Outcome(
            jobs=(Job('decrypt', self._decryptor(message)),)
        )

    def finish(self, job: Job, result: Any, now: float) -> Outcome:
        """Publish the policy, or the reason why there is none."""
        self._busy = False
        if isinstance(result, tuple):
            request, error = result
            return self._verdict(request, False, str(error))
        if isinstance(result, Exception):
            raise result
        self._store.put('released', result.to_bytes())
        self._released = result
        note = f'released the policy of round {result.round}: {result.reason}'
        return Outcome((self._policy_message(),), notes=(note,))

    def _check(self, request: DecryptRequest) -> None:
        """Refuse a request that is not the sum of one settled attempt of the next round."""
        envelope = request.envelope
        sender = envelope.sender
        if self._busy:
            raise RoundError(sender, 'another request is being worked at')
        if envelope.round != self._released.round + 1:
            raise RoundError(sender, f'the next round is {self._released.round + 1}')
        if not request.settles:
            raise RoundError(sender, 'nobody signed the survivor set')
        survivors = request.settles[0].survivors
        if len(survivors) < max(3, self._channel.roster.quorum):
            raise RoundError(sender, f'{len(survivors)} survivors are too few')
        signers = tuple(settle.envelope.sender for settle in request.settles)
        if sorted(signers) != sorted(survivors) or len(set(signers)) != len(signers):
            raise RoundError(sender, f'survivors {survivors}, signed by {signers}')
        digest = digest_of(self._released.weights)
        for settle in request.settles:
            self._channel.verify(settle, 'hospital')
            self._check_attempt(settle, request)
            if settle.survivors != survivors:
                raise RoundError(settle.envelope.sender, 'signed another survivor set')
            own = [u for u in request.updates if u.envelope.sender == settle.envelope.sender]
            self._check_updates(own, request, digest)
            if hash_of_chunks(u.ciphertext for u in own) != settle.update_hash:
                raise RoundError(settle.envelope.sender, 'signed another update')
        if len(request.updates) != len(survivors) * self._codec.scheme.ciphertexts:
            raise RoundError(sender, 'updates of hospitals that did not survive')

    def _check_updates(
        self, updates: list[MaskedUpdate], request: DecryptRequest, digest: bytes
    ) -> None:
        """Refuse chunks that are not one whole signed update of this attempt."""
        chunks = [update.chunk for update in updates]
        if chunks != list(range(self._codec.scheme.ciphertexts)):
            raise RoundError(request.envelope.sender, f'chunks {chunks} are not a whole update')
        for update in updates:
            self._channel.verify(update, 'hospital')
            self._check_attempt(update, request)
            if update.base_digest != digest:
                raise RoundError(update.envelope.sender, 'trained from another policy')
        self._watch.check(updates[0])

    def _check_attempt(self, message: Message, request: DecryptRequest) -> None:
        envelope, wanted = message.envelope, request.envelope
        if (envelope.round, envelope.attempt) != (wanted.round, wanted.attempt):
            raise RoundError(
                envelope.sender, f'signed for round {envelope.round} attempt {envelope.attempt}'
            )

    def _decryptor(
        self, request: DecryptRequest
    ) -> Callable[[Report, Stopped], Released | tuple[DecryptRequest, FdrlError]]:
        def decrypt(
            report: Report, stopped: Stopped
        ) -> Released | tuple[DecryptRequest, FdrlError]:
            try:
                return self._decrypt(request)
            except FdrlError as error:
                return request, error

        return decrypt

    def _decrypt(self, request: DecryptRequest) -> Released:
        """Re-add, compare, decrypt once, validate."""
        survivors = request.settles[0].survivors
        by_name = {
            name: [u.ciphertext for u in request.updates if u.envelope.sender == name]
            for name in survivors
        }
        columns = zip(*by_name.values(), strict=True)
        sums = [self._public.add(column) for column in columns]
        if hash_of_sums(sums) != request.sum_hash:
            raise MessageError(request.envelope.sender, 'its sum is not the sum of the updates')
        slots = np.stack([self._secret.decrypt(each) for each in sums])
        sizes = [self._channel.roster.member(name).size for name in survivors]
        base = self._released.weights
        weights = self._codec.apply_sum(slots, base, sizes, self._channel.roster.n_max)
        if not np.all(np.isfinite(weights)):
            raise CryptoError('the summed policy is not finite')
        for name in survivors:
            first = next(u for u in request.updates if u.envelope.sender == name)
            self._watch.remember(first)
        hashes = {s.envelope.sender: s.update_hash for s in request.settles}
        summed = Released(
            request.envelope.round,
            request.envelope.attempt,
            weights,
            survivors,
            b''.join(hashes[name] for name in survivors),
            False,
            '',
        )
        # From here on this round has its one decryption: after a crash it is validated and
        # released from the store, whatever the aggregator asks for.
        self._store.put('summed', summed.to_bytes())
        return self._validated(summed)

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
        notes = () if accepted else (f'refused to decrypt round {envelope.round}: {reason}',)
        return Outcome((verdict,), notes=notes)
