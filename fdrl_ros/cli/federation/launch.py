# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What `ros2 launch fdrl_ros FILE.launch.py` does, where there is no `ros2 launch`."""

from pathlib import Path
import subprocess
import sys

import click
from fdrl_ros.cli.federation.directory import follow
from fdrl_ros.cli.group import stopping
from fdrl_ros.deployment.bringup import BringupSettings, FederationArguments
from fdrl_ros.deployment.launch_files import check, chosen, FILES, graph
from fdrl_ros.deployment.layout import Layout
from fdrl_ros.deployment.runner import Runner
from fdrl_ros.deployment.supervision import Ending
from fdrl_ros.errors import FdrlError, SettingError, StoreError
from fdrl_ros.experiments.ros_federation import missing_ros


@click.command()
@click.argument('file', type=click.Choice(sorted(FILES)))
@click.argument('arguments', nargs=-1, metavar='[NAME:=VALUE]...')
def launch(file: str, arguments: tuple[str, ...]) -> None:
    """
    Start the nodes of a launch file.

    FILE and the arguments are those of `ros2 launch fdrl_ros FILE.launch.py NAME:=VALUE ...`, and
    so are refusals and what happens when a node ends. The nodes run until Ctrl-C.
    """
    texts = {}
    for word in arguments:
        name, given, value = word.partition(':=')
        if not given:
            raise SettingError('argument', word, 'NAME:=VALUE')
        texts[name] = value
    check(file, texts, texts)
    if missing := missing_ros():
        raise FdrlError(f'ROS 2 is not here: {missing}')
    settings = chosen(BringupSettings, texts)
    if file == 'federation':
        words = chosen(FederationArguments, texts).prepare_words(settings.directory)
        if subprocess.run([sys.executable, '-P', '-m', 'fdrl_ros', *words]).returncode:
            raise StoreError(f'{settings.directory} could not be prepared: see above')
    log = Layout(Path(settings.directory)).log
    with stopping() as stopped, Runner(settings, log) as runner:
        runner.start(graph(file, texts))
        click.echo(f'{", ".join(runner.running)}: started; the logs are in {log}')
        follow(runner, stopped)
        codes = runner.stop()
    unclean = [name for name, code in codes.items() if Ending.of(code) is not Ending.STOPPED]
    if unclean:
        raise FdrlError(f'{", ".join(unclean)} did not end cleanly; the logs are in {log}')
