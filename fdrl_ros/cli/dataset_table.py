# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""How operations went, as a table with one row for each procedure."""

from collections.abc import Callable, Sequence

from fdrl_ros.metrics.episode import EpisodeMetrics
import numpy as np
from rich import box
from rich.table import Table

Values = list[float]

COLUMNS: tuple[tuple[str, str, Callable[[Values], float], float, str], ...] = (
    ('success, %', 'success', lambda each: float(np.mean(each)), 100.0, '.1f'),
    ('time, s', 'time', lambda each: float(np.mean(each)), 1.0, '.2f'),
    ('way, mm', 'path_length', lambda each: float(np.mean(each)), 1000.0, '.1f'),
    ('jerk', 'log_dimensionless_jerk', lambda each: float(np.mean(each)), 1.0, '.2f'),
    ('peak force, N', 'peak_force', lambda each: float(np.max(each)), 1.0, '.2f'),
    ('mean force, N', 'mean_force', lambda each: float(np.mean(each)), 1.0, '.2f'),
    ('damage, N s', 'damage', lambda each: float(np.mean(each)), 1.0, '.4f'),
    ('low MAP, s', 'low_pressure_time', lambda each: float(np.sum(each)), 1.0, '.2f'),
    ('NEWS2', 'worst_news2', lambda each: float(np.max(each)), 1.0, '.0f'),
    ('SOFA', 'worst_sofa', lambda each: float(np.max(each)), 1.0, '.0f'),
    ('A_task', 'task_tolerant', lambda each: float(np.mean(each)), 1.0, '.3f'),
    ('exact', 'task_exact', lambda each: float(np.mean(each)), 1.0, '.3f'),
)
"""Heading, metric, how a procedure's operations are put together, factor, form."""


def metrics_table(metrics: Sequence[EpisodeMetrics]) -> Table:
    """
    Make the table: means, but the greatest force and scores, and all time with a low pressure.

    A value that is undefined for an operation is left out; where none is left, the cell is empty,
    and without any cell the column is missing.
    """
    shown = [
        column
        for column in COLUMNS
        if not all(np.isnan(float(getattr(each, column[1]))) for each in metrics)
    ]
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column('procedure')
    for heading in ('n', *(each[0] for each in shown)):
        table.add_column(heading, justify='right')
    for name in dict.fromkeys(each.procedure for each in metrics):
        own = [each for each in metrics if each.procedure == name]
        cells = []
        for _, metric, join, factor, form in shown:
            values = [float(getattr(each, metric)) for each in own]
            known = [each for each in values if not np.isnan(each)]
            cells.append(format(join(known) * factor, form) if known else '')
        table.add_row(name, str(len(own)), *cells)
    return table
