# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Minimum, maximum and choice over plain floats, faster than NumPy there, and over arrays."""

from typing import Any

import numpy as np

Number = Any
"""A float, or an array of them."""


def maximum(a: Number, b: Number) -> Number:
    """Return the greater one."""
    if type(a) is float and type(b) is float:
        return a if a > b else b
    return np.maximum(a, b)


def minimum(a: Number, b: Number) -> Number:
    """Return the lesser one."""
    if type(a) is float and type(b) is float:
        return a if a < b else b
    return np.minimum(a, b)


def where(flag: Number, a: Number, b: Number) -> Number:
    """Return the first where the flag is true, else the second."""
    if type(flag) is bool:
        return a if flag else b
    return np.where(flag, a, b)
