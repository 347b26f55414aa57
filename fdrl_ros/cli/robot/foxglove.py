# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""`fdrl foxglove`: all topics, for Foxglove and Lichtblick."""

import importlib
from pathlib import Path

import click
from fdrl_ros.cli.group import stopping
from fdrl_ros.cli.options import domain_options, settings_options
from fdrl_ros.deployment.bringup import BringupSettings, middleware
from fdrl_ros.errors import FdrlError
from fdrl_ros.experiments.ros_federation import missing_ros
from fdrl_ros.resources import resource
from fdrl_ros.runtime.environment_variables import with_variables


@click.command()
@domain_options
@settings_options(BringupSettings, {'federation_domain': '--federation-domain'})
@click.option('--host', default='127.0.0.1', show_default=True, help='Address to listen on.')
@click.option(
    '--port',
    default=8765,
    show_default=True,
    type=click.IntRange(0, 65535),
    help='0 for any that is free.',
)
@click.option(
    '--record',
    type=click.Path(path_type=Path),
    help='Write all topics to this new folder too, a bag (rosbag2, MCAP).',
)
def foxglove(
    host: str,
    port: int,
    record: Path | None,
    domain: int,
    federation_domain: int,
    hosts: str,
) -> None:
    """
    Show all topics to Foxglove or Lichtblick until Ctrl-C.

    Open a connection of the kind "Foxglove WebSocket" to the address that is printed, and import
    the layout that is printed beside it. Clients can only read. Any page that is open in a browser
    of this host can read it too, and so can all who reach --host.
    """
    if missing := missing_ros():
        raise FdrlError(f'ROS 2 is not here: {missing}')
    click.echo(f'layout: {resource("config/foxglove_layout.json")}')
    with with_variables(middleware(BringupSettings(hosts=hosts))), stopping() as stopped:
        bridge = importlib.import_module('fdrl_ros.nodes.foxglove_bridge')
        bridge.serve(
            sorted({domain, federation_domain}),
            host,
            port,
            stopped=stopped,
            tell=click.echo,
            record=record,
        )
