# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The greatest force that an action can lead to, by the contact law and nothing but bounds.

With x = F^(2/3) Hertz' law is linear in depth: x = kappa d, kappa = K^(2/3). So what the surface
did in the last tick follows from the rise of x and the way of the tip, for every kappa there may
be: that says how force goes on, and not a guess of the stiffness. Numbers and arrays alike.
"""

from typing import NamedTuple

from fdrl_ros.env.actions import MAXIMUM_SPEED, TICK
from fdrl_ros.env.tissue import contact_stiffness
from fdrl_ros.selector.either import choose, least, most, Number
from fdrl_ros.selector.excursion import Bounds, excursion

_POWER = 2.0 / 3.0
_NONE = 0.0
_SPEED = float(MAXIMUM_SPEED)
_LEAST_WAY = 1e-5
"""Way from which on the growth of force says something about stiffness, m."""


class Seen(NamedTuple):
    """
    What a robot knows of its contact, as numbers or as arrays of one shape.

    :param force: measured load, N.
    :param before: the same one tick earlier, N.
    :param lag: height of the tip above its set-point, m.
    :param lag_before: the same one tick earlier, m.
    :param sunk: how far the tip sank in the last tick, m; not a number where nobody knows.
    :param room: height of the tip above where the surface can be now at the most, m.
    :param room_ever: height of the tip above where the surface can ever be, m.
    :param pending: the move downwards that may still be to come: 2 is coarse, 1 fine, 0 none.
    :param level: which range of the arm's lag it has shown, see Excursion.levels.
    :param stiffest: kappa that the contact has shown not to exceed, N^(2/3)/m.
    """

    force: Number
    before: Number
    lag: Number
    lag_before: Number
    sunk: Number
    room: Number
    room_ever: Number
    pending: Number
    level: Number
    stiffest: Number


class Outlook(NamedTuple):
    """
    What can be now, by all that was seen.

    :param softest: least kappa, N^(2/3)/m.
    :param stiffest: greatest kappa, N^(2/3)/m.
    :param contact: greatest kappa d at present by the force that is felt, N^(2/3).
    :param room: height of the tip above where the surface can be at the most, m.
    :param speed: greatest speed of the surface, m/s.
    :param fast: row of the tables for it.
    :param far: row of the tables for the lag of the tip.
    """

    softest: Number
    stiffest: Number
    contact: Number
    room: Number
    speed: Number
    fast: Number
    far: Number


class Prediction:
    """
    Forces under one instrument.

    :param bounds: what is taken for granted.
    :param radius: of the instrument's rounded end, m.
    """

    def __init__(self, bounds: Bounds, radius: float) -> None:
        self.bounds = bounds
        self.excursion = excursion(bounds)
        self.softest = contact_stiffness(bounds.softest, radius) ** _POWER
        self.stiffest = contact_stiffness(bounds.stiffest, radius) ** _POWER
        """Least and greatest kappa, N^(2/3)/m."""
        self._change = 0.5 * bounds.acceleration * TICK
        self._quick, self._slow = 1.0 / bounds.quickest, 1.0 / bounds.slowest

    def _speeds(self, lag: Number) -> tuple[Number, Number]:
        """Return the least and greatest speed downwards of a tip so far above its set-point."""
        one, other = lag * self._slow, lag * self._quick
        return most(least(one, other), -_SPEED), least(most(one, other), _SPEED)

    def outlook(self, seen: Seen) -> Outlook:
        """Return what can be now."""
        bounds, change = self.bounds, self._change
        error, top, worst = bounds.force_error, bounds.speed, bounds.damping
        now_least, now_most = self._speeds(seen.lag)
        then_least, then_most = self._speeds(seen.lag_before)
        high = most(seen.force + error, _NONE) ** _POWER
        low = most(seen.force - error, _NONE) ** _POWER
        high_then = most(seen.before + error, _NONE) ** _POWER
        low_then = most(seen.before - error, _NONE) ** _POWER
        # With damping x is kappa d (1 + lambda v)^(2/3), v being how fast the depth grows: bound
        # how much kappa d grew (or fell) by the surface's speed, which hardly changed in a tick.
        slow_now, slow_then = now_least - change, then_least - change
        fast_now, fast_then = (
            most(now_most + change, slow_then),
            most(then_most + change, slow_now),
        )
        growth, fall = high - low_then, high_then - low
        for speed in (1.0 - worst * top, 1.0 + worst * top):
            growth = most(
                growth,
                high / (speed + worst * slow_now) ** _POWER
                - low_then / (speed + worst * fast_then) ** _POWER,
            )
            fall = most(
                fall,
                high_then / (speed + worst * slow_then) ** _POWER
                - low / (speed + worst * fast_now) ** _POWER,
            )
        known = (seen.sunk == seen.sunk) & (low_then > 0.0)
        sunk = choose(known, seen.sunk, _NONE)
        # A tip that sinks faster than the surface can recede goes deeper by at least the rest.
        rest = sunk - top * TICK
        shown = most(growth, _NONE) / most(rest, _LEAST_WAY)
        # Softer than any tissue is no news of the tissue: something else pulled or let go.
        told = (rest > _LEAST_WAY) & (shown >= self.softest)
        stiffest = least(seen.stiffest, choose(told, shown, seen.stiffest))
        softest = self.softest
        # Speed of the surface: its mean over the last tick by the growth, and what it gained.
        way = growth / choose(growth > 0.0, softest, stiffest)
        speed = choose(known, least((way - sunk) / TICK + change, top), top)
        back = -(fall / choose(fall > 0.0, softest, stiffest) + sunk) / TICK - change
        back = choose(known & (low > 0.0), most(back, -top), -top)
        damped = 1.0 + worst * least(back + now_least, _NONE)
        contact = high / damped**_POWER
        fast, far = self.excursion.places(speed, seen.lag)
        return Outlook(softest, stiffest, contact, seen.room, speed, fast, far)

    def force(self, seen: Seen, outlook: Outlook, move: int, aside: Number = 0.0) -> Number:
        """
        Return the greatest force that a move can lead to, N, if the tip is drawn back after it.

        :param outlook: for what is seen.
        :param move: place in MOVES.
        :param aside: how far the tip goes sideways meanwhile, m: over a slope it gets deeper.
        """
        softest, stiffest, contact, room, _speed, fast, far = outlook
        tables, level, pending = self.excursion, seen.level, seen.pending
        deeper = self.bounds.slope * aside
        # Never deeper than where the surface can be at its highest.
        deepest = tables.sinks(level, far, pending, move) - seen.room_ever + deeper
        if type(deepest) is float and deepest <= 0.0:
            return 0.0
        deepest = tables.steep * deepest
        depth = least(contact / stiffest, -room) + deeper
        felt = least(tables.reached(level, fast, far, pending, move, depth), deepest)
        x = most(stiffest * felt, _NONE)
        # What gets less deep is linear in kappa too: the softest is then the worst.
        if type(x) is not float or x < contact * tables.steep:
            depth = least(contact / softest, -room) + deeper
            felt = least(tables.reached(level, fast, far, pending, move, depth), deepest)
            x = most(x, softest * felt)
        return x * x**0.5
