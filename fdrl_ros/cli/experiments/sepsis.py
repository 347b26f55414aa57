# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""`fdrl sepsis`, or `fdrl reproduce dp-dqn`: the DP-DQN paper's results on ICU-Sepsis."""

from dataclasses import asdict
from pathlib import Path

import click
from fdrl_ros.cli.experiments.study_command import StudySession
from fdrl_ros.cli.options import SettingsCommand, with_flags
from fdrl_ros.errors import os_errors_as, StoreError
from fdrl_ros.experiments.reports.text_table import NOT_PRIVATE
from fdrl_ros.experiments.studies.sepsis.plot import draw_sepsis
from fdrl_ros.experiments.studies.sepsis.settings import SepsisSettings
from fdrl_ros.experiments.studies.sepsis.study import run_sepsis
from fdrl_ros.experiments.studies.sepsis.summary import summarise
from fdrl_ros.experiments.studies.sepsis.tables import tables, verdicts


@click.command(cls=SettingsCommand, groups={'sepsis': SepsisSettings})
@click.option(
    '--directory',
    type=click.Path(path_type=Path),
    default=None,
    help='Where each run and the results are kept; what is finished is not run again.  '
    '[default: runs/sepsis, or runs/sepsis_quick]',
)
@click.option('--quick', is_flag=True, help='Few runs and patients: a look, no claim.')
def sepsis(directory: Path | None, quick: bool, **flags: object) -> None:
    """
    Reproduce the results of the DP-DQN paper on ICU-Sepsis.

    Patients until a given survival (FAE) against epsilon, with and without prioritised replay,
    of moderate SOFA as in the paper and of all; mortality by epsilon and SOFA band; heat maps of
    actions; a network with hidden layers on 47 features beside the table; learning offline by
    minibatches; and what was aimed at beside what came out. Interrupted, it goes on when called
    again.
    """
    chosen = SepsisSettings().quick() if quick else SepsisSettings()
    settings = with_flags(chosen, flags)
    settings.check()
    study = StudySession.open(directory or Path('runs/sepsis_quick' if quick else 'runs/sepsis'))
    study.out.print(NOT_PRIVATE, style='bold red')
    parts = study.measure(run_sepsis, study.run.path, settings)
    summary = {'settings': asdict(settings), **summarise(parts, settings)}
    with os_errors_as(StoreError, f'cannot write into {study.run.path}'):
        plots = draw_sepsis(summary, study.run.path)
    study.save('sepsis', summary)
    for table in tables(summary):
        study.out.print(table)
    said = f'epsilon is that of one {summary["unit"]}, at delta {summary["delta"]:g}'
    study.show(said, *verdicts(summary), f'plots: {", ".join(plots)}')


dp_dqn = sepsis
"""The same command, as `fdrl reproduce` names it."""
