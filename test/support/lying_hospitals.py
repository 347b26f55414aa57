# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Hospitals that lie in one way each, with good signatures on everything that they say."""

from collections.abc import Callable, Sequence
import os
from random import Random

from fdrl_ros.crypto.masking.merkle import root_and_paths
from fdrl_ros.crypto.masking.share_sealing import (
    deal,
    KeyList,
    seal_pair,
    SEALED_BYTES,
)
from fdrl_ros.crypto.masking.sharing import PRIME, share, SHARE_BYTES, SharePair
from fdrl_ros.crypto.masking.sketch import read_values, write_values
from fdrl_ros.crypto.masking.sketch import Sketch as Projections
from fdrl_ros.federation.hospital.hospital import Hospital
from fdrl_ros.federation.protocol.message import (
    Complaint,
    Delivery,
    Dispute,
    MaskedUpdate,
    Message,
    Opening,
    Reveal,
    Shares,
    Sketch,
)
import numpy as np
from numpy.typing import NDArray
from support.federation_bench import Bench
from support.interception import Interception, resealed

Lie = Callable[[Bench, str], None]


def hospital(bench: Bench, name: str) -> Hospital:
    party = bench.parties[name]
    assert isinstance(party, Hospital)
    return party


def keys_of(bench: Bench, message: Message) -> KeyList:
    """Return the list of keys that a hospital's message goes by."""
    found = hospital(bench, message.sender).attempts[message.id].key_list
    assert found is not None
    return found


def _change(bench: Bench, liar: str, kind: type, changed: Callable) -> None:
    def change(message: Message) -> Sequence[Message]:
        return [changed(message)] if message.sender == liar else [message]

    Interception(bench, kind, change=change)


def dealing(bench: Bench, message: Shares, parcels: Sequence[bytes]) -> Message:
    """Sign other parcels than those of a message."""
    root, _ = root_and_paths(parcels)
    return resealed(bench, message, parcels_root=root, parcels=b''.join(parcels))


def deal_garbage(bench: Bench, liar: str, holders: Sequence[str] | None = None) -> None:
    """Seal what nobody can open, for some holders or for all others."""

    def changed(message: Shares) -> Message:
        keys = keys_of(bench, message)
        dealt = keys.holders(liar)
        size = len(message.parcels) // len(dealt)
        parcels = {
            name: message.parcels[size * place : size * (place + 1)]
            for place, name in enumerate(dealt)
        }
        for name in holders or [each for each in dealt if each != liar]:
            parcels[name] = os.urandom(SEALED_BYTES) + parcels[name][SEALED_BYTES:]
        return dealing(bench, message, [*parcels.values()])

    _change(bench, liar, Shares, changed)


def deal_others(bench: Bench, liar: str, holders: Sequence[str] | None = None) -> None:
    """Seal shares that do not fit their commitments."""

    def changed(message: Shares) -> Message:
        keys, secrets = keys_of(bench, message), _secrets(bench, message)
        parcels = []
        for name, pair in deal(secrets, keys).items():
            good = seal_pair(secrets, keys, name, pair)
            if name == liar or (holders and name not in holders):
                parcels.append(good)
                continue
            other = SharePair(pair.self_seed, pair.mask_secret)
            bad = seal_pair(secrets, keys, name, other)
            parcels.append(bad[:SEALED_BYTES] + good[SEALED_BYTES:])
        return dealing(bench, message, parcels)

    _change(bench, liar, Shares, changed)


def deal_another_secret(bench: Bench, liar: str, holders: Sequence[str] | None = None) -> None:
    """Deal valid shares, to some or to all others, of other secrets than the published ones."""

    def changed(message: Shares) -> Message:
        keys, secrets, rng = keys_of(bench, message), _secrets(bench, message), Random(1)
        false = [
            share(
                rng.randbytes(32),
                keys.threshold,
                keys.holders(liar),
                [rng.randrange(PRIME) for _ in range(keys.threshold - 1)],
            )
            for _ in range(2)
        ]
        parcels = []
        for name, pair in deal(secrets, keys).items():
            lied = SharePair(false[0][name], false[1][name])
            others = name != liar and (holders is None or name in holders)
            chosen = lied if others else pair
            parcels.append(seal_pair(secrets, keys, name, chosen))
        return dealing(bench, message, parcels)

    _change(bench, liar, Shares, changed)


def reveal_wrong(bench: Bench, liar: str, place: int = -1) -> None:
    """Reveal another share of one member than was dealt."""

    def changed(message: Reveal) -> Message:
        at = (place % (len(message.shares) // SHARE_BYTES) + 1) * SHARE_BYTES - 1
        shares = bytearray(message.shares)
        shares[at] ^= 1
        return resealed(bench, message, shares=bytes(shares))

    _change(bench, liar, Reveal, changed)


def complain_falsely(bench: Bench, liar: str) -> None:
    """Complain about the first parcel that is delivered, which is in order."""

    def change(message: Delivery) -> Sequence[Message]:
        if message.to != liar:
            return [message]
        received = hospital(bench, liar).attempts[message.id]
        assert received.key_list is not None and received.secrets is not None
        shares, keys = message.shares[0], received.key_list
        dealer, count = shares.sender, len(message.shares)
        (complaint,) = (
            hospital(bench, liar)
            .channel.send(
                Complaint,
                message.id,
                dealer=dealer,
                keys_digest=keys.digest,
                shares=shares,
                parcel=message.parcels[: len(message.parcels) // count],
                path=message.paths[: len(message.paths) // count],
                pairs=keys.pair(dealer, liar) + keys.pair(liar, dealer),
                secret=received.secrets.sealing(dealer).to_bytes(),
            )
            .messages
        )
        return [message, complaint]

    Interception(bench, Delivery, change=change)


def _secrets(bench: Bench, message: Message):
    found = hospital(bench, message.sender).attempts[message.id].secrets
    assert found is not None
    return found


def send_garbage(bench: Bench, liar: str) -> None:
    """Send the encryption of anything."""

    def changed(message: MaskedUpdate) -> Message:
        rng, scheme = np.random.default_rng(message.chunk), bench.scheme
        slots = rng.integers(0, scheme.plain_modulus, scheme.slots)
        return resealed(bench, message, ciphertext=bench.secret.public.encrypt(slots))

    _change(bench, liar, MaskedUpdate, changed)


def mask_wrong(bench: Bench, liar: str) -> None:
    """Send a well-formed encryption of anything: no masks come off it."""

    def changed(message: MaskedUpdate) -> Message:
        rng, scheme = np.random.default_rng(message.chunk), bench.scheme
        slots = rng.integers(0, scheme.plain_modulus, scheme.slots)
        ciphertext = bench.secret.public.encrypt(scheme.completed(slots))
        return resealed(bench, message, ciphertext=ciphertext)

    _change(bench, liar, MaskedUpdate, changed)


def send_too_much(
    bench: Bench, liar: str, factor: float = 2**10, numbers: int = 40, first: int = 0
) -> None:
    """
    Send an update with some numbers far beyond the limit, masked as it should be.

    :param numbers: how many of the first ones; each is moved by its place times `factor` times
        all levels, so that few projections see it too.
    :param first: place of the first one among the slots of a ciphertext.
    """
    _move(bench, liar, factor, numbers, first)


def _move(
    bench: Bench, liar: str, factor: float, numbers: int, first: int = 0
) -> NDArray[np.int64]:
    scheme = bench.scheme
    by = np.zeros(scheme.slots, dtype=np.int64)
    by[first : first + numbers] = int(factor * scheme.levels) * np.arange(1, numbers + 1)

    def changed(message: MaskedUpdate) -> Message:
        if message.chunk:
            return message
        slots = bench.secret.backend.decrypt(bench.secret.public.residues(message.ciphertext))[0]
        moved = scheme.completed((slots + by) % scheme.plain_modulus)
        return resealed(bench, message, ciphertext=bench.secret.public.encrypt(moved))

    _change(bench, liar, MaskedUpdate, changed)
    return by


def hide_too_much(
    bench: Bench,
    liar: str,
    partner: str,
    *,
    factor: float = 2**10,
    numbers: int = 40,
    share: float = 1.0,
) -> None:
    """
    Send too much, and sign projections of one mask by which it would be no more than others'.

    :param partner: with whom that mask is, or the liar itself for its own mask. A partner that
        runs signs the same of it.
    :param share: of what is too much that is hidden so, 1 or a half.
    """
    by = _move(bench, liar, factor, numbers)

    def changed(message: Sketch) -> Message:
        party = hospital(bench, message.sender)
        setup = party.attempts[message.id].setup
        assert party.terms is not None and party.terms.codec.bound is not None
        assert setup is not None
        if {liar, partner} - setup.shares.keys():
            return message
        bound, masks = party.terms.codec.bound, [*setup.shares]
        more = Projections(message.nonce, message.setup_digest, bound).of_slots(
            0, (by * share).astype(np.int64)
        )
        values = list(read_values(message.values, bound.rows, bench.scheme.plain_modulus))
        place = masks.index(partner if message.sender == liar else liar)
        sign, t = 1 if liar <= partner else -1, bench.scheme.plain_modulus
        row = zip(values[place], more, strict=True)
        values[place] = [(old + sign * int(new)) % t for old, new in row]
        return resealed(bench, message, values=write_values(values, t))

    for name in {liar, partner}:
        _change(bench, name, Sketch, changed)


def _project_wrong(bench: Bench, liar: str, *, own: bool) -> None:
    def changed(message: Sketch) -> Message:
        setup = hospital(bench, liar).attempts[message.id].setup
        assert setup is not None
        masks, modulus = [*setup.shares], bench.scheme.plain_modulus
        (numbers,) = read_values(message.values, 1 << 20, modulus)
        place = next(at for at, name in enumerate(masks) if (name == liar) is own)
        numbers[len(numbers) // len(masks) * place] ^= 1
        return resealed(bench, message, values=write_values([numbers], modulus))

    _change(bench, liar, Sketch, changed)


def project_pair_wrong(bench: Bench, liar: str) -> None:
    """Sign false projections of the mask with another hospital."""
    _project_wrong(bench, liar, own=False)


def open_as_well(bench: Bench, liar: str) -> None:
    """Open the masks that an honest hospital would open in the place of the liar."""

    def change(message: Dispute) -> Sequence[Message]:
        if message.to != liar:
            return [message]
        party = hospital(bench, liar)
        received = party.attempts[message.id]
        assert received.key_list is not None and received.secrets is not None
        peer, digest = message.sketch.sender, received.key_list.digest
        secret = received.secrets.mask(peer).to_bytes()
        send = party.channel.send
        return send(Opening, message.id, peer=peer, keys_digest=digest, secret=secret).messages

    Interception(bench, Dispute, change=change)


def project_self_wrong(bench: Bench, liar: str) -> None:
    """Sign false projections of the own mask."""
    _project_wrong(bench, liar, own=True)


LIES: dict[str, Lie] = {
    each.__name__: each
    for each in (
        deal_garbage,
        deal_others,
        deal_another_secret,
        reveal_wrong,
        complain_falsely,
        send_garbage,
        mask_wrong,
        send_too_much,
        project_pair_wrong,
        project_self_wrong,
    )
}
"""Every lie by its name."""
