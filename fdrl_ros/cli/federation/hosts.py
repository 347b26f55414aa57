# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""`fdrl export` and `fdrl join`: a federation whose parties are on hosts of their own."""

from pathlib import Path
import time
from typing import Any

import click
from fdrl_ros.cli.group import stopping
from fdrl_ros.cli.options import settings_options
from fdrl_ros.deployment.bringup import BringupSettings
from fdrl_ros.deployment.hosts import export as export_parties
from fdrl_ros.deployment.hosts import here, host_graph
from fdrl_ros.deployment.layout import Layout
from fdrl_ros.deployment.prepare import check_keys
from fdrl_ros.deployment.runner import Runner
from fdrl_ros.errors import FdrlError, KeyFileError
from fdrl_ros.experiments.ros_federation import missing_ros

LOOK = 0.2
"""Time between two looks at the nodes, second."""

RESTARTS = 5
"""How often a node that died is started again: one that cannot start says why each time."""

_directory = click.argument('directory', type=click.Path(file_okay=False, path_type=Path))


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
    Copy out of DIRECTORY what the host of PARTIES needs, and nothing of the others.

    PARTIES are aggregator, key_authority, operator and hospitals. Their private keys stay in
    DIRECTORY too: erase them there when the copy has arrived.
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
        'discovery_server': '--discovery-server',
        'parameters': '--parameters',
    },
)
def join(directory: Path, **places: Any) -> None:
    """
    Run the parties whose keys lie in DIRECTORY, until Ctrl-C; who dies is started again.

    For each of several hosts that take part in one federation. `ros2 launch fdrl_ros
    server.launch.py` and hospital.launch.py with hosts:=several do the same.
    """
    layout = Layout(directory)
    check_keys(layout)
    names = here(layout)
    if not names:
        raise KeyFileError(f'{layout.keys} holds no private key of a party of the roster')
    if missing := missing_ros():
        raise FdrlError(f'ROS 2 is not here: {missing}')
    settings = BringupSettings(directory=str(directory), hosts='several', **places)
    with stopping() as stopped, Runner(settings, layout.log, restarts=RESTARTS) as runner:
        runner.start(host_graph(settings, names))
        click.echo(f'{", ".join(names)}: started; the logs are in {layout.log}')
        while runner.running and not stopped():
            for death in runner.poll():
                click.echo(str(death), err=True)
            time.sleep(LOOK)
        if not stopped():
            raise FdrlError(f'every node has ended; the logs are in {layout.log}')
