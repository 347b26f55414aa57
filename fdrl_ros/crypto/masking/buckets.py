# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Which hospitals are summed together in a round, where each of several buckets has a sum of its own.

Their order follows from the roster and the round alone. Nobody who takes part has a say in either:
the roster has a seed that the root draws when it knows all keys, anew for each roster. Who could
try many keys or policies would try until a hospital is alone among its friends. All attempts of a
round have the same buckets, so that no two sums of a round differ by one hospital.
"""

from collections.abc import Collection
import hashlib
from typing import Final

from fdrl_ros.crypto.masking.round_secret import binding, derive, joined
from fdrl_ros.errors import CryptoError

Buckets = tuple[tuple[str, ...], ...]
"""Names in each bucket, sorted; none where all are summed together."""

FEWEST: Final = 3
"""Fewest hospitals of a bucket whose sum is unmasked."""

_LABEL = b'fdrl_ros buckets of a round 1'


def check_buckets(count: int, hospitals: int) -> None:
    """
    Refuse buckets that would be too small.

    :param count: of buckets; 0 for one sum of all.
    :raises CryptoError: if one would have fewer than :data:`FEWEST` hospitals.
    """
    most = hospitals // FEWEST
    if type(count) is not int or (count and not 2 <= count <= most):
        some = f', or {"2" if most == 2 else f"2 to {most}"}' if most > 1 else ''
        raise CryptoError(
            f'{count!r} buckets: expected 0{some}, since {hospitals} hospitals are to be in '
            f'buckets of {FEWEST} at least'
        )


def buckets_of(
    federation: str, roster: bytes, names: Collection[str], round: int, count: int
) -> Buckets:
    """
    Deal hospitals into the buckets of a round, whose sizes differ by one at most.

    :param roster: its digest, 32 bytes.
    :param names: of all hospitals of the roster.
    :param count: of buckets; 0 where all are summed together.
    :raises CryptoError: if one would be too small.
    """
    check_buckets(count, len(names))
    if not count:
        return ()
    return dealt(names, derive(roster, binding(_LABEL, federation, round, 0)), count)


def dealt(names: Collection[str], key: bytes, count: int) -> Buckets:
    """
    Deal names into buckets in the order of their hashes.

    :param key: of the round, 32 bytes.
    """
    order = sorted(names, key=lambda name: hashlib.sha256(joined(key, name.encode())).digest())
    return tuple(tuple(sorted(order[place::count])) for place in range(count))


def within(buckets: Buckets, names: Collection[str]) -> Buckets:
    """Return which of some hospitals are summed together, without buckets that have none."""
    if not buckets:
        return (tuple(names),)
    there = frozenset(names)
    left = (tuple(name for name in bucket if name in there) for bucket in buckets)
    return tuple(bucket for bucket in left if bucket)


def most_kept(hospitals: int, count: int, missing: int) -> int:
    """
    Return how many hospitals can be summed if some are missing, in the luckiest deal.

    :param hospitals: of the roster.
    :param count: of buckets; 0 where all are summed together.
    """
    sizes = [len(range(place, hospitals, count)) for place in reversed(range(count))]
    spare = sum(size - FEWEST for size in sizes) if count else missing
    lost = 0
    while missing > spare:  # then a whole bucket of them is lost, a small one
        size = sizes.pop(0)
        spare, lost, missing = spare - (size - FEWEST), lost + size, max(0, missing - size)
    return hospitals - lost - missing


def kept(buckets: Buckets, names: Collection[str]) -> tuple[str, ...]:
    """Return the hospitals, of some, that are not left in a bucket of too few, in their order."""
    if not buckets:
        return tuple(names)
    whole = {name for bucket in within(buckets, names) if len(bucket) >= FEWEST for name in bucket}
    return tuple(name for name in names if name in whole)
