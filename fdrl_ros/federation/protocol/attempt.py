# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
What an attempt at a round rests on: keys, members, and who survived (Bonawitz et al. 2017).

Three digests stand for it in what the hospitals sign. That of the list of keys names all who
published keys, and the threshold; the set-up's names the members who mask with each other too, and
the one that is settled the survivors.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import lru_cache
import hashlib
from typing import TypeVar

from fdrl_ros.crypto.keys.roster import Roster
from fdrl_ros.crypto.masking.buckets import Buckets, kept
from fdrl_ros.crypto.masking.merkle import DIGEST, path_bytes, root_and_paths, root_of
from fdrl_ros.crypto.masking.round_secret import binding, joined, joined_names, KEY_BYTES
from fdrl_ros.crypto.masking.share_sealing import KeyList, MemberKeys, PAIR_BYTES
from fdrl_ros.crypto.masking.sharing import SHARE_BYTES
from fdrl_ros.errors import CryptoError, MessageError, RoundError
from fdrl_ros.federation.protocol.message import (
    AttemptId,
    Blame,
    Delivery,
    GlobalPolicy,
    PeerKeys,
    Reveal,
    RoundKey,
    RoundStatus,
    Shares,
)

S = TypeVar('S', RoundKey, Shares)

_SETUP = b'fdrl_ros set-up of an attempt 1'
_SETTLE = b'fdrl_ros survivors of an attempt 1'
_DELIVERY = b'fdrl_ros delivered parcels 1'


def read_round_key(message: RoundKey, roster: Roster) -> MemberKeys:
    """
    Read the round key of a hospital; what was read stays with the message.

    :raises MessageError: if it has not one key for each peer in the roster.
    """
    size, peers = len(message.mask_keys), roster.neighbourhoods.degree
    if size != KEY_BYTES * peers:
        raise MessageError(message.sender, f'{size} bytes of mask keys for {peers} hospitals')
    try:
        return message.member_keys
    except CryptoError as error:
        raise MessageError(message.sender, str(error)) from error


def key_list(roster: Roster, messages: Iterable[RoundKey], of: AttemptId, terms: bytes) -> KeyList:
    """
    Put together the list that shares are made along.

    :param messages: signed round keys of one attempt.
    :param terms: digest of terms, roster and starting policy.
    :raises MessageError: if one has not a key for each peer.
    :raises CryptoError: if they are fewer than the threshold.
    """
    keys = {each.sender: read_round_key(each, roster) for each in messages}
    buckets = roster.buckets_of(of[0])
    return KeyList.of(roster.federation, *of, roster.neighbourhoods, keys, terms, buckets)


def peer_key_list(
    roster: Roster, message: PeerKeys, own: RoundKey, keyed: Collection[str], agreed: RoundStatus
) -> KeyList:
    """
    Put together what one hospital knows of that list: what its peers published for it.

    :param message: of which each round key was checked to be signed in this attempt.
    :param own: round key of this hospital.
    :param keyed: hospitals that published keys.
    :param agreed: status with the digests of all keys and of all other terms.
    :raises RoundError: if the aggregator delivered others than those of its keyed peers.
    :raises CryptoError: if they are fewer than the threshold, or the digest of all keys is not one
        of this hospital's own.
    """
    graph, mine = roster.neighbourhoods, own.sender
    peers = tuple(name for name in graph.holders(mine, set(keyed)) if name != mine)
    if tuple(each.sender for each in message.keys) != peers:
        raise RoundError(message.sender, f'delivered the keys of other hospitals than {peers}')
    pairs = {}
    rooms = [graph.degree] * len(peers)
    for key, pair, path in parts(message, message.keys, PAIR_BYTES, message.pairs, rooms):
        if root_of(pair, graph.place(key.sender, mine), path) != key.keys_root:
            raise RoundError(message.sender, f'delivered keys that {key.sender} did not sign')
        pairs[key.sender, mine] = pair
    keys = KeyList(
        roster.federation,
        *message.id,
        graph,
        tuple(keyed),
        agreed.keys_digest,
        agreed.terms_digest,
        {mine: read_round_key(own, roster)},
        pairs,
        roster.buckets_of(message.id[0]),
    )
    keys.check_listed(mine, message.own_path)
    return keys


def parts(
    message: PeerKeys | Delivery | Blame,
    signed: Sequence[S],
    size: int,
    data: bytes,
    rooms: Iterable[int],
) -> Iterator[tuple[S, bytes, bytes]]:
    """
    Yield what belongs together of a message that hands on leaves of hash trees.

    :param signed: messages with the roots.
    :param size: of a leaf.
    :param data: leaves, joined.
    :param rooms: how many leaves each tree has.
    :returns: message, leaf and path of each.
    :raises RoundError: if there is not one leaf and one path for each message.
    """
    depths = [path_bytes(room) for room in rooms]
    if (len(data), len(message.paths)) != (size * len(signed), sum(depths)):
        sizes = f'{len(data)} and {len(message.paths)} bytes'
        raise RoundError(message.sender, f'{sizes} of leaves and paths of {len(signed)} hospitals')
    start = 0
    for at, (each, depth) in enumerate(zip(signed, depths, strict=True)):
        path = message.paths[start : start + depth]
        yield each, data[size * at : size * (at + 1)], path
        start += depth


def setup_digest(keys: KeyList, members: Collection[str]) -> bytes:
    """Return the SHA-256 over the list of keys and the members who mask with each other."""
    place = (keys.federation, keys.round, keys.attempt)
    return _setup_digest(place, keys.digest, tuple(members))


@lru_cache
def _setup_digest(place: tuple[str, int, int], keys: bytes, members: tuple[str, ...]) -> bytes:
    return hashlib.sha256(binding(_SETUP, *place, keys, joined_names(members))).digest()


def settle_digest(setup: bytes, survivors: Collection[str]) -> bytes:
    """Return the SHA-256 over the digest of the set-up and the survivors."""
    return _settle_digest(setup, tuple(survivors))


@lru_cache
def _settle_digest(setup: bytes, survivors: tuple[str, ...]) -> bytes:
    return hashlib.sha256(joined(_SETTLE, setup, joined_names(survivors))).digest()


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


def tree_of_updates(names: Sequence[str], hashes: bytes) -> tuple[bytes, dict[str, bytes]]:
    """
    Return root and paths of the hash tree over whose updates are in a policy.

    :param hashes: of the updates, 32 bytes each, in the order of the names.
    :returns: the root, empty without names, and by name what :func:`is_summed` takes.
    """
    if not names:
        return b'', {}
    parts = (hashes[DIGEST * at : DIGEST * (at + 1)] for at in range(len(names)))
    root, paths = root_and_paths([_summed(*each) for each in zip(names, parts, strict=True)])
    return root, dict(zip(names, paths, strict=True))


def is_summed(policy: GlobalPolicy, name: str, update_hash: bytes, path: bytes) -> bool:
    """Tell whether a path shows that an update is the one of a contributor to a policy."""
    names = policy.contributors
    whole = name in names and len(path) == path_bytes(len(names))
    leaf = _summed(name, update_hash)
    return whole and root_of(leaf, names.index(name), path) == policy.updates_root


def _summed(name: str, update_hash: bytes) -> bytes:
    return joined(name.encode(), update_hash)


def read_reveal(message: Reveal, keys: KeyList, members: Collection[str]) -> dict[str, bytes]:
    """
    Return the revealed shares by the member that dealt them.

    :raises MessageError: if they are not one of each whose shares the sender holds.
    """
    dealers = keys.graph.holders(message.sender, members)
    return split(message.shares, SHARE_BYTES, dealers, message.sender, 'revealed shares')


def check_whole(names: Collection[str], buckets: Buckets, sender: str) -> None:
    """
    Refuse members or survivors of whom too few are in one bucket.

    :raises RoundError: if a bucket has one or two of them, whose sum would tell too much.
    """
    if alone := sorted(set(names) - set(kept(buckets, names))):
        raise RoundError(sender, f'too few of one bucket: {", ".join(alone)}')


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
    check_enough(names, fewest, sender)


def check_enough(names: Collection[str], fewest: int, sender: str) -> None:
    """
    Refuse too few hospitals.

    :raises RoundError: if they are.
    """
    if len(names) < fewest:
        raise RoundError(sender, f'{len(names)} hospitals are too few: {fewest} are needed')
