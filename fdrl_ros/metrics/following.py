# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Whether the hand follows the organ: informedness of its vertical moves, batch and online.

alpha_adapt (FDRL Eq. 11) counts every change of the state, the arm's own included, and any other
action as an answer. Here a change is the organ's alone: its surface has risen or fallen by a fine
step since it last did. The answer is the sign (-1, 0, 1) of what the set-point was told to rise
until the next change, or the end. With E the mean over the cases of the means within them,

    informedness = (E[sign | rose] - E[sign | fell]) / 2,

in [-1, 1]. It is the mean of two informednesses (Youden's J): of moves up for rises, of moves down
for falls. Idling and ramming have 0: they move alike after both. Random and alternating moves have
an expectation of 0. A hand that goes with the organ has up to 1.
"""

from collections.abc import Sequence
import math
from typing import NamedTuple

from fdrl_ros.errors import StateError
from fdrl_ros.metrics.means import CaseMeans, ONE
from fdrl_ros.metrics.task import FINE_STEP
import numpy as np


class Following(NamedTuple):
    """
    How the hand answered the organ.

    :param after_rise: mean sign of the answers to rises, in [-1, 1]; NaN without one.
    :param after_fall: the same of falls.
    :param rises: over how many it averages: cases with a rise, or rises of one case.
    :param falls: the same of falls.
    """

    after_rise: float
    after_fall: float
    rises: int
    falls: int

    @property
    def informedness(self) -> float:
        """Half the difference of both means; NaN if either is undefined."""
        return informedness(self.after_rise, self.after_fall)


def informedness(after_rise: float, after_fall: float) -> float:
    """Return (E[sign | rose] - E[sign | fell]) / 2, in [-1, 1]."""
    return (after_rise - after_fall) / 2.0


class FollowingMeter:
    """
    The same online. An answer counts once it is complete.

    Time and memory of a step do not grow with the number of steps.
    """

    def __init__(self) -> None:
        self._rises, self._falls = CaseMeans(), CaseMeans()
        self._answered: CaseMeans | None = None
        self._surface = math.nan
        self._moved = 0.0

    def add(self, surface: float, move: float) -> None:
        """
        Add a step of the present case.

        :param surface: height of the organ's surface above any fixed one, m, as the step begins.
        :param move: what the set-point is told to rise in it, m.
        :raises StateError: if one is not finite.
        """
        if not math.isfinite(surface) or not math.isfinite(move):
            raise StateError(f'surface {surface} and move {move}: expected finite metres')
        change = surface - self._surface
        if math.isnan(change):
            self._surface = surface
        elif abs(change) >= FINE_STEP:
            self._complete_answer()
            self._answered = self._rises if change > 0.0 else self._falls
            self._surface = surface
        self._moved += move

    def _complete_answer(self) -> None:
        """Count what was moved since the last change."""
        if self._answered is not None:
            # Moves are whole fine steps; sums that cancel leave a rounding error.
            far = abs(self._moved) > 0.5 * FINE_STEP
            self._answered.add(int(math.copysign(far, self._moved)) * ONE)
        self._answered, self._moved = None, 0.0

    def end_case(self) -> None:
        """Close the present case."""
        self._complete_answer()
        self._surface = math.nan
        self._rises.end_case()
        self._falls.end_case()

    @property
    def overall(self) -> Following:
        """Over all cases so far."""
        rises, falls = self._rises, self._falls
        return Following(rises.value, falls.value, rises.cases, falls.cases)

    @property
    def case(self) -> Following:
        """The present case alone."""
        (after_rise, _, rises), (after_fall, _, falls) = self._rises.present, self._falls.present
        return Following(after_rise, after_fall, rises, falls)


def following(cases: Sequence[tuple[np.ndarray, np.ndarray]]) -> Following:
    """
    Return how the hand answered the organ over whole cases.

    :param cases: surface (steps,) and move (steps,) of each, m; see :meth:`FollowingMeter.add`.
    :raises StateError: if a case does not have one move for each surface, or one is not finite.
    """
    meter = FollowingMeter()
    for surfaces, moves in cases:
        if len(surfaces) != len(moves):
            raise StateError(f'{len(surfaces)} surfaces, {len(moves)} moves: expected as many')
        for surface, move in zip(surfaces, moves, strict=True):
            meter.add(float(surface), float(move))
        meter.end_case()
    return meter.overall
