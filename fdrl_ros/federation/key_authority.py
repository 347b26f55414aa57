# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The key authority: re-adds the signed ciphertexts, decrypts that sum and nothing else."""

from collections.abc import Callable
from dataclasses import replace
import hashlib
from typing import Any

from fdrl_ros.crypto.encryption import SecretContext
from fdrl_ros.crypto.quantisation import EncryptionSettings
from fdrl_ros.errors import CryptoError, FdrlError, MessageError, RoundError
from fdrl_ros.federation.channel import Channel
from fdrl_ros.federation.ledger_watch import LedgerWatch
from fdrl_ros.federation.message import (
    DecryptRequest,
    EncryptionKey,
    GlobalPolicy,
    hash_of_chunks,
    hash_of_sums,
    MaskedUpdate,
    Message,
    Verdict,
)
from fdrl_ros.federation.party import Job, Outcome, Report, Stopped
from fdrl_ros.federation.released import Released, Validation
from fdrl_ros.federation.store import Store
from fdrl_ros.federation.update import UpdateCodec
from fdrl_ros.policy import digest_of, encode_weights, NetworkShape
import numpy as np


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
        self._working_at = b''

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
        digest = _digest(message)
        if self._busy and digest == self._working_at:
            return Outcome()  # asked again; the answer is on its way
        try:
            self._check(message)
        except FdrlError as error:
            return self._verdict(message, False, str(error))
        self._busy, self._working_at = True, digest
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
        if not request.settles and not request.updates:
            return  # to abandon the round, which decrypts nothing
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
            if len(settle.self_seed) != 32:
                raise MessageError(settle.envelope.sender, 'a self mask needs a seed of 32 bytes')
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
            self._watch.take(update)

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
        if not request.updates:
            return self._rolled_back(request, 'the round was abandoned')
        survivors = request.settles[0].survivors
        by_name = {
            name: [u.ciphertext for u in request.updates if u.envelope.sender == name]
            for name in survivors
        }
        columns = zip(*by_name.values(), strict=True)
        sums = [self._public.add(column) for column in columns]
        if hash_of_sums(sums) != request.sum_hash:
            raise MessageError(request.envelope.sender, 'its sum is not the sum of the updates')
        # One decryption per round, durably decided before it happens: were this process killed
        # here, it would decrypt the very same sum again, and no other.
        chosen = f'{request.envelope.round} '.encode() + _digest(request)
        begun = self._store.get('decrypting') or b''
        if begun.startswith(f'{request.envelope.round} '.encode()) and begun != chosen:
            return self._rolled_back(request, 'another sum of this round was begun')
        self._store.put('decrypting', chosen)
        try:
            slots = np.stack([self._secret.decrypt(each) for each in sums])
            slots = self._codec.unmask(slots, (each.self_seed for each in request.settles))
            sizes = [self._channel.roster.member(name).size for name in survivors]
            weights = self._codec.apply_sum(
                slots, self._released.weights, sizes, self._channel.roster.n_max
            )
        except CryptoError as error:
            return self._rolled_back(request, f'the sum is not one of honest updates: {error}')
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
        # After a crash it is validated and released from the store.
        self._store.put('summed', summed.to_bytes())
        return self._validated(summed)

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
        notes = () if accepted else (f'refused to decrypt round {envelope.round}: {reason}',)
        return Outcome((verdict,), notes=notes)


def _digest(request: DecryptRequest) -> bytes:
    """Name what a request would decrypt: the same sum asked for again has the same digest."""
    sha = hashlib.sha256(request.sum_hash)
    for update in request.updates:
        sha.update(hashlib.sha256(update.canonical()).digest())
    for settle in request.settles:
        sha.update(hashlib.sha256(settle.canonical()).digest())
    return sha.digest()
