# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Which chunks of an update a server requests next: a few at a time, the missing ones again."""

from collections.abc import Collection, Iterator
from itertools import islice
from typing import Final

from fdrl_ros.federation.protocol.message import STEP

FIRST: Final = 4
"""Chunks of its update that a hospital sends without being asked."""

WINDOW: Final = 32
"""Most chunks of one sender on their way."""

PATIENCE: Final = 5.0
"""Time without a new chunk after which missing chunks are requested again, second."""

ChunkRange = tuple[int, int]
"""First number, and how many."""


def chunk_numbers(first: int, count: int, of: int) -> range:
    """Return the requested numbers that exist, at most :data:`STEP`."""
    return range(of)[max(0, first) : max(0, first) + max(0, min(count, STEP))]


class ChunkRequests:
    """What was requested of one sender, whose chunks are numbered from 0."""

    def __init__(self, sent: int = 0) -> None:
        """
        Begin.

        :param sent: how many come without a request.
        """
        self._asked = sent
        self._had = 0
        self._since: float | None = None

    def next(self, have: Collection[int], count: int, now: float) -> list[ChunkRange]:
        """
        Return what to request now.

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
            asks = _runs(number for number in asked if number not in have)
        while self._asked < count and self._asked - len(have) <= WINDOW - STEP:
            asks.append((self._asked, min(STEP, count - self._asked)))
            self._asked += STEP
        return asks

    def is_late(self, now: float) -> bool:
        """Tell whether no new chunk has come for :data:`PATIENCE`."""
        return self._since is not None and now - self._since >= PATIENCE

    def hurry(self) -> None:
        """Request all missing chunks at the next call: the sender started again."""
        self._since = -PATIENCE

    def wait(self) -> None:
        """Restart the patience: the sender was not asked meanwhile."""
        self._since = None


def _runs(numbers: Iterator[int]) -> list[ChunkRange]:
    """Join neighbours, in runs of at most a step, a window in all."""
    runs: list[ChunkRange] = []
    for number in islice(numbers, WINDOW):
        first, count = runs[-1] if runs else (-1, STEP)
        if number == first + count and count < STEP:
            runs[-1] = first, count + 1
        else:
            runs.append((number, 1))
    return runs
