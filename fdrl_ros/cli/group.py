# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
How every command ends: one line on an error, exit code 1; exit code 130 after Ctrl-C.

An audit that finds a fault ends with 3.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
import difflib
from importlib import import_module
import signal
import threading
from types import FrameType
from typing import Any

import click
from fdrl_ros.cli.early_interrupt import quietly_stopped
from fdrl_ros.errors import FdrlError, TrainingStopped
from fdrl_ros.runtime.progress import Stopped

INTERRUPTED = 130

SAME_RUN = '--directory with the run named above goes on from here'
SAME_COMMAND = 'the same command goes on from here'
NOTHING_KEPT = 'nothing is kept: the same command begins anew'
"""What there is to know of a command that was stopped."""

_THEN = 'fdrl_ros.cli.then'
TYPED = 'fdrl_ros.cli.typed'
"""Name in a context's `meta` of the words that were typed, from `fdrl` on."""


class FdrlGroup(click.Group):
    """
    Commands that are imported when they are called; turns errors of the package into one line.

    The help of a single command imports it too.
    """

    def __init__(
        self, *arguments: Any, table: Mapping[str, tuple[str, str]], **named: Any
    ) -> None:
        """
        Take the commands by name.

        :param table: for each command its module below fdrl_ros.cli, and what it does.
        """
        super().__init__(*arguments, **named)
        self.table = table

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, sorted."""
        return sorted(self.table)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """Import a command, or return None if there is none of that name."""
        if name not in self.table:
            return None
        with quietly_stopped():
            module = import_module(f'fdrl_ros.cli.{self.table[name][0]}')
        command: click.Command = getattr(module, name.replace('-', '_'))
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a command, or name the one that is spelt like it."""
        name = args[0]
        if name not in self.table and not name.startswith('-') and not ctx.resilient_parsing:
            near = difflib.get_close_matches(name, self.table, 1)
            hint = f' Did you mean {near[0]!r}?' if near else ''
            ctx.fail(f'No such command {name!r}.{hint}')
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write what each command is for."""
        limit = formatter.width - 6 - max(map(len, self.table))
        rows = [
            (name, click.Command(name, help=summary).get_short_help_str(limit))
            for name, (_, summary) in sorted(self.table.items())
        ]
        with formatter.section('Commands'):
            formatter.write_dl(rows)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Remember what was typed, and parse it."""
        if ctx.parent is None:
            ctx.meta[TYPED] = ['fdrl', *args]
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command that was asked for."""
        try:
            return super().invoke(ctx)
        except (TrainingStopped, KeyboardInterrupt):
            then = ctx.meta.get(_THEN)
            click.echo(f'fdrl: stopped; {then}' if then else 'fdrl: stopped', err=True)
            ctx.exit(INTERRUPTED)
        except FdrlError as error:
            click.echo(f'fdrl: {error}', err=True)
            ctx.exit(error.exit_code)


def when_stopped(then: str) -> None:
    """Have a command that is stopped from now on say what then holds."""
    click.get_current_context().meta[_THEN] = then


@contextmanager
def stopping(then: str = '') -> Iterator[Stopped]:
    """
    Listen to Ctrl-C and to the request to terminate while long work runs; once more, end at once.

    :param then: as :func:`when_stopped` takes it; nothing if there is nothing to know.
    """
    when_stopped(then)
    asked = threading.Event()

    def ask(number: int, frame: FrameType | None) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()
        click.echo('fdrl: stopping cleanly; once more to stop at once', err=True)

    before = {each: signal.signal(each, ask) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
