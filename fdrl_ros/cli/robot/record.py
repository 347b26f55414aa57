# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""`fdrl record`: what a robot publishes, into a bag."""

import importlib
from pathlib import Path
import time

import click
from fdrl_ros.cli.group import stopping
from fdrl_ros.cli.options import live_options
from fdrl_ros.cli.output import console
from fdrl_ros.deployment.bringup import BringupSettings, middleware
from fdrl_ros.deployment.layout import ROBOTS
from fdrl_ros.deployment.namespaces import absolute
from fdrl_ros.errors import FdrlError, RecordsError
from fdrl_ros.experiments.ros_federation import missing_ros
from fdrl_ros.runtime.environment_variables import with_variables

_SHOWN = 1.0  # s between two lines of progress
_LOOK = 0.1  # s between two looks


@click.command()
@click.argument('bag', type=click.Path(path_type=Path))
@click.option('--robot', default=ROBOTS[0], show_default=True, help='Which robot.')
@click.option(
    '--operations',
    type=click.IntRange(1),
    default=None,
    help='End after so many operations have ended; else at Ctrl-C.',
)
@live_options
def record(
    bag: Path, robot: str, operations: int | None, domain: int, namespace: str, hosts: str
) -> None:
    """
    Record what a robot publishes in a bag.

    BAG is a new folder, which rosbag2 reads (MCAP). All that `fdrl selector replay` and `fdrl
    dataset convert --records` need is in it, without pictures. `ros2 bag play` plays it. It begins
    with the next operation, once every topic of the robot is heard.
    """
    if missing := missing_ros():
        raise FdrlError(f'ROS 2 is not here: {missing}')
    settings = BringupSettings(namespace=namespace, hosts=hosts)
    with (
        with_variables(middleware(settings)),
        stopping() as stopped,
        importlib.import_module('fdrl_ros.nodes.recorder').Recorder(
            bag, absolute(settings.namespace, robot), domain
        ) as recorder,
        console().status('recording') as status,
    ):
        shown, told = time.monotonic(), ''
        while not stopped() and (operations is None or recorder.counts['outcome'] < operations):
            if recorder.waits_for != told and (told := recorder.waits_for):
                click.echo(f'waiting for {told}', err=True)
            recorder.poll(_LOOK)
            ended = recorder.counts['outcome']
            if time.monotonic() - shown >= _SHOWN:
                shown = time.monotonic()
                status.update(f'{recorder.counts.total()} messages, {ended} operations ended')
    if recorder.waits_for:
        raise RecordsError(f'nothing was recorded: it waited for {recorder.waits_for}')
    ended = recorder.counts['outcome']
    click.echo(f'{bag}: {recorder.counts.total()} messages, {ended} operations ended')
