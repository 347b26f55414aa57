# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""`fdrl utility`: what privacy costs a hospital, as a table and as a plot."""

from pathlib import Path
from typing import Any

import click
from fdrl_ros.cli.group import SAME_COMMAND, stopping
from fdrl_ros.cli.options import over_seeds, plan_from, plan_option, PlanCommand
from fdrl_ros.cli.output import console
from fdrl_ros.cli.progress_bars import ProgressBars
from fdrl_ros.errors import StoreError
from fdrl_ros.experiments.plots.utility import draw_utility
from fdrl_ros.experiments.reports.table import DISCLAIMER
from fdrl_ros.experiments.rounds import write_json
from fdrl_ros.experiments.run_directory import RunDirectory
from fdrl_ros.experiments.studies.utility import run_utility
from fdrl_ros.experiments.studies.utility_intervals import interval_words
from rich.markup import escape
from rich.table import Table


@click.command(cls=PlanCommand)
@plan_option
@over_seeds('runs/utility', 5)
def utility(plan_file: str | None, directory: Path, seeds: int, **flags: Any) -> None:
    """
    Measure what privacy costs: success of one hospital's own policy against epsilon.

    Noise is chosen so that all steps together cost each epsilon; --privacy-noise-multiplier and
    --privacy-budget do not count. Interrupted, it goes on when called again.
    """
    plan = plan_from(flags, plan_file)
    run = RunDirectory.open(directory)
    first = plan.federation.seed
    out = console()
    out.print(DISCLAIMER, style='italic')
    with stopping(SAME_COMMAND) as stopped, ProgressBars(out) as bars:
        summary = run_utility(
            run.path, plan, range(first, first + seeds), report=bars, stopped=stopped
        )
    write_json(run.path / 'utility.json', summary)
    try:
        draw_utility(summary, run.path / 'utility.png')
    except OSError as error:
        raise StoreError(f'cannot write into {run.path}: {error.strerror}') from error
    out.print(_table(summary))
    out.print(
        f'saved {run.path / "utility.json"} and {run.path / "utility.png"}',
        highlight=False,
        soft_wrap=True,
    )


def _table(summary: dict[str, Any]) -> Table:
    """Return success by start and epsilon, and the share of the non-private one."""
    seeds = len(summary['seeds'])
    table = Table(
        title=f'Over {seeds} seeds: mean, 95 % interval; epsilon of a {summary["unit"]} '
        f'at delta {summary["delta"]:g}, {summary["steps"]} steps'
    )
    for name in ('start', 'epsilon', 'sigma_m', 'success, %', 'of not private, %'):
        table.add_column(name)
    for start, row in summary['results'].items():
        table.add_row(start, 'the start itself', '', _words(summary['start'][start]), '')
        for name, each in row.items():
            sigma = summary['sigma_m'][name]
            words = ('not private', '') if name == 'inf' else (name, f'{sigma:.2f}')
            table.add_row(start, *words, _words(each['success']), _words(each['kept']))
    return table


def _words(found: dict[str, Any]) -> str:
    return escape(interval_words(found))
