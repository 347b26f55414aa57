# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Messages as text, in the form in which `ros2 topic echo` prints them."""

import array
from collections.abc import Iterator
import sys
from typing import Any

import numpy as np
import yaml

SEQUENCES = (list, tuple, array.array, np.ndarray)
CUT = '...'


def fields_of(message: Any) -> dict[str, Any]:
    """Return the fields of a message by name, in the order of its definition."""
    return {name: getattr(message, name) for name in message.get_fields_and_field_types()}


def field_of(message: Any, path: str) -> Any:
    """
    Return a field, or one within it.

    :param path: names with dots between them, such as pose.position.
    :raises AttributeError: if there is none of that name.
    """
    for name in path.split('.'):
        message = getattr(message, name)
    return message


def as_yaml(message: Any, longest: int | None) -> str:
    """
    Return a message as YAML.

    :param longest: most elements of a sequence and letters of a text; None for all.
    """
    plain = _plain(message, longest)
    return str(yaml.dump(plain, allow_unicode=True, width=sys.maxsize, sort_keys=False))


def as_csv(message: Any, longest: int | None) -> str:
    """
    Return the fields of a message, and of those in it, with commas between them.

    :param longest: as :func:`as_yaml` takes it.
    """
    return ','.join(_cells(message, longest))


def _plain(value: Any, longest: int | None) -> Any:
    """Return what YAML knows: numbers, texts, lists, dictionaries."""
    if isinstance(value, bytes):
        value = value.decode('latin-1')
    if isinstance(value, str):
        return _shortened(value, longest, CUT)
    if isinstance(value, SEQUENCES):
        plain = [_plain(each, longest) for each in value[:longest]]
        return plain + [CUT] * (len(value) > len(plain))
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, bool | int | float):
        return value
    return {name: _plain(each, longest) for name, each in fields_of(value).items()}


def _cells(value: Any, longest: int | None) -> Iterator[str]:
    if isinstance(value, bytes):
        yield str(_shortened(value, longest, CUT.encode()))
    elif isinstance(value, str):
        yield _shortened(value, longest, CUT)
    elif isinstance(value, SEQUENCES):
        cells = [cell for each in value[:longest] for cell in _cells(each, longest)]
        yield ','.join(cells + [CUT] * (longest is not None and len(value) > longest))
    elif isinstance(value, bool | int | float | np.generic):
        yield str(value)
    else:
        for each in fields_of(value).values():
            yield from _cells(each, longest)


def _shortened(value: Any, longest: int | None, cut: Any) -> Any:
    return value if longest is None or len(value) <= longest else value[:longest] + cut
