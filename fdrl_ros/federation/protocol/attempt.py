# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
What an attempt at a round rests on: keys, members, and who survived (Bonawitz et al. 2017).

Three digests stand for it in what the hospitals sign. That of the list of keys names all who
published keys, and the threshold; the set-up's names the members who mask with each other too, and
the one that is settled the survivors.
"""

from collections.abc import Collection, Iterable
from functools import lru_cache
import hashlib

from fdrl_ros.crypto.keys.roster import Roster
from fdrl_ros.crypto.masking.round_secret import binding, joined, KEY_BYTES
from fdrl_ros.crypto.masking.share_sealing import KeyList, MemberKeys
from fdrl_ros.crypto.masking.sharing import SHARE_BYTES
from fdrl_ros.errors import CryptoError, MessageError, RoundError
from fdrl_ros.federation.protocol.message import AttemptId, Reveal, RoundKey

_SETUP = b'fdrl_ros set-up of an attempt 1'
_SETTLE = b'fdrl_ros survivors of an attempt 1'
_DELIVERY = b'fdrl_ros delivered parcels 1'


def read_round_key(message: RoundKey, roster: Roster) -> MemberKeys:
    """
    Read the round key of a hospital.

    :raises MessageError: if it has not one key for each other hospital of the roster.
    """
    size, others = len(message.mask_keys), len(roster.hospitals) - 1
    if size != KEY_BYTES * others:
        raise MessageError(message.sender, f'{size} bytes of mask keys for {others} hospitals')
    try:
        return MemberKeys(message.mask_keys, message.sealing_keys, message.seed_hash)
    except CryptoError as error:
        raise MessageError(message.sender, str(error)) from error


def key_list(roster: Roster, messages: Iterable[RoundKey], of: AttemptId, terms: bytes) -> KeyList:
    """
    Put together the list that shares are made along.

    :param messages: signed round keys of one attempt.
    :param terms: digest of terms, roster and starting policy.
    :raises MessageError: if one has not a key for each other hospital.
    :raises CryptoError: if they are fewer than the threshold.
    """
    keys = {each.sender: read_round_key(each, roster) for each in messages}
    hospitals = tuple(member.name for member in roster.hospitals)
    return KeyList(roster.federation, *of, roster.threshold, hospitals, keys, terms)


def setup_digest(keys: KeyList, members: Collection[str]) -> bytes:
    """Return the SHA-256 over the list of keys and the members who mask with each other."""
    names = joined(*sorted(name.encode() for name in members))
    place = (keys.federation, keys.round, keys.attempt)
    return hashlib.sha256(binding(_SETUP, *place, keys.digest, names)).digest()


def settle_digest(setup: bytes, survivors: Collection[str]) -> bytes:
    """Return the SHA-256 over the digest of the set-up and the survivors."""
    return _settle_digest(setup, tuple(survivors))


@lru_cache
def _settle_digest(setup: bytes, survivors: tuple[str, ...]) -> bytes:
    names = joined(*sorted(name.encode() for name in survivors))
    return hashlib.sha256(joined(_SETTLE, setup, names)).digest()


def split(
    data: bytes, size: int, names: Collection[str], sender: str, what: str
) -> dict[str, bytes]:
    """
    Take apart what is joined in the order of names.

    :param size: bytes for each name.
    :param what: it is, in words.
    :raises MessageError: if there is not one for each name.
    """
    if len(data) != size * len(names):
        raise MessageError(sender, f'{len(data)} bytes of {what} for {len(names)} hospitals')
    return {name: data[size * at : size * (at + 1)] for at, name in enumerate(names)}


def read_reveal(message: Reveal, members: Collection[str]) -> dict[str, bytes]:
    """
    Return the revealed shares by member.

    :raises MessageError: if they are not one of each.
    """
    return split(message.shares, SHARE_BYTES, sorted(members), message.sender, 'revealed shares')


def delivery_digest(parcels: bytes) -> bytes:
    """Return the SHA-256 over the parcels that were delivered to one holder."""
    return hashlib.sha256(joined(_DELIVERY, parcels)).digest()


def check_hospitals(
    names: tuple[str, ...], among: Collection[str], fewest: int, sender: str
) -> None:
    """
    Refuse a set of hospitals that is not one.

    :param among: who may be in it.
    :param fewest: how many have to be.
    :raises RoundError: if a name comes twice, does not belong there, or there are too few.
    """
    if len(set(names)) != len(names) or not set(names) <= set(among):
        raise RoundError(sender, f'{names} are not all different, or not all of {tuple(among)}')
    if len(names) < fewest:
        raise RoundError(sender, f'{len(names)} hospitals are too few: {fewest} are needed')
