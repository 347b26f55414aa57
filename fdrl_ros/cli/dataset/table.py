# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""How operations went, as a table with one row for each procedure."""

from collections.abc import Callable, Sequence

from fdrl_ros.metrics.episode import EpisodeMetrics
from fdrl_ros.surgery.constants import constant
import numpy as np
from rich import box
from rich.table import Table

Values = list[float]


def _mean(values: Values) -> float:
    return float(np.mean(values))


def _most(values: Values) -> float:
    return float(np.max(values))


def _sum(values: Values) -> float:
    return float(np.sum(values))


COLUMNS: tuple[tuple[str, str, str, Callable[[Values], float], float, str], ...] = (
    ('success', '%', 'success', _mean, 100.0, '.1f'),
    ('time', 'mean, s', 'time', _mean, 1.0, '.2f'),
    ('way', 'mean, mm', 'path_length', _mean, 1000.0, '.1f'),
    ('jerk', 'mean', 'log_dimensionless_jerk', _mean, 1.0, '.2f'),
    ('force', 'mean, N', 'mean_force', _mean, 1.0, '.2f'),
    ('force', 'most, N', 'peak_force', _most, 1.0, '.2f'),
    ('damage', 'mean, N s', 'damage', _mean, 1.0, '.4f'),
    ('low MAP', 'sum, s', 'low_pressure_time', _sum, 1.0, '.2f'),
    ('NEWS2', 'mean', 'worst_news2', _mean, 1.0, '.1f'),
    ('NEWS2', 'most', 'worst_news2', _most, 1.0, '.0f'),
    ('SOFA', 'mean', 'worst_sofa', _mean, 1.0, '.1f'),
    ('SOFA', 'most', 'worst_sofa', _most, 1.0, '.0f'),
)
"""Heading; how a procedure's operations are put together; metric; the same, factor, form."""

LEGEND = (
    'most: of the one operation that had the most. way: of the tip. jerk: log of the '
    'dimensionless one, nearer to zero is smoother. low MAP: time below {pressure:g} mmHg, all '
    'operations together. NEWS2, SOFA: the worst of each operation; patients come with an illness.'
)
"""What the headings mean."""


def legend() -> str:
    """Explain the headings."""
    return LEGEND.format(pressure=constant('physiology.hypotension'))


def metrics_table(metrics: Sequence[EpisodeMetrics]) -> Table:
    """
    Make the table.

    A value that is undefined for an operation is left out; where none is left, the cell is empty,
    and without any cell the column is missing.
    """
    shown = [
        column
        for column in COLUMNS
        if not all(np.isnan(float(getattr(each, column[2]))) for each in metrics)
    ]
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column('procedure')
    for heading in ('n', *(f'{name}\n{how}' for name, how, *_ in shown)):
        table.add_column(heading, justify='right')
    for name in dict.fromkeys(each.procedure for each in metrics):
        own = [each for each in metrics if each.procedure == name]
        cells = []
        for _, _, metric, join, factor, form in shown:
            values = [float(getattr(each, metric)) for each in own]
            known = [each for each in values if not np.isnan(each)]
            cells.append(format(join(known) * factor, form) if known else '')
        table.add_row(name, str(len(own)), *cells)
    return table
