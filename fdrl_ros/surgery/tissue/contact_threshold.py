# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
From which force on contact is felt, with a perfect force sensor and with a noisy one.

A noisy force f is smoothed once a tick, m <- m + (f - m) / k, which leaves 1 / sqrt(2 k - 1) of
its deviation in m; contact is felt four such deviations above nothing.
"""

import math
from typing import Any

from fdrl_ros.surgery.constants import constant
from fdrl_ros.surgery.settings import WorldSettings

TOUCH_FORCE = constant('tissue.touch_force')

MEMORY = 8
"""k, ticks."""

_DEVIATIONS = 4.0


def felt_force(settings: WorldSettings) -> float:
    """Return the force from which contact is felt, N: measured, or smoothed where it is noisy."""
    left = settings.force_noise / math.sqrt(2.0 * MEMORY - 1.0)
    return max(TOUCH_FORCE, _DEVIATIONS * left)


def smoothed(last: Any, measured: Any) -> Any:
    """Return m after one more tick, N; numbers and arrays alike."""
    return last + (measured - last) / MEMORY
