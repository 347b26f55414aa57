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


@pytest.mark.parametrize(
    ('words', 'code', 'told'),
    [
        (['reproduce', '--help'], 0, 'Repeat the experiments of FedST on made-up surgical video.'),
        (['reproduce', 'fedst'], 1, 'fdrl: reproduce fedst: no PyTorch here: pip install'),
        (['reproduce', 'fedst', '--help'], 1, 'fdrl: reproduce fedst: no PyTorch here: pip'),
    ],
)
def test_without_pytorch_reproduce_shows_its_help_and_says_what_is_missing(
    words, code, told, tmp_path
) -> None:
    folder = tmp_path / 'torch'
    folder.mkdir()
    (folder / '__init__.py').write_text('raise ImportError("no PyTorch here")')
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, '-m', 'fdrl_ros', *words],
        env={**os.environ, 'PYTHONPATH': path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == code and told in done.stdout + done.stderr
    assert code == 0 or len(done.stderr.splitlines()) == 1
