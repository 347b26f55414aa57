# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Frozen dataclasses such as a patient as plain data (what JSON can hold), and back with doubt."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
import math
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints, TypeVar, Union

from fdrl_ros.errors import FdrlError, RecordsError

T = TypeVar('T')


def to_plain(value: Any) -> Any:
    """
    Return dataclasses as dicts, tuples as lists, mappings as lists of pairs.

    Numbers keep every bit: JSON writes a float with as many digits as it has.

    :raises RecordsError: on anything else, or a number that is not finite.
    """
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: to_plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, tuple | list):
        return [to_plain(each) for each in value]
    if isinstance(value, Mapping):
        return [[to_plain(key), to_plain(each)] for key, each in value.items()]
    if isinstance(value, float):
        if not math.isfinite(value):
            raise RecordsError(f'{value!r} cannot be recorded: expected a finite number')
        return float(value)
    if isinstance(value, bool | int | str | NoneType):
        return value
    raise RecordsError(f'{value!r} cannot be recorded: expected plain data')


def from_plain(kind: type[T], data: Any, name: str = '') -> T:
    """
    Make what :func:`to_plain` was given.

    :param kind: what is expected: a dataclass, a tuple, a dict, a number, a word or a union.
    :param name: of the value, for the error.
    :raises RecordsError: if the data are not of that kind, to the last field.
    """
    made: T = _read(kind, data, name or getattr(kind, '__name__', str(kind)))
    return made


def _read(kind: Any, data: Any, name: str) -> Any:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return _union(arguments, data, name)
    if is_dataclass(kind):
        return _dataclass(kind, data, name)
    if origin is tuple:
        return _tuple(arguments, data, name)
    if origin in (dict, Mapping):
        pairs = _tuple((tuple[arguments], ...), data, name)  # type: ignore[valid-type]
        if len(dict(pairs)) != len(pairs):
            raise RecordsError(f'{name}: a key appears twice')
        return dict(pairs)
    right = type(data) is kind or (kind is float and type(data) is int)
    if not right or (kind is float and not math.isfinite(data)):
        raise RecordsError(f'{name} = {data!r}: expected {getattr(kind, "__name__", kind)}')
    return float(data) if kind is float else data


def _union(kinds: tuple[Any, ...], data: Any, name: str) -> Any:
    if data is None and NoneType in kinds:
        return None
    for each in kinds:
        if each is NoneType:
            continue
        try:
            return _read(each, data, name)
        except RecordsError:
            continue
    raise RecordsError(f'{name} = {data!r}: expected one of {kinds}')


def _dataclass(kind: Any, data: Any, name: str) -> Any:
    hints = get_type_hints(kind)
    wanted = [each.name for each in fields(kind)]
    if not isinstance(data, dict) or sorted(data) != sorted(wanted):
        came = sorted(data) if isinstance(data, dict) else data
        raise RecordsError(f'{name}: expected {", ".join(wanted)}, came {came!r}')
    values = {each: _read(hints[each], data[each], f'{name}.{each}') for each in wanted}
    try:
        return kind(**values)
    except RecordsError:
        raise
    except (FdrlError, TypeError, ValueError) as error:
        raise RecordsError(f'{name}: {error}') from error


def _tuple(kinds: tuple[Any, ...], data: Any, name: str) -> tuple[Any, ...]:
    if not isinstance(data, list):
        raise RecordsError(f'{name} = {data!r}: expected a list')
    if len(kinds) == 2 and kinds[1] is Ellipsis:
        kinds = (kinds[0],) * len(data)
    if len(data) != len(kinds):
        raise RecordsError(f'{name}: expected {len(kinds)} values, came {len(data)}')
    return tuple(
        _read(kind, each, f'{name}[{index}]')
        for index, (kind, each) in enumerate(zip(kinds, data, strict=True))
    )
