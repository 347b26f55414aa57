# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""When what failed is tried again, if ever."""

import math


class Backoff:
    """Pauses before the next try of each thing that failed, every time twice as long."""

    def __init__(self, first: float, longest: float) -> None:
        """
        Begin without a failure.

        :param first: pause after the first one, second.
        :param longest: second.
        """
        self._first, self._longest = first, longest
        self._pauses: dict[str, float] = {}
        self._until: dict[str, float] = {}

    def fail(self, name: str, now: float) -> float:
        """Take in that something failed; return the pause that it has now, second."""
        pause = self._pauses.get(name, self._first)
        self._until[name] = now + pause
        self._pauses[name] = min(2.0 * pause, self._longest)
        return pause

    def give_up(self, name: str) -> None:
        """Take in that something failed for good: it waits until it is forgotten."""
        self._until[name] = math.inf

    def forget(self, name: str) -> None:
        """Begin anew with something, as it went well or is gone."""
        self._pauses.pop(name, None)
        self._until.pop(name, None)

    def waiting(self, now: float) -> frozenset[str]:
        """Return what is not to be tried yet."""
        return frozenset(name for name, until in self._until.items() if now < until)
