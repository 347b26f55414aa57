# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Settings: defined once, used as ROS parameters, command-line flags and documentation.

A group of settings is a frozen dataclass below :class:`Settings`; each field is a
:func:`setting` with a description, a unit and a range::

    @dataclass(frozen=True)
    class RoundSettings(Settings):
        quorum: int = setting(3, 'fewest members of a round', minimum=3)
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
import difflib
from functools import cache
import math
import typing
from typing import Any, Self, TypedDict, Unpack

from fdrl_ros.errors import SettingError

_FEW = 12

Value = bool | int | float | str

SettingType = type[bool] | type[int] | type[float] | type[str]

WORDS: dict[SettingType, str] = {
    bool: 'true or false',
    int: 'a whole number',
    float: 'a number',
    str: 'text',
}


@dataclass(frozen=True)
class Setting:
    """One setting as data: what a parameter descriptor or a flag is made of."""

    name: str
    type: SettingType
    default: Value
    description: str
    unit: str = ''
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[Value, ...] = ()

    def expected(self) -> str:
        """Say in words what a value must be."""
        words = WORDS[self.type]
        if self.choices:
            words = 'one of ' + ', '.join(map(repr, self.choices))
        if self.minimum is not None:
            words += f', at least {self.minimum:g}'
        if self.maximum is not None:
            words += f', at most {self.maximum:g}'
        return words + (f' ({self.unit})' if self.unit else '')

    def check(self, value: Any) -> Value:
        """
        Return the value in this setting's type.

        An int is taken for a float; nothing else is converted.

        :raises SettingError: on another type, NaN, or a value out of range.
        """
        if self.type is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        lowest, highest = self.minimum, self.maximum
        of_type = isinstance(value, self.type) and isinstance(value, bool) == (self.type is bool)
        fits = (
            of_type
            and (not self.choices or value in self.choices)
            # Neither NaN, nor an infinity that is not itself a limit.
            and (self.type is not float or math.isfinite(value) or value in (lowest, highest))
            and (lowest is None or value >= lowest)
            and (highest is None or value <= highest)
        )
        if not fits:
            raise SettingError(self.name, value, self.expected())
        checked: Value = value
        return checked


class Bounds(TypedDict, total=False):
    """Unit, SI or what is counted, for people; one limit alone, or the only values allowed."""

    unit: str
    minimum: float
    maximum: float
    choices: tuple[Value, ...]


def setting(
    default: Value,
    description: str,
    *,
    limits: tuple[float | None, float | None] = (None, None),
    repr: bool = True,
    **bounds: Unpack[Bounds],
) -> Any:
    """
    Define a field of :class:`Settings`.

    :param limits: smallest and largest value; an infinite limit allows infinity itself.
    :param repr: whether the group's text, which training is bound to, shows it.
    """
    between = {'minimum': limits[0], 'maximum': limits[1]}
    metadata = {'description': description, **between, **bounds}
    return field(default=default, repr=repr, metadata=metadata)


def named_among(name: object, what: str, known: Collection[str]) -> str:
    """
    Say in words what an unknown name should have been: the nearest ones, or all if they are few.

    :param what: what the names are of, in the plural.
    """
    near = difflib.get_close_matches(str(name), known, 3)
    if near:
        return f'one of the {len(known)} {what}; did you mean {" or ".join(near)}?'
    if len(known) <= _FEW:
        return f'one of the {what} ' + ', '.join(known)
    return f'one of the {len(known)} {what}, such as ' + ', '.join(list(known)[:3])


@dataclass(frozen=True)
class Settings:
    """Base of every group of settings: checks each value when it is made."""

    def __post_init__(self) -> None:
        """Check types and ranges; subclasses add the rules across fields."""
        for each in self.describe():
            object.__setattr__(self, each.name, each.check(getattr(self, each.name)))

    @classmethod
    @cache
    def describe(cls) -> tuple[Setting, ...]:
        """Return every setting of this group, in the order of definition."""
        types = typing.get_type_hints(cls)
        found = []
        for each in fields(cls):
            default: Any = each.default
            found.append(Setting(each.name, types[each.name], default, **each.metadata))
        return tuple(found)

    @classmethod
    def from_mapping(cls, values: Mapping[str, object]) -> Self:
        """
        Make a group from names and values, as a file or a command line gives them.

        :raises SettingError: on an unknown name or a bad value.
        """
        known = [each.name for each in cls.describe()]
        for name, value in values.items():
            if name not in known:
                raise SettingError(name, value, named_among(name, 'settings', known))
        return cls(**values)
