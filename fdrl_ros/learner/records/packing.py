# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Arrays as bytes: a line of JSON that tells what they are, then their numbers in order."""

from collections.abc import Mapping
import json
import math
from typing import Any

import numpy as np


def pack(told: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> bytes:
    """
    Join arrays and a few words about them.

    :param told: what JSON can hold; `arrays` is a name of our own.
    """
    forms = {name: [each.dtype.str, each.shape] for name, each in arrays.items()}
    line = json.dumps({**told, 'arrays': forms}).encode()
    return b''.join((line, b'\n', *(each.tobytes() for each in arrays.values())))


def unpack(data: bytes) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """
    Read what :func:`pack` joined.

    :returns: what was told, and the arrays, which own their memory.
    :raises ValueError: if the bytes are none.
    """
    line, _, rest = data.partition(b'\n')
    try:
        told = json.loads(line)
        forms = told.pop('arrays').items()
        arrays, at = {}, 0
        for name, (kind, shape) in forms:
            dtype = np.dtype(kind)
            if dtype.hasobject:
                raise ValueError(f'{name} is an array of objects')
            arrays[name] = np.ndarray(shape, dtype, rest, at).copy()
            at += math.prod(shape) * dtype.itemsize
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f'no packed arrays: {error}') from error
    if at != len(rest):
        raise ValueError(f'{len(rest)} bytes of arrays where {at} are told')
    return told, arrays
