# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""`fdrl prepare`: make a federation's directory ready for its nodes."""

from pathlib import Path

import click
from fdrl_ros.cli.group import stopping
from fdrl_ros.cli.options import plan_from, plan_option, PlanCommand, records_from, records_option
from fdrl_ros.deployment import prepare as preparing
from fdrl_ros.deployment.external_records import place_records
from fdrl_ros.deployment.layout import Layout


@click.command(cls=PlanCommand)
@click.argument('directory', type=click.Path(file_okay=False, path_type=Path))
@plan_option
@records_option
def prepare(
    directory: Path, plan_file: str | None, own_records: tuple[str, ...], **flags: object
) -> None:
    """
    Make DIRECTORY ready: plan, keys, directories, public starting policy.

    What exists is kept. `ros2 launch` does this before it starts the nodes.
    """
    layout = Layout(directory)
    plan = plan_from(flags, plan_file, layout)
    own = records_from(own_records, plan)
    preparing.check_plan(plan, layout, own)
    place_records(layout, plan, own)
    with stopping() as stopped:
        preparing.prepare(directory, plan, stopped=stopped)
    click.echo(f'{directory} is ready for {", ".join(plan.hospitals)}')
