# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Which hospitals are summed together in a round, where there is a sum for each of several buckets.

The order of hospitals follows from the roster and the round alone. Nobody who takes part has a
say in either: the root key signed the roster before. What the key authority makes, as keys and
policies, is left out, since it could try many until a hospital is alone among its friends. All
attempts of a round have the same buckets, so that no two sums of a round differ by one hospital.
"""

from collections.abc import Collection, Sequence
import hashlib

from fdrl_ros.crypto.keys.roster import FEWEST_HOSPITALS, Roster
from fdrl_ros.crypto.masking.round_secret import binding, derive, joined
from fdrl_ros.errors import SettingError

Buckets = tuple[tuple[str, ...], ...]
"""Names in each bucket, sorted."""

FEWEST = FEWEST_HOSPITALS
"""Fewest hospitals of a bucket whose sum is unmasked."""

_LABEL = b'fdrl_ros buckets of a round 1'


def check_buckets(count: int, hospitals: int) -> None:
    """
    Refuse buckets that would be too small.

    :param count: of buckets; 0 for one sum of all.
    :raises SettingError: if one would have fewer than :data:`FEWEST` hospitals.
    """
    most = hospitals // FEWEST
    if count and not 0 < count <= most:
        expected = f'0, or 1 to {most}: each of {hospitals} hospitals in a bucket of {FEWEST}'
        raise SettingError('federation.buckets', count, expected)


def buckets_of(roster: Roster, round: int, count: int) -> Buckets:
    """
    Put all hospitals of a roster into buckets, whose sizes differ by one at most.

    :param round: its number.
    :param count: of buckets; 0 or 1 for one with all.
    :raises SettingError: if one would be too small.
    """
    names = [each.name for each in roster.hospitals]
    check_buckets(count, len(names))
    count = max(1, count)
    bound = binding(_LABEL, roster.federation, round, 0, roster.digest_bytes)
    return dealt(names, derive(roster.digest_bytes, bound), count)


def dealt(names: Collection[str], key: bytes, count: int) -> Buckets:
    """
    Deal names into buckets in the order of their hashes.

    :param key: of the round, 32 bytes.
    """
    order = sorted(names, key=lambda name: hashlib.sha256(joined(key, name.encode())).digest())
    return tuple(tuple(sorted(order[place::count])) for place in range(count))


def kept(buckets: Buckets, survivors: Collection[str]) -> Buckets:
    """
    Return who is left of each bucket; a bucket of too few is left out, with its hospitals.

    :param survivors: whose updates are there.
    """
    there = frozenset(survivors)
    left = (tuple(name for name in bucket if name in there) for bucket in buckets)
    return tuple(bucket for bucket in left if len(bucket) >= FEWEST)


def peers(buckets: Buckets, members: Sequence[str], name: str) -> tuple[str, ...]:
    """Return the members of a hospital's own bucket beside itself, sorted."""
    own = next((bucket for bucket in buckets if name in bucket), ())
    there = frozenset(members)
    return tuple(each for each in own if each != name and each in there)
