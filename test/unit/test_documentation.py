# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The pages say what the code says."""

from dataclasses import fields
import json
from pathlib import Path
import re
from statistics import fmean

from fdrl_ros.deployment.plan import Plan
from fdrl_ros.deployment.registry import LEARNERS, TASKS
from fdrl_ros.experiments.reports.mastery_tables import mastery_tables
from fdrl_ros.metrics.episode import EpisodeMetrics
from fdrl_ros.surgery.constants import constant
from fdrl_ros.surgery.gym.actions import ACTIONS
from fdrl_ros.surgery.gym.state import STATE_FIELDS
import fdrl_ros.surgery.gym.surgery_env  # noqa: F401
from fdrl_ros.surgery.tasks.procedures import PROCEDURES, SPECIALITY_SHARES
from fdrl_ros.tasks import Task
import fdrl_ros.worlds  # noqa: F401
import gymnasium
import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob('*.md'), *(ROOT / 'docs').rglob('*.md')])
README = ROOT / 'README.md'
EVIDENCE = ROOT / 'docs' / 'evidence.md'
WORLD = (ROOT / 'docs' / 'world.md').read_text('utf-8')
LIBRARY = ROOT / 'docs' / 'library.md'


def rows(first: str, page: str = WORLD) -> list[list[str]]:
    """Return the rows of the table of a page whose first heading is given."""
    lines = iter(page.splitlines())
    for line in lines:
        if line.startswith(f'| {first} |'):
            break
    next(lines)
    found = []
    for line in lines:
        if not line.startswith('|'):
            return found
        found.append([each.strip() for each in line.strip('|').split('|')])
    return found


def test_state_is_documented_number_by_number():
    expected = [
        [str(index), each.name, each.unit, f'{each.scale:g}', each.description]
        for index, each in enumerate(STATE_FIELDS)
    ]
    assert rows('number') == expected


def test_actions_are_documented_in_millimetres():
    for index, (row, action) in enumerate(zip(rows('action'), ACTIONS, strict=True)):
        assert row[:2] == [str(index), action.name]
        millimetres = [float(each) / 1000.0 for each in row[2].split()]
        assert millimetres == pytest.approx(list(action.displacement))
        assert row[3] == {None: '-', 1: 'open', 0: 'closed'}[action.jaw]


def test_procedures_are_documented_with_their_forces_and_times():
    for row, each in zip(rows('procedure'), PROCEDURES, strict=True):
        assert row[0] == each.name
        assert [float(row[2]), float(row[3])] == [each.warn_force, each.force_limit]
        assert float(row[4]) == pytest.approx(each.horizon * 0.05)
        assert f'**{each.name}**' in WORLD


def test_successes_of_the_expert_are_those_of_its_result_file():
    found = json.loads((ROOT / 'docs' / 'results' / 'expert.json').read_text('utf-8'))
    assert found['settings']['patients'] == 1000 and f'seed {found["settings"]["seed"]}' in WORLD
    successes = {'kinematic': {}, 'dynamic': {}}
    for each in found['figures']:
        place = (each['procedure'], each['heterogeneity'])
        successes[each['mode']][place] = each['successes']
    table = rows('expert')
    assert [row[0] for row in table] == [each.name for each in PROCEDURES]
    for name, *cells in table:
        for level, cell in zip((0.0, 0.25, 0.5, 0.75, 1.0), cells, strict=True):
            told = [int(each) for each in cell.split('/')]
            assert told == [each.pop((name, level)) for each in successes.values()]
            assert min(told) >= 990
    assert not any(successes.values())


def test_what_heterogeneity_does_is_as_in_its_result_file():
    found = json.loads((ROOT / 'docs' / 'results' / 'heterogeneity.json').read_text('utf-8'))
    settings, curves = found['settings'], found['curves']
    expected = []
    for index, level in enumerate(found['levels']):
        told = [f'{level:g}', f'{curves["distance"]["at"][index]["mean"]:.2f}']
        for name in ('home', 'elsewhere', 'loss'):
            at = curves[name]['at'][index]
            mean, low, high = (round(100.0 * at[key], 1) + 0.0 for key in ('mean', 'low', 'high'))
            told.append(f'{mean} [{low}, {high}]')
        expected.append(told)
    assert rows('H') == expected
    command = f'`fdrl heterogeneity --seeds {len(found["seeds"])} '
    assert f'{command}--world-mode {settings["world"]["mode"]}` repeats it' in WORLD
    assert settings['federation']['procedures'] == 'palpation, retraction'
    assert f'all {NUMBERS[settings["federation"]["hospitals"]]};' in WORLD
    assert f'over {NUMBERS[len(found["seeds"])]} seeds' in WORLD


NUMBERS = {3: 'three', 10: 'ten'}


def test_every_equation_of_the_paper_has_a_function_and_a_test_that_exist():
    page = (ROOT / 'docs' / 'fdrl-differences.md').read_text('utf-8')
    found, tested = (
        '\n'.join(path.read_text('utf-8') for path in sorted((ROOT / place).rglob('*.py')))
        for place in ('fdrl_ros', 'test')
    )
    table = rows('Eq.', page)
    for _, _, function, test in table:
        assert re.search(rf'^(def|class) {function.strip("`")}\b', found, re.MULTILINE), function
        assert re.search(rf'^def {test.strip("`")}\(', tested, re.MULTILINE), test
    assert {int(each) for row in table for each in row[0].split(', ')} == {*range(1, 25)}


def test_speeds_are_those_of_their_result_file():
    found = json.loads((ROOT / 'docs' / 'results' / 'speed.json').read_text('utf-8'))
    page = LIBRARY.read_text('utf-8')

    table = rows('figure', page)
    names = [row[0].strip('`') for row in table]
    assert {*names} == found.keys() - {'memory_growth_mb'}
    for name, row in zip(names, table, strict=True):
        entry = found[name]
        spread = entry['minimum'], entry['maximum']
        assert float(row[2].replace(',', '')) == pytest.approx(entry['value'], rel=0.01)
        told = [float(each.replace(',', '')) for each in row[3].split(' to ')]
        assert told == pytest.approx(spread, rel=0.01)
        if entry['peer'] is not None:
            peer = float(row[5].rpartition(': ')[2].replace(',', ''))
            assert peer == pytest.approx(entry['peer_value'], rel=0.01)
    growth = found['memory_growth_mb']['value']
    assert f'Memory grew by {growth:.2g} MB over 100,000 resets' in page


def test_tasks_and_learners_that_ship_are_listed():
    page = (ROOT / 'docs' / 'tasks.md').read_text('utf-8')
    found = {row[0].strip('`'): row[1:3] for row in rows('task', page)}
    expected = {}
    for name in TASKS:
        spec = Plan({'federation': {'task': name}}).spec
        shape = ' x '.join(map(str, spec.shape))
        expected[name] = [f'{shape} {spec.dtype}', spec.in_words]
    assert found == expected
    kinds = {row[0].split('`')[1] for row in rows('`--learner-kind`', page) if '`' in row[0]}
    assert kinds == LEARNERS.keys()
    members = [each for row in rows('member', page) for each in re.findall(r'`(\w+)', row[0])]
    assert all(hasattr(Task, each) or each in Task.__annotations__ for each in members)


def test_metrics_are_documented_one_by_one():
    expected = [
        [each.name, each.metadata['unit'], each.metadata['meaning']]
        for each in fields(EpisodeMetrics)
    ]
    assert rows('metric') == expected


def test_specialities_are_documented_with_their_shares():
    for row, (name, shares) in zip(rows('speciality'), SPECIALITY_SHARES.items(), strict=True):
        assert row[0] == name
        for cell, each in zip(row[1:], PROCEDURES, strict=True):
            told = 0.0 if cell == '-' else float(cell.rstrip(' %')) / 100.0
            assert told == pytest.approx(shares.get(each.name, 0.0))


@pytest.mark.parametrize(
    ('words', 'name', 'factor'),
    [
        ('within {} mm (each axis) of a point', 'reach.position_tolerance', 1e3),
        ('deeper than {} mm fails', 'incision.depth_limit', 1e3),
        ('grows by {} mm a tick', 'incision.bite', 1e3),
        ('a spring of {} N/m', 'peg_transfer.spring', 1.0),
        ('within {} mm of a point that circles', 'follow.position_tolerance', 1e3),
        ('gentle, firm and severe force are {}, ', 'levels.gentle', 1.0),
        (', {} and 6.5 N; a pressure', 'levels.firm', 1.0),
        ('and {} N; a pressure', 'levels.severe', 1.0),
        ('a pressure is too low below {} mmHg', 'physiology.hypotension', 1.0),
    ],
)
def test_numbers_in_the_text_are_those_of_the_world(words, name, factor):
    assert words.format(f'{constant(name) * factor:g}') in re.sub(r'\s+', ' ', WORLD)


def result(name: str) -> dict:
    return json.loads((ROOT / 'docs' / 'results' / f'{name}.json').read_text('utf-8'))


def percent(value: dict[str, float]) -> str:
    ends = value['mean'], max(value['low'], 0.0), min(value['high'], 1.0)
    mean, low, high = (f'{100.0 * each:.1f}' for each in ends)
    return f'{mean} [{low}, {high}]'


@pytest.mark.parametrize('page', [*PAGES, ROOT / 'CHANGELOG.rst'], ids=lambda page: page.name)
def test_no_line_of_a_page_is_long(page):
    lines = page.read_text('utf-8').splitlines()
    long = [each for each in lines if len(each) > 120 and not each.startswith('|')]
    assert not long


def test_the_readme_is_short_and_opens_with_what_a_reader_needs():
    text = README.read_text('utf-8')
    assert len(text.splitlines()) < 150
    order = ['**Hospitals train', '![', '## Two commands', 'not shown, first', '| policy |']
    places = [text.index(each) for each in order]
    assert places == sorted(places) and 'not a medical device' in text


MASTERY = ROOT / 'docs' / 'mastery.md'
SHOWN = {
    'federated, then at home': 'federated',
    'alone at home': 'alone',
    'global: one federated policy for all': 'global',
    'records pooled, then at home': 'pooled_at_home',
    'selector on top': 'selector',
    'public start: no private data': 'public_start',
    'hand-written controller': 'controller',
    'PPO in the public simulator': 'ppo_on_public',
    'DP-DQN, federated': 'dp_dqn',
    'surgeons of the records': 'surgeons',
    'ceiling: recurrent, true worlds, no privacy': 'ceiling',
}


def test_the_table_of_the_readme_has_the_figures_of_the_study():
    levels, table = result('mastery')['levels'], rows('policy', README.read_text('utf-8'))
    assert [row[0].strip('*') for row in table] == [*SHOWN]
    for row, name in zip(table, SHOWN.values(), strict=True):
        found = [
            percent(levels[level][place][name]) if name in levels[level][place] else '-'
            for place in ('home', 'away')
            for level in ('0.5', '1')
        ]
        assert row[1:] == found


def test_the_page_of_mastery_has_the_tables_of_its_study():
    page, found = MASTERY.read_text('utf-8'), result('mastery')
    for name, table in mastery_tables(found).items():
        assert table in page, name
    for code in found['code'].values():
        assert code[:8] in page


@pytest.mark.parametrize('page', PAGES, ids=lambda page: page.name)
def test_links_to_files_lead_somewhere(page):
    for target in re.findall(r'\]\(([^)#]+)[^)]*\)', page.read_text('utf-8')):
        if '://' not in target and not target.startswith('mailto:'):
            assert (page.parent / target).exists(), f'{page.name}: {target}'


BLOCKS = [
    (page.name, block)
    for page in (
        LIBRARY,
        *(ROOT / 'docs' / f'{each}.md' for each in ('world', 'learner', 'torch')),
        README,
    )
    for block in re.findall(r'```python\n(.*?)```', page.read_text('utf-8'), re.DOTALL)
]


@pytest.mark.parametrize(('page', 'block'), BLOCKS)
def test_python_in_the_pages_runs(page, block):
    assert LIBRARY.exists() and len(BLOCKS) > 6
    exec(compile(block, page, 'exec'), {})


def test_every_env_is_in_the_list():
    listed = set(re.findall(r'`(fdrl_ros/\w+-v0)`', LIBRARY.read_text('utf-8')))
    registered = {each for each in gymnasium.registry if each.startswith('fdrl_ros/')}
    assert listed == registered


def test_speed_of_the_learner_is_as_measured():
    page = (ROOT / 'docs' / 'learner.md').read_text('utf-8')
    measured = json.loads((ROOT / 'docs' / 'results' / 'learner_speed.json').read_text('utf-8'))
    for name, median, spread, goal in rows('figure', page):
        found, digits = measured[name], len(median.partition('.')[2])
        assert median == f'{found["value"]:.{digits}f}'
        assert spread == f'{found["minimum"]:.{digits}f} to {found["maximum"]:.{digits}f}'
        sign, limit = goal.removesuffix(', missed').split()
        met = found['value'] <= float(limit) if sign == '<=' else found['value'] >= float(limit)
        assert met is not goal.endswith(', missed')


def test_adversaries_are_stopped_by_tests_that_there_are():
    page = (ROOT / 'docs' / 'protocol.md').read_text('utf-8')
    section = page.split('\n## Who may do what')[1].split('\n## ')[0]
    claims = [' '.join(each.split()) for each in section.split('\n- ')[1:]]
    assert len(claims) > 15
    for claim in claims:
        named = re.findall(r'`((?:test/[\w/]+/)?test_\w+\.py)`|`(test_\w+)`', claim)
        assert any(test for _, test in named), claim
        for file, test in named:
            if file:
                path = ROOT / (file if '/' in file else f'test/protocol/{file}')
            else:
                assert f'\ndef {test}(' in path.read_text('utf-8'), (path, test)


def test_the_coverage_of_intervals_is_what_was_measured():
    found = json.loads((ROOT / 'docs' / 'results' / 'selector_coverage.json').read_text('utf-8'))
    page = (ROOT / 'docs' / 'selector.md').read_text('utf-8')
    held = {'start': [], 'middle': []}
    for run in found['runs']:
        cells = [f'seed {run["seed"]}, H = {run["level"]:g}']
        rows = {each['kind']: each for each in run['rows'] if each['procedure'] == 'all'}
        cells.append(', '.join(str(rows[kind]['states']) for kind in held))
        for kind, shares in held.items():
            nine = next(each for each in rows[kind]['coverage'] if each['confidence'] == 0.9)
            cells.append(
                '{:.0f} % [{:.0f}, {:.0f}]'.format(
                    *(100 * nine[each] for each in ('coverage', 'low', 'high'))
                )
            )
            cells.append(f'{rows[kind]["error"]:.2f}, {rows[kind]["std"]:.2f}')
            shares.append(100 * nine['coverage'])
        assert '| ' + ' | '.join(cells) + ' |' in page
    for shares in held.values():
        assert len(shares) == 10 and f'| {fmean(shares):.1f} % [' in page


def test_what_each_measure_rewards_is_what_was_measured():
    found = result('measures')['found']['all']
    told = rows('who', EVIDENCE.read_text('utf-8'))
    names = 'success r_mit alpha_adapt risk_adjusted_success critical_errors damage_share'.split()
    for row, (who, own) in zip(told, found.items(), strict=True):
        last = own['informedness']
        words = '{mean:.2f} [{low:.2f}, {high:.2f}]'.format(**last)
        assert row == [who, *(f'{own[each]["mean"]:.3f}' for each in names), words]


def test_what_the_selector_is_worth_is_what_was_measured():
    found = json.loads((ROOT / 'docs' / 'results' / 'selector.json').read_text('utf-8'))
    page = (ROOT / 'docs' / 'selector.md').read_text('utf-8')

    def words(of, form):
        return '{} [{}, {}]'.format(*(format(of[each], form) for each in ('mean', 'low', 'high')))

    assert found['seeds'] == [331, 332, 333, 334, 335]
    assert [each['level'] for each in found['levels']] == [0.0, 0.5, 1.0]
    for at in found['levels']:
        rows = at['contenders']
        assert words(rows['selector']['return'], '.2f') in page
        for name in (
            'global_or_hold',
            'global',
            'best_single',
            'best_cumulative',
            'bandit',
            'hindsight',
        ):
            own = f'| {words(rows[name]["return"], ".2f")} | {words(rows[name]["lead"], "+.2f")} |'
            assert own in page, name
        for name in ('share_of_hindsight', 'share_of_oracle'):
            assert words(at[name], '.3f') in page, name
