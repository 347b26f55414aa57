# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Commands on a federation's DIRECTORY: prepare, migrate, export to another host, join."""

from collections.abc import Callable, Iterable
from pathlib import Path
import time
from typing import Any

import click
from fdrl_ros.cli.federation.key_listing import warn
from fdrl_ros.cli.group import stopping
from fdrl_ros.cli.options import (
    plan_from,
    plan_option,
    PlanCommand,
    records_from,
    records_option,
    settings_options,
)
from fdrl_ros.crypto.keys.keystore import NOISE_FILE
from fdrl_ros.deployment.bringup import BringupSettings, idle_sections, warnings
from fdrl_ros.deployment.hosts import export as export_parties
from fdrl_ros.deployment.hosts import host_graph, parties_here
from fdrl_ros.deployment.layout import Layout
from fdrl_ros.deployment.marking import files_to_mark, mark
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.deployment.prepare import check_keys, few, without_patients
from fdrl_ros.deployment.prepare import prepare as prepare_directory
from fdrl_ros.deployment.runner import Runner
from fdrl_ros.errors import FdrlError, KeyFileError, StoreError
from fdrl_ros.experiments.ros_federation import missing_ros
from fdrl_ros.federation.migration import BACKUP, migrate_file
from fdrl_ros.privacy.noise_key import is_old
from fdrl_ros.runtime.durable import erase_secret, read_secret

LOOK = 0.2
"""Time between two looks at the nodes, second."""

_directory = click.argument('directory', type=click.Path(file_okay=False, path_type=Path))


@click.command(cls=PlanCommand)
@_directory
@plan_option
@records_option
def prepare(
    directory: Path, plan_file: str | None, own_records: tuple[str, ...], **flags: object
) -> None:
    """
    Make a directory ready: plan, keys, starting policy.

    What exists is kept. `ros2 launch` does this before it starts the nodes.
    """
    layout = Layout(directory)
    plan = plan_from(flags, plan_file, layout)
    own = records_from(own_records, plan, layout)
    with stopping() as stopped:
        prepare_directory(directory, plan, own, stopped=stopped)
    waiting = without_patients(layout, plan)
    names = [each.name for each in layout.roster().hospitals if each.name not in waiting]
    click.echo(f'{directory} is ready for {few(names) or "none of its hospitals yet"}')
    if words := layout.roster().neighbourhoods.in_words():
        click.echo(words)
    if waiting:
        first = waiting[0]
        warn(
            f'the plan simulates patients of {few(plan.hospitals)}, not of {few(waiting)}, which '
            'can take part only with records of its own, of as many patients as the roster '
            f'declares: --records {first}=FILE here, or the file as {first}/records.npz in the '
            'directory at its host'
        )


@click.command()
@click.argument('directory', metavar='DIRECTORY', type=click.Path(path_type=Path))
@click.option('--dry-run', is_flag=True, help='Say what would be done, and change nothing.')
def migrate(directory: Path, dry_run: bool) -> None:
    """
    Bring the state files of an older version to this one.

    The rounds then go on. DIRECTORY is that of a run or of a federation, on each host that has one
    of its parties, the aggregator's first: a round whose survivors are fixed is refused, and has
    to end before. Stop the parties first. Keys, rosters, ledgers and journals stay as they are,
    but for old noise keys, which could draw the noise of all past rounds again: they are erased,
    and hospitals draw new ones. Records and policies are marked with their task. The old state
    files are kept beside the new ones. It may be repeated, and be interrupted, at any time.
    """
    layout = Layout.find_whole(directory)
    plan = Plan.load(layout.plan)
    size = plan.network.layout.n_parameters
    paths = sorted(layout.directory.glob('*/state.sqlite'))
    paths += sorted(layout.directory.glob('alone/*/state.sqlite'))
    if not paths:
        raise StoreError(f'{layout.directory} has no state file of a party')
    secure = plan.federation.noise == 'secure'
    for dry in (True, dry_run):  # one that is refused leaves the others as they are
        changed = [
            path
            for path in paths
            if migrate_file(path, path.parent.name, size, secure=secure, dry_run=dry)
        ]
    marked = [
        path for path in files_to_mark(layout.directory) if mark(path, plan, dry_run=dry_run)
    ]
    for path in (*changed, *marked):
        click.echo(f'{"would migrate" if dry_run else "migrated"} {path}')
    keys = [path.with_name(NOISE_FILE) for path in paths]
    old = [path for path in keys if path.exists() and is_old(read_secret(path))]
    for path in old:
        if not dry_run:
            erase_secret(path)
        click.echo(f'{"would erase" if dry_run else "erased"} {path}')
    if not changed and not marked and not old:
        click.echo(f'{len(paths)} state files: all are of this version')
    elif changed and not dry_run:
        click.echo(f'the old state files are kept beside them, as state.sqlite{BACKUP}*')


@click.command()
@_directory
@click.argument('parties', nargs=-1, required=True)
@click.option(
    '--to',
    'target',
    type=click.Path(path_type=Path),
    required=True,
    help='Directory to make, for the host of these parties.',
)
def export(directory: Path, parties: tuple[str, ...], target: Path) -> None:
    """
    Copy what the host of some parties needs, and no more.

    The copy is of DIRECTORY. PARTIES are aggregator, key_authority, operator, hospitals, and
    robots and `observer`, if they have enclaves (`fdrl security`).
    Their private keys stay in DIRECTORY too: erase them there when the copy has arrived.
    """
    export_parties(Layout(directory), parties, target)
    click.echo(f'{target} is for the host of {", ".join(parties)}')


@click.command()
@_directory
@settings_options(
    BringupSettings,
    {
        'federation_domain': '--federation-domain',
        'robot_domain': '--robot-domain',
        'namespace': '--namespace',
        'discovery_server': '--discovery-server',
        'router': '--router',
        'parameters': '--parameters',
        'security': '--security/--no-security',
        'keystore': '--keystore',
    },
)
def join(directory: Path, **places: Any) -> None:
    """
    Run the parties whose keys lie in a directory.

    They run until Ctrl-C; who dies is started again, and who cannot begin ends them all. Each
    of several hosts that take part in one federation runs this. `ros2 launch fdrl_ros
    server.launch.py` and hospital.launch.py with hosts:=several do the same.
    """
    layout = Layout(directory)
    check_keys(layout)
    names = parties_here(layout)
    if not names:
        raise KeyFileError(f'{layout.keys} holds no private key of a party of the roster')
    if missing := missing_ros():
        raise FdrlError(f'ROS 2 is not here: {missing}')
    # With a router DDS stays on this host, for its robots.
    hosts = 'one' if places['router'] else 'several'
    settings = BringupSettings(directory=str(directory), hosts=hosts, **places)
    with stopping() as stopped, Runner(settings, layout.log) as runner:
        specs = host_graph(settings, names)
        for words in (*warnings(settings), *idle_sections(settings, specs)):
            click.echo(words, err=True)
        runner.start(specs)
        click.echo(f'{", ".join(names)}: started; the logs are in {layout.log}')
        follow(runner, stopped)
        if not stopped():
            raise FdrlError(f'every node has ended; the logs are in {layout.log}')


def follow(
    runner: Runner, stopped: Callable[[], bool], told: Callable[[], Iterable[str]] = tuple
) -> None:
    """
    Show which nodes end, until all have or it is asked to stop.

    :param told: returns lines to show besides, since the last call.
    :raises FdrlError: if a node cannot begin.
    """
    while not runner.done and not stopped():
        for line in told():
            click.echo(line)
        for event in runner.poll():
            click.echo(str(event), err=True)
            event.check()
        time.sleep(LOOK)
