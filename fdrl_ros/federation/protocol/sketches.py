# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What hospitals sign of their masks so that the key authority can bound their updates."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from fdrl_ros.crypto.masking.masks import MaskContext, pair_key
from fdrl_ros.crypto.masking.round_secret import AttemptSecrets, mask_secret_for
from fdrl_ros.crypto.masking.share_sealing import KeyList
from fdrl_ros.crypto.masking.sketch import NormBound, read_values, Sketch, values_bytes
from fdrl_ros.errors import CryptoError, MessageError, RoundError
from fdrl_ros.federation.protocol import message as protocol
from fdrl_ros.federation.protocol.attempt import setup_digest
from fdrl_ros.federation.protocol.update_codec import UpdateCodec

MOST_SKETCHES: Final = 8
"""Attempts of one round in which projections of an update are signed; then it is abandoned."""

Values = dict[str, list[int]]
"""Projections of a hospital's masks: with whom it masks, and its own in its own place."""


def bound_of(codec: UpdateCodec) -> NormBound:
    """
    Return the bound of a federation that has one.

    :raises RoundError: if it has none.
    """
    if codec.bound is None:
        raise RoundError('aggregator', 'projections in a federation that bounds no updates')
    return codec.bound


def mask_context(keys: KeyList, members: Collection[str]) -> MaskContext:
    """Return what the pair keys of an attempt are bound to."""
    place = keys.federation, keys.round, keys.attempt
    return MaskContext(*place, tuple(members), setup_digest(keys, members))


def keys_of_masks(secrets: AttemptSecrets, keys: KeyList, members: Collection[str]) -> list[bytes]:
    """Return the keys of a hospital's masks, in the order of the names."""
    context, mine = mask_context(keys, members), secrets.name
    return [
        secrets.self_seed
        if name == mine
        else pair_key(
            context, secrets.mask(name), keys.mask_key(name, mine), mine=mine, theirs=name
        )
        for name in keys.masking(mine, set(members))
    ]


def read_sketch(
    message: protocol.Sketch, keys: KeyList, members: Collection[str], codec: UpdateCodec
) -> Values:
    """
    Read the projections that a hospital signed.

    :raises MessageError: if they are not k integers below the modulus for each of its masks.
    """
    rows, sender, modulus = bound_of(codec).rows, message.sender, codec.scheme.plain_modulus
    names = keys.masking(sender, set(members))
    if len(message.values) != values_bytes(rows * len(names), modulus):
        raise MessageError(sender, f'{len(message.values)} bytes of projections')
    try:
        values = dict(zip(names, read_values(message.values, rows, modulus), strict=True))
    except CryptoError as error:
        raise MessageError(sender, f'projections: {error}') from error
    if max(map(max, values.values())) >= modulus:
        raise MessageError(sender, 'a projection is not below the modulus')
    return values


def mask_of(name: str, values: Values) -> list[int]:
    """Return the projections of all masks on a hospital's update, not reduced."""
    total = [0] * len(values[name])
    for peer, row in values.items():
        sign = 1 if name <= peer else -1
        total = [one + sign * other for one, other in zip(total, row, strict=True)]
    return total


def disputed(values: Mapping[str, Values]) -> Iterator[tuple[str, str]]:
    """Yield the pairs whose ends signed different projections of their mask."""
    for one in sorted(values):
        for other, row in values[one].items():
            if one < other and other in values and row != values[other][one]:
                yield one, other


def too_long(
    sketch: Sketch, projected: Mapping[str, Sequence[int]], values: Mapping[str, Values]
) -> list[str]:
    """
    Return the hospitals whose update is longer than any honest one.

    :param projected: of each masked update.
    :param values: what each hospital signed of its masks.
    """
    return [
        name
        for name in sorted(values)
        if not sketch.bound.holds(sketch.unmasked(projected[name], mask_of(name, values[name])))
    ]


class Lie(NamedTuple):
    """
    What a hospital signed of a mask that is known by now, and is not so.

    :param ends: as those of :class:`~fdrl_ros.federation.protocol.message.Blame`.
    :param secret: that shows what the mask is.
    """

    guilty: str
    sketch: protocol.Sketch
    ends: tuple[str, ...]
    secret: bytes


def false_sketches(
    signed: Iterable[protocol.Sketch],
    keys: KeyList,
    members: Collection[str],
    seeds: Mapping[str, bytes],
    mask_secrets: Mapping[str, bytes],
    sketch: Sketch,
) -> list[Lie]:
    """
    Return what survivors signed falsely of masks that nobody else signed.

    These are their self masks, and their pair masks with hospitals that dropped out.

    :param signed: sketches of the survivors, each of the right form.
    :param seeds: restored self seeds of the survivors.
    :param mask_secrets: restored mask secrets of the other members.
    :param sketch: that they are about.
    """
    context, rows, among = mask_context(keys, members), sketch.bound.rows, set(members)
    modulus = sketch.bound.scheme.plain_modulus
    claims: list[tuple[Lie, bytes, list[int]]] = []
    for each in signed:
        name = each.sender
        names = keys.masking(name, among)
        values = dict(zip(names, read_values(each.values, rows, modulus), strict=True))
        claims.append((Lie(name, each, (name,), seeds[name]), seeds[name], values[name]))
        for dropped in (peer for peer in names if peer in mask_secrets):
            secret = mask_secrets[dropped]
            ours, theirs = mask_secret_for(secret, name), keys.mask_key(name, dropped)
            key = pair_key(context, ours, theirs, mine=dropped, theirs=name)
            lie = Lie(name, each, (dropped, name), ours.to_bytes())
            claims.append((lie, key, values[dropped]))
    true = sketch.of_masks([key for _, key, _ in claims])
    return [lie for (lie, _, claim), right in zip(claims, true, strict=True) if claim != right]
