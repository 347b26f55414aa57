# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What commands print."""

from collections.abc import Iterable
from pathlib import Path
import shlex

import click
from fdrl_ros.cli.group import TYPED
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.errors import FdrlError
from fdrl_ros.experiments.json_file import json_text
from fdrl_ros.experiments.reports.assessment import Assessment
from fdrl_ros.experiments.reports.command import COMMAND, public_words
from fdrl_ros.experiments.reports.run_table import render
from fdrl_ros.experiments.reports.text_table import DISCLAIMER, NOT_PRIVATE, RELEASED
from fdrl_ros.experiments.run_directory import RunDirectory
from fdrl_ros.runtime.durable import write_whole
from rich.console import Console

WIDTH_OF_A_PIPE = 140


def console() -> Console:
    """Return the console of standard output, wide enough for the tables when it is a pipe."""
    made = Console(highlight=False)
    return made if made.is_terminal else Console(highlight=False, width=WIDTH_OF_A_PIPE)


def note_command(directory: Path, *, going_on: bool = False) -> None:
    """
    Keep in a directory the command that measures there, as it was typed, for its report.

    Passwords and places of patients' records in it are left out. Call it while the directory is
    locked.

    :param going_on: keep the command that is there, as the new one only goes on with it.
    :raises StoreError: if it cannot be written.
    """
    if going_on and (directory / COMMAND).exists():
        return
    write_whole(directory / COMMAND, f'{shlex.join(_typed())}\n'.encode())


def resumed_by(directory: Path) -> str:
    """Return the words that tell which command goes on with a run: as typed, in its directory."""
    words = _typed()
    if any('...' in each for each in words):
        return f'the same command with --directory {directory} goes on from here'
    if not any(each.split('=')[0] == '--directory' for each in words):
        words = (*words, '--directory', str(directory))
    return f'{shlex.join(words)} goes on from here'


def _typed() -> tuple[str, ...]:
    """Return the command as it was typed, without passwords and places of records."""
    typed = click.get_current_context().find_root().meta.get(TYPED, ())
    return ('fdrl', *public_words(typed))


def counted(count: int, what: str, several: str = '') -> str:
    """Say how many of something there are."""
    return f'{count} {what if count == 1 else several or what + "s"}'


def echo_json(value: object) -> None:
    """Print a value as JSON; a number that is infinite or undefined is null."""
    click.echo(json_text(value, indent=1))


def fail_if(problems: Iterable[str]) -> None:
    """
    Print problems, each in a line, and end with exit code 1 if there are any.

    :raises FdrlError: with the last one.
    """
    lines = list(problems)
    for line in lines[:-1]:
        click.echo(f'fdrl: {line}', err=True)
    if lines:
        raise FdrlError(lines[-1])


def announce(run: RunDirectory, plan: Plan) -> None:
    """Say what begins, and what it is not."""
    out, chosen = console(), plan.federation
    out.print(DISCLAIMER, style='italic')
    if chosen.noise != 'secure':
        out.print(NOT_PRIVATE, style='bold red')
    if chosen.release:
        out.print(RELEASED, soft_wrap=True)
    out.print(
        f'Task {plan.identity.name}: {chosen.hospitals} hospitals of '
        f'{plan.collection.patients} patients, H = {chosen.heterogeneity:g}, '
        f'{plan.rounds.rounds} rounds, seed {chosen.seed}; in '
        f'{run.path}',
        soft_wrap=True,
    )
    keys = run.layout.keys.exists()
    graph = run.layout.roster().neighbourhoods if keys else plan.neighbourhoods()
    for words in filter(None, (graph.in_words(), plan.bucket_words())):
        out.print(words, soft_wrap=True)
    brought = [name for name in plan.hospitals if run.layout.records(name).exists()]
    if brought and not keys:
        out.print(f'{", ".join(brought)}: with the records that were given.', soft_wrap=True)
    out.print(
        'While hospitals train, epsilon is a quick upper bound (Renyi, at most the budget of '
        f'{plan.privacy.budget:g}, which stops them); ledger and report tell the tight figure.',
        soft_wrap=True,
    )


def show(run: RunDirectory, found: Assessment) -> None:
    """Print the table, and where everything lies."""
    out = console()
    out.print(render(found, out.width))
    files = 'summary.json, table.txt, patients.npz, policies/, episodes/, plots/'
    out.print(f'saved in {run.path}: {files}', soft_wrap=True)
    out.print(f'report: {run.path / "report.html"} and report.md', soft_wrap=True)
