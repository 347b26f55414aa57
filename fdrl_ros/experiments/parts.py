# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Finished parts of long measurements: read again only if whole and of the same settings."""

from collections.abc import Callable
import json
from pathlib import Path
from typing import Any

from fdrl_ros.errors import StoreError


def read_finished(path: Path, fits: Callable[[dict[str, Any]], bool]) -> dict[str, Any] | None:
    """
    Read a finished part, or None where there is none.

    :param fits: whether a part is of the settings wanted; what is missing in it may raise
        KeyError, TypeError or ValueError.
    :raises StoreError: if it is damaged, or of other settings.
    """
    if not path.exists():
        return None
    try:
        part: dict[str, Any] = json.loads(path.read_text('utf-8'))
        same = fits(part)
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise StoreError(f'{path} cannot be read: {error}; remove it to run it again') from error
    if not same:
        raise StoreError(f'{path} is of other settings: remove it, or take another directory')
    return part
