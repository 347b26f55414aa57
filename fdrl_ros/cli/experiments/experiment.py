# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""`fdrl experiment`: several seeds, with paired differences."""

from pathlib import Path
from typing import Any

import click
from fdrl_ros.cli.group import SAME_COMMAND, stopping
from fdrl_ros.cli.options import over_seeds, plan_from, plan_option, PlanCommand
from fdrl_ros.cli.output import console
from fdrl_ros.cli.progress_bars import ProgressBars
from fdrl_ros.experiments.reports.table import DISCLAIMER, seeds_table
from fdrl_ros.experiments.run_directory import RunDirectory
from fdrl_ros.experiments.studies.experiment import run_seeds


@click.command(cls=PlanCommand)
@plan_option
@over_seeds('runs/experiment', 5)
def experiment(plan_file: str | None, directory: Path, seeds: int, **flags: Any) -> None:
    """
    Repeat training and evaluation with several seeds and compare.

    Differences are paired: the same seed and the same unseen patients. Interrupted, it goes on
    when called again.
    """
    plan = plan_from(flags, plan_file)
    run = RunDirectory.open(directory)
    first = plan.federation.seed
    out = console()
    out.print(DISCLAIMER, style='italic')
    with stopping(SAME_COMMAND) as stopped, ProgressBars(out) as bars:
        combined = run_seeds(
            run.path, plan, range(first, first + seeds), report=bars, stopped=stopped
        )
    out.print(seeds_table(combined))
    out.print(f'saved in {directory / "experiment.json"}', highlight=False, soft_wrap=True)
