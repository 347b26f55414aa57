# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""`fdrl audit`: what epsilon the training code can be shown to have, beside what it claims."""

from typing import Any

from fdrl_ros.audit.one_run import AuditSettings
from fdrl_ros.cli.experiments.study_command import PlanStudy, study_command
from fdrl_ros.cli.options import PlanCommand, SettingOption
from fdrl_ros.errors import PrivacyError
from fdrl_ros.experiments.json_file import Json
from fdrl_ros.experiments.plots.studies import draw_audit
from fdrl_ros.experiments.studies.audit import run_audit
from rich.table import Table

_OWN = 'audit__'  # of the parameters that are no plan's


class AuditCommand(PlanCommand):
    """A command with flags for a plan and for an audit."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.params += [SettingOption('audit', each) for each in AuditSettings.describe()]


@study_command('runs/audit', 5, AuditCommand)
def audit(study: PlanStudy, **flags: Any) -> None:
    """
    Train one hospital with canaries among its patients, and bound its epsilon from below.

    Everything but the canaries is the plan's. A proven epsilon above the claimed one ends with
    exit code 1. Interrupted, it goes on when called again.
    """
    own = {name.removeprefix(_OWN): value for name, value in flags.items() if value is not None}
    settings = AuditSettings.from_mapping(own)
    summary = study.measure(run_audit, study.run.path, study.plan, settings, study.seeds)
    study.out.print(_table(summary))
    study.save('audit', summary, draw_audit)
    if summary['refuted']:
        words = ', '.join(map(str, summary['refuted']))
        raise PrivacyError(
            f'more epsilon was proven than is claimed, with seed {words}: a flawless mechanism '
            f'does that with a chance of {2.0 * settings.failure:g} a seed at most'
        )


def _table(summary: Json) -> Table:
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
