# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""`fdrl reproduce fdrl`: the experiments of the FDRL paper, each claim with a verdict."""

from pathlib import Path

import click
from fdrl_ros.cli.experiments.study_command import StudySession
from fdrl_ros.cli.options import SettingsCommand, with_flags
from fdrl_ros.errors import SettingError
from fdrl_ros.experiments.reports.text_table import make_table, NOT_PRIVATE
from fdrl_ros.experiments.studies.fdrl_paper.claims import UNMEASURED
from fdrl_ros.experiments.studies.fdrl_paper.report import verdicts
from fdrl_ros.experiments.studies.fdrl_paper.settings import FdrlSettings, FEWEST_SEEDS
from fdrl_ros.experiments.studies.fdrl_paper.study import run_fdrl, run_surgery
from fdrl_ros.experiments.studies.fdrl_paper.summary import summarise
from fdrl_ros.experiments.studies.fdrl_paper.tables import claims_grid


@click.command(cls=SettingsCommand, groups={'fdrl': FdrlSettings})
@click.option(
    '--directory',
    type=click.Path(path_type=Path),
    default=None,
    help='Where each part, the figures and the report are kept; what is finished is not run '
    'again.  [default: runs/fdrl, or runs/fdrl_quick]',
)
@click.option('--quick', is_flag=True, help='Two seeds, few models: a look, no claim.')
@click.option(
    '--surgery',
    is_flag=True,
    help="Also repeat the paper's setting in the surgical world, with every seed.",
)
def fdrl(directory: Path | None, quick: bool, surgery: bool, **flags: object) -> None:
    """
    Repeat the experiments of the FDRL paper (Fig. 3 to 7, ablation, cost).

    In the paper's own world, with ten seeds: the federation beside three centralised baselines,
    each hospital alone and a public start; attacks from every seat; accuracy over H, s and
    records. Writes a report in which each claim of the paper has a verdict. Interrupted, it goes
    on when called again.
    """
    chosen = FdrlSettings().quick() if quick else FdrlSettings()
    settings = with_flags(chosen, flags)
    if settings.seeds < FEWEST_SEEDS and not quick:
        expected = f'at least {FEWEST_SEEDS}: fewer claim nothing; --quick takes a look'
        raise SettingError('seeds', settings.seeds, expected)
    study = StudySession.open(directory or Path('runs/fdrl_quick' if quick else 'runs/fdrl'))
    study.out.print(NOT_PRIVATE, style='bold red')
    summary = summarise(study.measure(run_fdrl, study.run.path, settings), settings)
    if quick:
        summary['claims'] = [{**each, 'verdict': UNMEASURED} for each in summary['claims']]
    if surgery:
        summary['surgery'] = study.measure(run_surgery, study.run.path, settings)
    study.save('fdrl', {'quick': quick, **summary})
    study.out.print(make_table(*claims_grid(summary)))
    study.show(verdicts(summary))
