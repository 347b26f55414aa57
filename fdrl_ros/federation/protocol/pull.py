# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
What a receiver asks of a sender, piece by piece, so that never much is on its way.

Who sends more than a few messages at once would fill every queue between, and what has to be quick
would wait behind them. So the sender of a long update says its first chunks only; the receiver
asks for the others as it gets on, and again for what was lost.
"""

from collections.abc import Collection, Iterator
from typing import Final

FIRST: Final = 4
"""Chunks of its update that a hospital sends without being asked."""

STEP: Final = 8
"""Most things asked for in one message."""

WINDOW: Final = 32
"""Most things of one sender on their way."""

PATIENCE: Final = 5.0
"""Without anything new for so long, what was asked for is asked for again; second."""

Ask = tuple[int, int]
"""First number, and how many."""


def numbers(first: int, count: int, of: int) -> range:
    """Return the numbers that are asked for, as far as there are such; a step at most."""
    return range(of)[max(0, first) : max(0, first) + max(0, min(count, STEP))]


class Pull:
    """What was asked of one sender, of things that are numbered from 0."""

    def __init__(self, sent: int = 0) -> None:
        """
        Begin.

        :param sent: how many come without being asked for.
        """
        self._asked = sent
        self._had = 0
        self._since: float | None = None

    def next(self, have: Collection[int], count: int, now: float) -> list[Ask]:
        """
        Return what to ask for now.

        :param have: numbers of what arrived.
        :param count: how many there are in all.
        :param now: steady clock, second.
        """
        if self._since is None or len(have) != self._had:
            self._had, self._since = len(have), now
        asks = []
        if self.is_late(now):
            self._since = now
            asked = range(min(self._asked, count))
            asks = list(_runs(number for number in asked if number not in have))
        while self._asked < count and self._asked - len(have) <= WINDOW - STEP:
            asks.append((self._asked, min(STEP, count - self._asked)))
            self._asked += STEP
        return asks

    def is_late(self, now: float) -> bool:
        """Tell whether nothing new has come for long."""
        return self._since is not None and now - self._since >= PATIENCE

    def hurry(self) -> None:
        """Ask for all that is missing at the next opportunity: the sender started again."""
        self._since = -PATIENCE

    def wait(self) -> None:
        """Be patient anew: it was not its turn."""
        self._since = None


def _runs(numbers: Iterator[int]) -> Iterator[Ask]:
    """Join neighbours, in runs of at most a step, a window in all."""
    first, count, left = 0, 0, WINDOW
    for number in numbers:
        if count and (number != first + count or count == STEP):
            yield first, count
            count = 0
        if not left:
            break
        first = first if count else number
        count, left = count + 1, left - 1
    if count:
        yield first, count
