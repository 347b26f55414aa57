# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Every file and command of the tutorials runs, as a newcomer runs them: in an empty folder.

Runs of no quick plan are shortened by flags; what they print is not compared then. All else is,
but for hashes, places and blocks of the language `console`, which are samples. A block that begins
with `fdrl:` is what the command before it must refuse. Hosts of one machine have a network of
their own.
"""

import os
from pathlib import Path
import re
import shutil
import subprocess
import sys

import pytest

DOCS = Path(__file__).resolve().parents[2] / 'docs'
TUTORIAL = DOCS / 'tutorial'
BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.DOTALL | re.MULTILINE)
SMALL = (
    '--collection-patients 32 --privacy-batch 8 --rounds 1 --learner-epochs 2 '
    '--pretraining-patients 8 --pretraining-steps 20 --validation-patients 2 '
    '--validation-margin 1 --evaluation-patients 6 --evaluation-round-patients 3 '
    '--evaluation-workers 1'
)
SHORTENED = r'^fdrl (train|run) (?!--plan quick)'
NEEDED = {
    'tutorial/own_network': 'tutorial/own_env',
    'tutorial/own_records': 'tutorial/own_env',
}
"""Pages whose files another one needs."""


def blocks(page: str) -> list[tuple[str, str, str]]:
    """Return language, title and text of each block of a page."""
    return BLOCK.findall((DOCS / f'{page}.md').read_text('utf-8'))


def plain(text: str) -> str:
    """Return text without hashes, places and the widths of lines."""
    text = re.sub(r'world [0-9a-f]{12}', 'world', text)
    return ' '.join(re.sub(r'/\S+/', '', text).split())


def alone_on_loopback() -> list[str]:
    """Return words before a command by which it has a network with nothing but loopback."""
    words = ['unshare', '-rn', 'sh', '-c', 'ip link set lo up && exec "$@"', 'sh']
    if subprocess.run([*words, 'true'], capture_output=True).returncode:
        pytest.skip('no network namespaces here')
    return words


def write_files(page: str, folder: Path) -> None:
    for _, title, text in blocks(page):
        if title:
            (folder / title).write_text(text, 'utf-8')


@pytest.fixture
def shell(tmp_path, monkeypatch):
    """Run commands in an empty folder, where `fdrl` shortens whatever trains."""
    fdrl = tmp_path / 'bin' / 'fdrl'
    fdrl.parent.mkdir()
    fdrl.write_text(
        '#!/bin/sh\ncase "$*" in *"--plan quick"*) ;; train*|run*) set -- "$@" '
        f'{SMALL};; esac\nexec {shutil.which("fdrl")} "$@"\n'
    )
    fdrl.chmod(0o755)
    folder = tmp_path / 'work'
    folder.mkdir()
    path = f'{fdrl.parent}:{os.environ["PATH"]}'

    def run(command: list[str]) -> subprocess.CompletedProcess:
        return subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, 'PATH': path, 'OMP_NUM_THREADS': '1', 'COLUMNS': '120'},
            capture_output=True,
            text=True,
            timeout=600,
        )

    run.folder = folder
    return run


@pytest.mark.parametrize('page', sorted(f'tutorial/{each.stem}' for each in TUTORIAL.glob('*.md')))
def test_every_line_of_a_tutorial_runs(page, shell):
    if page in NEEDED:
        write_files(NEEDED[page], shell.folder)
    write_files(page, shell.folder)
    found = [each for each in blocks(page) if not each[1]]
    assert any(language == 'bash' for language, *_ in found)
    done = None
    for (language, _, text), following in zip(found, [*found[1:], ('', '', '')], strict=True):
        if language in ('text', 'console'):
            continue
        refused = following[2].startswith('fdrl:')
        command = ['bash', '-euo', 'pipefail', '-c', text]
        if 'fdrl join' in text:
            command = [*alone_on_loopback(), *command]
        done = shell(['python', '-c', text] if language == 'python' else command)
        assert done.returncode == int(refused), f'{text}\n{done.stdout}\n{done.stderr}'
        if refused:
            assert plain(following[2]) in plain(done.stderr), text
        elif following[0] == 'text' and not re.search(SHORTENED, text, re.MULTILINE):
            assert plain(following[2]) in plain(done.stdout), text


def test_the_package_of_the_page_brings_a_task_and_a_learner(shell):
    write_files('tasks', shell.folder)
    site = shell.folder / 'site'
    install = '-m pip install -q --no-index --no-deps --no-build-isolation --target'.split()
    done = shell([sys.executable, *install, str(site), '.'])
    assert done.returncode == 0, done.stderr
    words = f'PYTHONPATH={site}:$PYTHONPATH fdrl'
    done = shell(['bash', '-c', f'{words} tasks'])
    assert 'tall_pole: a pole of 2 m' in done.stdout and 'small_dqn' in done.stdout, done.stderr
    train = f'{words} train --task tall_pole --learner-kind small_dqn --no-evaluate'
    done = shell(['bash', '-c', train])
    assert done.returncode == 0, done.stderr
