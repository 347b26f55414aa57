# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What surrounds the code agrees with it: version, formats, workflows, pins, named paths."""

from importlib import metadata
import json
from pathlib import Path
import re
import sqlite3
from xml.etree import ElementTree

from fdrl_ros.privacy.ledger.chain import Owner
from fdrl_ros.privacy.ledger.ledger import Ledger
from fdrl_ros.selector.candidates.supervision import Supervision
from packaging.specifiers import SpecifierSet
import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / 'fdrl_ros'
MAKEFILE = (ROOT / 'Makefile').read_text('utf-8')
FORMATS = (ROOT / 'docs' / 'formats.md').read_text('utf-8')
ARCHITECTURE = (ROOT / 'docs' / 'architecture.md').read_text('utf-8')
GLOSSARY = (ROOT / 'docs' / 'glossary.md').read_text('utf-8')
WORKFLOWS = sorted((ROOT / '.github' / 'workflows').glob('*.yml'))

# What the source of each format says of its version.
STATED = {
    'protocol of a round': r'PROTOCOL_VERSION = (\d+)',
    'what links carry': r'LINK_VERSION: Final = (\d+)',
    'encryption context, public or secret': r'context (\d+)\\n',
    'roster': r"b'fdrl_ros roster (\d+)\\n'",
    'key file': r"b'fdrl_ros key file (\d+)\\n'",
    'training between two blocks': r"_KIND \+ b'(\d+)\\n'",
    'patients of online training': r"b'fdrl_ros turns (\d+)\\n'",
    'round journal': r"b'fdrl_ros journal (\d+)\\n'",
    'what a party must not forget': r"FORMAT = b'(\d+)'",
    'frozen states behind A_task': r"b'fdrl_ros state set (\d+)'",
    '`fdrl_ros dataset`': r"'fdrl_ros dataset (\d+)'",
    '`fdrl_ros episode metrics`': r"'fdrl_ros episode metrics (\d+)'",
    'settings, layout, weights, site, text vector, digest': r'SEGMENTER_FORMAT: Final = (\d+)',
    'training between two rounds of FedST': r'CHECKPOINT_FORMAT: Final = (\d+)',
    "a study's part": r'PART_FORMAT = (\d+)',
    'ONNX opset 17, IR version 9': r'OPSET, IR_VERSION = (\d+)',
}


def version_told(name: str) -> str:
    """Return the version that the page on formats gives, whichever column names the format."""
    for line in FORMATS.splitlines():
        cells = [each.strip() for each in line.strip('|').split('|')]
        if name in cells[:2]:
            return next(each for each in cells[1:] if re.match(r'\d|-', each))
    raise AssertionError(f'docs/formats.md has no row for {name}')


@pytest.mark.parametrize('name', STATED)
def test_formats_have_the_versions_that_the_page_gives(name):
    source = '\n'.join(path.read_text('utf-8') for path in sorted(PACKAGE.rglob('*.py')))
    assert set(re.findall(STATED[name], source)) == {version_told(name)}


def test_a_ledger_and_a_supervision_file_have_the_versions_that_the_page_gives(tmp_path):
    path = tmp_path / 'ledger.sqlite'
    Ledger(path, Owner(hospital='north', unit='patient', delta=1e-4, budget=1.0)).close()
    with sqlite3.connect(path) as file:
        assert str(file.execute('PRAGMA user_version').fetchone()[0]) == version_told(
            'privacy ledger'
        )
    told = json.loads(Supervision().to_json())['format']
    assert str(told) == version_told('locks, vetoes, pins, who drives')


def test_the_newest_release_of_the_changelog_is_the_version_of_the_package():
    manifest = ElementTree.parse(ROOT / 'package.xml').getroot()
    changelog = (ROOT / 'CHANGELOG.rst').read_text('utf-8')
    released = re.findall(r'^(\d+\.\d+\.\d+) \((\d{4}-\d\d-\d\d)\)\n-+$', changelog, re.MULTILINE)
    assert released[0] == (manifest.findtext('version'), '2026-11-23')
    parser = pytest.importorskip('catkin_pkg.changelog')  # what catkin_prepare_release reads
    parsed = parser.get_changelog_from_path(str(ROOT / 'CHANGELOG.rst'))
    assert [each[0] for each in parsed.foreach_version()][-1] == released[-1][0]


@pytest.mark.parametrize('path', WORKFLOWS, ids=lambda path: path.name)
def test_workflows_are_whole_and_run_targets_of_the_makefile(path):
    workflow = yaml.safe_load(path.read_text('utf-8'))
    assert {'name', True, 'permissions', 'jobs'} <= workflow.keys()  # YAML reads `on` as True
    commands = []
    for job in workflow['jobs'].values():
        assert {'runs-on', 'timeout-minutes', 'steps'} <= job.keys()
        for step in job['steps']:
            assert ('uses' in step) != ('run' in step), step
            commands += step.get('run', '').splitlines()
    targets = [each.split()[1] for each in commands if each.startswith('make ')]
    assert targets
    for target in targets:
        assert re.search(rf'^{target}:', MAKEFILE, re.MULTILINE), target


def test_the_devcontainer_runs_the_set_up():
    folder = ROOT / '.devcontainer'
    container = json.loads((folder / 'devcontainer.json').read_text('utf-8'))
    assert container['postCreateCommand'] == 'make setup'
    assert (folder / container['build']['dockerfile']).is_file()


def test_pinned_versions_suit_the_python_of_debian_12():
    pins = re.findall(r'^([\w.-]+)==(\S+)', (ROOT / 'constraints.txt').read_text(), re.MULTILINE)
    assert len(pins) > 100
    installed = {each.name: each for each in metadata.distributions()}
    for name, version in pins:
        found = installed.get(name)
        if found and found.version == version:
            wanted = found.metadata['Requires-Python'] or ''
            assert SpecifierSet(wanted).contains('3.11.2'), f'{name}=={version}: {wanted}'


NAMED = re.compile(
    r'`((?:benchmark|config|docs|fdrl_ros|launch|msg|native|srv|test|tools|urdf)/[\w./-]+?)`'
)


@pytest.mark.parametrize(
    'page', sorted([*ROOT.glob('*.md'), *(ROOT / 'docs').rglob('*.md')]), ids=lambda x: x.name
)
def test_paths_that_the_pages_name_exist(page):
    for name in NAMED.findall(page.read_text('utf-8')):
        if not re.fullmatch(r'fdrl_ros/\w+(-v0)?', name):  # Gymnasium's ids, messages
            assert (ROOT / name).exists(), f'{page.name} names {name}'


@pytest.mark.parametrize(
    'term',
    ['H', 'A_task', 'R_mit', 'D_t', 'alpha_adapt', 'epsilon', 'PLD', 'quorum', 'threshold'],
)
def test_the_glossary_explains_what_the_tables_of_runs_say(term):
    assert f'\n### {term}\n' in GLOSSARY


def test_the_glossary_is_sorted_and_its_links_lead_somewhere():
    terms = re.findall(r'^### (.+)$', GLOSSARY, re.MULTILINE)
    assert len(terms) == len(set(terms)) > 40
    assert [each[0].lower() for each in terms] == sorted(each[0].lower() for each in terms)


def test_the_journeys_go_hop_by_hop_with_file_names():
    for number, most in ((1, 36), (2, 24)):
        journey = ARCHITECTURE.split(f'## Journey {number}:')[1].split('\n## ')[0]
        files = set(re.findall(r'`((?:fdrl_ros|native|msg)/[\w/.]+)`', journey))
        assert 10 <= len(files) <= most  # test_paths_that_the_pages_name_exist checks each
        for hop in re.split(r'\n\d+\. ', journey)[1:]:
            assert '`' in hop
