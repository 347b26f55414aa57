# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""How an upper bound is written for people: never below the truth."""

from decimal import Decimal, ROUND_CEILING
import math


def stated(bound: float, digits: int = 2) -> str:
    """
    Write an upper bound, such as an epsilon, rounded up.

    :param digits: after the point.
    """
    if not math.isfinite(bound):
        return f'{bound}'
    place = Decimal(1).scaleb(-digits)
    return str(Decimal(repr(float(bound))).quantize(place, rounding=ROUND_CEILING))
