# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What a party's work takes: seconds by the name of the work, and memory of its process."""

from collections.abc import Callable
from pathlib import Path
import time
from typing import ParamSpec, TypeVar

P = ParamSpec('P')
R = TypeVar('R')


def peak_memory() -> float | None:
    """Return the most memory that this process ever held, MB; None where no system states it."""
    status = Path('/proc/self/status')
    # Not getrusage: after exec that counts the memory of the parent too.
    lines = status.read_text('ascii').splitlines() if status.exists() else []
    held = [int(line.split()[1]) * 1024 / 1e6 for line in lines if line.startswith('VmHWM:')]
    return held[0] if held else None


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
                self.add(name, time.perf_counter() - start)

        return run

    def add(self, name: str, seconds: float) -> None:
        """Add seconds of work that was timed elsewhere, or by :meth:`timed`."""
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds

    def take(self) -> dict[str, float]:
        """Return what was added up, and begin again at nothing."""
        taken, self.seconds = self.seconds, {}
        return taken
