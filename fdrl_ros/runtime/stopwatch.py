# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Where the time of a party goes: seconds by the name of the work."""

from collections.abc import Callable
import time
from typing import ParamSpec, TypeVar

P = ParamSpec('P')
R = TypeVar('R')


class Stopwatch:
    """Adds up the seconds of work by its name."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def timed(self, name: str, work: Callable[P, R]) -> Callable[P, R]:
        """Return `work` with its time taken."""

        def run(*arguments: P.args, **named: P.kwargs) -> R:
            start = time.perf_counter()
            try:
                return work(*arguments, **named)
            finally:
                spent = time.perf_counter() - start
                self.seconds[name] = self.seconds.get(name, 0.0) + spent

        return run

    def take(self) -> dict[str, float]:
        """Return what was added up, and begin again at nothing."""
        taken, self.seconds = self.seconds, {}
        return taken
