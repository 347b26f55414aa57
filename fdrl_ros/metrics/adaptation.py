# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""State-variation rate and adaptation metric alpha_adapt (FDRL Eq. 4 and 11), batch and online."""

from collections.abc import Sequence
import math
from typing import NamedTuple

from fdrl_ros.errors import StateError
from fdrl_ros.metrics.means import CaseMeans, ONE, WINDOW
import numpy as np

DEFAULT_THRESHOLD = 0.5
"""Change of state that counts, in scales."""

_CLOSE = 1e-12
"""Relative difference between two orders of summing a distance."""


def state_change(states: np.ndarray, previous: np.ndarray) -> np.ndarray:
    """
    Measure d(s_t, s_t-1): Euclidean, of scaled states.

    :param states: shape (..., S).
    :param previous: the states one step earlier, same shape.
    :returns: shape (...).
    """
    difference = np.asarray(states, np.float64) - np.asarray(previous, np.float64)
    distance: np.ndarray = np.sqrt(np.square(difference).sum(axis=-1))
    return distance


def alpha_adapt(
    cases: Sequence[tuple[np.ndarray, np.ndarray]],
    threshold: float = DEFAULT_THRESHOLD,
) -> tuple[float, int]:
    """
    Compute how often the action changes when the state changed (FDRL Eq. 11).

    Within a case: among the steps with d(s_t, s_t-1) > threshold, the fraction with
    a_t != a_t-1. Averaged over the cases that had such a step.

    :param cases: states (steps, S) and executed actions (steps,) of each case.
    :returns: alpha_adapt, and how many cases it averages; NaN and 0 if it is undefined.
    :raises StateError: if a case does not have one action for each state.
    """
    fractions = []
    for states, actions in cases:
        if len(states) != len(actions):
            raise StateError(f'{len(states)} states with {len(actions)} actions: expected as many')
        if len(states) < 2:
            continue
        changed = state_change(states[1:], states[:-1]) > threshold
        if changed.any():
            answered = np.asarray(actions)[1:] != np.asarray(actions)[:-1]
            fractions.append(float(np.mean(answered[changed])))
    return (float(np.mean(fractions)) if fractions else math.nan), len(fractions)


class Rates(NamedTuple):
    """
    Both rates over some steps.

    A step counts if it follows another of its case, even one that has left the window.

    :param alpha_adapt: FDRL Eq. 11; NaN while `cases` is 0.
    :param cases: cases that had a changed state, over which alpha_adapt averages.
    :param variation_rate: FDRL Eq. 4; NaN while `steps` is 0.
    :param steps: that follow another.
    :param changes: those of them whose state changed.
    :param answers: those of these whose action changed too.
    """

    alpha_adapt: float
    cases: int
    variation_rate: float
    steps: int
    changes: int
    answers: int


class Adaptation(NamedTuple):
    """
    Adaptation up to and with the present step.

    :param overall: over all cases so far.
    :param change: d(s_t, s_t-1) of the present step, in scales; NaN at a case's first state.
    :param case: the present case alone.
    :param window: the newest steps, whichever case they are of.
    """

    overall: Rates
    change: float
    case: Rates
    window: Rates


class AdaptationMeter:
    """Both rates online; equal to the batch functions over the same steps."""

    def __init__(
        self,
        threshold: float = DEFAULT_THRESHOLD,
        window: int = WINDOW,
    ) -> None:
        """
        Begin.

        :param window: newest steps that :attr:`Adaptation.window` averages.
        """
        self._threshold = threshold
        self._answered, self._varied = CaseMeans(), CaseMeans()
        self._newest = CaseMeans(window), CaseMeans(window)
        self._previous: tuple[list[float], int] | None = None

    def add(self, state: np.ndarray, action: int) -> Adaptation:
        """
        Add a step of the present case.

        :param state: shape (S,).
        :param action: the action executed in it, after the shield.
        """
        change, follows, changed, answered = math.nan, 0, 0, 0
        present: list[float] = np.asarray(state, np.float64).tolist()
        if self._previous is not None:
            before, action_before = self._previous
            follows, change = 1, self._distance(present, before)
            if change > self._threshold:
                changed, answered = 1, int(action != action_before)
        self._previous = present, action
        for alpha, rate in ((self._answered, self._varied), self._newest):
            alpha.add(answered * ONE, changed)
            rate.add(changed * ONE, follows)
        ratio, answers, changes = self._answered.present
        share, _, steps = self._varied.present
        case = Rates(ratio, int(changes > 0), share, steps, changes, answers // ONE)
        overall, window = _rates(self._answered, self._varied), _rates(*self._newest)
        return Adaptation(overall, change, case, window)

    def _distance(self, present: list[float], before: list[float]) -> float:
        """Return d(s_t, s_t-1), near the threshold as the batch computes it: both count alike."""
        change = math.dist(present, before)
        if abs(change - self._threshold) <= _CLOSE * change:
            return float(state_change(np.array(present), np.array(before)))
        return change

    def end_case(self) -> None:
        """Close the present case."""
        self._previous = None
        for each in (self._answered, self._varied, *self._newest):
            each.end_case()


def _rates(alpha: CaseMeans, rate: CaseMeans) -> Rates:
    return Rates(
        alpha.value,
        alpha.cases,
        rate.value,
        rate.denominator,
        alpha.denominator,
        alpha.numerator // ONE,
    )
