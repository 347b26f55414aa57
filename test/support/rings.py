# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Twelve hospitals with six neighbours each: a federation as sparse as small numbers allow.

The law of :mod:`fdrl_ros.crypto.masking.neighbourhoods` bounds chances by 2^-40, which takes some
fifty neighbours. Here its two results are small numbers that keep its inequalities for at most
two hospitals that collude and one neighbour, or witness, that is away: t > (k + 1 + c) / 2 and
t <= k - d, q > (m + c) / 2 and q <= m - d.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count

from fdrl_ros.crypto.keys import roster
from fdrl_ros.crypto.keys.roster import default_threshold
from fdrl_ros.crypto.masking import neighbourhoods
from fdrl_ros.crypto.masking.neighbourhoods import Neighbourhoods, SEED_BYTES
from pytest import MonkeyPatch
from support.federation_bench import names_of

HOSPITALS, NEIGHBOURS = 12, 6
SHARES = 5
"""Shares that restore a secret."""
WITNESSES, AGREEING = 5, 4
CORRUPT = 2
"""Hospitals that may collude with the servers, wherever they are in the ring."""


@contextmanager
def small_rings(
    wanted: Callable[[Neighbourhoods], object] = bool,
    *,
    hospitals: int = HOSPITALS,
    shares: int = SHARES,
    agreeing: int = AGREEING,
) -> Iterator[None]:
    """
    Let new federations with six neighbours each be such rings.

    :param wanted: what has to be true of the ring; the first seed with which it is is drawn.
    :param hospitals: of the ring.
    :param shares: that restore a secret.
    :param agreeing: witnesses that have to sign the same survivors.
    """
    threshold = default_threshold(hospitals)

    def ring(number: int) -> Neighbourhoods:
        seed = number.to_bytes(SEED_BYTES, 'big')
        return Neighbourhoods(names_of(hospitals), threshold, NEIGHBOURS, seed)

    with MonkeyPatch.context() as patch:
        patch.setattr(neighbourhoods, 'share_threshold', lambda *of: (shares, True))
        patch.setattr(neighbourhoods, 'fewest_witnesses', lambda *of: (WITNESSES, agreeing))
        number = next(number for number in count() if wanted(ring(number)))
        patch.setattr(roster, 'new_seed', lambda: number.to_bytes(SEED_BYTES, 'big'))
        yield


def around(graph: Neighbourhoods, name: str) -> list[str]:
    """Return the ring from a hospital on."""
    ring = graph._ring
    place = ring.index(name)
    return [*ring[place:], *ring[:place]]
