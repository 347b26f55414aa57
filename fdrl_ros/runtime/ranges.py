# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Refuse numbers out of their range, by name; NaN and other types are out of every range."""

import math
import numbers

from fdrl_ros.errors import SettingError


def is_within(value: object, low: float, high: float) -> bool:
    """Return whether a value is a number from `low` to `high`; a bool is not."""
    if type(value) is float:  # the usual case, at once
        return low <= value <= high
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and low <= value <= high  # type: ignore[operator]


def check_number(name: str, value: object, low: float, high: float) -> None:
    """
    Refuse everything but a number from `low` to `high`.

    :raises SettingError: naming it.
    """
    if not is_within(value, low, high):
        raise SettingError(name, value, f'a number, {low:g} to {high:g}')


def check_whole(name: str, value: object, low: int, high: float = math.inf) -> None:
    """
    Refuse everything but a whole number from `low` to `high`.

    :raises SettingError: naming it.
    """
    if type(value) is int and low <= value <= high:
        return
    whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if not (whole and low <= value <= high):  # type: ignore[operator]
        expected = f'at least {low}' if high == math.inf else f'{low} to {high:g}'
        raise SettingError(name, value, f'a whole number, {expected}')


def check_hospital(hospital: int, hospitals: int, heterogeneity: float, seed: int) -> None:
    """
    Refuse numbers of a hospital that no federation has.

    :param hospital: 0 to hospitals - 1.
    :param hospitals: how many there are.
    :param heterogeneity: H in [0, 1].
    :param seed: of the whole federation.
    :raises SettingError: naming the number.
    """
    check_whole('hospitals', hospitals, 1)
    check_whole('hospital', hospital, 0, hospitals - 1)
    check_number('heterogeneity', heterogeneity, 0.0, 1.0)
    check_whole('seed', seed, 0)
