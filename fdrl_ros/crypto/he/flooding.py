# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Wide discrete Gaussian noise to drown what a CKKS decryption tells of the key.

A narrow discrete Gaussian is drawn from a table of 128-bit probabilities, and several are added
with growing weights (Micciancio and Walter 2017). A floating-point Gaussian would not do: scaled
up, it leaves the low bits alone, which are those to be hidden.
"""

from bisect import bisect_right
from collections.abc import Callable
from functools import cache
import itertools
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Draws of unbounded integers, shape (count,), dtype object.
Integers = NDArray[np.object_]
# Draws that many uniform 64-bit words.
Words = Callable[[int], NDArray[np.uint64]]

# The base of the flooding: a discrete Gaussian of deviation 2^9, cut at 13.4 deviations, beyond
# which lie less than 2^-128 of it. Each further one weighs 2^8 times as much.
_BASE_BITS = 9
_STEP_BITS = 8
_CUT = 6861
# So many of them add up without passing 64 bits.
_LIGHT = 6
_FRACTION_BITS = 256


class DiscreteGaussian:
    """
    Draws from a wide discrete Gaussian, P(x) ~ exp(-x^2 / 2 deviation^2).

    A weight w is at most half the deviation d of what it is added to. The probabilities of the
    sum are then those of a discrete Gaussian to a factor of 1 +- 4 exp(-2 pi^2 (d / w)^2), which
    is 1 +- 2^-111.

    :param deviation: least standard deviation; there is none below 2^9.
    """

    def __init__(self, deviation: int) -> None:
        """Choose the weights."""
        square, weights = 0, []
        wanted = -(-(deviation**2) // 4**_BASE_BITS)
        for exponent in itertools.count(step=_STEP_BITS):
            weight = min(1 << exponent, math.isqrt(max(wanted - square, 1) - 1) + 1)
            weights.append(weight)
            square += weight**2
            if square >= wanted:
                break
        self.deviation = math.ldexp(math.sqrt(square), _BASE_BITS)
        self.bound = _CUT * sum(weights)
        self._weights = weights

    def draw(self, words: Words, count: int) -> Integers:
        """Draw integers, shape (count,), none further from zero than :attr:`bound`."""
        narrow = _draw_narrow(words, count * len(self._weights)).reshape(-1, count)
        # The light ones add up in 64 bits.
        light = np.array(self._weights[:_LIGHT], dtype=np.int64)
        total: Any = (light @ narrow[:_LIGHT]).astype(object)
        for weight, row in zip(self._weights[_LIGHT:], narrow[_LIGHT:], strict=True):
            total = total + row.astype(object) * weight
        return total


def _draw_narrow(words: Words, count: int) -> NDArray[np.int64]:
    """Draw from the base of the flooding: find the place of a word among the probabilities."""
    probabilities, highs, guide = _table()
    drawn = words(count)
    # The first 16 bits lead to the place or the one before it, nearly always.
    places = guide[(drawn >> np.uint64(48)).astype(np.int64)]
    places += highs[places] < drawn
    far = np.flatnonzero(highs[places] < drawn)
    places[far] = np.searchsorted(highs, drawn[far])
    # Where 64 bits do not decide, 128 do.
    unsure = np.flatnonzero(highs[places] == drawn)
    for place, low in zip(unsure, words(unsure.size), strict=True):
        places[place] = bisect_right(probabilities, int(drawn[place]) << 64 | int(low))
    return places - _CUT


@cache
def _table() -> tuple[list[int], NDArray[np.uint64], NDArray[np.int64]]:
    """
    Return the probabilities of the base.

    :returns: 2^128 P(x <= k) for every k but the last; their upper 64 bits, with the largest
        number behind; and for each 16 bits the first place whose upper 64 bits are not below.
    """
    # In fixed point: exp(-x), x = 1 / (2 deviation^2), by its series. Each weight follows from
    # the one before: exp(-(k+1)^2 x) = exp(-k^2 x) exp(-(2k+1) x).
    one = term = ratio = 1 << _FRACTION_BITS
    for number in itertools.count(1):
        term = (term >> (2 * _BASE_BITS + 1)) // number
        if term == 0:
            break
        ratio += term if number % 2 == 0 else -term
    square = ratio * ratio >> _FRACTION_BITS
    weights = [one]
    for _ in range(_CUT):
        weights.append(weights[-1] * ratio >> _FRACTION_BITS)
        ratio = ratio * square >> _FRACTION_BITS
    sums = list(itertools.accumulate(weights[:0:-1] + weights))
    probabilities = [(each << 128) // sums[-1] for each in sums[:-1]]
    highs = np.array([*(each >> 64 for each in probabilities), 2**64 - 1], dtype=np.uint64)
    guide = np.searchsorted(highs, np.arange(2**16, dtype=np.uint64) << np.uint64(48))
    return probabilities, highs, guide.astype(np.int64)
