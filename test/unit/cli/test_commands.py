# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Commands are imported when they are called, and the help tells of them without."""

from collections.abc import Iterator
import os
from pathlib import Path
import re
import subprocess
import sys

import click
from click.shell_completion import ShellComplete
from click.testing import CliRunner
from fdrl_ros.cli.commands import COMMANDS, main, SECTIONS
from fdrl_ros.cli.examples import examples
import pytest

LOOK = """
import sys
from fdrl_ros.cli import main
main(['--help'], standalone_mode=False)
print(*sys.modules)
"""


def test_help_imports_no_command() -> None:
    done = subprocess.run([sys.executable, '-c', LOOK], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.splitlines()[-1].split())
    assert not loaded & {f'fdrl_ros.cli.{module}' for module, _ in COMMANDS.values()}
    assert not loaded & {'numpy', 'rich', 'fdrl_ros.deployment', 'fdrl_ros.surgery'}


@pytest.mark.parametrize('name', COMMANDS)
def test_a_command_is_where_the_table_says_and_its_sentence_is_shown_whole(name: str) -> None:
    command = main.get_command(click.Context(main), name)
    assert command is not None and command.name == name and command.help
    # The table spares `fdrl --help` all imports; the command's own help begins with the same.
    assert command.help.strip().splitlines()[0] == COMMANDS[name][1]
    for words in (['--advanced'], ['--help', '--advanced'], ['--advanced', '--help']):
        assert COMMANDS[name][1] in CliRunner().invoke(main, words).output


def test_help_describes_what_a_first_hour_needs_and_names_the_rest() -> None:
    first, *others = SECTIONS.values()
    assert len(first) == 10
    named = [name for section in SECTIONS.values() for name in section]
    assert len(named) == len(set(named)) and set(COMMANDS) <= set(named)
    shown = CliRunner().invoke(main, ['--help']).output
    described, _, rest = shown.partition('Further commands')
    for name, (_, summary) in COMMANDS.items():
        assert (summary in described) == (name in first)
        assert (name in rest.replace(',', ' ').split()) != (name in first)


def leaves(command: click.Command, words: list[str]) -> Iterator[tuple[list[str], click.Command]]:
    if not isinstance(command, click.Group):
        yield words, command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        below = command.get_command(context, name)
        assert below is not None
        yield from leaves(below, [*words, name])


def test_every_command_has_an_example_that_fits_its_help() -> None:
    for words, command in leaves(main, ['fdrl']):
        assert command.epilog and ' '.join(words) in command.epilog, words
        help_text = command.get_help(click.Context(command)).splitlines()
        shown = [line for line in command.epilog.splitlines() if line.startswith('  fdrl')]
        assert 1 <= len(shown) <= 2 and all(f'  {line}' in help_text for line in shown)
        assert max(map(len, shown)) <= 78


@pytest.mark.parametrize('words, line', examples(), ids=[line for _, line in examples()])
def test_an_example_is_parsed_by_its_command(
    words: list[str], line: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if words[1] not in COMMANDS:
        pytest.skip(f'no command {words[1]}')
    (tmp_path / 'fed/keys').mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(click.Path, 'convert', lambda self, value, option, context: Path(value))
    command: click.Command | None = main
    parent, name, rest = None, 'fdrl', re.split(r' [|>] ', ' '.join(words))[0].split()[1:]
    while command is not None:
        parent = command.make_context(name, list(rest), parent=parent)
        if not isinstance(command, click.Group) or not rest[1:]:
            break
        name, command, rest = command.resolve_command(parent, rest)


def test_unknown_command_is_refused() -> None:
    result = CliRunner().invoke(main, ['trian'])
    assert result.exit_code == 2 and "'trian'. Did you mean 'train'?" in result.output


def test_shell_completes_commands() -> None:
    found = ShellComplete(main, {}, 'fdrl', '_FDRL_COMPLETE').get_completions([], 'pr')
    assert [each.value for each in found] == ['prepare', 'privacy']


_EVERY_HELP = """
import sys

class NoPyTorch:
    def find_spec(self, name, path=None, target=None):
        if name.partition('.')[0] == 'torch':
            raise ImportError('no PyTorch here')

sys.meta_path.insert(0, NoPyTorch())
import click
from click.testing import CliRunner
from fdrl_ros.cli import main

def walk(command, words):
    print(*words)
    shown = CliRunner().invoke(main, [*words, '--help'])
    assert shown.exit_code == 0 and 'Usage:' in shown.output, (words, shown.output)
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            walk(command.get_command(context, name), [*words, name])

walk(main, [])
"""


def test_every_help_is_shown_without_pytorch() -> None:
    done = subprocess.run([sys.executable, '-c', _EVERY_HELP], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert {'train', 'video check', 'reproduce fedst'} < set(done.stdout.splitlines())


def test_without_pytorch_reproduce_says_what_is_missing(tmp_path) -> None:
    folder = tmp_path / 'torch'
    folder.mkdir()
    (folder / '__init__.py').write_text('raise ImportError("no PyTorch here")')
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, '-m', 'fdrl_ros', 'reproduce', 'fedst', '--quick'],
        cwd=tmp_path,
        env={**os.environ, 'PYTHONPATH': path},
        capture_output=True,
        text=True,
    )
    told = 'fdrl: reproduce fedst: no PyTorch here: pip install "fdrl_ros[torch]"'
    assert done.returncode == 1 and done.stderr.startswith(told)
    assert len(done.stderr.splitlines()) == 1
