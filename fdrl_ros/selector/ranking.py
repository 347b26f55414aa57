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

from fdrl_ros.selector.bank import Estimates
from fdrl_ros.selector.observation import Reason
from fdrl_ros.selector.settings import SelectorSettings
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
        mean = float(estimates.means[place])
        if place == len(estimates.means) - 1 and math.isnan(mean):
            return self._settings.hold_return, 0.0, math.nan
        return mean, float(estimates.stds[place]), float(estimates.risks[place])

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
            return list(free).index(True), Reason.UNVALUED
        bounds = estimates.means - self._factor * estimates.stds
        bounds[~(np.asarray(free) & np.isfinite(bounds))] = -math.inf
        bounds[hold] -= self._settings.hold_handicap
        if math.isnan(estimates.means[hold]):
            bounds[hold] = self._settings.hold_return
        if not np.isfinite(bounds[:hold]).any():
            known = np.isfinite(estimates.means[:hold]).any()
            return hold, Reason.POLICY_FAILED if known else Reason.PROCEDURE
        current = names.index(self._current) if self._current in names else -1
        if current < 0 or bounds[current] == -math.inf:
            best = int(bounds.argmax())
            return best, Reason.CAUTION if best == hold else Reason.BEST
        gains = bounds - bounds[current]
        if current != hold:
            sure = estimates.advantages(current, self._factor)
            gains[:hold] = np.where(bounds[:hold] > -math.inf, sure[:hold], -math.inf)
        best = int(gains.argmax())
        if best != current and self._keep(float(gains[best]), best == hold, now):
            return current, Reason.CAUTION if current == hold else Reason.KEPT
        return best, Reason.CAUTION if best == hold else Reason.BEST

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
