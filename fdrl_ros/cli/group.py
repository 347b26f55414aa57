# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
How every command ends: one line on an error, exit code 1; exit code 130 after Ctrl-C.

An audit that finds a fault ends with 3.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
import difflib
from importlib import import_module
import re
import signal
import threading
from types import FrameType
from typing import Any

import click
from fdrl_ros.cli.examples import add_examples
from fdrl_ros.errors import FdrlError, SettingError, TrainingStopped
from fdrl_ros.runtime.early_interrupt import quietly_stopped
from fdrl_ros.runtime.progress import Stopped

INTERRUPTED = 130

SAME_COMMAND = 'the same command goes on from here'
NOTHING_KEPT = 'nothing is kept: the same command begins anew'
"""What there is to know of a command that was stopped."""

_THEN = 'fdrl_ros.cli.then'
TYPED = 'fdrl_ros.cli.typed'
"""Name in a context's `meta` of the words that were typed after `fdrl`."""

_ALL = 'fdrl_ros.cli.all_commands'


class FdrlGroup(click.Group):
    """
    Commands that are imported when they are called; turns errors of the package into one line.

    The help of a single command imports it too.
    """

    def __init__(
        self,
        *arguments: Any,
        table: Mapping[str, tuple[str, str]],
        sections: Mapping[str, tuple[str, ...]] | None = None,
        path: str = '',
        **named: Any,
    ) -> None:
        """
        Take the commands by name.

        :param table: for each command its module below fdrl_ros.cli, and what it does.
        :param sections: of the help: title and commands; without --advanced only the first one
            is described. Commands of `table` that no section names come last.
        :param path: words between `fdrl` and a command, by which its examples are found.
        """
        super().__init__(*arguments, **named)
        self.table, self.path = table, path
        self.sections = dict(sections or {})
        rest = set(table).difference(*self.sections.values())
        if rest:
            self.sections['Further commands' if self.sections else 'Commands'] = tuple(
                sorted(rest)
            )
        if len(self.sections) > 1:
            self.params.append(
                click.Option(
                    ['--advanced'],
                    is_flag=True,
                    is_eager=True,
                    expose_value=False,
                    callback=_show_all,
                    help='Show all commands and exit.',
                )
            )

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
        add_examples(command, f'{self.path} {name}'.split())
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

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Note the words, and whether all commands are to be shown, beside --help too."""
        ctx.meta.setdefault(TYPED, tuple(args))
        ctx.meta[_ALL] = '--advanced' in args
        return super().parse_args(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write what each command is for: those of the first section, or all."""
        limit = formatter.width - 6 - max(map(len, self.table))
        everything = ctx.meta.get(_ALL) or len(self.sections) == 1
        for title, names in self.sections.items():
            rows = [
                (name, click.Command(name, help=self.table[name][1]).get_short_help_str(limit))
                for name in names
                if name in self.table
            ]
            with formatter.section(title):
                formatter.write_dl(rows)
            if not everything:
                break
        if not everything:
            others = sorted(set(self.table) - set(names))
            with formatter.section('Further commands, which `fdrl --advanced` describes'):
                formatter.write_text(', '.join(others))

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command that was asked for."""
        words = ctx.meta[TYPED]
        try:
            return super().invoke(ctx)
        except (TrainingStopped, KeyboardInterrupt):
            then = ctx.meta.get(_THEN)
            click.echo(f'fdrl: stopped; {then}' if then else 'fdrl: stopped', err=True)
            ctx.exit(INTERRUPTED)
        except FdrlError as error:
            click.echo(f'fdrl: {as_typed(error, self._leaf(ctx, words), words)}', err=True)
            ctx.exit(error.exit_code)

    def _leaf(self, ctx: click.Context, words: Sequence[str]) -> click.Command:
        """Return the command below this group that words call."""
        found: click.Command = self
        for word in words:
            below = found.get_command(ctx, word) if isinstance(found, click.Group) else None
            found = below or found
        return found


def as_typed(error: FdrlError, command: click.Command, words: Sequence[str]) -> str:
    """
    Return what an error says, with the flags of a command in place of names of settings.

    :param words: that the command was called with.
    """
    said, typed = str(error), {word.partition('=')[0] for word in words}
    for option in command.params:
        if not isinstance(option, click.Option) or option.name is None:
            continue
        # An option of a setting is named after its group too: `rounds__quorum`.
        name, flag = option.name.replace('__', '.'), option.opts[0]
        names = {name, flag.lstrip('-').replace('-', '_')}
        if '.' in name:
            whole = rf'(?<![\w./-]){re.escape(name)}(?![\w-]|\.\w)'
            said = re.sub(whole, flag, re.sub(f'{whole} = ', f'{flag} ', said))
        if isinstance(error, SettingError) and error.name in names:
            said = said.replace(f'{error.name} = ', f'{flag} ', 1)
            if '.' in name and typed.isdisjoint((*option.opts, *option.secondary_opts)):
                said += f' (not given here, but by the plan or by default: {name})'
    return said


def _show_all(ctx: click.Context, option: click.Parameter, asked: bool) -> None:
    """Print the help of all commands and end."""
    if asked and not ctx.resilient_parsing:
        click.echo(ctx.get_help())
        ctx.exit()


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
