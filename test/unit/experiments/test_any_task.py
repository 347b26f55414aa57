# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Evaluation of any task: rows, groups, leads, own measures, files; and surgery's own numbers."""

import csv
from dataclasses import replace
import hashlib
import io
import math
from pathlib import Path
import pickle
import subprocess

from fdrl_ros.deployment.parties.hospital import Spent
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.errors import TaskError
from fdrl_ros.experiments.evaluation import Evaluator, PolicyContender, unseen_patients
from fdrl_ros.experiments.patient_results import NORMAL_95, PatientResults, plain_scores
from fdrl_ros.experiments.plots.run import draw_all
from fdrl_ros.experiments.reports import versions
from fdrl_ros.experiments.reports.assessment import (
    Assessment,
    evaluator_of,
    paired_lead,
    PolicyResults,
)
from fdrl_ros.experiments.reports.run_table import (
    group_tables,
    policy_table,
    render_text,
    seeds_table,
)
from fdrl_ros.experiments.round_recorder import RoundNote
from fdrl_ros.experiments.studies.experiment import combine
from fdrl_ros.experiments.surgery_evaluation import SurgeryEvaluator
from fdrl_ros.privacy.accountant.leakage_bounds import gaussian_bounds
from fdrl_ros.tasks.task import SimpleEpisode
import numpy as np
import pytest
from rich.console import Console
from support import pole

MEASURED = '''
from support.pole import Pole


class Measured(Pole):
    """Measures how far the cart went, and has a procedure for each hospital."""

    name = 'measured'
    measures = {'way': 'way, m'}

    def measure(self, episode, world):
        way = float(abs(episode.states[-1][0] - episode.states[0][0]))
        return {'way': way, 'procedure': episode.patient.name[:10]}
'''
SIZES = {'evaluation': {'patients': 9, 'round_patients': 3, 'workers': 1}}


def plan_of(reference, **groups):
    return Plan({'federation': {'task': str(reference)}, **SIZES, **groups}).checked()


@pytest.fixture(scope='module')
def plan():
    return plan_of(f'{pole.__file__}:Pole')


@pytest.fixture(scope='module')
def found(plan):
    evaluator = evaluator_of(plan)
    rng = np.random.default_rng(1)
    names = ('untrained', 'global')
    policies = {name: plan.network.policy(plan.network.draw(rng)) for name in names}
    return evaluator, evaluator.evaluate(evaluator.contenders(policies, ['global']), 9)


def test_a_plain_task_is_compared_with_its_guide_and_with_chance(found, plan):
    evaluator, evaluations = found
    assert type(evaluator) is Evaluator
    assert list(evaluations) == ['expert', 'random', 'untrained', 'global']
    results = evaluations['expert'].results
    assert results.column('patient').tolist() == [each.name for each in unseen_patients(plan, 9)]
    assert results.column('hospital').tolist() == list(plan.hospitals) * 3
    expert = evaluations['expert'].score
    assert expert['success'] == 1.0 and expert['mean_total'] == expert['mean_length'] == 60.0
    gamma = plan.value.discount
    assert expert['mean_return'] == pytest.approx((1 - gamma**60) / (1 - gamma))
    totals = evaluations['random'].results.column('total')
    half = NORMAL_95 * totals.std(ddof=1) / math.sqrt(9)
    score = evaluations['random'].score
    assert score['mean_total_high'] - score['mean_total'] == pytest.approx(half)


def test_chance_and_results_are_repeated_in_portions_and_processes(found, plan, monkeypatch):
    evaluator, evaluations = found
    again = Evaluator(plan.changed({'evaluation': {'workers': 2}}))
    monkeypatch.setattr('fdrl_ros.experiments.evaluation.PORTION', 4)
    others = again.evaluate(evaluator.baselines(), 9)
    for name in ('expert', 'random'):
        assert others[name].score == evaluations[name].score


def test_leads_are_paired_by_patient(found):
    evaluator, evaluations = found
    lead = paired_lead(evaluations['expert'], evaluations['random'], evaluator.scores)
    gap = 60.0 - evaluations['random'].results.column('total')
    assert lead['mean_total'] == pytest.approx(gap.mean())
    half = NORMAL_95 * gap.std(ddof=1) / 3
    assert lead['mean_total_half_width'] == pytest.approx(half)


def assessment(evaluator, evaluations):
    rows = [(0, 0.1, 0.0, 0.3, 12.0, 10.0, 14.0), (1, 0.5, 0.3, 0.7, 30.0, 25.0, 35.0)]
    extras = evaluator.extras([], evaluations)
    spent = dict.fromkeys(evaluator.plan.hospitals, Spent(1.0, gaussian_bounds(0.2)))
    results = PolicyResults(evaluator, evaluations, rows, extras)
    return Assessment(**vars(results), rounds=[], spent=spent, ledger_problems={}, disjoint=True)


def test_the_report_has_hospitals_leads_and_what_was_learned_in(found, tmp_path):
    own = assessment(*found)
    summary, words = own.summary(), render_text(own)
    assert summary['task'] == {'name': 'pole', 'version': 1}
    assert summary['learner'] == {'kind': 'dqn', 'network': 'dueling network 4-8-8-2'}
    assert summary['world_hash'] == own.plan.identity.world_hash
    assert summary['world'] == {}
    assert set(summary['by_hospital']) == set(own.plan.hospitals)
    for name, each in own.evaluations.items():
        by_hospital = [summary['by_hospital'][one][name] for one in own.plan.hospitals]
        assert [one['patients'] for one in by_hospital] == [3, 3, 3]
        mean = np.mean([one['mean_total'] for one in by_hospital])
        assert each.score['mean_total'] == pytest.approx(mean)
    assert 'by_procedure' not in summary
    for width, names in ((140, 3), (60, 2), (40, 1)):
        shown = list(own.groups()['hospital'].values())
        table = group_tables(own, width)[0]
        assert len(table.columns) == 1 + names and len(table.rows) == len(shown)
    for expected in (
        'task pole 1',
        'global policy minus random actions',
        'by hospital',
        'total reward',
    ):
        assert expected in words
    drawn = {each.stem for each in draw_all(own, tmp_path)}
    assert drawn == {'success', 'learning', 'hospitals'}
    own.evaluator.save_episodes(tmp_path / 'episodes', own.evaluations)
    with (tmp_path / 'episodes/expert.csv').open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 9 and {each['total'] for each in rows} == {'60.0'}


def test_one_patient_of_a_hospital_has_a_mean_without_ends(found):
    evaluator, _ = found
    own = assessment(evaluator, evaluator.evaluate(evaluator.baselines(), 3))
    tables = Console(file=io.StringIO(), width=140)
    tables.print(*group_tables(own))
    assert 'nan' not in tables.file.getvalue() and 'undefined' in tables.file.getvalue()


def test_measures_of_a_task_are_averaged_compared_and_grouped(tmp_path):
    (tmp_path / 'measured.py').write_text(MEASURED)
    evaluator = evaluator_of(plan_of(f'{tmp_path}/measured.py:Measured'))
    policy = evaluator.plan.network.policy(evaluator.plan.network.draw(np.random.default_rng(1)))
    evaluations = evaluator.evaluate(evaluator.contenders({'global': policy}, []), 6)
    own = assessment(evaluator, evaluations)
    ways = evaluations['random'].results.column('way')
    assert evaluations['random'].score['way'] == pytest.approx(ways.mean())
    lead = own.differences()['random']
    gap = evaluations['global'].results.column('way') - ways
    assert lead['way'] == pytest.approx(gap.mean())
    groups = own.summary()['by_procedure']
    assert {name: each['random']['patients'] for name, each in groups.items()} == dict.fromkeys(
        own.plan.hospitals, 2
    )
    assert 'way, m' in render_text(own) and 'by procedure' in render_text(own)


def test_a_users_surgery_is_compared_with_chance_and_has_no_selector_without_a_robot():
    tutorials = Path(__file__).parents[3] / 'docs/tutorial'
    evaluator = evaluator_of(plan_of(tutorials / 'spleen.py:SpleenTask'))
    assert type(evaluator) is SurgeryEvaluator
    network = evaluator.plan.network
    policy = network.policy(network.draw(np.random.default_rng(1)))
    rows = {'pretrained': policy, 'global': policy}
    names = [each.name for each in evaluator.contenders(rows, ['global'])]
    assert names == ['expert', 'random', 'pretrained', 'global']
    assert evaluator.rivals()[:2] == ('pretrained', 'random')


def test_seeds_of_any_task_are_combined_and_shown(found):
    own = assessment(*found)
    results = [{'summary': own.summary(), 'differences': own.differences()}] * 2
    combined = combine(results, own.plan, [1, 2])
    lead = own.differences()['random']['mean_total']
    assert combined['federated_minus']['random']['mean_total']['values'] == [lead, lead]
    assert combined['policies']['expert']['mean_length']['mean'] == 60.0
    out = Console(file=io.StringIO(), width=200)
    out.print(seeds_table(combined, own.evaluator.scores))
    assert 'mean_total' in out.file.getvalue()


def test_an_undefined_measure_is_left_out_of_means():
    columns = {name: np.zeros(3) for name in ('success', 'total', 'returns', 'length')}
    columns |= {'patient': np.array(['a', 'b', 'c']), 'way': np.array([1.0, math.nan, 3.0])}
    scores = plain_scores({'way': 'way, m'})
    assert scores['way'].measure(PatientResults(columns)) == 2.0
    columns['way'][:] = math.nan
    assert scores['way'].measure(PatientResults(columns)) is None


def test_a_task_that_does_not_measure_what_it_says_is_refused(plan, monkeypatch):
    patient = unseen_patients(plan, 1)[0]
    rewards = np.ones(2, np.float32)
    made = SimpleEpisode(patient, np.zeros((3, 4)), np.zeros(2, int), rewards, True, True)
    kind = type(plan.task)
    monkeypatch.setattr(kind, 'measures', {'way': 'way'})
    with pytest.raises(TaskError, match='does not measure way'):
        PatientResults.of([made], plan)
    ways = iter([{'way': 1.0}, {'way': 1.0, 'more': 2.0}])
    monkeypatch.setattr(kind, 'measure', lambda *_: next(ways))
    with pytest.raises(TaskError, match="measures {'more'} sometimes"):
        PatientResults.of([made, made], plan)


def test_a_plan_is_pickled_without_the_classes_of_its_task(plan):
    assert plan.spec.size == 4 and plan.network and plan.world is not None
    assert b'fdrl_ros_reference' not in pickle.dumps(plan)
    assert pickle.loads(pickle.dumps(plan)) == plan


def test_the_commit_is_that_of_the_checkout_or_else_the_version(monkeypatch):
    root = Path(versions.__file__).resolve().parents[3]
    if (root / '.git').exists():
        git = ('git', '-c', f'safe.directory={root}', '-C', root, 'rev-parse', 'HEAD')
        head = subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip()
        assert versions.commit().removesuffix('-dirty') == head

    def no_git(*arguments, **named):
        raise FileNotFoundError('git')

    monkeypatch.setattr(versions.subprocess, 'run', no_git)
    assert versions.commit() == versions.package_version()


def digest(text):
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def test_numbers_and_table_of_surgery_are_those_of_before_tasks():
    calm = {'gap': 0.0, 'disturbances': False}
    groups = {'federation': {'procedures': 'reach, palpation', **calm}, 'learner': {'hidden': 8}}
    groups |= {'world': {'mode': 'kinematic', 'horizon': 12}}
    few = {'patients': 6, 'round_patients': 3, 'workers': 1}
    groups |= {'evaluation': few | {'state_patients': 3, 'states_per_patient': 5}}
    plan = Plan(groups).checked()
    evaluator = evaluator_of(plan)
    assert type(evaluator) is SurgeryEvaluator
    policy = plan.network.policy(plan.network.draw(np.random.default_rng(1)))
    contenders = [*evaluator.baselines(), PolicyContender('global', policy)]
    evaluations = evaluator.evaluate(contenders, 6)
    since = 'risk_adjusted_success', 'critical_errors', 'damage_share', 'informedness'
    scores = {name: each for name, each in evaluator.scores.items() if name not in since}
    scores['a_task_exact'] = replace(scores['a_task_exact'], minor=False)
    score = {who: {name: each.score[name] for name in scores} for who, each in evaluations.items()}
    assert digest(repr(score)) == '417f121a377f321d'
    out = Console(file=io.StringIO(), width=140)
    out.print(policy_table(score, scores, 140))
    assert digest(out.file.getvalue()) == '42c1990dd75ce11e'


def test_rounds_that_were_rolled_back_are_in_the_report(found):
    own = assessment(*found)
    assert 'rolled back' not in render_text(own)
    notes = [
        RoundNote(each, 1.0, 0.0, 0.0, 0.0, 9, {'hospital_1': 1.0}, ('hospital_1',), each > 1)
        for each in (1, 2, 3)
    ]
    words = render_text(replace(own, rounds=notes))
    assert '2 of 3 rounds were rolled back' in words
