# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Estimator of arm and contact from one state to the next: of one robot, or of arrays of robots.

It reads nothing but the states that a policy sees, one tick after the other.
"""

from collections.abc import Sequence
from copy import copy
import math
from typing import NamedTuple, Self

from fdrl_ros.shield.depth_tables import LEVELS
from fdrl_ros.shield.prediction import ContactBounds, ContactState, Prediction
from fdrl_ros.surgery.gym.actions import COARSE_STEP, FINE_STEP, MAXIMUM_SPEED, TICK
from fdrl_ros.surgery.scalar_or_array import choose, maths_of, Number
from fdrl_ros.surgery.tasks.procedures import TRAITS
from fdrl_ros.surgery.tissue.contact import TOUCH_FORCE
import numpy as np

_FELT = 2.0
_SLACK = 1e-5
"""Of a set-point, m: states come as numbers with a few digits."""


class ContactReading(NamedTuple):
    """
    The numbers of one state that the shield needs, in their units.

    :param error: of the set-point from the waypoint, z, m.
    :param grasped: 1 if the jaw holds the object.
    """

    force: Number
    lag: Number
    error: Number
    grasped: Number


class ContactEstimator:
    """
    Bounds the contact by each state and the ones before.

    :param predictions: of the contact; the first, under the wide bounds, bounds arm and tissue.
    :param procedure: that is done.
    :param like: 0.0 for one robot, zeros of shape (n,) for n of them.
    """

    def __init__(
        self, predictions: Sequence[Prediction], procedure: str, like: Number = 0.0
    ) -> None:
        self._predictions, self._maths = predictions, maths_of(like)
        self._bounds = predictions[0].bounds
        lags = predictions[0].tables.levels
        self._lags, self._interval = lags, TICK
        self._kept = [math.exp(-TICK / each) for each in lags]
        self._follows = [
            COARSE_STEP / TICK * lag * (1.0 - left)
            for lag, left in zip(lags, self._kept, strict=True)
        ]
        self._off = self._bounds.arm_error + self._bounds.position_error
        self._reach = [MAXIMUM_SPEED * lag + self._off for lag in lags]
        self._reaches = np.array(self._reach)
        self._heights, self._rides = TRAITS[procedure].heights, TRAITS[procedure].rides
        self._last: ContactReading | None = None
        self._due = like
        self._moved = like
        self._short = 0.0
        """By how much the last interval was shorter than a tick, s."""
        self._timing: Number = like > 1.0
        self._timed: list[tuple[Number, Number]] = [(like, like)] * LEVELS
        """How far behind an arm of each level would be, and what is left of the error at first."""
        self._shown: Number = 0 if isinstance(like, float) else like.astype(np.intp)
        """Range of lags that the last state alone shows."""
        self.level: Number = 0 if isinstance(like, float) else like.astype(np.intp)
        """Range of lags that the arm has shown to be in."""
        self.kinds = [each.unknown_tissue(like) for each in predictions]
        """Possible speeds of the surface, under each prediction, for each kind of tissue."""
        self.height: Number = like
        """Of the tip above the planned surface, m."""

    def decay(self, interval: float) -> Number:
        """Return which share of its lag the arm keeps in so many seconds at most."""
        level = self.level
        if interval != self._interval:
            self._interval = interval
            self._kept = [math.exp(-interval / each) for each in self._lags]
        return self._kept[level] if type(level) is int else np.array(self._kept)[level]

    def update(
        self,
        now: ContactReading,
        interval: float,
        tissue: Number,
        aside: Number = 0.0,
        soon: bool = False,
    ) -> list[tuple[Prediction, ContactState, ContactBounds]]:
        """
        Take in a state.

        :param interval: since the last state, s; 0 if that was not about one tick before.
        :param tissue: whether nothing but tissue can have pushed the tip since then.
        :param aside: how far it went sideways since then at most, m.
        :param soon: whether the last state was less than a tick before.
        :returns: readings of the contact and bounds on it, under each prediction.
        """
        self.height = now.error + now.lag + self.height_of(now.grasped)
        level = self.level
        reach = self._reach[level] if type(level) is int else self._reaches[level]
        # An arm that is further behind than its range of lags allows is not as quick as assumed.
        self.level = choose(abs(now.lag) > reach, 0, level)
        last = self._last if interval else None
        before, lag_before = now.force, now.lag
        sunk: Number = math.nan * now.force
        if last is None:
            self._timing = 0.0 * now.force > 1.0
            self._due = self._remaining_move(now, soon)
            self._short = TICK if soon else 0.0
        else:
            before, lag_before = last.force, last.lag
            same = (last.grasped > 0.5) == (now.grasped > 0.5)
            # A move takes the place of what is left of the one before, a tick late at most.
            none, short = 0.0 * now.force, self._short
            self._short = max(TICK - interval, 0.0)
            left = self._maths.greater(self._moved, none) + MAXIMUM_SPEED * (short + self._short)
            left = self._maths.lesser(left, COARSE_STEP + none)
            if self._rides:
                self._due = left
            else:
                drop = last.error - now.error
                still = (abs(self._moved) <= _SLACK) & (self._due <= _SLACK)
                went = choose(same, drop, none)
                self._due = self._maths.lesser(
                    self._maths.greater(self._due + self._moved - went, none), left
                )
                self._time_arm(now, last, interval, drop, same, still)
                steady = same & tissue
                sunk = choose(steady, last.lag - now.lag + drop, sunk)
        self._last, self._moved = now, 0.0 * now.force
        found = []
        pending = self._pending_move()
        for place, each in enumerate(self._predictions):
            seen = ContactState(
                now.force,
                before,
                now.lag,
                lag_before,
                sunk,
                *self._clearance(each, now.force, tissue),
                pending if each.bounds.latency > 0.0 else 0 * pending,
                self.level,
                self.kinds[place],
                aside,
                interval or TICK,
            )
            possible = each.infer(seen)
            self.kinds[place] = possible.kinds
            found.append((each, seen, possible))
        return found

    def height_of(self, grasped: Number) -> Number:
        """Return how far the planned waypoint is above the planned surface, m."""
        return choose(grasped > 0.0, self._heights[1], self._heights[0])

    def record_move(self, down: Number) -> None:
        """
        Take in the move that is going to be carried out.

        :param down: how far the set-point goes down, m.
        """
        self._moved = down

    def branch(self) -> Self:
        """Return an independent copy."""
        other = copy(self)
        other.kinds, other._timed = [*self.kinds], [*self._timed]
        return other

    def _clearance(
        self, prediction: Prediction, force: Number, tissue: Number
    ) -> tuple[Number, Number]:
        """Return how far the tip is above where the surface can be now, and ever, m."""
        bounds = prediction.bounds
        free = self.height - bounds.registration - bounds.position_error
        ever = free - (bounds.swing if self._rides else 0.5 * bounds.swing)
        # A force above all tissue shows that the planned height of the surface is wrong.
        wrong = tissue & (force > _FELT * bounds.force_error + TOUCH_FORCE) & (free > 0.0)
        nowhere = 0.0 * force - math.inf
        now = free if self._rides else ever
        return choose(wrong, nowhere, now), choose(wrong, nowhere, ever)

    def _remaining_move(self, now: ContactReading, soon: bool) -> Number:
        """Return which way down may still be to come where the last state was no tick before."""
        none, last = 0.0 * now.force, self._last
        if not soon or last is None:
            return self._maths.greater(self._moved, none)
        went = none
        if not self._rides:
            same = (last.grasped > 0.5) == (now.grasped > 0.5)
            went = choose(same, last.error - now.error, none)
        return self._maths.lesser(
            self._maths.greater(self._due + self._moved - went, none), COARSE_STEP + none
        )

    def _pending_move(self) -> Number:
        """Return which move downwards may still be to come: 2 coarse, 1 fine, 0 none."""
        if type(self._due) is float:
            return 2 if self._due > FINE_STEP + _SLACK else int(self._due > _SLACK)
        return (self._due > FINE_STEP + _SLACK).astype(np.intp) + (self._due > _SLACK)

    def _time_arm(
        self,
        now: ContactReading,
        last: ContactReading,
        interval: float,
        drop: Number,
        even: Number,
        still: Number,
    ) -> None:
        """
        Measure by moves downwards in free air how much the arm lags at most.

        The set-point can only just make a coarse move in a tick, so it was even. From the first
        of such ticks on, a slower arm would be further behind, even if it was not at all at first.
        Two states in a row have to show it: one reading can be wrong.

        :param interval: since the last state, s; a coarse move may have come early in it.
        :param drop: of the set-point, m.
        :param even: where the waypoint stayed where it was.
        :param still: where no move was to be carried out.
        """
        contact_threshold = 2.0 * self._bounds.force_error
        coarse = abs(drop - COARSE_STEP) <= _SLACK
        even = even & (coarse | (still & (abs(drop) <= _SLACK)))
        even = even & (now.force <= contact_threshold) & (last.force <= contact_threshold)
        even = even & (self._timing | (last.lag >= 0.0))
        timing, self._timing = self._timing, even
        shown: Number = 0 * self._shown
        if type(even) is bool and not even:
            self._shown = shown
            return
        error = self._off
        self.decay(interval)
        rest = max(interval - TICK, 0.0)
        for level in range(1, LEVELS):
            behind, share = self._timed[level]
            decay = self._kept[level]
            behind = choose(timing, behind, 0.0) * decay
            follows = self._follows[level] * math.exp(-rest / self._lags[level])
            behind = behind + choose(coarse, follows, 0.0)
            share = choose(timing, share, 1.0) * decay
            self._timed[level] = behind, share
            quicker = even & (now.lag < behind - error * (1.0 + share))
            shown = choose(quicker, level, shown)
        before, self._shown = self._shown, shown
        maths = self._maths
        self.level = maths.greater(self.level, maths.lesser(shown, before))
