# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""`fdrl migrate`: bring a federation of an older version to the present one."""

from pathlib import Path

import click
from fdrl_ros.deployment.layout import Layout
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.errors import StoreError
from fdrl_ros.federation.migration import BACKUP, migrate_file


@click.command()
@click.argument('directory', metavar='DIRECTORY', type=click.Path(path_type=Path))
@click.option('--dry-run', is_flag=True, help='Say what would be done, and change nothing.')
def migrate(directory: Path, dry_run: bool) -> None:
    """
    Bring the state files of an older version to this one, so that the rounds go on.

    DIRECTORY is that of a run or of a federation, on each host that has one of its parties. Stop
    the parties first. Keys, rosters, ledgers, journals and records stay as they are. The old state
    files are kept beside the new ones. It may be repeated, and be interrupted, at any time.
    """
    layout = Layout.find_whole(directory)
    size = Plan.read(layout.plan).shape.n_parameters
    paths = sorted(layout.directory.glob('*/state.sqlite'))
    paths += sorted(layout.directory.glob('alone/*/state.sqlite'))
    if not paths:
        raise StoreError(f'{layout.directory} has no state file of a party')
    changed = [
        path for path in paths if migrate_file(path, path.parent.name, size, dry_run=dry_run)
    ]
    for path in changed:
        click.echo(f'{"would migrate" if dry_run else "migrated"} {path}')
    if not changed:
        click.echo(f'{len(paths)} state files: all are of this version')
    elif not dry_run:
        click.echo(f'the old files are kept beside them, with the ending {BACKUP}')
