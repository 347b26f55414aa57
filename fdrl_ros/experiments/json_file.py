# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Results as JSON files, written whole or not at all; NaN is null there, infinity a text."""

from collections.abc import Callable, Mapping
import json
import math
from pathlib import Path
from typing import Any

from fdrl_ros.runtime.durable import write_whole

Json = dict[str, Any]
"""A JSON object: the settings, results and summaries that studies keep in files."""


def json_text(value: object, indent: int | None = None) -> str:
    """
    Return a value as JSON, which has no NaN or infinity.

    NaN, which is undefined, is null. Infinity is the text "inf": an infinite epsilon must not look
    like none.
    """
    return json.dumps(_mapped(value, _to_json), indent=indent, allow_nan=False)


def from_json(text: str) -> Any:
    """
    Return what :func:`json_text` wrote, with infinities as numbers.

    :raises ValueError: if it is no JSON.
    """
    return _mapped(json.loads(text), _from_json)


def _mapped(value: object, change: Callable[[object], object]) -> object:
    """Change every value in nested mappings and sequences."""
    if isinstance(value, Mapping):
        return {name: _mapped(each, change) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_mapped(each, change) for each in value]
    return change(value)


def _to_json(value: object) -> object:
    if not isinstance(value, float) or math.isfinite(value):
        return value
    return None if math.isnan(value) else str(float(value))


def _from_json(value: object) -> object:
    return float(value) if isinstance(value, str) and value in ('inf', '-inf') else value


def write_json(path: Path, value: object) -> None:
    """
    Write JSON atomically, as :func:`json_text` does.

    :raises StoreError: if it cannot be written.
    """
    write_whole(path, (json_text(value, indent=2) + '\n').encode())
