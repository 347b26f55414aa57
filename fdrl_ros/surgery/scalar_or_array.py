# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Arithmetic for laws that take the numbers of one patient, or arrays of many.

The last axis of every array is the patient. Plain floats stay plain, since one operation would
spend most of its time in NumPy's overhead otherwise.
"""

from dataclasses import fields, MISSING
import math
from operator import attrgetter
from typing import Any, Generic, TypeVar

import numpy as np
from numpy import ndarray
from numpy.typing import NDArray

Number = Any
"""A float, or an array of them; a flag is a bool, or an array of them."""

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]
Rows = NDArray[np.intp]
Point = tuple[Number, Number, Number] | Array
"""Three coordinates, m: a tuple, or of many patients an array of shape (3, n)."""

Record = TypeVar('Record')


class Numbers:
    """What laws calculate with where one patient's numbers are plain floats."""

    root, sine, cosine, logarithm = math.sqrt, math.sin, math.cos, math.log

    @staticmethod
    def greater(value: Number, bound: Number) -> Number:
        """Return the greater of a value and a bound."""
        return value if value > bound else bound  # four times as fast as max()

    @staticmethod
    def lesser(value: Number, bound: Number) -> Number:
        """Return the lesser of a value and a bound."""
        return value if value < bound else bound

    @staticmethod
    def excess(value: Number, bound: Number) -> Number:
        """Return how far a value is above a bound; 0 if it is not, or is not a number."""
        over = value - bound
        return over if over > 0.0 else 0.0

    @staticmethod
    def choose(flag: Number, first: Number, second: Number) -> Number:
        """Return the first value where a flag is true, else the second."""
        return first if flag else second

    some = bool
    """Returns whether a flag is true, or one of many is."""


class Arrays:
    """The same of many patients; see :class:`Numbers`."""

    root, sine, cosine, logarithm = np.sqrt, np.sin, np.cos, np.log
    greater, lesser, choose, some = np.maximum, np.minimum, np.where, np.any

    @staticmethod
    def excess(value: Number, bound: Number) -> Number:
        """Return how far values are above bounds; 0 if they are not, or are not numbers."""
        return np.fmax(value - bound, 0.0)


Maths = type[Numbers] | type[Arrays]


def maths_of(value: Number) -> Maths:
    """Return what a law calculates with, by one of its values: as `xp` in the array API."""
    return Arrays if type(value) is ndarray else Numbers


def excess(value: Number, bound: Number) -> Number:
    """Return how far a value is above a bound; 0 if it is not, or is not a number."""
    over = value - bound
    return np.fmax(over, 0.0) if type(over) is ndarray else over if over > 0.0 else 0.0


def choose(flag: Number, first: Number, second: Number) -> Number:
    """Return the first value where a flag is true, else the second."""
    return np.where(flag, first, second) if type(flag) is ndarray else first if flag else second


def some(flag: Number) -> bool:
    """Return whether a number is not zero, or one of an array is not."""
    return bool(flag.any() if type(flag) is ndarray else flag)


class PerPatient:
    """Arrays of many patients, the last axis of each, and parts that are such too."""

    def clear(self, row: int) -> None:
        """Set the numbers of one patient to 0, but for those of parts."""
        for value in vars(self).values():
            if isinstance(value, np.ndarray):
                value[..., row] = 0

    def select(self, rows: Rows) -> None:
        """Keep only some patients, in the order given."""
        for name, value in vars(self).items():
            if isinstance(value, np.ndarray):
                setattr(self, name, np.ascontiguousarray(value[..., rows]))
            elif isinstance(value, PerPatient):
                value.select(rows)


class Columns(PerPatient, Generic[Record]):
    """
    The records of n patients as one record whose numbers are arrays.

    The numbers of a record are those fields of its dataclass that have no default.

    :param kind: dataclass of the record.
    :param count: n.
    """

    def __init__(self, kind: type[Record], count: int) -> None:
        self._kind = kind
        described = fields(kind)  # type: ignore[arg-type]
        numbers = [field for field in described if field.default is MISSING]
        self._values = attrgetter(*(field.name for field in numbers))
        sizes = [3 if field.type == Point else 1 for field in numbers]
        ends = np.cumsum(sizes).tolist()
        self._places: list[int | slice] = [
            end - 1 if size == 1 else slice(end - size, end)
            for size, end in zip(sizes, ends, strict=True)
        ]
        self.table: Array = np.zeros((ends[-1], count))
        """One column for each patient."""

    def put(self, row: int, record: Record) -> None:
        """Write one patient's record."""
        flat: list[float] = []
        for value in self._values(record):
            if type(value) is tuple:
                flat.extend(value)
            else:
                flat.append(value)
        self.table[:, row] = flat

    def record(self, rows: Rows | None = None) -> Record:
        """Return the record of all patients, as views, or a copy for some of them."""
        table = self.table if rows is None else self.table.take(rows, axis=1)
        return self._kind(*(table[place] for place in self._places))
