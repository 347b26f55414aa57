# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""`fdrl experiment`: several seeds, with paired differences."""

from fdrl_ros.cli.experiments.study_command import PlanStudy, study_command
from fdrl_ros.experiments.reports.run_table import seeds_table
from fdrl_ros.experiments.studies.experiment import run_seeds


@study_command('runs/experiment', 5)
def experiment(study: PlanStudy) -> None:
    """
    Repeat training and evaluation with several seeds and compare.

    Differences are paired: the same seed and the same unseen patients. Interrupted, it goes on
    when called again.
    """
    combined = study.measure(run_seeds, study.run.path, study.plan, study.seeds)
    study.out.print(seeds_table(combined))
    study.show(f'saved in {study.directory / "experiment.json"}')
