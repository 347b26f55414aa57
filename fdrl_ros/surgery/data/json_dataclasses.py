# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Convert frozen dataclasses such as a patient to JSON-compatible data and back, validating."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
import math
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints, TypeVar

from fdrl_ros.errors import FdrlError, RecordsError

T = TypeVar('T')


def to_plain(value: object) -> Any:
    """
    Return dataclasses as dicts, tuples as lists, mappings as lists of pairs.

    Numbers keep every bit: JSON writes a float with as many digits as it has.

    :raises RecordsError: on anything else, or a number that is not finite.
    """
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple | list):
        return [to_plain(item) for item in value]
    if isinstance(value, Mapping):
        return [[to_plain(key), to_plain(item)] for key, item in value.items()]
    if isinstance(value, float) and math.isfinite(value):
        return float(value)
    if isinstance(value, bool | int | str | NoneType):
        return value
    raise RecordsError(f'{value!r} cannot be recorded: expected plain data, finite numbers')


def from_plain(kind: type[T], data: object, name: str = '') -> T:
    """
    Make what :func:`to_plain` was given.

    :param kind: what is expected: a dataclass, a tuple, a dict, a number, a text, or one or None.
    :param name: of the value, for the error.
    :raises RecordsError: if the data are not of that kind, to the last field.
    """
    made: T = _read(kind, data, name or getattr(kind, '__name__', str(kind)))
    return made


def _read(kind: Any, data: Any, name: str) -> Any:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is UnionType:
        (inner,) = set(arguments) - {NoneType}
        return None if data is None else _read(inner, data, name)
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


def _dataclass(kind: Any, data: object, name: str) -> object:
    wanted = [field.name for field in fields(kind)]
    if not isinstance(data, dict) or sorted(data) != sorted(wanted):
        came = sorted(data) if isinstance(data, dict) else data
        raise RecordsError(f'{name}: expected {", ".join(wanted)}, came {came!r}')
    hints = get_type_hints(kind)
    values = {field: _read(hints[field], data[field], f'{name}.{field}') for field in wanted}
    try:
        return kind(**values)
    except (FdrlError, TypeError, ValueError) as error:
        raise RecordsError(f'{name}: {error}') from error


def _tuple(kinds: Sequence[Any], data: object, name: str) -> tuple[Any, ...]:
    if not isinstance(data, list):
        raise RecordsError(f'{name} = {data!r}: expected a list')
    if len(kinds) == 2 and kinds[1] is Ellipsis:
        kinds = (kinds[0],) * len(data)
    if len(data) != len(kinds):
        raise RecordsError(f'{name}: expected {len(kinds)} values, came {len(data)}')
    return tuple(
        _read(kind, item, f'{name}[{index}]')
        for index, (kind, item) in enumerate(zip(kinds, data, strict=True))
    )
