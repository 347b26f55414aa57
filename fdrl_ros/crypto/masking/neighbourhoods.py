# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Who masks with whom, and who holds whose shares (Bell et al. 2020, SecAgg+).

In a small federation every hospital masks with all others. In a large one each has k neighbours:
those at up to k / 2 places from it in a ring, whose order is random. A hospital's holders, who
have shares of its secrets, are its neighbours and itself; t of them restore one secret.

The order of the ring follows from a seed in the roster, which the root draws when all hospitals
are known. So no party can choose its neighbours. Of :data:`CORRUPT` of the hospitals at most c are
neighbours of one, and of those :data:`DROPPED` that are away at most d, for all hospitals at once,
except with probability 2^-40: both numbers are tails of hypergeometric distributions.

Before a holder reveals anything, q of m witnesses, the first in the ring, have to sign the same
survivors. q > (m + c) / 2 for the c of them that collude at most: honest ones sign one set in an
attempt, so there is one. Where all mask with all, all are witnesses.

With t > (k + 1 + c) / 2 not even lying servers get shares enough of one hospital in two attempts,
as each honest holder reveals one share, for one set in a round. A smaller t > c + 2 needs
fewer neighbours, and is safe as long as one of the servers is honest. Always t <= k - d, so that
hospitals which drop out stop nothing, and k is large enough that the others stay one connected
part, whose sum is all that the masks leave.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence
from fractions import Fraction
from functools import cached_property, lru_cache
import hashlib
from itertools import compress
from math import comb
import secrets
from typing import Final

from fdrl_ros.errors import CryptoError
import numpy as np

CORRUPT: Final = Fraction(1, 3)
"""Share of the hospitals that collude with the servers, at most."""

DROPPED: Final = Fraction(1, 10)
"""Share of the hospitals that are away in a round, at most, wherever they are in the ring."""

FAILURE_BITS: Final = 40
"""With probability 2^-40 a ring of a federation does not keep what is promised: five tails."""

MOST_COMPLETE: Final = 100
"""Hospitals up to which each masks with all others, unless the roster says otherwise."""

MOST_HOSPITALS: Final = 10_000
"""Most hospitals of a federation."""

MOST_HOLDERS: Final = 1000
"""Most hospitals that have shares of one, itself too: where more are, each has neighbours."""

FEWEST_GROUP: Final = 3
"""Honest hospitals in whatever part of the sum over one survivor set gets known, at least."""

SEED_BYTES: Final = 32

_RING = b'fdrl_ros ring of hospitals 1\n'
_KEPT: Final = 16  # bitmaps, of which a round has few


class Neighbourhoods:
    """
    The graph of a federation's masks and shares.

    :param hospitals: names of all hospitals of the roster, in any order.
    :param threshold: t of n hospitals that have to agree; where all mask with all, it is also the
        number of shares that restore a secret.
    :param degree: k, how many neighbours each hospital has, even; 0 means all others.
    :param seed: from which the order of the ring follows, 32 bytes; empty if all mask with all.
    :raises CryptoError: if there are too few neighbours for what is promised.
    """

    def __init__(
        self, hospitals: Iterable[str], threshold: int, degree: int = 0, seed: bytes = b''
    ) -> None:
        self.hospitals = tuple(sorted(hospitals))
        self.degree = degree or len(self.hospitals) - 1
        self.is_complete = not degree
        self.threshold = threshold
        """Shares that restore a secret."""
        self.agreeing = threshold
        """Witnesses that have to sign the same survivors."""
        self.withstands_lies = True
        """
        Whether two servers that lie and collude learn sums of disjoint groups alone, each of
        t - c honest hospitals at least; else one of the two must be honest.
        """
        self._seed, self._witnesses = seed, len(self.hospitals)
        self._peers: dict[str, tuple[str, ...]] = {}
        self._holders: dict[str, tuple[str, ...]] = {}
        self._named: dict[bytes, tuple[str, ...]] = {}
        if len(seed) != (SEED_BYTES if degree else 0):
            raise CryptoError(f'seed of the neighbourhoods: {len(seed)} bytes')
        if degree:
            self.threshold, self.withstands_lies = share_threshold(len(self.hospitals), degree)
            self._witnesses, self.agreeing = fewest_witnesses(len(self.hospitals), threshold)

    def in_words(self) -> str:
        """Say with how few others each masks, and what that promises; empty if with all."""
        if self.is_complete:
            return ''
        honest = '' if self.withstands_lies else ', and one of the two servers is honest'
        return (
            f'Each hospital masks with {self.degree} neighbours: {self.threshold} holders restore '
            f'a secret, and {self.agreeing} of {len(self.witnesses)} witnesses sign who survived. '
            f'That hides single updates, and rounds go on, while at most {CORRUPT} of the '
            f'hospitals collude and {DROPPED} are away{honest}. This fails with a '
            f'chance of at most 2^-{FAILURE_BITS}.'
        )

    def peers(self, name: str) -> tuple[str, ...]:
        """
        Return the hospitals with which one masks, in the order of the names.

        :raises CryptoError: if it is no hospital of the roster.
        """
        if name not in self._peers:
            if name not in self._places:
                raise CryptoError(f'{name!r} is no hospital of the roster')
            self._peers[name] = self._find_peers(name)
        return self._peers[name]

    def holders(self, name: str, among: Collection[str] | None = None) -> tuple[str, ...]:
        """
        Return who has shares of a hospital's secrets: its peers and itself, in order.

        :param among: a set of hospitals to which all of them belong; any if None.
        """
        if name not in self._holders:
            self._holders[name] = tuple(sorted((*self.peers(name), name)))
        every = self._holders[name]
        if among is None:
            return every
        found = tuple(each for each in every if each in among)
        return every if found == every else found  # one tuple for all that ask

    def place(self, name: str, peer: str) -> int:
        """
        Return the place of a peer among those of a hospital, from 0.

        :raises CryptoError: if they are no peers.
        """
        peers = self.peers(name)
        place = bisect_left(peers, peer)
        if peers[place : place + 1] != (peer,):
            raise CryptoError(f'{name!r} and {peer!r} are no peers')
        return place

    def marks(self, names: Iterable[str]) -> bytes:
        """Return the one bitmap of some hospitals, as :func:`named` reads it; empty of none."""
        marked = {*names}
        bits = np.array([each in marked for each in self.hospitals])
        return np.packbits(bits, bitorder='little').tobytes() if bits.any() else b''

    def named(self, marks: bytes) -> tuple[str, ...]:
        """
        Return the hospitals that a bitmap marks, in the order of the names.

        :raises CryptoError: if it is not the one of these hospitals.
        """
        if marks not in self._named:
            names = named(marks, self.hospitals)
            if self.marks(names) != marks:
                raise CryptoError(f'a bitmap of {len(marks)} bytes is none of some hospitals')
            if len(self._named) >= _KEPT:
                self._named.clear()
            self._named[marks] = names
        return self._named[marks]

    def connected(self, names: Collection[str]) -> frozenset[str]:
        """
        Return the largest part of some hospitals in which each has enough holders.

        :returns: nobody, if there is no such part.
        """
        left = frozenset(names)
        while lacking := self.lacking(left, left):
            left -= lacking
        return left

    def able(self, names: Collection[str]) -> frozenset[str]:
        """
        Return the part of some hospitals that can end a round: :meth:`connected`, with witnesses.

        :returns: nobody, if too few of them are neighbours, or witnesses.
        """
        able = self.connected(names)
        return able if len(able & self.witnesses) >= self.agreeing else frozenset()

    def lacking(self, names: Collection[str], present: Collection[str]) -> frozenset[str]:
        """Return which of some hospitals have fewer holders than the threshold among others."""
        here = frozenset(present)
        if self.is_complete:
            return frozenset(names) if len(here) < self.threshold else frozenset()
        counts = self.holder_counts(here)
        return frozenset(name for name in names if counts[name] < self.threshold)

    def holder_counts(self, among: Collection[str]) -> dict[str, int]:
        """Return how many holders of each hospital are among some, of all in one pass."""
        if self.is_complete:
            return dict.fromkeys(self.hospitals, len(among))
        side, ring = self.degree // 2, self._ring
        present = np.fromiter((name in among for name in ring), np.int64, len(ring))
        # Of a hospital's part of the ring: what stands before its end, less what before its start.
        sums = np.cumsum(np.concatenate([[0], present[-side:], present, present[:side]]))
        return dict(zip(ring, (sums[2 * side + 1 :] - sums[: len(ring)]).tolist(), strict=True))

    @cached_property
    def witnesses(self) -> frozenset[str]:
        """Return the hospitals that sign who survived."""
        return frozenset(self._ring[: self._witnesses])

    @cached_property
    def _places(self) -> dict[str, int]:
        """Return the place of each hospital in the ring."""
        names = self.hospitals
        if not self.is_complete:
            names = tuple(sorted(names, key=self._rank))
        return {name: place for place, name in enumerate(names)}

    def _rank(self, name: str) -> bytes:
        return hashlib.sha256(_RING + self._seed + name.encode()).digest()

    @cached_property
    def _ring(self) -> tuple[str, ...]:
        return tuple(self._places)

    def _find_peers(self, name: str) -> tuple[str, ...]:
        if self.is_complete:
            return tuple(other for other in self.hospitals if other != name)
        ring, place, side = self._ring, self._places[name], self.degree // 2
        steps = (step for step in range(-side, side + 1) if step)
        return tuple(sorted(ring[(place + step) % len(ring)] for step in steps))


def named(marks: bytes, hospitals: Sequence[str]) -> tuple[str, ...]:
    """
    Return the hospitals whose bits are set in a bitmap.

    :param marks: of the first hospital the lowest bit of the first byte, of the ninth that of the
        second, and so on; of missing ones none.
    :param hospitals: of the roster, sorted.
    """
    return tuple(
        compress(hospitals, np.unpackbits(np.frombuffer(marks, np.uint8), bitorder='little'))
    )


def new_seed() -> bytes:
    """Draw the seed of a ring from the operating system's randomness."""
    return secrets.token_bytes(SEED_BYTES)


@lru_cache
def share_threshold(hospitals: int, degree: int) -> tuple[int, bool]:
    """
    Return how many shares restore a secret among k neighbours and their hospital.

    :param degree: k.
    :returns: t, and whether it withstands two lying servers.
    :raises CryptoError: if no t keeps what is promised.
    """
    if not 2 <= degree < hospitals - 1 or degree % 2:
        even = f'an even number from 2 to {hospitals - 2}, or ' if hospitals > 3 else ''
        raise CryptoError(
            f'{degree} neighbours in a federation of {hospitals}: expected {even}0 for all others'
        )
    strong, weak, most = _thresholds(hospitals, degree)
    for threshold in (strong, weak):
        if threshold <= most:
            return threshold, threshold >= strong
    enough = f'{fewest_neighbours(hospitals)}, or ' if fewest_neighbours(hospitals) else ''
    raise CryptoError(
        f'{degree} neighbours are too few for {hospitals} hospitals, of which a third may collude '
        f'with the servers and a tenth may be away: take {enough}0, which means all others'
    )


@lru_cache
def fewest_neighbours(hospitals: int, *, withstands_lies: bool = True) -> int:
    """
    Return the smallest number of neighbours that keeps what is promised.

    :param withstands_lies: against two servers that lie and collude; else one must be honest.
    :returns: k; 0, which means all others, if no smaller number does.
    """
    for degree in range(2, hospitals - 1, 2):
        strong, weak, most = _thresholds(hospitals, degree)
        if (strong if withstands_lies else weak) <= most:
            return degree
    return 0


def _thresholds(hospitals: int, degree: int) -> tuple[int, int, int]:
    """Return t that withstands two lying servers, t that one lying server, and the largest t."""
    corrupt, dropped = (
        _most_marked(hospitals - 1, int(hospitals * share), degree, hospitals)
        for share in (CORRUPT, DROPPED)
    )
    most = degree - dropped
    # If nobody on one side of a hospital is honest and there, the ring may fall into two parts.
    others, side, marked = hospitals - 1, degree // 2, int(hospitals * (CORRUPT + DROPPED))
    if comb(marked, side) * hospitals << FAILURE_BITS + 3 > comb(others, side):
        most = 0
    return (degree + 1 + corrupt) // 2 + 1, corrupt + FEWEST_GROUP, most


@lru_cache
def fewest_witnesses(hospitals: int, threshold: int) -> tuple[int, int]:
    """
    Return how many witnesses there are, and how many of them have to agree.

    :param threshold: how many have to if all hospitals are witnesses.
    """
    for witnesses in range(FEWEST_GROUP, hospitals):
        corrupt, dropped = (
            _most_marked(hospitals, int(hospitals * share), witnesses, 1)
            for share in (CORRUPT, DROPPED)
        )
        agreeing = (witnesses + corrupt) // 2 + 1
        if agreeing <= witnesses - dropped:
            return witnesses, agreeing
    return hospitals, threshold


def default_neighbours(hospitals: int) -> int:
    """Return k of a new federation: 0, which means all others, in a small one."""
    return 0 if hospitals <= MOST_COMPLETE else fewest_neighbours(hospitals)


def _most_marked(others: int, marked: int, drawn: int, hospitals: int) -> int:
    """
    Return how many of some others, drawn at random, are marked at most.

    :returns: the smallest number that is passed with a chance below 2^-43 / hospitals.
    """
    limit = comb(others, drawn) // (hospitals << FAILURE_BITS + 3)
    ways, number = 0, min(marked, drawn)
    while number > 0:
        ways += comb(marked, number) * comb(others - marked, drawn - number)
        if ways > limit:
            return number
        number -= 1
    return 0
