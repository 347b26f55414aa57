# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""`fdrl heterogeneity`: what H does to hospitals, as numbers and as a plot."""

from pathlib import Path
from typing import Any

import click
from fdrl_ros.cli.group import SAME_COMMAND, stopping
from fdrl_ros.cli.options import over_seeds, plan_from, plan_option, PlanCommand
from fdrl_ros.cli.output import console
from fdrl_ros.cli.progress_bars import ProgressBars
from fdrl_ros.errors import StoreError
from fdrl_ros.experiments.plots.heterogeneity import draw_heterogeneity
from fdrl_ros.experiments.reports.table import DISCLAIMER
from fdrl_ros.experiments.rounds import write_json
from fdrl_ros.experiments.run_directory import RunDirectory
from fdrl_ros.experiments.studies.heterogeneity import run_heterogeneity
from fdrl_ros.experiments.studies.heterogeneity_summary import CURVES, table_of, verdict
from rich.table import Table


@click.command(cls=PlanCommand)
@plan_option
@over_seeds('runs/heterogeneity', 10)
def heterogeneity(plan_file: str | None, directory: Path, seeds: int, **flags: Any) -> None:
    """
    Measure how far hospitals are apart, and what a policy loses abroad, at H = 0 to 1.

    Each hospital learns from its own records without privacy; --collection-patients and
    --pretraining-steps say from how many and for how long. --heterogeneity does not count.
    Interrupted, it goes on when called again.
    """
    plan = plan_from(flags, plan_file)
    run = RunDirectory.open(directory)
    first = plan.federation.seed
    out = console()
    out.print(DISCLAIMER, style='italic')
    with stopping(SAME_COMMAND) as stopped, ProgressBars(out) as bars:
        summary = run_heterogeneity(
            run.path, plan, range(first, first + seeds), report=bars, stopped=stopped
        )
    write_json(run.path / 'heterogeneity.json', summary)
    try:
        (run.path / 'heterogeneity.csv').write_text(table_of(summary), 'utf-8')
        draw_heterogeneity(summary, run.path / 'heterogeneity.png')
    except OSError as error:
        raise StoreError(f'cannot write into {run.path}: {error.strerror}') from error
    out.print(_table(summary))
    for name, what in CURVES.items():
        out.print(f'{name}: {what}', highlight=False, soft_wrap=True)
    for name in ('distance', 'mix', 'loss'):
        out.print(verdict(summary, name), highlight=False, soft_wrap=True)
    out.print(f'saved in {directory}: heterogeneity.json, .csv, .png', highlight=False)


HEADINGS = {
    'distance': ('distance, spreads', 1.0, '.3f'),
    'mix': ('mix, %', 100.0, '.1f'),
    'loss': ('loss, points', 100.0, '.1f'),
    'home': ('home, %', 100.0, '.1f'),
    'elsewhere': ('elsewhere, %', 100.0, '.1f'),
}
"""Of each curve: heading with its unit, factor, form."""


def _table(summary: dict[str, Any]) -> Table:
    """Return every curve: mean and 95 % interval at each H."""
    seeds = len(summary['seeds'])
    table = Table(title=f'Over {seeds} seeds: mean [95 % interval]')
    for heading in ('H', *(each for each, _, _ in HEADINGS.values())):
        table.add_column(heading)
    for index, level in enumerate(summary['levels']):
        cells = []
        for name, (_, factor, form) in HEADINGS.items():
            at = summary['curves'][name]['at'][index]
            words = format(factor * at['mean'], form)
            if at['low'] is not None:
                low, high = (format(factor * at[each], form) for each in ('low', 'high'))
                words += f' [{low}, {high}]'
            cells.append(words.replace('[', r'\['))
        table.add_row(f'{level:g}', *cells)
    return table
