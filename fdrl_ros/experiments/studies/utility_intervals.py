# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Intervals of success and of what privacy leaves of it: cut to what can be, told only if they tell.

Student's interval over two or three seeds reaches far beyond 0 and 1. A success cannot, so the
cut interval covers the true mean as often; where it is all that can be, it says nothing.
"""

from collections.abc import Sequence
from typing import Any

from fdrl_ros.experiments.studies.experiment import interval

WIDEST = 1.0
"""An interval as wide as all that a success can be tells nothing."""


def success_interval(values: Sequence[float | None]) -> dict[str, Any]:
    """Return mean and 95 % interval of a success, 0 to 1; see :func:`interval`."""
    return _cut(interval(values), 1.0)


def kept_interval(values: Sequence[float | None]) -> dict[str, Any]:
    """Return mean and 95 % interval of one success over another, at least 0."""
    return _cut(interval(values), None)


def interval_words(found: dict[str, Any]) -> str:
    """Write mean and interval in percent, or why there is no interval."""
    if found['mean'] is None:
        return 'nothing to compare with'
    words = f'{100 * found["mean"]:.1f}'
    seeds = sum(each is not None for each in found['values'])
    if found['low'] is None:
        return f'{words} (one seed)'
    if found['high'] - found['low'] >= WIDEST:
        return f'{words} ({seeds} seeds are too few for an interval)'
    return f'{words} [{100 * found["low"]:.1f}, {100 * found["high"]:.1f}]'


def _cut(found: dict[str, Any], highest: float | None) -> dict[str, Any]:
    if found['low'] is not None:
        found['low'] = max(0.0, found['low'])
        found['high'] = found['high'] if highest is None else min(highest, found['high'])
    return found
