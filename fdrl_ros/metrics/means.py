# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Online means over cases of the means within them: the form of FDRL Eq. 4, 9 and 11.

Sums are of whole numbers, so that old steps are subtracted exactly: a window of a million steps
equals a batch over them.
"""

from collections import deque
import math

ONE = 1 << 60
"""A ratio of 1 in whole numbers; the rounding of a step is below 1e-18."""

WINDOW = 200
"""Default steps of a sliding window: 10 s at 20 Hz."""

_ONE = float(ONE)
_PART = 1.0 / ONE


def whole(value: float) -> int:
    """Turn a finite number into whole parts of :data:`ONE`."""
    return int(value * _ONE)


class CaseMeans:
    """
    The mean over cases of a ratio in each, over all steps or the newest of them.

    A case without a denominator has no ratio and is omitted. Time and memory of a step do not grow
    with the number of steps.
    """

    __slots__ = ('_parts', '_steps', '_total', '_window', 'cases', 'denominator', 'numerator')

    def __init__(self, window: int | None = None) -> None:
        """
        Begin with a case of no steps.

        :param window: number of newest steps that count, also of earlier cases; None for all.
        """
        self._window = window
        self._steps: deque[tuple[int, int]] = deque()
        # Of each case: numerator, denominator, steps, ratio.
        self._parts: deque[list[int]] = deque([[0, 0, 0, 0]])
        self._total = 0
        self.cases = 0
        self.numerator = 0
        self.denominator = 0

    def add(self, numerator: int, denominator: int = 1) -> None:
        """
        Add a step of the present case.

        :param numerator: in parts of :data:`ONE`.
        :param denominator: 0 for a step that only occupies a place in the window.
        """
        part = self._parts[-1]
        part[2] += 1
        if self._window is not None:
            self._steps.append((numerator, denominator))
            if len(self._steps) > self._window:
                old_numerator, old_denominator = self._steps.popleft()
                oldest = self._parts[0]
                oldest[2] -= 1
                if oldest is part:  # one change covers both
                    numerator -= old_numerator
                    denominator -= old_denominator
                else:
                    self._update_sums(oldest, -old_numerator, -old_denominator)
                    if not oldest[2]:
                        self._parts.popleft()
        if numerator or denominator:
            self._update_sums(part, numerator, denominator)

    def end_case(self) -> None:
        """Close the present case, if it had a step."""
        if not self._parts[-1][2]:
            return
        if self._window is None:
            self._parts.popleft()
        self._parts.append([0, 0, 0, 0])

    def _update_sums(self, part: list[int], numerator: int, denominator: int) -> None:
        """Change the sums of a case and the sum of the means."""
        before = part[1]
        part[0] += numerator
        part[1] = after = before + denominator
        ratio = part[0] // after if after else 0
        self._total += ratio - part[3]
        part[3] = ratio
        if not (before and after):
            self.cases += (after > 0) - (before > 0)
        self.numerator += numerator
        self.denominator += denominator

    @property
    def value(self) -> float:
        """The mean; NaN while no case counts."""
        return self._total * _PART / self.cases if self.cases else math.nan

    @property
    def present(self) -> tuple[float, int, int]:
        """The present case: its ratio or NaN, its numerator and its denominator."""
        numerator, denominator, _, _ = self._parts[-1]
        ratio = numerator * _PART / denominator if denominator else math.nan
        return ratio, numerator, denominator
