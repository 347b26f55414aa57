# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Commands are imported when they are called, and the help tells of them without."""

import os
import subprocess
import sys

import click
from click.shell_completion import ShellComplete
from click.testing import CliRunner
from fdrl_ros.cli.commands import COMMANDS, main
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
    assert COMMANDS[name][1] in CliRunner().invoke(main, ['--help']).output


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
