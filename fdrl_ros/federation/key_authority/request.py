# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
What the key authority demands of a request to decrypt, and the masks that are left in its sum.

A sum may be decrypted only if every update in it was signed by its hospital for this very set-up,
enough survivors signed the survivor set, and enough of them revealed what takes the masks off
(spec section 4; Bonawitz et al. 2017). Whoever asks is believed nothing.
"""

from dataclasses import dataclass
from functools import cache
import hmac

from fdrl_ros.crypto.masking.masks import leftover_mask, MaskContext, WrongSecretError
from fdrl_ros.crypto.masking.share_sealing import KeyList
from fdrl_ros.crypto.masking.sharing import (
    InconsistentSharesError,
    Recovery,
    SHARE_BYTES,
    ShareError,
)
from fdrl_ros.errors import CryptoError, RoundError
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
from fdrl_ros.federation.protocol.message import (
    DecryptRequest,
    hash_of_seed,
    Message,
    Reveal,
    Settle,
)
from fdrl_ros.federation.protocol.update_codec import UpdateCodec
from fdrl_ros.privacy.ledger.chain import DIGEST
import numpy as np


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


def leftover_of(checked: Checked, codec: UpdateCodec) -> np.ndarray:
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
