# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The way of a robot that holds and is drawn back: along the shaft, and always upwards."""

from collections.abc import Sequence
import math

Vector = tuple[float, float, float]
"""Three numbers by themselves: they are quicker than an array of three."""

RISE = 0.98
"""Share of that way that is upwards at least: the shield's tables count on it."""

_ASIDE = math.sqrt(1.0 - RISE * RISE)


def retreat(length: float, away: Sequence[float] | None) -> Vector:
    """
    Return the way of the set-point, m.

    Along a shaft that is further off the vertical than RISE allows (11.5 degrees), it is as far
    that way as it may be.

    :param length: of the way, m.
    :param away: unit vector along the shaft away from the tissue, (3,); up where nobody knows.
    """
    if away is None or len(away) != 3 or not all(map(math.isfinite, away)):
        return 0.0, 0.0, length
    x, y, z = map(float, away)
    if z < RISE:
        aside = math.hypot(x, y)
        share = _ASIDE / aside if aside else 0.0
        x, y, z = x * share, y * share, RISE if aside else 1.0
    return x * length, y * length, z * length
