# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Refuse numbers out of their range, by name; NaN and what is no number are out of every range."""

import math
import numbers

from fdrl_ros.errors import SettingError


def is_within(value: object, low: float, high: float) -> bool:
    """Say whether a value is a number from `low` to `high`; a truth value is none."""
    if type(value) is float:  # the usual case, at once
        return low <= value <= high
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and low <= value <= high  # type: ignore[operator]


def check_number(name: str, value: object, low: float, high: float) -> None:
    """
    Refuse what is no number from `low` to `high`.

    :raises SettingError: naming it.
    """
    if not is_within(value, low, high):
        raise SettingError(name, value, f'a number, {low:g} to {high:g}')


def check_whole(name: str, value: object, low: int, high: float = math.inf) -> None:
    """
    Refuse what is no whole number from `low` to `high`.

    :raises SettingError: naming it.
    """
    if type(value) is int and low <= value <= high:
        return
    whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if not (whole and low <= value <= high):  # type: ignore[operator]
        expected = f'at least {low}' if high == math.inf else f'{low} to {high:g}'
        raise SettingError(name, value, f'a whole number, {expected}')
