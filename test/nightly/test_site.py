# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The whole documentation site builds without a warning, the API reference included."""

from pathlib import Path
import subprocess
import sys

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_the_site_builds_with_every_module_of_the_package(tmp_path, monkeypatch):
    pytest.importorskip('mkdocs')
    monkeypatch.setenv('NO_MKDOCS_2_WARNING', '1')
    command = [sys.executable, '-m', 'mkdocs', 'build', '--strict', '--quiet']
    command += ['--site-dir', str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    pages = {path.stem: path.read_text('utf-8') for path in (tmp_path / 'reference').iterdir()}
    for path in (ROOT / 'fdrl_ros').rglob('[!_]*.py'):
        name = '.'.join(path.relative_to(ROOT).with_suffix('').parts)
        assert f'id="{name}"' in pages[name.rpartition('.')[0]], name
