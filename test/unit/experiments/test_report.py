# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""`fdrl report` of runs and studies: whole, honest, and refused where there is nothing to show."""

from importlib import import_module
import json
from pathlib import Path
import re
import shutil

from click.testing import CliRunner, Result
from fdrl_ros.cli.commands import main
from fdrl_ros.experiments.json_file import from_json
from fdrl_ros.experiments.metric_logs import evaluation_scalars, FOLDER
from fdrl_ros.experiments.reports.command import COMMAND
from fdrl_ros.experiments.reports.glossary import definition, definitions
from fdrl_ros.experiments.reports.names import reader_name
from fdrl_ros.experiments.reports.page import MISSING, Notice, Page
from fdrl_ros.experiments.reports.report import kind_of, page_of, RUN
from fdrl_ros.experiments.reports.run_report import own_plan
from fdrl_ros.experiments.reports.study_pages import KINDS
from fdrl_ros.experiments.reports.text_table import Grid
from fdrl_ros.experiments.run_directory import RunDirectory
import pytest
from support.small_run import TINY_PLAN
import yaml

draw_command = import_module('fdrl_ros.cli.experiments.draw')

RESULTS = Path(__file__).parents[3] / 'docs/results'
TINY = {
    **TINY_PLAN,
    'value': {'features': 8, 'groups': 4, 'patients': 8, 'checked': 2, 'redraws': 16},
    'evaluation': dict.fromkeys(('patients', 'round_patients'), 3)
    | {'state_patients': 2, 'states_per_patient': 4, 'workers': 1},
}
PUBLISHED = ('attack', 'heterogeneity', 'hospitals', 'mastery', 'measures', 'sepsis', 'utility')
"""Studies whose whole summary is in docs/results."""


def fdrl(*words: object) -> Result:
    return CliRunner().invoke(main, [str(each) for each in words])


@pytest.fixture(scope='module')
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp('report')
    (folder / 'tiny.yaml').write_text(yaml.safe_dump(TINY))
    made = fdrl('train', '--plan', folder / 'tiny.yaml', '--directory', folder / 'run')
    assert made.exit_code == 0, made.output
    assert 'report.html and report.md' in ' '.join(made.output.split())
    return folder / 'run'


@pytest.fixture
def copy(run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(run, tmp_path / 'copy'))


def grids(page: Page) -> list[Grid]:
    return [each for part in page.sections for each in part.content if isinstance(each, Grid)]


def test_a_run_ends_with_a_page_that_needs_nothing_else(run: Path) -> None:
    page = (run / 'report.html').read_text()
    assert not re.findall(r'(?:src|href|srcset)="(?!#|data:)[^"]*"', page)
    assert 'url(http' not in page and '@import' not in page and '<script' not in page
    linked = set(re.findall(r'href="#([^"]+)"', page))
    assert linked <= set(re.findall(r'\bid="([^"]+)"', page))
    for words in ('On own patients', 'How to do it again', 'fdrl train --plan', 'world hash'):
        assert words in page
    assert page.count('<img') >= 7 and 'earned least' in page  # the selector's operations too
    text = (run / 'report.md').read_text()
    assert text.count('| hospital 1 |') >= 2
    named = re.findall(r'\]\(([^)]+\.png)\)', text)
    assert len(named) >= 7 and all((run / each).exists() for each in named)
    assert 'hospital_1 ' not in page


def test_the_report_has_forecast_rounds_and_what_was_measured_of_policies(run: Path) -> None:
    tables = {grid.title: grid for grid in grids(page_of(run))}
    (privacy,) = (grid for title, grid in tables.items() if title.startswith('Spent'))
    summary = json.loads((run / 'summary.json').read_text())
    for row, (name, spent) in zip(privacy.rows, summary['epsilon'].items(), strict=True):
        assert row[0] == reader_name(name) and spent <= float(row[1]) < spent + 0.01
        assert float(row[3]) > spent and int(row[4].split()[0]) >= 0
    rounds = tables['Each round, as the parties measured it']
    assert len(rounds.rows) == summary['rounds'] and rounds.rows[0][5] == '3 of 3'
    assert [row[0] for row in tables['Global policy minus others'].rows][-1] == 'selector'


def test_a_ledger_that_was_cut_counts_as_its_whole_budget(copy: Path) -> None:
    for path in ('summary.json', 'federation/hospital_1/ledger.sqlite'):
        (copy / path).unlink()
    page = page_of(copy)
    (part,) = (each for each in page.sections if each.title == 'Privacy')
    told = [each.words for each in part.content if isinstance(each, Notice)]
    assert any('ledger.sqlite' in words for words in told) and str(copy) not in ''.join(told)
    (table,) = (each for each in part.content if isinstance(each, Grid))
    first, second = table.rows[:2]
    assert first[1:5] == ('8.00', '8', '', '') and float(second[1]) < 8.0 and second[3]


def test_what_the_baseline_alone_cost_is_told(run: Path) -> None:
    (part,) = (each for each in page_of(run).sections if each.title == 'Privacy')
    (words,) = (each for each in part.content if 'ledger of its own' in str(each))
    assert re.search(r'hospital 1 [0-9.]+, hospital 2 [0-9.]+, hospital 3 [0-9.]+', str(words))


def test_scores_of_alone_are_left_out_where_records_are_real() -> None:
    rows = {name: {'success': 0.5} for name in ('global', 'alone', 'alone_hospital_1')}
    simulated = {'policies': rows, 'disjoint_patients': True}
    assert len(evaluation_scalars(simulated)) == 3
    real = evaluation_scalars(simulated | {'disjoint_patients': False})
    assert list(real) == ['evaluation/success/global']


def test_headings_of_every_table_are_explained_by_the_glossary(run: Path) -> None:
    pages = {'run': page_of(run)}
    for name in PUBLISHED:
        summary = from_json((RESULTS / f'{name}.json').read_text())
        pages[name] = KINDS[name].page(run, summary)
    for name, page in pages.items():
        assert grids(page), name
        unknown = {each for grid in grids(page) for each in grid.headings if not definition(each)}
        assert not unknown, (name, unknown)
        assert {each.term for each in page.explained()}
    assert len(definitions()) > 150


@pytest.mark.parametrize('opener', ['echo links: not found >&2; exit 3', 'true', None])
def test_a_browser_that_cannot_be_started_is_one_line_with_the_file(
    copy: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    opener: str | None,
) -> None:
    monkeypatch.setenv('PATH', str(tmp_path))
    if opener is not None:
        for name in ('xdg-open', 'open'):
            (tmp_path / name).write_text(f'#!/bin/sh\n{opener}\n')
            (tmp_path / name).chmod(0o755)
    done = fdrl('report', copy, '--open')
    complaint = f'fdrl: no browser could be started: open {copy / "report.html"}'
    said = ''.join(done.output.split())
    assert (complaint.replace(' ', '') in said) == bool(done.exit_code) == (opener != 'true')
    assert 'links' not in ''.join((done.output, *capfd.readouterr()))


def test_an_unfinished_run_says_so_first(copy: Path) -> None:
    for name in ('summary.json', 'details.json', 'patients.npz'):
        (copy / name).unlink()
    shutil.rmtree(copy / 'plots')
    assert fdrl('report', copy).exit_code == 0
    page = (copy / 'report.html').read_text()
    first = page[page.index('id="part-1"') :]
    assert 'class="notice">This run is not finished' in first[:400]
    assert 'Each round' in page and f'fdrl evaluate {copy}' in first[:900]
    rounds = json.loads((copy / 'rounds.json').read_text())
    (copy / 'rounds.json').write_text(json.dumps(rounds[:1]))
    notice = page_of(copy).sections[0].content[0].words
    assert notice.endswith(f'To go on: fdrl train --directory {copy}')


def test_a_command_that_goes_on_or_is_refused_leaves_the_first_one(copy: Path) -> None:
    before = (copy / COMMAND).read_text()
    with RunDirectory(copy).lock():
        refused = fdrl('utility', '--directory', copy)
        assert refused.exit_code == 1 and 'fdrl utility' not in (copy / COMMAND).read_text()
    assert fdrl('train', '--directory', copy, '--no-evaluate').exit_code == 0
    assert (copy / COMMAND).read_text() == before


def test_numbers_that_are_texts_and_cut_archives_are_one_clear_line(copy: Path) -> None:
    for name in ('summary.json', 'rounds.json'):
        whole = (copy / name).read_text()
        found = json.loads(whole)
        if isinstance(found, dict):
            found['epsilon'] = dict.fromkeys(found['epsilon'], 'much')
        else:
            found[0]['seconds'] = 'long'
        (copy / name).write_text(json.dumps(found))
        refused = fdrl('report', copy)
        assert refused.exit_code == 1 and 'cannot be reported' in refused.output
        (copy / name).write_text(whole)
    summary = json.loads((copy / 'summary.json').read_text())
    summary.pop('by_procedure', None)
    (copy / 'summary.json').write_text(json.dumps(summary))
    archive = (copy / 'patients.npz').read_bytes()
    (copy / 'patients.npz').write_bytes(archive[: len(archive) // 2])
    refused = fdrl('report', copy)
    assert refused.exit_code == 1 and 'patients.npz cannot be read' in refused.output


def test_flags_are_named_as_they_were_typed(run: Path, tmp_path: Path) -> None:
    for words, said in (
        (('play', run, '--procedure', 'nose'), "--procedure 'nose'"),
        (('draw', tmp_path, '--policy', 'global'), 'with --run'),
        (('report', run, '--out', tmp_path / 'x.pdf'), '*.html'),
    ):
        refused = fdrl(*words)
        assert refused.exit_code == 1 and said in refused.output, refused.output
    assert not (tmp_path / 'x.html').exists()


def test_with_a_run_its_own_patients_are_drawn(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list = []
    monkeypatch.setattr(
        draw_command, 'draw_procedures', lambda place, patients, **_: seen.extend(patients) or []
    )
    words = ('draw', tmp_path, '--procedures', 'reach', '--run', run, '--policy', 'global')
    assert fdrl(*words).exit_code == 0
    plan = own_plan(run)
    assert seen == [plan.population(0).patient(0, 'test', 'reach')]


def test_missing_and_public_success_have_definitions_of_their_own() -> None:
    assert definition('missing').term == 'missing' and 'not summed' in definition('missing').words
    assert 'key authority' in definition('success on public patients').words


def test_roll_backs_blame_and_missing_numbers_are_marked(copy: Path) -> None:
    rounds = json.loads((copy / 'rounds.json').read_text())
    rounds[0] |= {'rolled_back': True, 'contributors': ['hospital_1', 'hospital_2']}
    rounds[1] |= {'contributors': [], 'peak_memory': None, 'blamed': {'hospital_3': 'lied'}}
    (copy / 'rounds.json').write_text(json.dumps(rounds))
    fdrl('report', copy, '--out', copy / 'other.html')
    page = (copy / 'other.html').read_text()
    for words in ('1 of 2 rounds were rolled back (round 1)', '1 of 2 rounds were abandoned'):
        assert f'class="notice">{words}' in page
    assert 'hospital_3 was left out: it lied' in page
    assert f'<td class="missing">{MISSING}</td>' in page
    assert '<td class="bad">rolled back</td>' in page
    text = (copy / 'other.md').read_text()
    assert '**1 of 2 rounds were rolled back' in text


@pytest.mark.parametrize(
    ('name', 'content', 'words'),
    [
        ('summary.json', '{"policies": ', 'cannot be read'),
        ('summary.json', '[1]', 'expected a JSON object'),
        ('summary.json', '{"policies": {}}', 'cannot be reported'),
        ('rounds.json', '[{"round": 1}]', 'rounds.json cannot be read'),
        ('federation/plan.yaml', 'world: {gravity_of_mars: 3.7}', 'of another version'),
        ('patients.npz', 'no archive', 'patients.npz cannot be read'),
    ],
)
def test_a_damaged_run_is_one_clear_line(copy: Path, name: str, content: str, words: str) -> None:
    (copy / name).write_text(content)
    for command in ('report', *(['evaluate'] if 'plan' in name else [])):
        refused = fdrl(command, copy)
        assert refused.exit_code == 1 and words in refused.output, refused.output
        assert refused.output.startswith('fdrl: ') and len(refused.output.splitlines()) == 1


def test_what_holds_no_results_is_refused_with_the_kinds(tmp_path: Path) -> None:
    (tmp_path / 'utility.json').write_text('{"results": {}}')
    for place, words in (
        (tmp_path / 'nothing', 'is no directory'),
        (tmp_path.parent, 'experiment.json'),
        (tmp_path, 'fdrl utility --directory'),
    ):
        refused = fdrl('report', place)
        assert refused.exit_code == 1 and words in refused.output
        assert len(refused.output.splitlines()) == 1


def test_the_newest_of_a_directory_is_reported(copy: Path) -> None:
    assert kind_of(copy) == RUN
    shutil.copy(RESULTS / 'utility.json', copy / 'utility.json')
    assert kind_of(copy) == 'utility'


def test_the_world_of_a_run_that_has_changed_is_told(copy: Path) -> None:
    summary = json.loads((copy / 'summary.json').read_text())
    (copy / 'summary.json').write_text(json.dumps(summary | {'world_hash': '0' * 64}))
    assert 'is not that of the run (000000000000)' in page_of(copy).sections[0].content[0].words


def test_nothing_private_is_opened(copy: Path) -> None:
    for path in (copy / 'federation').rglob('*'):
        if path.name in ('records.npz', 'noise.key', 'identity.key') or path.suffix == '.key':
            path.unlink()
    assert fdrl('report', copy).exit_code == 0


def test_a_policy_is_watched_and_drawn(run: Path, tmp_path: Path) -> None:
    played = fdrl('play', run, '--policy', 'alone_hospital_2', '--out', tmp_path / 'a.gif')
    assert played.exit_code == 0, played.output
    assert 'hospital 2 alone, ' in played.output and (tmp_path / 'a.gif').stat().st_size > 10_000
    assert re.search(r'^ 0\.05 s  step   1 ', played.output, re.MULTILINE)
    drawn = fdrl(
        'draw', tmp_path, '--procedures', 'reach', '--policy', run / 'policies/global_2.npz'
    )
    assert drawn.exit_code == 0 and (tmp_path / 'reach.png').exists(), drawn.output
    for words in (
        ['play', run, '--policy', 'nobody'],
        ['draw', tmp_path, '--run', run, '--policy', 'x'],
    ):
        refused = fdrl(*words)
        assert refused.exit_code == 1 and 'has no such policy, but expert' in refused.output


def test_rounds_are_logged_for_tensorboard(run: Path) -> None:
    pytest.importorskip('tensorboardX')
    found: dict[str, dict[int, float]] = {}
    for tag, step, value in events(run / FOLDER):
        found.setdefault(tag, {})[step] = value
    rounds = json.loads((run / 'rounds.json').read_text())
    assert {'round/seconds', 'public/success', 'epsilon/hospital_1'} <= found.keys()
    for note in rounds:
        assert found['epsilon/hospital_2'][note['round']] == pytest.approx(
            note['epsilon']['hospital_2'], rel=1e-6
        )
        assert found['epsilon/hospital_2'][note['round']] >= note['epsilon']['hospital_2']
        assert found['round/update_bytes'][note['round']] == note['update_bytes']
    summary = json.loads((run / 'summary.json').read_text())
    scored = found['evaluation/success/global'][summary['rounds']]
    assert scored == pytest.approx(summary['policies']['global']['success'])
    assert not any('loss' in tag for tag in found)


def events(folder: Path) -> list[tuple[str, int, float]]:
    """Read TensorBoard's files: records of a length, its checksum, an event, its checksum."""
    from tensorboardX.proto.event_pb2 import Event

    found = []
    for path in sorted(folder.glob('events.*')):
        data, at = path.read_bytes(), 0
        while at < len(data):
            length = int.from_bytes(data[at : at + 8], 'little')
            event = Event.FromString(data[at + 12 : at + 12 + length])
            found += [(each.tag, event.step, each.simple_value) for each in event.summary.value]
            at += 16 + length
    return found
