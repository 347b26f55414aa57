# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Check a request to decrypt, add the updates that it names, and put their leftover masks together.

A sum may be decrypted only if every update in it was signed by its hospital for this very set-up,
enough survivors signed the survivor set, and enough of them revealed what takes the masks off
(spec section 4; Bonawitz et al. 2017). Nothing that the aggregator claims is trusted.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
import hashlib
import hmac

from fdrl_ros.crypto.he.encryption import PublicContext
from fdrl_ros.crypto.masking.masks import leftover_mask, MaskContext, WrongSecretError
from fdrl_ros.crypto.masking.share_sealing import KeyList
from fdrl_ros.crypto.masking.sharing import (
    InconsistentSharesError,
    Recovery,
    SHARE_BYTES,
    ShareError,
)
from fdrl_ros.errors import CryptoError, MessageError, RoundError
from fdrl_ros.federation.protocol.attempt import (
    attempt_of,
    check_hospitals,
    check_reveal,
    key_list,
    read_round_key,
    settle_digest,
    setup_digest,
)
from fdrl_ros.federation.protocol.channel import Channel
from fdrl_ros.federation.protocol.chunk_requests import ChunkRange, ChunkRequests
from fdrl_ros.federation.protocol.message import (
    DecryptRequest,
    hash_of_seed,
    hash_of_sums,
    MaskedUpdate,
    Message,
    Relay,
    Reveal,
    Settle,
)
from fdrl_ros.federation.protocol.update_codec import UpdateCodec
from fdrl_ros.privacy.ledger.chain import DIGEST
import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Checked:
    """
    A request that may be granted, once the updates that it names have been seen.

    :param survivors: whose updates are in the sum.
    :param keys: of all who published keys.
    :param members: who masked with each other, in the order of the names.
    :param setup: digest of keys and members.
    :param hashes: of each survivor's update, 32 bytes.
    :param reveals: by their holders.
    """

    request: DecryptRequest
    survivors: tuple[str, ...]
    keys: KeyList
    members: tuple[str, ...]
    setup: bytes
    hashes: dict[str, bytes]
    reveals: dict[str, Reveal]


def check_request(request: DecryptRequest, channel: Channel, terms: bytes) -> Checked:
    """
    Refuse a request that does not prove that its sum may be decrypted.

    :param terms: digest of what the round rests on.
    :raises FdrlError: if so; nothing was decrypted.
    """
    sender, roster = request.envelope.sender, channel.roster

    def check_signed(message: Message) -> None:
        channel.verify(message, 'hospital')
        if attempt_of(message.envelope) != attempt_of(request.envelope):
            raise RoundError(
                message.envelope.sender, f'signed for attempt {attempt_of(message.envelope)}'
            )

    def check_each(messages: tuple[Message, ...], what: str) -> None:
        names = [message.envelope.sender for message in messages]
        if len(set(names)) != len(names):
            raise RoundError(sender, f'two {what} of one hospital')
        for message in messages:
            check_signed(message)

    check_each(request.keys, 'round keys')
    for key in request.keys:
        read_round_key(key, request.keys)
    keys = key_list(roster, request.keys, attempt_of(request.envelope), terms)
    members = tuple(sorted(request.members))
    check_hospitals(members, keys.members, roster.quorum, sender)
    check_each(request.settles, 'signatures on the survivors')
    if len(request.settles) < roster.threshold:
        raise RoundError(sender, f'{len(request.settles)} signatures on the survivors')
    survivors = request.survivors
    check_hospitals(survivors, members, roster.quorum, sender)
    setup = setup_digest(keys, members)
    told = settle_digest(setup, survivors)
    check_each(request.reveals, 'reveals')
    signed: tuple[Settle | Reveal, ...] = (*request.settles, *request.reveals)
    for each in signed:
        name = each.envelope.sender
        if name not in survivors or each.settle_digest != told:
            raise RoundError(name, 'signed for other survivors or another set-up')
    for reveal in request.reveals:
        check_reveal(reveal, members)
    if len(request.update_hashes) != DIGEST * len(survivors):
        raise RoundError(sender, 'not one update hash per survivor')
    hashes = {
        name: request.update_hashes[DIGEST * place : DIGEST * (place + 1)]
        for place, name in enumerate(survivors)
    }
    for settle in request.settles:
        if settle.update_hash != hashes[settle.envelope.sender]:
            raise RoundError(settle.envelope.sender, 'signed another update')
    reveals = {reveal.envelope.sender: reveal for reveal in request.reveals}
    return Checked(request, survivors, keys, members, setup, hashes, reveals)


class Summing:
    """
    Checks and adds the updates that a request is about, in the order in which it asks for them.

    Of each survivor the first chunk, then of each the second, and so on.
    """

    def __init__(
        self,
        checked: Checked,
        channel: Channel,
        public: PublicContext,
        base_digest: bytes,
        watch: Callable[[MaskedUpdate], None],
    ) -> None:
        """
        Begin with nothing.

        :param base_digest: of the policy that the updates have to start from.
        :param watch: refuses updates whose privacy ledger is not in order.
        """
        self.checked = checked
        self.sums: list[bytes] = []
        self._channel = channel
        self._public = public
        self._base_digest = base_digest
        self._watch = watch
        self._column: list[bytes] = []
        self._hashes = [hashlib.sha256() for _ in checked.survivors]
        self._pull = ChunkRequests()

    @property
    def is_whole(self) -> bool:
        """Whether every chunk was added."""
        return len(self.sums) == self._public.scheme.ciphertexts

    def go_on(self, checked: Checked) -> bool:
        """Take another request for the very same updates, if it is one; what is here counts."""
        old, new = self.checked, checked
        same = (old.setup, old.survivors, old.request.update_hashes)
        if same != (new.setup, new.survivors, new.request.update_hashes):
            return False
        self.checked = checked
        self._pull.hurry()
        return True

    def wanted(self, now: float) -> list[ChunkRange]:
        """Return what to ask the aggregator for."""
        every = self._public.scheme.ciphertexts * len(self.checked.survivors)
        return self._pull.next(range(self._here), every, now)

    def take(self, relay: Relay) -> None:
        """
        Add chunks, if they are the next ones.

        :raises FdrlError: if one is not what the request and its hospital say.
        """
        if relay.first != self._here or self.is_whole:
            return  # it was asked for twice
        for update in relay.updates:
            self._add(update)
        if self.is_whole:
            self._check_whole()

    @property
    def _here(self) -> int:
        """Number of chunks that were taken."""
        return len(self.sums) * len(self.checked.survivors) + len(self._column)

    def _add(self, update: MaskedUpdate) -> None:
        checked, place = self.checked, len(self._column)
        name, sender = checked.survivors[place], checked.request.envelope.sender
        at = (update.envelope.sender, update.chunk, update.chunks)
        if at != (name, len(self.sums), self._public.scheme.ciphertexts):
            raise RoundError(sender, f'chunk {at[1]} of {at[2]} of {at[0]} is out of place')
        self._channel.verify(update, 'hospital')
        if attempt_of(update.envelope) != attempt_of(checked.request.envelope):
            raise RoundError(name, f'signed for attempt {attempt_of(update.envelope)}')
        if (update.base_digest, update.setup_digest) != (self._base_digest, checked.setup):
            raise RoundError(name, 'trained from another policy, or masked for other members')
        self._watch(update)
        self._hashes[place].update(hashlib.sha256(update.ciphertext).digest())
        self._column.append(update.ciphertext)
        if len(self._column) == len(checked.survivors):
            self.sums.append(self._public.add(self._column))
            self._column.clear()

    def _check_whole(self) -> None:
        """Refuse what is not the sum that was asked for."""
        request = self.checked.request
        if b''.join(each.digest() for each in self._hashes) != request.update_hashes:
            raise MessageError(request.envelope.sender, 'other updates than the request names')
        if hash_of_sums(self.sums) != request.sum_hash:
            raise MessageError(request.envelope.sender, 'its sum is not the sum of the updates')


def leftover_of(checked: Checked, codec: UpdateCodec) -> NDArray[np.int64]:
    """
    Put together what masks are left in the sum: self masks, and pair masks with who dropped out.

    :returns: integers modulo the plaintext modulus, one for each slot of the update.
    :raises CryptoError: if there are too few shares, or so many contradict each other that it
        cannot be told whose are wrong; if it can, the others' are used.
    :raises WrongSecretError: if they restore what is not a member's secret.
    """
    shares: dict[str, dict[str, bytes]] = {name: {} for name in checked.members}
    for holder, reveal in checked.reveals.items():
        present = [name for name in checked.members if name not in reveal.missing]
        for place, name in enumerate(present):
            start = SHARE_BYTES * place
            shares[name][holder] = reveal.shares[start : start + SHARE_BYTES]
    keys = checked.keys

    @cache
    def recovery(holders: tuple[str, ...]) -> Recovery:
        return Recovery(keys.threshold, keys.members, holders)

    def restored(name: str) -> bytes:
        try:
            try:
                return recovery(tuple(shares[name])).recover(shares[name])
            except InconsistentSharesError as error:
                honest = {each: x for each, x in shares[name].items() if each not in error.holders}
                return recovery(tuple(honest)).recover(honest)
        except ShareError as error:
            raise CryptoError(f'a secret of {name} cannot be restored: {error}') from error

    published = {key.envelope.sender: key for key in checked.request.keys}
    seeds = {name: restored(name) for name in checked.survivors}
    for name, seed in seeds.items():
        if not hmac.compare_digest(hash_of_seed(seed), published[name].seed_hash):
            raise WrongSecretError(name)
    dropped = [name for name in checked.members if name not in seeds]
    envelope, size = checked.request.envelope, codec.masked_slots()
    return leftover_mask(
        MaskContext(
            envelope.federation,
            envelope.round,
            envelope.attempt,
            checked.members,
            checked.setup,
        ),
        {name: published[name].mask_key for name in checked.members},
        self_seeds=seeds,
        mask_secrets={name: restored(name) for name in dropped},
        count=size[0] * size[1],
        modulus=codec.scheme.plain_modulus,
    )
