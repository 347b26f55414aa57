# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Which answer is of which state, and how long it took.

What cannot be told, or never came, makes the figures of benchmark/selector.py worse and never
better: an answer that never came counts as one that took a second.
"""

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from fdrl_ros.surgery.gym.actions import TICK
import numpy as np
from selector_work import number_of, NUMBERS

NEVER = 1.0
"""What a missing answer counts as, second."""


def stamp_of(message: Any) -> int:
    """Return a header's stamp, nanosecond."""
    stamp = message.header.stamp
    return int(stamp.sec) * 1_000_000_000 + int(stamp.nanosec)


@dataclass
class Answers:
    """
    What was said and heard in one measurement; times are nanoseconds of the system clock.

    :param sent: when each state was published.
    :param stamps: which state has which stamp.
    :param begin: number of the first state that counts.
    :param actions: when each was received, and its stamp.
    :param risks: stamp of each, and its F_t.
    :param set_points_heard: when each was received, and its stamp.
    """

    sent: list[int] = field(default_factory=list)
    stamps: dict[int, int] = field(default_factory=dict)
    begin: int = 0
    actions: list[tuple[int, int]] = field(default_factory=list)
    risks: list[tuple[int, float]] = field(default_factory=list)
    set_points_heard: list[tuple[int, int]] = field(default_factory=list)

    def echoes(self) -> np.ndarray:
        """
        Return how long the echo node took for each state.

        :returns: second.
        """
        taken = np.full(len(self.sent), NEVER)
        for came, stamp in self.actions:
            number = self.stamps[stamp]
            taken[number] = 1e-9 * (came - self.sent[number])
        return taken[self.begin :]

    def decisions(self) -> np.ndarray:
        """
        Return how long the selector took from a state to the action for it.

        An action without a state, and a tick without an action, count as never.

        :returns: second.
        """
        return np.concatenate([list(self._decided().values()), self._missing()])

    def set_points(self) -> np.ndarray:
        """
        Return how long the selector took from each state to its set-point.

        :returns: second.
        """
        return np.array(list(self._moved().values()))

    def whole(self) -> np.ndarray:
        """
        Return how long each state took to be answered in full: set-point, and action if due.

        :returns: second.
        """
        decided = self._decided()
        both = [max(taken, decided.get(state, 0.0)) for state, taken in self._moved().items()]
        return np.concatenate([both, self._missing()])

    def _anchors(self) -> list[tuple[int, int]]:
        """Return places in the actions, and the numbers of the states that they are of."""
        stamps = [stamp for _, stamp in self.actions]
        found: list[tuple[int, int]] = []
        for stamp, force in self.risks:
            place = bisect_right(stamps, stamp) - 1
            newest = bisect_right(self.sent, self.actions[place][0]) - 1
            number = newest - (newest - number_of(force)) % NUMBERS
            if place >= 0 and number > (found[-1][1] if found else -1):
                found.append((place, number))
        if not found or found[0][1] > self.begin:
            raise SystemExit(f'{len(found)} decisions were heard, none before measuring')
        return found

    def _decided(self) -> dict[int, float]:
        """Return which states had a decision, and how long it took, second."""
        return {
            number: 1e-9 * (self.actions[place][0] - self.sent[number])
            for place, number in self._anchors()
            if number >= self.begin
        }

    def _missing(self) -> np.ndarray:
        """Return NEVER for each action without a state, and each tick without an action."""
        anchors = self._anchors()
        times = np.array([self.sent[number] for _, number in anchors] + self.sent[-1:])
        spans = 1e-9 * np.diff(times[times >= self.sent[self.begin]])
        ticks = np.maximum(np.rint(spans / TICK) - 1, 0).sum()
        strange = sum(self.sent[self.begin] <= came <= self.sent[-1] for came, _ in self.actions)
        known = sum(number >= self.begin for _, number in anchors)
        return np.full(int(ticks) + max(strange - known, 0), NEVER)

    def _moved(self) -> dict[int, float]:
        """
        Return how long the set-point of each state took, second.

        Every state has one, in their order; a decision tells which state the last one before it
        was of: it has the stamp of its state, and the set-point is stamped after it. Where some
        are missing in between, those that came count for the oldest states.
        """
        taken = {}
        stamps = [stamp for _, stamp in self.set_points_heard]
        anchors = [
            (bisect_left(stamps, self.actions[place][1]), number)
            for place, number in self._anchors()
        ]
        for (place, number), (end, last) in pairwise(anchors):
            for offset in range(1, last - number + 1):
                state = number + offset
                came = self.set_points_heard[place + offset][0] if place + offset <= end else None
                taken[state] = NEVER if came is None else 1e-9 * (came - self.sent[state])
        return {state: each for state, each in taken.items() if state >= self.begin}
