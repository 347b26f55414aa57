# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""`fdrl version`: what numbers depend on."""

import click
from fdrl_ros.experiments.reports.versions import versions


@click.command()
def version() -> None:
    """Print the versions of this package and its libraries."""
    for name, value in versions().items():
        click.echo(f'{name} {value}')
