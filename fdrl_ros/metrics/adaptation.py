# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""State-variation rate and adaptation metric alpha_adapt (FDRL Eq. 4 and 11), batch and online."""

from collections.abc import Sequence
from dataclasses import dataclass
import math

from fdrl_ros.errors import StateError
from fdrl_ros.metrics.summation import RunningSum
import numpy as np

DEFAULT_THRESHOLD = 0.5
"""Change of state that counts, in scales."""


def state_change(
    states: np.ndarray, previous: np.ndarray, scales: np.ndarray | float
) -> np.ndarray:
    """
    Measure d(s_t, s_t-1): Euclidean, after dividing each component by its scale.

    :param states: shape (..., S).
    :param previous: the states one step earlier, same shape.
    :param scales: shape (S,), above 0; 1 for states that are scaled already.
    :returns: shape (...).
    """
    difference = (np.asarray(states, np.float64) - np.asarray(previous, np.float64)) / scales
    distance: np.ndarray = np.sqrt(np.square(difference).sum(axis=-1))
    return distance


def variation_rate(
    cases: Sequence[np.ndarray],
    scales: np.ndarray | float = 1.0,
    threshold: float = DEFAULT_THRESHOLD,
) -> float:
    """
    Compute the fraction of steps whose state changed, averaged over cases (FDRL Eq. 4).

    :param cases: states of each case, shape (steps, S); the first follows no other.
    :returns: in [0, 1], or NaN if no case has two states.
    """
    rates = [
        float(np.mean(state_change(states[1:], states[:-1], scales) > threshold))
        for states in cases
        if len(states) > 1
    ]
    return float(np.mean(rates)) if rates else math.nan


def alpha_adapt(
    cases: Sequence[tuple[np.ndarray, np.ndarray]],
    scales: np.ndarray | float = 1.0,
    threshold: float = DEFAULT_THRESHOLD,
) -> tuple[float, int]:
    """
    Compute how often the action answers a changed state (FDRL Eq. 11).

    Within a case: among the steps with d(s_t, s_t-1) > threshold, the fraction with
    a_t != a_t-1. Averaged over the cases that had such a step.

    :param cases: states (steps, S) and executed actions (steps,) of each case.
    :returns: alpha_adapt, and how many cases it averages; NaN and 0 where it is undefined.
    :raises StateError: if a case has not one action for each state.
    """
    fractions = []
    for states, actions in cases:
        if len(states) != len(actions):
            raise StateError(f'{len(states)} states with {len(actions)} actions: expected as many')
        if len(states) < 2:
            continue
        changed = state_change(states[1:], states[:-1], scales) > threshold
        if changed.any():
            answered = np.asarray(actions)[1:] != np.asarray(actions)[:-1]
            fractions.append(float(np.mean(answered[changed])))
    return (float(np.mean(fractions)) if fractions else math.nan), len(fractions)


@dataclass(frozen=True)
class Adaptation:
    """
    Adaptation up to and with the present step.

    :param alpha_adapt: FDRL Eq. 11; NaN while `cases` is 0.
    :param cases: cases that had a changed state, over which alpha_adapt averages.
    :param variation_rate: FDRL Eq. 4; NaN before the second state of a case.
    :param change: d(s_t, s_t-1) of the present step, in scales; NaN at a case's first state.
    :param changes: steps of the present case whose state changed.
    :param answers: those of them whose action changed too.
    """

    alpha_adapt: float
    cases: int
    variation_rate: float
    change: float
    changes: int
    answers: int


class AdaptationMeter:
    """Both rates kept up to date; equal to the batch functions over the same steps."""

    def __init__(
        self, scales: np.ndarray | float = 1.0, threshold: float = DEFAULT_THRESHOLD
    ) -> None:
        self._scales = scales
        self._threshold = threshold
        self._finished_alpha = RunningSum()
        self._finished_alpha_cases = 0
        self._finished_rate = RunningSum()
        self._finished_rate_cases = 0
        self._start_case()

    def _start_case(self) -> None:
        self._previous: tuple[np.ndarray, int] | None = None
        self._steps = self._changes = self._answers = 0

    def add(self, state: np.ndarray, action: int) -> Adaptation:
        """
        Take in one step of the present case.

        :param state: shape (S,).
        :param action: the action executed in it, after the shield.
        """
        change = math.nan
        if self._previous is not None:
            before, action_before = self._previous
            change = float(state_change(state, before, self._scales))
            self._steps += 1
            if change > self._threshold:
                self._changes += 1
                self._answers += action != action_before
        self._previous = (np.array(state, dtype=np.float64), action)
        alpha_sum, alpha_cases = self._alpha()
        rate_sum, rate_cases = self._rate()
        return Adaptation(
            alpha_adapt=alpha_sum / alpha_cases if alpha_cases else math.nan,
            cases=alpha_cases,
            variation_rate=rate_sum / rate_cases if rate_cases else math.nan,
            change=change,
            changes=self._changes,
            answers=self._answers,
        )

    def end_case(self) -> None:
        """Close the present case."""
        if self._changes:
            self._finished_alpha.add(self._answers / self._changes)
            self._finished_alpha_cases += 1
        if self._steps:
            self._finished_rate.add(self._changes / self._steps)
            self._finished_rate_cases += 1
        self._start_case()

    def _alpha(self) -> tuple[float, int]:
        present = self._answers / self._changes if self._changes else 0.0
        return self._finished_alpha.value + present, self._finished_alpha_cases + (
            self._changes > 0
        )

    def _rate(self) -> tuple[float, int]:
        present = self._changes / self._steps if self._steps else 0.0
        return self._finished_rate.value + present, self._finished_rate_cases + (self._steps > 0)
