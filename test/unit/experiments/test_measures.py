# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Who wins by which measure, over real operations, and the study and the command that say so."""

from contextlib import closing
import json

from click.testing import CliRunner
from fdrl_ros.cli import main
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.experiments.studies import measures
from fdrl_ros.experiments.studies.measures import operate_all, OVER_ALL, run_measures, scores_of
from fdrl_ros.surgery.gym.surgery_env import SurgeryEnv
import pytest

WORTHLESS = ('idle', 'ramming', 'random', 'alternating')
PLAN = Plan(
    {
        'federation': {
            **{'hospitals': 3, 'heterogeneity': 0.8, 'procedures': 'palpation, follow'},
            **{'gap': 0.0, 'disturbances': False},
        },
        'world': {'mode': 'kinematic'},
        'evaluation': {'patients': 12},
    }
)


@pytest.fixture(scope='module')
def found():
    """Return scores by procedure and contender."""
    with closing(SurgeryEnv(settings=PLAN.world)) as env:
        return {each: scores_of(operate_all(env, each, PLAN)) for each in ('palpation', 'follow')}


@pytest.mark.parametrize('procedure', ['palpation', 'follow'])
def test_the_expert_wins_by_our_measures(found, procedure):
    rows = found[procedure]
    expert = rows['expert']
    assert expert['risk_adjusted_success'] > 0.95 and expert['informedness'] > 0.2
    assert expert['critical_errors'] == 0.0
    for who in WORTHLESS:
        assert rows[who]['risk_adjusted_success'] == 0.0, who
        assert rows[who]['informedness'] < expert['informedness'] - 0.1, who
    for who in ('idle', 'ramming'):
        assert rows[who]['informedness'] == 0.0
    assert rows['ramming']['critical_errors'] == 1.0
    assert rows['ramming']['damage_share'] > max(0.005, 5.0 * expert['damage_share'])
    assert rows['idle']['damage_share'] == rows['idle']['critical_errors'] == 0.0


def test_the_papers_measures_do_not_see_that(found):
    rows = found['palpation']
    assert rows['idle']['r_mit'] == rows['alternating']['r_mit'] == 1.0
    assert rows['ramming']['r_mit'] > rows['expert']['r_mit']
    assert rows['alternating']['alpha_adapt'] == 1.0 > rows['expert']['alpha_adapt']


def test_the_command_keeps_each_seed_and_writes_every_measure(tmp_path, monkeypatch):
    words = ['measures', '--seeds', 2, '--procedures', 'reach', '--evaluation-patients', 3]
    words += ['--world-mode', 'kinematic', '--world-horizon', 12, '--evaluation-workers', 1]
    words += ['--gap', 0, '--no-disturbances', '--directory', tmp_path]
    done = CliRunner().invoke(main, [str(each) for each in words])
    assert done.exit_code == 0, done.output
    summary = json.loads((tmp_path / 'measures.json').read_text('utf-8'))
    assert summary['seeds'] == [1, 2] and summary['patients'] == 3
    assert list(summary['found']) == ['reach', OVER_ALL]
    rows = summary['found']['reach']
    assert list(rows) == [*WORTHLESS, 'expert']
    assert rows['ramming']['critical_errors']['values'][0] == 1.0
    assert all(list(row) == list(measures.SHOWN) for row in rows.values())
    monkeypatch.setattr(measures, 'operate_all', pytest.fail)
    changes = {'federation': {'procedures': 'reach'}, 'world': {'horizon': 12}}
    plan = PLAN.changed({**changes, 'evaluation': {'patients': 3}})
    assert run_measures(tmp_path, plan, range(1, 2))['patients'] == 3, 'read, not measured again'
