# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What `ros2 launch fdrl_ros FILE.launch.py` does, where there is no `ros2 launch`."""

from contextlib import ExitStack
from pathlib import Path
import subprocess
import sys
from typing import Any

import click
from fdrl_ros.cli.federation.directory import follow
from fdrl_ros.cli.group import stopping
from fdrl_ros.deployment.bringup import BringupSettings, FederationArguments
from fdrl_ros.deployment.launch_files import (
    check,
    chosen,
    described,
    FILES,
    graph,
    notices,
    page,
)
from fdrl_ros.deployment.layout import Layout
from fdrl_ros.deployment.live.running import Companion, page_variables
from fdrl_ros.deployment.runner import Runner
from fdrl_ros.deployment.supervision import Ending
from fdrl_ros.errors import FdrlError, SettingError, StoreError
from fdrl_ros.experiments.ros_federation import missing_ros


class _LaunchFile(click.Choice[str]):
    """A launch file by its name, with or without the ending that `ros2 launch` wants."""

    def convert(self, value: str, param: Any, ctx: Any) -> str:
        """Take the ending off."""
        return super().convert(value.removesuffix('.launch.py'), param, ctx)


@click.command()
@click.argument('file', type=_LaunchFile(sorted(FILES)))
@click.argument('arguments', nargs=-1, metavar='[NAME:=VALUE]...')
@click.option('-s', '--show-args', is_flag=True, help='Print the arguments of FILE and end.')
def launch(file: str, arguments: tuple[str, ...], show_args: bool) -> None:
    """
    Start the nodes of a launch file.

    FILE and the arguments are those of `ros2 launch fdrl_ros FILE.launch.py NAME:=VALUE ...`, and
    so are refusals and what happens when a node ends. The nodes run until Ctrl-C.
    """
    if show_args:
        click.echo(described(file))
        return
    texts: dict[str, str] = {}
    for word in arguments:
        name, given, value = word.partition(':=')
        if not given:
            raise FdrlError(f'{word!r}: expected NAME:=VALUE, such as rounds:=3')
        if name in texts:
            raise SettingError(name, value, f'it once: it is {texts[name]!r} before')
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
    with stopping() as stopped, Runner(settings, log) as runner, ExitStack() as served:
        for notice in notices(file, texts):
            click.echo(notice, err=True)
        runner.start(graph(file, texts))
        click.echo(f'{", ".join(runner.running)}: started; the logs are in {log}')
        if words := page(file, texts):
            served.enter_context(Companion(words, page_variables(settings), click.echo))
        follow(runner, stopped)
        codes = runner.stop()
    unclean = [name for name, code in codes.items() if Ending.of(code) is not Ending.STOPPED]
    if unclean:
        raise FdrlError(f'{", ".join(unclean)} did not end cleanly; the logs are in {log}')
