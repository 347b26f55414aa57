# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Read the files of episode metrics back."""

import csv
from dataclasses import fields
import json
import math
from pathlib import Path

from fdrl_ros.metrics.episode import COLUMNS, EpisodeMetrics

FIELDS = fields(EpisodeMetrics)


def read_csv(path: Path) -> list[EpisodeMetrics]:
    """Read a table, which must have exactly the columns of the metrics."""
    with path.open(newline='') as file:
        heading, *rows = csv.reader(file, strict=True)
    assert heading == COLUMNS
    kinds = {str: str, bool: {'true': True, 'false': False}.__getitem__}
    return [
        EpisodeMetrics(
            *(
                kinds.get(each.type, lambda text: float(text or 'nan'))(cell)
                for each, cell in zip(FIELDS, row, strict=True)
            )
        )
        for row in rows
    ]


def read_json(path: Path) -> list[EpisodeMetrics]:
    """Read a document, which must have the format's name and exactly the metrics."""
    document = json.loads(path.read_text())
    assert document['format'] == 'fdrl_ros episode metrics 1'
    return [
        EpisodeMetrics(**{name: math.nan if x is None else x for name, x in row.items()})
        for row in document['episodes']
    ]
