# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""How long the sepsis experiments will still take: by the patients that runs have yet to treat."""

from collections.abc import Sequence
import time

from fdrl_ros.worlds.icu_sepsis.study.settings import Arm, SepsisSettings

_PATIENTS = 7000.0
"""Patients whose treatment takes as long as beginning and judging a run, about."""
_STEPS = 200.0
"""Steps of Adam that do."""


class TimeLeft:
    """Measures what is done from when it is made."""

    def __init__(self, settings: SepsisSettings, missing: Sequence[Arm]) -> None:
        """:param missing: an arm for each run that is to be made."""
        self._work = {arm.name: work_of(settings, arm) for arm in missing}
        self._left = sum(self._work[arm.name] for arm in missing)
        self._done = 0.0
        self._began = time.perf_counter()

    def finish(self, name: str) -> str:
        """
        Count a run of an arm as done.

        :returns: words, such as 'about 3 min left'; none if nothing is.
        """
        self._done += self._work[name]
        self._left -= self._work[name]
        elapsed = time.perf_counter() - self._began
        return left_words(elapsed * self._left / self._done) if self._left > 1e-9 else ''


def work_of(settings: SepsisSettings, arm: Arm) -> float:
    """Return how much work a run of an arm is, beside beginning and judging it."""
    if arm.kind == 'plain':
        treated = settings.plain_rounds * settings.plain_patients
        return 1.0 + treated / _PATIENTS + settings.plain_rounds * settings.plain_steps / _STEPS
    if arm.kind == 'online':
        return 1.0 + (arm.patients or settings.patients) / _PATIENTS
    return 1.0


def left_words(seconds: float) -> str:
    """Write a time to wait, as exactly as it can be known."""
    if seconds < 90.0:
        return f'about {max(10.0, 10.0 * round(seconds / 10.0)):.0f} s left'
    if seconds < 5400.0:
        return f'about {seconds / 60.0:.0f} min left'
    return f'about {seconds / 3600.0:.1f} h left'
