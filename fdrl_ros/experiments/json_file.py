# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Results as JSON files, written whole or not at all."""

import json
from pathlib import Path
from typing import Any

from fdrl_ros.errors import os_errors_as, StoreError

Json = dict[str, Any]
"""A JSON object: the settings, results and summaries that studies keep in files."""


def write_json(path: Path, value: object) -> None:
    """
    Write JSON atomically.

    :raises StoreError: if it cannot be written.
    """
    part = path.with_name(path.name + '.part')
    with os_errors_as(StoreError, f'cannot write {path}'):
        part.write_text(json.dumps(value, indent=2) + '\n', 'utf-8')
        part.replace(path)
