# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""`fdrl reproduce fedst`: the experiments of FedST, with the paper's numbers beside ours."""

from functools import partial
from pathlib import Path

import click
from fdrl_ros.cli.experiments.study_command import StudySession
from fdrl_ros.cli.options import SettingsCommand, with_flags
from fdrl_ros.errors import PluginError
from fdrl_ros.experiments.studies.fedst.settings import FedstSettings


@click.command(cls=SettingsCommand, groups={'fedst': FedstSettings})
@click.option(
    '--directory',
    type=click.Path(path_type=Path),
    default=None,
    help='Where each part and the results are kept; what is finished is not run again.  '
    '[default: runs/fedst, or runs/fedst_quick]',
)
@click.option('--quick', is_flag=True, help='Few clips and steps: a look of minutes, no claim.')
@click.option(
    '--private',
    is_flag=True,
    help='Also tune head and queries of a segmenter by DP-SGD at every site, one video a unit.',
)
def fedst(directory: Path | None, quick: bool, private: bool, **flags: object) -> None:
    """
    Repeat the experiments of FedST on made-up surgical video.

    Tables II, III and IX by default, IV to VII with --fedst-tables all: FedST beside FedAvg,
    FedRep, FedDP, every site alone, and all clips in one place. Interrupted, it goes on when
    called again.
    """
    try:
        from fdrl_ros.experiments.studies.fedst.private import run_private
        from fdrl_ros.experiments.studies.fedst.study import run_fedst
        from fdrl_ros.experiments.studies.fedst.summary import summarise
        from fdrl_ros.experiments.studies.fedst.tables import tables, verdicts
    except ImportError as missing:
        raise PluginError(
            'reproduce fedst', f'{missing}: pip install "fdrl_ros[torch]", or `make setup`'
        ) from missing
    chosen = FedstSettings().quick() if quick else FedstSettings()
    settings = with_flags(chosen, flags)
    study = StudySession.open(directory or Path('runs/fedst_quick' if quick else 'runs/fedst'))
    parts = study.measure(run_fedst, study.run.path, settings)
    summary = summarise(parts, settings)
    if private:
        tune = partial(run_private, quick=quick)
        summary['private'] = study.measure(tune, study.run.path, settings)
    study.save('fedst', summary)
    for table in tables(summary):
        study.out.print(table)
    study.show(*verdicts(summary))
