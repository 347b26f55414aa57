# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Results as JSON files, written whole or not at all; what is no finite number is null."""

from collections.abc import Mapping
import json
import math
from pathlib import Path
from typing import Any

from fdrl_ros.errors import os_errors_as, StoreError

Json = dict[str, Any]
"""A JSON object: the settings, results and summaries that studies keep in files."""


def json_text(value: object, indent: int | None = None) -> str:
    """Return a value as JSON, which has no NaN or infinity: these are null."""
    return json.dumps(_finite(value), indent=indent, allow_nan=False)


def _finite(value: object) -> object:
    if isinstance(value, Mapping):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write_json(path: Path, value: object) -> None:
    """
    Write JSON atomically, as :func:`json_text` does.

    :raises StoreError: if it cannot be written.
    """
    part = path.with_name(path.name + '.part')
    with os_errors_as(StoreError, f'cannot write {path}'):
        part.write_text(json_text(value, indent=2) + '\n', 'utf-8')
        part.replace(path)
