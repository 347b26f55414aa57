# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""`fdrl attack`: what policies and updates tell of the records behind them, from every seat."""

from pathlib import Path

import click
from fdrl_ros.cli.experiments.study_command import StudySession
from fdrl_ros.cli.options import SettingsCommand, with_flags
from fdrl_ros.experiments.plots.leakage import draw_leakage
from fdrl_ros.experiments.reports.study_pages import surface_grids
from fdrl_ros.experiments.reports.text_table import make_table, NOT_PRIVATE
from fdrl_ros.experiments.studies.leakage.settings import AttackSettings
from fdrl_ros.experiments.studies.leakage.study import run_leakage
from fdrl_ros.experiments.studies.leakage.summary import summarise, verdicts
from fdrl_ros.experiments.studies.leakage.surface import (
    HETEROGENEITIES,
    NOISES,
    run_surface,
)
from fdrl_ros.experiments.studies.leakage.tables import leakage_tables


@click.command(cls=SettingsCommand, groups={'attack': AttackSettings})
@click.option(
    '--directory',
    type=click.Path(path_type=Path),
    default=None,
    help='Where each part and the result are kept; what is finished is not run again.  '
    '[default: runs/attack, or runs/attack_quick; runs/surface with --surface]',
)
@click.option('--quick', is_flag=True, help='Few models and seeds: a look of a minute, no claim.')
@click.option('--surface', is_flag=True, help='PLR and A_task over H and s, in 36 cells, instead.')
def attack(directory: Path | None, quick: bool, surface: bool, **flags: object) -> None:
    """
    Attack policies and updates from every seat.

    In the FDRL paper's world, by loss, calibrated loss, LiRA, alignment of updates and gradient
    inversion, from the seats of robot, aggregator, hospitals and of who sees a hospital's own
    update; beside the bounds that differential privacy gives, D_KL and OPE. Interrupted, it goes
    on when called again.
    """
    chosen = AttackSettings().quick() if quick else AttackSettings()
    settings = with_flags(chosen, flags)
    name = 'surface' if surface else 'attack'
    study = StudySession.open(directory or Path(f'runs/{name}_quick' if quick else f'runs/{name}'))
    study.out.print(NOT_PRIVATE, style='bold red')
    if surface:
        _surface(study, settings)
        return
    found = study.measure(run_leakage, study.run.path, settings)
    summary = {'quick': quick, **summarise(found, settings)}
    grids = list(leakage_tables(summary))
    said = verdicts(summary)
    study.save('attack', summary, draw_leakage)
    for grid in grids:
        study.out.print(make_table(*grid))
    study.show(*said)


def _surface(study: StudySession, settings: AttackSettings) -> None:
    """Measure PLR over H and s, print and save it."""
    summary = study.measure(run_surface, study.run.path, settings, HETEROGENEITIES, NOISES)
    study.save('surface', summary)
    for grid in surface_grids(summary):
        study.out.print(make_table(*grid))
