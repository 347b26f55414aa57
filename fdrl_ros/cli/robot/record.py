# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""`fdrl record`: what a robot publishes, into a bag; a bag, onto its topics again."""

from collections.abc import Callable, Mapping
import importlib
from pathlib import Path
import time
from typing import Any

import click
from fdrl_ros.cli.group import stopping
from fdrl_ros.cli.options import live_options
from fdrl_ros.cli.output import console
from fdrl_ros.deployment.bringup import BringupSettings, middleware
from fdrl_ros.deployment.layout import ROBOTS
from fdrl_ros.deployment.namespaces import absolute
from fdrl_ros.errors import FdrlError, RecordsError, SettingError
from fdrl_ros.experiments.ros_federation import missing_ros
from fdrl_ros.runtime.environment_variables import with_variables

_SHOWN = 1.0  # s between two lines of progress
_LOOK = 0.1  # s between two looks


@click.command()
@click.argument('bag', type=click.Path(path_type=Path))
@click.option('--robot', default=ROBOTS[0], show_default=True, help='Which robot is recorded.')
@click.option(
    '--operations',
    type=click.IntRange(1),
    default=None,
    help='End after so many operations have ended; else at Ctrl-C.',
)
@click.option(
    '--all',
    'whole',
    is_flag=True,
    help='Record every topic of the robot from now on, with /tf and its URDF.',
)
@click.option('--play', is_flag=True, help='Publish what BAG holds, instead of recording.')
@click.option(
    '--rate',
    default=1.0,
    show_default=True,
    type=click.FloatRange(0.01, 100.0),
    help='With --play: how many times as fast as it was recorded.',
)
@click.option('--loop', is_flag=True, help='With --play: begin again at the end.')
@click.option(
    '--remap',
    multiple=True,
    metavar='OLD:=NEW',
    help='With --play: topic, or namespace of topics, and its new name; may be repeated.',
)
@click.option(
    '--foxglove', is_flag=True, help='With --play: show it to Foxglove, and publish nothing.'
)
@click.option(
    '--port',
    default=8765,
    show_default=True,
    type=click.IntRange(0, 65535),
    help='With --foxglove.',
)
@live_options
def record(
    bag: Path,
    robot: str,
    operations: int | None,
    whole: bool,
    play: bool,
    rate: float,
    loop: bool,
    remap: tuple[str, ...],
    foxglove: bool,
    port: int,
    domain: int,
    namespace: str,
    hosts: str,
) -> None:
    """
    Record what a robot publishes in a bag, or play a bag.

    BAG is a new folder, which rosbag2 reads (MCAP). All that `fdrl selector replay` and `fdrl
    dataset convert --records` need is in it, without pictures; it begins with the next operation,
    once every topic of the robot is heard. With --all everything is in it, from now on.

    `fdrl record --play BAG` publishes its messages on their topics, as far apart as they came, so
    that `fdrl topic echo`, RViz or Foxglove show them. Commands of an arm are never published, and
    a domain in which somebody publishes the same topics is refused.

    """
    if missing := missing_ros():
        raise FdrlError(f'ROS 2 is not here: {missing}')
    settings = BringupSettings(namespace=namespace, hosts=hosts)
    for given, flag in ((loop, 'loop'), (remap, 'remap'), (foxglove, 'foxglove')):
        if given and not play:
            raise SettingError(flag, True, '--play with it')
    with with_variables(middleware(settings)), stopping() as stopped:
        if play:
            player = importlib.import_module('fdrl_ros.nodes.topics.player')
            how = {'rate': rate, 'loop': loop, 'stopped': stopped, 'tell': click.echo}
            if foxglove:
                done = player.show(bag, port, **how)
            else:
                moved = player.Moved(settings.namespace, _remappings(remap))
                done = player.play(bag, domain, moved, **how)
            for words in done.left_out:
                click.echo(f'left out: {words}', err=True)
            click.echo(f'{done.messages} messages were played')
            return
        recorder = importlib.import_module('fdrl_ros.nodes.recorder')
        kind = recorder.WholeRecorder if whole else recorder.Recorder
        _record(kind, bag, absolute(settings.namespace, robot), operations, domain, stopped)


def _record(
    kind: Callable[..., Any],
    bag: Path,
    robot: str,
    operations: int | None,
    domain: int,
    stopped: Callable[[], bool],
) -> None:
    """Record until asked to stop, or until so many operations have ended."""
    with kind(bag, robot, domain) as recorder, console().status('recording') as status:
        shown, told = time.monotonic(), ''
        while not stopped() and (operations is None or recorder.counts['outcome'] < operations):
            if recorder.waits_for != told and (told := recorder.waits_for):
                click.echo(f'waiting for {told}', err=True)
            recorder.poll(_LOOK)
            ended = recorder.counts['outcome']
            if time.monotonic() - shown >= _SHOWN:
                shown = time.monotonic()
                status.update(f'{recorder.counts.total()} messages, {ended} operations ended')
    for words in recorder.left_out:
        click.echo(f'left out: {words}', err=True)
    if recorder.waits_for:
        raise RecordsError(f'nothing was recorded: it waited for {recorder.waits_for}')
    ended = recorder.counts['outcome']
    click.echo(f'{bag}: {recorder.counts.total()} messages, {ended} operations ended')


def _remappings(words: tuple[str, ...]) -> Mapping[str, str]:
    """Read what topics become."""
    found = {}
    for each in words:
        old, given, new = each.partition(':=')
        if not given or not old.strip('/') or not new.strip('/'):
            raise SettingError('remap', each, 'OLD:=NEW, such as /robot_1:=/replay')
        found[absolute(old)] = absolute(new)
    return found
