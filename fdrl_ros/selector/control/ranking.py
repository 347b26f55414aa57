# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Which candidate comes first in a state: argmax of a lower confidence bound, without chatter.

A policy takes over from the one that acts when the lower bound of its *advantage* over that one
says so (FDRL Eq. 7 with caution); holding takes over when the lower bound of the return itself
falls below that of holding.
"""

from collections.abc import Sequence
import math
from statistics import NormalDist

from fdrl_ros.selector.settings import SelectorSettings
from fdrl_ros.selector.value.bank import Estimates
from fdrl_ros.shield.observation import Reason
import numpy as np


class Ranking:
    """Remembers who acts, and since when."""

    def __init__(self, settings: SelectorSettings) -> None:
        self._settings = settings
        self._factor = NormalDist().inv_cdf(settings.confidence)
        self._current: str | None = None
        self._since = -math.inf

    def reset(self) -> None:
        """Forget who acts."""
        self._current, self._since = None, -math.inf

    def choose(
        self,
        names: Sequence[str],
        estimates: Estimates,
        free: Sequence[bool],
        valued: bool,
        now: float,
    ) -> tuple[int, Reason]:
        """
        Choose a candidate, and say why.

        :param names: of the C candidates, hold last.
        :param free: whether each may be chosen, shape (C,).
        :param valued: whether any of the policies has an estimate of any procedure.
        :param now: seconds of the steady clock.
        :returns: its number, and the reason.
        """
        place, reason = self._best(names, estimates, free, valued, now)
        if names[place] != self._current:
            self._current, self._since = names[place], now
        return place, reason

    def worth(self, place: int, estimates: Estimates) -> tuple[float, float, float]:
        """Return mean, standard deviation and risk to go of a candidate; NaN if unknown."""
        mean = estimates.means.item(place)
        if place == len(estimates.means) - 1 and math.isnan(mean):
            return self._settings.hold_return, 0.0, math.nan
        return mean, estimates.stds.item(place), estimates.risks.item(place)

    def _best(
        self,
        names: Sequence[str],
        estimates: Estimates,
        free: Sequence[bool],
        valued: bool,
        now: float,
    ) -> tuple[int, Reason]:
        hold = len(names) - 1
        if hold == 0:
            return hold, Reason.NO_POLICY
        if not any(free[:hold]):
            return hold, Reason.POLICY_FAILED
        if not valued:
            return free.index(True), Reason.UNVALUED
        bounds = self._bounds(estimates, free)
        if max(bounds[:hold]) == -math.inf:
            known = np.isfinite(estimates.means[:hold]).any()
            return hold, Reason.POLICY_FAILED if known else Reason.PROCEDURE
        current = names.index(self._current) if self._current in names else -1
        if current < 0 or bounds[current] == -math.inf:
            best = bounds.index(max(bounds))
            return best, Reason.CAUTION if best == hold else Reason.BEST
        if current == hold:
            best = bounds.index(max(bounds))
            gain = bounds[best] - bounds[hold]
        else:
            gains: list[float] = estimates.advantages(current, self._factor).tolist()
            gains[hold] = bounds[hold] - bounds[current]
            if min(bounds) == -math.inf:
                gains = [
                    gain if bound > -math.inf else -math.inf
                    for gain, bound in zip(gains, bounds, strict=True)
                ]
            gain = max(gains)
            best = gains.index(gain)
        if best != current and self._keep(gain, best == hold, now):
            return current, Reason.CAUTION if current == hold else Reason.KEPT
        return best, Reason.CAUTION if best == hold else Reason.BEST

    def _bounds(self, estimates: Estimates, free: Sequence[bool]) -> list[float]:
        """Return the lower bound of each candidate's return; -inf where it may not act."""
        lower = estimates.stds * -self._factor
        lower += estimates.means
        bounds: list[float] = lower.tolist()
        if not (all(free) and math.isfinite(sum(bounds))):
            bounds = [
                bound if each and math.isfinite(bound) else -math.inf
                for bound, each in zip(bounds, free, strict=True)
            ]
        if math.isnan(estimates.means[-1]):
            bounds[-1] = self._settings.hold_return
        else:
            bounds[-1] -= self._settings.hold_handicap
        return bounds

    def _keep(self, gain: float, to_hold: bool, now: float) -> bool:
        """
        Decide whether who acts goes on although another would be better.

        A switch needs the dwell time, and then the margin or patience. Only holding may come at
        once, by the margin: the way back waits again, so switches cannot chatter.
        """
        stayed = now - self._since
        if to_hold and gain > self._settings.margin:
            return False
        if stayed < self._settings.dwell:
            return True
        return gain <= self._settings.margin and stayed < self._settings.patience
