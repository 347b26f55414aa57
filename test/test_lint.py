# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Style, types, the manifest, the site and the commits, each checked by its own tool."""

import importlib.util
from pathlib import Path
import subprocess
import sys
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).resolve().parent.parent
PYTHON = ['benchmark', 'fdrl_ros', 'launch', 'setup.py', 'test', 'tools']
SCRIPTS = ('check_commits', 'in_workspace', 'test_workspace', 'environment.sh')


def check(module: str, *arguments: str) -> None:
    """Run a linter's module; if it complains, show what it prints."""
    if not importlib.util.find_spec(module.partition('.')[0]):
        pytest.skip(f'{module} is not installed here (requirements/test.txt)')
    command = [sys.executable, '-m', module, *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        lines = done.stdout.splitlines() + done.stderr.splitlines()
        pytest.fail('\n'.join(x for x in lines if not x.startswith(('checking ', '* '))), False)


def test_ruff_finds_nothing() -> None:
    check('ruff', 'check', '--quiet', '.')


def test_ruff_would_format_nothing() -> None:
    check('ruff', 'format', '--check', '--quiet', '.')


def test_mypy_finds_no_type_error() -> None:
    check('mypy')


def test_ament_flake8_finds_nothing() -> None:
    check('ament_flake8.main', '--config', 'test/ament_flake8.ini', *PYTHON)


def test_ament_pep257_finds_nothing() -> None:
    # It knows no properties, which are nouns; ruff checks these two with more sense.
    check('ament_pep257.main', '--add-ignore', 'D401', 'D403', '--', *PYTHON)


def test_shell_scripts_parse() -> None:
    for name in SCRIPTS:
        subprocess.run(['sh', '-n', str(ROOT / 'tools' / name)], check=True)


def test_the_manifest_is_a_valid_package() -> None:
    catkin_pkg = pytest.importorskip('catkin_pkg.package')
    warnings: list[str] = []
    package = catkin_pkg.parse_package(str(ROOT / 'package.xml'), warnings=warnings)
    package.validate(warnings=warnings)
    assert warnings == []
    assert package.get_build_type() == 'ament_cmake'
    assert package.member_of_groups[0].name == 'rosidl_interface_packages'


def test_every_xml_file_is_well_formed() -> None:
    paths = [ROOT / 'package.xml', *ROOT.glob('urdf/*'), *ROOT.glob('config/**/*.xml')]
    for path in paths:
        ElementTree.parse(path)


def test_the_pages_of_the_site_build_without_a_warning(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv('NO_MKDOCS_2_WARNING', '1')
    monkeypatch.setenv('FDRL_DOCS_PAGES_ONLY', '1')  # test/nightly/test_site.py builds all
    check('mkdocs', 'build', '--strict', '--quiet', '--site-dir', str(tmp_path))
    assert 'mermaid' in (tmp_path / 'architecture.html').read_text('utf-8')


def test_commit_subjects_are_short() -> None:
    command = [str(ROOT / 'tools' / 'check_commits')]
    done = subprocess.run(command, capture_output=True, text=True)
    if 'not checked' in done.stdout:
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0, done.stderr
