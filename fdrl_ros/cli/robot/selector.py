# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""`fdrl selector`: what choosing in every state is worth, as numbers and as pictures."""

from dataclasses import fields
from pathlib import Path
from typing import Any

import click
from fdrl_ros.cli.experiments.study_command import levels_from, PlanStudy, study_command
from fdrl_ros.cli.group import SAME_COMMAND, stopping
from fdrl_ros.cli.options import plan_from, plan_option, PlanCommand
from fdrl_ros.cli.output import console
from fdrl_ros.cli.progress_bars import ProgressBars
from fdrl_ros.cli.robot.selector_replay import replay_bag
from fdrl_ros.errors import StoreError
from fdrl_ros.experiments.json_file import Json, write_json
from fdrl_ros.experiments.plots.selector import draw_returns
from fdrl_ros.experiments.reports.study_tables import selector_sentences, selector_tables
from fdrl_ros.experiments.reports.text_table import DISCLAIMER, make_table
from fdrl_ros.experiments.run_directory import RunDirectory
from fdrl_ros.experiments.studies.selector.coverage import (
    CoverageSettings,
    run_coverage_study,
    summarise_coverage,
)
from fdrl_ros.experiments.studies.selector.coverage_estimate import CONFIDENCES
from fdrl_ros.experiments.studies.selector.study import selector_study
from fdrl_ros.experiments.studies.selector.summary import summarise
from fdrl_ros.experiments.surgery_evaluation import require_surgery
from fdrl_ros.runtime.progress import Caller
from rich.table import Table

LEVELS = '0, 0.5, 1'
_FEWEST = 5
"""Patients behind an interval over patients, at least; one is drawn again and again of fewer."""

COLUMNS = ('error', 'std', 'monte_carlo_error', 'widening')


@click.group()
def selector() -> None:
    """Measure the selector, which picks a policy at every tick."""


selector.add_command(replay_bag)


@study_command('runs/selector', 5, of_surgery=True)
@click.option('--levels', default=LEVELS, show_default=True, help='The H that are compared.')
def compare(study: PlanStudy, levels: str) -> None:
    """
    Compare the selector with every policy alone, with other rules of choosing, and with oracles.

    It takes about 5 minutes of one core for each seed and H on a fast machine; the default is 15
    of those. To shorten it, reduce --seeds, --levels, --rounds, --hospitals,
    --procedures, --value-patients, --evaluation-patients.

    At each H and seed a federation is trained with differential privacy and releases its
    policies; they are valued on public patients, and everyone operates on the same unseen
    patients. --heterogeneity does not count. Interrupted, it goes on when called
    again. `--hospitals 4 --procedures all` makes hospitals of four specialities.
    """
    wanted = sorted(set(levels_from(levels)))
    own, parts = selector_study(study.run.path, study.plan, study.seeds, wanted)
    done = sum(each is not None for each in own.finished(parts))
    study.show(
        f'{len(parts)} parts ({len(wanted)} H, {len(study.seeds)} seeds), {done} of them done'
    )
    found = study.measure(own.run, parts)
    summary = summarise(found)
    for table, at in zip(selector_tables(summary), summary['levels'], strict=True):
        study.out.print(table)
        study.show(*selector_sentences(at))
    study.save('selector', summary, draw_returns)
    study.show(f'pictures: {study.directory}/runs/*/pictures')


selector.add_command(compare)


@selector.command(cls=PlanCommand)
@click.argument('run', type=click.Path(path_type=Path))
@plan_option
@click.option('--policies', default='global', show_default=True, help='Whose models; or hold.')
@click.option('--patients', default=40, show_default=True, help='Unseen, of each procedure.')
@click.option('--states', default=4, show_default=True, help='Of each operation, after the start.')
@click.option(
    '--redraws', default=1000, show_default=True, help='Public patients for each, 200 or more.'
)
@click.option('--number', 'seed', default=0, show_default=True, help='Seed of the patients.')
@click.option('--public', is_flag=True, help='On public patients instead.')
@click.option('--json', 'file', type=click.Path(path_type=Path), help='Write the figures here.')
def coverage(
    run: Path, plan_file: str | None, policies: str, file: Path | None, **flags: Any
) -> None:
    """
    Measure how often a model's intervals hold the Monte-Carlo expectation E[J given s].

    RUN is the directory of a finished run, such as runs/latest or one in runs/selector/runs. At
    each state of operations on unseen patients the expectation is an average over public patients
    with the same first state, on kinematic arms. Interrupted, it goes on when called again.

    Of fewer than 5 patients a mean is shown without its interval, which says nothing then.
    """
    directory = RunDirectory(run.resolve())
    if not directory.layout.plan.exists():
        raise StoreError(f'{run} is no run: it has no federation/plan.yaml')
    plan = plan_from(flags, plan_file, directory.layout)
    require_surgery(plan)
    names = tuple(name.strip() for name in policies.split(','))
    own = {each.name: flags[each.name] for each in fields(CoverageSettings) if each.name in flags}
    settings = CoverageSettings(names, **own)
    out = console()
    out.print(DISCLAIMER, style='italic')
    with directory.lock():
        with stopping(SAME_COMMAND) as stopped, ProgressBars(out) as bars:
            parts = run_coverage_study(directory, plan, settings, Caller(bars, stopped))
        summary = summarise_coverage(parts)
        write_json(file or directory.path / 'coverage' / 'coverage.json', summary)
    out.print(coverage_table(summary))


def coverage_table(summary: Json) -> Table:
    """Return how many intervals hold, beside how many should."""
    rows = []
    for row in summary['rows']:
        many = row['patients'] >= _FEWEST
        held = [
            f'{100 * each["coverage"]:.0f}'
            + f' [{100 * each["low"]:.0f}, {100 * each["high"]:.0f}]' * many
            for each in row['coverage']
        ]
        numbers = [f'{row[name]:.2f}' for name in COLUMNS]
        who = row['policy'], row['procedure'], f'{row["states"]} {row["kind"]}'
        rows.append((*who, *held, *numbers))
    shares = [f'{100 * share:g} %' for share in CONFIDENCES]
    return make_table(
        'intervals that hold E[J given s], %: mean [95 % interval over patients]',
        ('policy', 'procedure', 'states', *shares, 'error', 'said', 'Monte Carlo', 'wider'),
        rows,
    )
