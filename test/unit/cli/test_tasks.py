# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""`--task` on the command line, `fdrl tasks` on terminals of all sizes, and what is refused."""

from importlib.metadata import EntryPoint
import io
import json

from click.testing import CliRunner
from fdrl_ros.cli import main
from fdrl_ros.cli.experiments import tasks
from fdrl_ros.deployment import registry
from fdrl_ros.deployment.plan import Plan
import pytest
from rich.console import Console
from support import pole

POLE = f'{pole.__file__}:Pole'
GRID = """
from dataclasses import dataclass

from fdrl_ros.settings import setting, Settings
from support.pole import Pole


@dataclass(frozen=True)
class Ground(Settings):
    slope: float = setting(0.0, 'slope of the ground', limits=(0.0, 0.5), unit='rad')


class Slope(Pole):
    name = 'slope'
    world = Ground
"""
TINY = ('--plan', 'quick', '--rounds', 1, '--learner-epochs', 1, '--pretraining-steps', 5)
FEW = ('--evaluation-patients', 3, '--evaluation-round-patients', 3, '--evaluation-workers', 1)
SMALL = (*TINY, *FEW, '--collection-patients', 30, '--pretraining-patients', 3)


def fdrl(*words):
    return CliRunner().invoke(main, [str(each) for each in words])


@pytest.fixture
def slope(tmp_path):
    (tmp_path / 'slope.py').write_text(GRID)
    return f'{tmp_path}/slope.py:Slope'


def test_a_task_of_a_file_is_trained_evaluated_and_evaluated_again(slope, tmp_path):
    run = tmp_path / 'run'
    world = ('--world-slope', 0.25)
    found = fdrl('train', '--task', slope, *SMALL, *world, '--directory', run)
    assert found.exit_code == 0, found.output
    assert 'Task slope: 3 hospitals' in found.output and 'by hospital' in found.output
    summary = json.loads((run / 'summary.json').read_text())
    assert summary['task'] == {'name': 'slope', 'version': 1}
    assert summary['world_hash'] == Plan.load(run / 'plan.yaml').identity.world_hash
    assert Plan.load(run / 'plan.yaml').world.slope == 0.25
    assert {each.stem for each in (run / 'plots').iterdir()} == {
        'success',
        'learning',
        'epsilon',
        'hospitals',
    }
    again = fdrl('evaluate', run)
    assert again.exit_code == 0, again.output
    assert json.loads((run / 'summary.json').read_text())['policies'] == summary['policies']
    for words in (('--task', POLE), ('--task', 'surgery')):
        refused = fdrl('evaluate', run, *words)
        assert refused.exit_code == 1 and 'has results of task' in refused.stderr


def test_help_has_the_flags_of_the_tasks_own_world_and_no_others(slope):
    found = fdrl('train', '--task', slope, '--help')
    assert '--world-slope' in found.output and '--world-horizon' not in found.output
    assert '--world-horizon' in fdrl('train', '--help').output
    refused = fdrl('train', '--task', slope, '--world-horizon', 3)
    assert refused.exit_code == 2 and "'--world-horizon'" in refused.output
    refused = fdrl('train', '--task', slope, '--world-slope', 3)
    assert refused.exit_code == 1 and '--world-slope 3' in refused.stderr


@pytest.mark.parametrize(
    ('text', 'words'),
    [
        ('import no_such_module', 'line 1: ModuleNotFoundError'),
        ('x = 1\n\nclass Task(:\n', 'line 3: '),
        ('x = 1\ny = 1 / 0\n', 'line 2: ZeroDivisionError'),
        ('x = 1\n', "has no 'Task': it has x"),
        ('class Task:\n    pass\n', 'expected a class below fdrl_ros.tasks.Task'),
    ],
)
def test_a_file_that_cannot_be_loaded_is_named_with_its_line(text, words, tmp_path):
    (tmp_path / 'their.py').write_text(text)
    for command in ('train', 'run'):
        runs = ('--runs', tmp_path / 'runs')
        found = fdrl(command, '--task', f'{tmp_path}/their.py:Task', *runs)
        assert (found.exit_code, found.stderr.count('\n')) == (1, 1), found.output
        assert words in found.stderr and 'their.py' in found.stderr
    assert not (tmp_path / 'runs').exists()


def test_unknown_names_and_settings_that_a_task_has_not_are_refused(tmp_path):
    runs = ('--runs', tmp_path / 'runs')
    found = fdrl('train', '--task', 'surgry', *runs)
    assert found.exit_code == 1 and 'did you mean surgery' in found.stderr
    found = fdrl('train', '--task', POLE, '--procedures', 'reach', *runs)
    assert found.exit_code == 1 and "--procedures 'reach'" in found.stderr
    assert 'federation.federation' not in found.stderr
    assert not (tmp_path / 'runs').exists()


@pytest.mark.parametrize('command', ['heterogeneity', 'utility', 'selector compare'])
def test_studies_of_surgery_refuse_other_tasks(command, tmp_path):
    found = fdrl(*command.split(), '--task', POLE, '--directory', tmp_path / 'study')
    assert (found.exit_code, found.stderr.count('\n')) == (1, 1), found.output
    assert 'fdrl: --task ' in found.stderr and not (tmp_path / 'study').exists()


@pytest.mark.parametrize('width', [48, 60, 80, 140])
def test_the_table_of_tasks_is_whole_on_any_terminal(width, monkeypatch):
    monkeypatch.setattr(
        registry,
        'entry_points',
        lambda group: [EntryPoint('missing', 'no_such_module:Task', group)],
    )
    file = io.StringIO()
    monkeypatch.setattr(tasks, 'console', lambda: Console(file=file, width=width))
    assert fdrl('tasks').exit_code == 0
    lines = file.getvalue().splitlines()
    assert all(len(line) <= width for line in lines) and '…' not in file.getvalue()
    words = ' '.join(file.getvalue().split())
    for each in ('surgery', '31 float32', '15 discrete'):
        assert each in words
    summary = 'procedures of a surgical arm on breathing tissue; robots run it'
    assert width == 140 or summary in words
    assert width == 140 or 'missing: cannot be used' in words
