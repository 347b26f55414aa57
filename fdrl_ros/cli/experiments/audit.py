# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""`fdrl audit`: what epsilon the training code can be shown to have, beside what it claims."""

from pathlib import Path
from typing import Any

import click
from fdrl_ros.audit.settings import AuditSettings
from fdrl_ros.cli.group import SAME_COMMAND, stopping
from fdrl_ros.cli.options import over_seeds, plan_from, plan_option, PlanCommand, SettingOption
from fdrl_ros.cli.output import console
from fdrl_ros.cli.progress_bars import ProgressBars
from fdrl_ros.errors import PrivacyError, StoreError
from fdrl_ros.experiments.plots.audit import draw_audit
from fdrl_ros.experiments.reports.table import DISCLAIMER
from fdrl_ros.experiments.rounds import write_json
from fdrl_ros.experiments.run_directory import RunDirectory
from fdrl_ros.experiments.studies.audit import run_audit
from rich.table import Table

_OWN = 'audit__'  # of the parameters that are no plan's


class AuditCommand(PlanCommand):
    """A command with flags for a plan and for an audit."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.params += [SettingOption('audit', each) for each in AuditSettings.describe()]


@click.command(cls=AuditCommand)
@plan_option
@over_seeds('runs/audit', 5)
def audit(plan_file: str | None, directory: Path, seeds: int, **flags: Any) -> None:
    """
    Train one hospital with canaries among its patients, and bound its epsilon from below.

    Everything but the canaries is the plan's. A proven epsilon above the claimed one ends with
    exit code 1. Interrupted, it goes on when called again.
    """
    own = {name.removeprefix(_OWN): flags.pop(name) for name in list(flags) if _OWN in name}
    settings = AuditSettings.from_mapping({k: v for k, v in own.items() if v is not None})
    plan = plan_from(flags, plan_file)
    run = RunDirectory.open(directory)
    first = plan.federation.seed
    out = console()
    out.print(DISCLAIMER, style='italic')
    with stopping(SAME_COMMAND) as stopped, ProgressBars(out) as bars:
        summary = run_audit(
            run.path, plan, settings, range(first, first + seeds), report=bars, stopped=stopped
        )
    write_json(run.path / 'audit.json', summary)
    try:
        draw_audit(summary, run.path / 'audit.png')
    except OSError as error:
        raise StoreError(f'cannot write into {run.path}: {error.strerror}') from error
    out.print(_table(summary))
    out.print(f'saved in {directory}: audit.json, audit.png', highlight=False)
    if summary['refuted']:
        words = ', '.join(map(str, summary['refuted']))
        raise PrivacyError(
            f'more epsilon was proven than is claimed, with seed {words}: a flawless mechanism '
            f'does that with a chance of {2.0 * settings.failure:g} a seed at most'
        )


def _table(summary: dict[str, Any]) -> Table:
    """Return what was claimed and proven, a row a seed."""
    parts, failure = summary['parts'], summary['settings']['audit']['failure']
    one, charge = parts[0], parts[0]['charge']
    table = Table(
        title=f'Epsilon at delta = {one["delta"]:g}: {one["canaries"]} canaries among '
        f'{one["patients"]} patients, {charge["steps"]} steps, sigma_m = '
        f'{charge["noise_multiplier"]:g}, q = {charge["sampling_probability"]:.3g}; proofs hold '
        f'with {100.0 * (1.0 - failure):g} % each'
    )
    for name in (
        'seed',
        'claimed',
        'proven',
        'proven / claimed',
        'on a flawless mechanism',
        'proven if noise is Gaussian',
        'right guesses',
        'seconds',
    ):
        table.add_column(name)
    for each in parts:
        best = max(each['proofs'], key=lambda proof: proof['epsilon'])
        count = best['guesses']['members'] + best['guesses']['others']
        table.add_row(
            str(each['seed']),
            f'{each["claimed"]:.3f}',
            f'{each["bound"]:.3f}',
            f'{each["bound"] / each["claimed"]:.2f}',
            f'{each["attainable"]:.3f}',
            f'{each["gaussian"]:.3f}',
            f'{best["correct"]} of {count}',
            f'{each["seconds"]:.0f}',
        )
    return table
