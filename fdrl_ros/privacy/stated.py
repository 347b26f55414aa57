# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""How an upper bound is written: never below the truth."""

from decimal import Decimal, ROUND_CEILING
import math

import numpy as np


def stated(bound: float, digits: int = 2) -> str:
    """
    Write an upper bound, such as an epsilon, rounded up.

    :param digits: after the point.
    """
    if not math.isfinite(bound):
        return f'{bound}'
    place = Decimal(1).scaleb(-digits)
    return str(Decimal(repr(float(bound))).quantize(place, rounding=ROUND_CEILING))


def rounded_up(bound: float, digits: int) -> float:
    """
    Return an upper bound as a number with few digits, rounded up.

    :param digits: after the point.
    """
    return float(stated(bound, digits))


def single_precision(bound: float) -> float:
    """Return an upper bound as the next number that single precision can hold, rounded up."""
    nearest = np.float32(bound)
    below = float(nearest) < bound
    return float(np.nextafter(nearest, np.float32(np.inf)) if below else nearest)
