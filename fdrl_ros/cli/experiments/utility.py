# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""`fdrl utility`: what privacy costs a hospital, as a table and as a plot."""

from fdrl_ros.cli.experiments.study_command import PlanStudy, study_command
from fdrl_ros.experiments.intervals import Interval, share_words
from fdrl_ros.experiments.json_file import Json
from fdrl_ros.experiments.plots.studies import draw_utility
from fdrl_ros.experiments.studies.utility import run_utility
from rich.markup import escape
from rich.table import Table


@study_command('runs/utility', 5)
def utility(study: PlanStudy) -> None:
    """
    Measure what privacy costs: success of one hospital's own policy against epsilon.

    Noise is chosen so that all steps together cost each epsilon; --privacy-noise-multiplier and
    --privacy-budget do not count. Interrupted, it goes on when called again.
    """
    summary = study.measure(run_utility, study.run.path, study.plan, study.seeds)
    study.out.print(_table(summary))
    study.save('utility', summary, draw_utility)


def _table(summary: Json) -> Table:
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


def _words(found: Interval) -> str:
    return escape(share_words(found))
