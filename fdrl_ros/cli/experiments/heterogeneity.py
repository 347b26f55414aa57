# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""`fdrl heterogeneity`: what H does to hospitals, as numbers and as a plot."""

from fdrl_ros.cli.experiments.study_command import PlanStudy, study_command
from fdrl_ros.experiments.intervals import interval_words
from fdrl_ros.experiments.json_file import Json
from fdrl_ros.experiments.plots.studies import draw_heterogeneity
from fdrl_ros.experiments.studies.heterogeneity import CURVES, run_heterogeneity, table_of, verdict
from rich.markup import escape
from rich.table import Table


@study_command('runs/heterogeneity', 10)
def heterogeneity(study: PlanStudy) -> None:
    """
    Measure how far hospitals are apart, and what a policy loses abroad, at H = 0 to 1.

    Each hospital learns from its own records without privacy; --collection-patients and
    --pretraining-steps say from how many and for how long. --heterogeneity does not count.
    Interrupted, it goes on when called again.
    """
    summary = study.measure(run_heterogeneity, study.run.path, study.plan, study.seeds)
    study.out.print(_table(summary))
    study.show(*(f'{name}: {what}' for name, what in CURVES.items()))
    study.show(*(verdict(summary, name) for name in ('distance', 'mix', 'loss')))
    study.save('heterogeneity', summary, draw_heterogeneity, table_of(summary))


HEADINGS = {
    'distance': ('distance, spreads', 1.0, '.3f'),
    'mix': ('mix, %', 100.0, '.1f'),
    'loss': ('loss, points', 100.0, '.1f'),
    'home': ('home, %', 100.0, '.1f'),
    'elsewhere': ('elsewhere, %', 100.0, '.1f'),
}
"""Of each curve: heading with its unit, factor, form."""


def _table(summary: Json) -> Table:
    """Return every curve: mean and 95 % interval at each H."""
    seeds = len(summary['seeds'])
    table = Table(title=f'Over {seeds} seeds: mean [95 % interval]')
    for heading in ('H', *(each for each, _, _ in HEADINGS.values())):
        table.add_column(heading)
    for index, level in enumerate(summary['levels']):
        cells = [
            escape(interval_words(summary['curves'][name]['at'][index], form, factor))
            for name, (_, factor, form) in HEADINGS.items()
        ]
        table.add_row(f'{level:g}', *cells)
    return table
