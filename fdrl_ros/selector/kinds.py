# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
What a surface can do if its tissue is of one kind, told from two forces: for one robot.

:mod:`fdrl_ros.selector.prediction` has the same formulas for many robots at once, in arrays: the
definition, through which the proof goes. Those for one, in plain floats, spare it a call for each
minimum in the control loop.
"""

from collections.abc import Sequence
from typing import NamedTuple

from fdrl_ros.selector.either import Number

POWER = 2.0 / 3.0
ROOT = 1.0 / (1.0 + POWER)
TINY = 1e-9
SLACK = 1e-9
"""By which speeds that contradict each other may be off by rounding, m/s."""

FRESH = 2.0
"""Doubt in the tick of the first contradiction."""


class Kind(NamedTuple):
    """
    How fast the surface can be if the tissue is of one kind; of none if least is above most.

    One wrong reading of the force contradicts the true kind of tissue once, in the tick that ends
    with it or in a later one. So at first a contradiction only puts a kind in doubt: it begins
    anew, and a tick later once more, as that tick may have begun with the wrong reading. The next
    contradiction leaves it out.

    :param slow: least speed upwards, m/s.
    :param fast: greatest speed upwards, m/s.
    :param doubt: 0 for none, 2 in the tick of the first contradiction, 1 later on.
    """

    slow: Number
    fast: Number
    doubt: Number = 0.0


class Pressed(NamedTuple):
    """
    Two states in contact, a tick apart: what the speeds of all kinds follow from.

    :param high: greatest kappa d (1 + lambda v)^(2/3) now, by what is felt, N^(2/3).
    :param low: the least, N^(2/3).
    :param high_then: greatest one tick earlier, N^(2/3).
    :param low_then: least one tick earlier, N^(2/3).
    :param slow_now: least speed of the tip downwards now, less what the surface can change by,
        m/s; the others likewise.
    :param change: of the surface's speed from the mean of the tick, m/s.
    :param gone: of the surface's speed since the state before, m/s.
    :param ahead: of the surface beyond what the growth says, m/s; `behind` likewise.
    :param risen: whether the growth says anything.
    :param fallen: whether the fall does.
    :param time: between the states, s.
    """

    high: Number
    low: Number
    high_then: Number
    low_then: Number
    slow_now: Number
    fast_now: Number
    slow_then: Number
    fast_then: Number
    change: float
    gone: Number
    ahead: Number
    behind: Number
    risen: Number
    fallen: Number
    time: float


def kinds_of_one(
    pressed: Pressed,
    spans: Sequence[tuple[float, float]],
    kinds: Sequence[Kind],
    top: float,
    worst: float,
) -> list[Kind]:
    """
    Return what the surface of each kind of tissue can do now, for one robot.

    :param pressed: two states, in plain floats.
    :param spans: least and greatest kappa of each kind, N^(2/3)/m.
    :param kinds: what the surface could do at the state before.
    :param top: greatest speed of a surface, m/s.
    :param worst: greatest damping, s/m.
    """
    (
        high,
        low,
        high_then,
        low_then,
        slow_now,
        fast_now,
        slow_then,
        fast_then,
        change,
        gone,
        ahead,
        behind,
        risen,
        fallen,
        time,
    ) = pressed
    found: list[Kind] = []
    left = False
    for (soft, stiff), kind in zip(spans, kinds, strict=True):
        slow, fast, doubt = kind
        if slow > fast:
            found.append(kind)
            continue
        ends = max(slow - change, -top), min(fast + change, top)
        slow, fast = max(slow - gone, -top), min(fast + gone, top)
        if risen:
            growth = high - low_then
            for v in ends:
                more = gained_by_one(high, v + slow_now, low_then, v + fast_then, worst)
                if more > growth:
                    growth = more
            fast = min(fast, growth / (time * (soft if growth > 0.0 else stiff)) + ahead)
        if fallen:
            fall = high_then - low
            for v in ends:
                more = gained_by_one(high_then, v + slow_then, low, v + fast_now, worst)
                if more > fall:
                    fall = more
            slow = max(slow, behind - fall / (time * (soft if fall > 0.0 else stiff)))
        agrees = slow <= fast + SLACK
        left = left or agrees
        if doubt == FRESH:
            found.append(Kind(-top, top, 1.0))
        elif agrees:
            found.append(Kind(min(slow, fast), fast, doubt))
        elif doubt == 0.0:
            found.append(Kind(-top, top, FRESH))
        else:
            found.append(Kind(top, -top, doubt))
    if left:
        return found
    # Like no tissue at all is no news of the tissue: something else pulled or let go.
    return [Kind(-top, top, 0.0)] * len(found)


def gained_by_one(now: float, slow: float, then: float, fast: float, worst: float) -> float:
    """Return what :func:`fdrl_ros.selector.prediction.gained` does, for one robot."""
    found: float = now / (1.0 + worst * slow) ** POWER - then / (1.0 + worst * fast) ** POWER
    late, early = now * slow, then * fast
    if late > TINY and early > late:
        share = (early / late) ** ROOT
        span = fast - share * slow
        if share - 1.0 < worst * span:
            damping = (share - 1.0) / span
            grown: float = (
                now / (1.0 + damping * slow) ** POWER - then / (1.0 + damping * fast) ** POWER
            )
            return grown if grown > found else found
    return found
