# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Numbers of an evaluation: closed forms, pairing, intervals; and what is refused."""

from dataclasses import asdict, replace
import json
import math
from pathlib import Path
import runpy

from fdrl_ros.deployment.plan import Plan
from fdrl_ros.errors import PolicyError, SettingError
from fdrl_ros.experiments import surgery_evaluation
from fdrl_ros.experiments.evaluation import GuideContender, PolicyContender, unseen_patients
from fdrl_ros.experiments.json_file import write_json
from fdrl_ros.experiments.patient_results import (
    check_scores,
    compared,
    PatientResults,
    score_of,
    wilson_interval,
)
from fdrl_ros.experiments.reports.assessment import paired_lead
from fdrl_ros.experiments.round_recorder import read_rounds, RoundNote
from fdrl_ros.experiments.studies.experiment import combine
from fdrl_ros.experiments.surgery_evaluation import (
    actions_on,
    candidate,
    made_up_results,
    SCORES,
    SelectorContender,
    SurgeryEvaluator,
)
from fdrl_ros.surgery.gym.episode import run_episode
from fdrl_ros.surgery.gym.surgery_env import SurgeryEnv
from fdrl_ros.surgery.tasks.expert import expert
import numpy as np
import pytest

PLAN = Plan().changed(
    {
        'federation': {'procedures': 'reach, palpation'},
        'learner': {'hidden': 8},
        'value': {'discount': 0.5},
        'world': {'mode': 'kinematic'},
        'evaluation': {
            'patients': 6,
            'round_patients': 3,
            'state_patients': 3,
            'states_per_patient': 5,
            'workers': 1,
        },
    }
)


@pytest.fixture(scope='module')
def evaluator():
    return SurgeryEvaluator(PLAN)


@pytest.fixture(scope='module')
def results(evaluator):
    weights = PLAN.network.draw(np.random.default_rng(1))
    contenders = [GuideContender(), PolicyContender('untrained', PLAN.network.policy(weights))]
    return evaluator.evaluate(contenders, 6)


def made_episode(**changes):
    """Return two ticks on a patient whose numbers can be checked by hand."""
    patient = unseen_patients(PLAN, 1)[0]
    env = SurgeryEnv(settings=PLAN.world)
    real = run_episode(env, lambda state: expert(state, patient, PLAN.world)[0], patient)
    env.close()
    limit = patient.procedure.force_limit
    values = {
        'states': real.states[:3],
        'actions': real.actions[:2],
        'rewards': np.array([1.0, 4.0], np.float32),
        'forces': np.array([0.5 * limit, limit]),
        'damages': np.array([0.0, 150.0]),
        'pressures': np.array([85.0, 85.0]),
        'critical': np.array([False, True]),
        'tips': real.tips[:3],
        'mean_forces': np.array([0.25 * limit, 0.5 * limit]),
        'news2': real.news2[:3],
        'sofa': real.sofa[:3],
        **changes,
    }
    return replace(real, **values)


def test_numbers_of_a_made_up_case_by_hand():
    episode = made_episode()
    limit = episode.patient.procedure.force_limit
    cases = PatientResults.of([episode], PLAN)
    assert cases.column('returns')[0] == pytest.approx(1.0 + 0.5 * 4.0)
    assert cases.column('peak_force')[0] == limit
    # D = 0.4 F + 0.4 Td + 0.2 C: 0.2, then 0.4 + 0.2 + 0.2.
    assert cases.column('risk')[0] == pytest.approx((0.2 + 0.8) / 2)
    assert cases.column('task_tolerant')[0] == cases.column('task_exact')[0] == pytest.approx(1.0)
    assert cases.column('length')[0] == 2
    assert cases.column('mean_force')[0] == pytest.approx(0.375 * limit)
    assert cases.column('damage')[0] == 150.0


def test_adaptation_without_a_changed_state_is_undefined_and_counted_as_such(evaluator):
    figures = evaluator.figures(GuideContender())
    still = made_episode(states=np.repeat(made_episode().states[:1], 3, axis=0))
    cases = replace(PatientResults.of([still], PLAN), figures=figures)
    assert math.isnan(cases.column('adaptation')[0])
    score = score_of(cases, SCORES)
    assert score['alpha_adapt'] is None and score['alpha_adapt_cases'] == 0


@pytest.mark.parametrize(
    'changes',
    [
        {'measure': lambda results: results.column('peak_forse').mean()},
        {'measure': lambda results: results.figures['tolerent']},
        {'measure': lambda results: float(results.column('failure').mean())},
        {'paired': 'risks'},
        {'paired': 'failure'},
        {'form': '.3q'},
    ],
)
def test_a_score_of_no_result_is_refused_before_any_training(changes):
    wrong = replace(SCORES['success'], **changes)
    with pytest.raises(SettingError, match='score wrong'):
        check_scores({**SCORES, 'wrong': wrong}, made_up_results())


def test_scores_are_tried_at_import(tmp_path):
    source = Path(surgery_evaluation.__file__).read_text('utf-8')
    (tmp_path / 'typo.py').write_text(source.replace("paired='risk'", "paired='risks'"), 'utf-8')
    with pytest.raises(SettingError, match='score r_mit'):
        runpy.run_path(str(tmp_path / 'typo.py'))


def test_json_has_null_for_nan_and_a_text_for_infinity(tmp_path):
    numbers = (1, math.nan, np.float64('nan'), np.float64('-inf'))
    write_json(tmp_path / 'file', {'rows': numbers, 'epsilon': math.inf})
    found = json.loads((tmp_path / 'file').read_text(), parse_constant=pytest.fail)
    assert found == {'rows': [1, None, None, '-inf'], 'epsilon': 'inf'}


def test_an_infinite_epsilon_of_a_round_is_read_back(tmp_path):
    note = RoundNote(1, 1.0, 0.0, 0.0, 0.0, 9, {'hospital_1': math.inf}, ('hospital_1',), False)
    write_json(tmp_path / 'rounds.json', [asdict(note)])
    assert read_rounds(tmp_path / 'rounds.json') == [note]


def test_expert_agrees_with_itself_everywhere(results, evaluator):
    score = results['expert'].score
    assert score['success'] == 1.0
    for name in ('a_task', 'a_task_exact', 'a_task_on_policy'):
        assert score[name] == pytest.approx(1.0)
    probe = evaluator.probe
    np.testing.assert_array_equal(actions_on(GuideContender(), probe, PLAN), probe.states.expert)


def test_patients_of_the_frozen_set_are_not_evaluated_on(results, evaluator):
    operated_on = set(results['expert'].results.column('patient'))
    assert not {each.name for each in evaluator.probe.patients} & operated_on


def test_what_the_selector_chose_is_counted_tick_by_tick(evaluator):
    weights = PLAN.network.draw(np.random.default_rng(1))
    policy = PLAN.network.policy(weights)
    contender = SelectorContender(
        'selector',
        [candidate('global', policy, None), candidate('hold', None, None)],
        PLAN.selector,
    )
    found = evaluator.evaluate([contender], 2)['selector']
    assert set(found.chosen) <= {'global', 'hold'}
    assert sum(found.chosen.values()) == found.results.column('length').sum()


def test_lead_over_the_untrained_policy_is_the_mean_of_the_paired_differences(results):
    lead = paired_lead(results['expert'], results['untrained'], SCORES)
    gap = results['expert'].results.column('returns') - results['untrained'].results.column(
        'returns'
    )
    assert lead['mean_return'] == pytest.approx(gap.mean())
    half = 1.959963984540054 * gap.std(ddof=1) / math.sqrt(6)
    assert lead['mean_return_half_width'] == pytest.approx(half)
    assert paired_lead(results['expert'], results['expert'], SCORES)['success'] == 0.0


def test_policies_of_different_patients_are_not_compared(results, evaluator):
    others = evaluator.evaluate([GuideContender()], 6, first=6)
    with pytest.raises(PolicyError):
        paired_lead(results['expert'], others['expert'], SCORES)


def test_wilson_interval_has_its_published_value():
    # Newcombe 1998, Table I, method 3: 81 of 263.
    low, high = wilson_interval(81, 263)
    assert (round(low, 4), round(high, 4)) == (0.2553, 0.3662)
    assert wilson_interval(0, 20)[0] == 0.0 and wilson_interval(20, 20)[1] == pytest.approx(1.0)
    with pytest.raises(ValueError):
        wilson_interval(1, 0)


def test_combining_seeds_pairs_them():
    def one(value, lead):
        row = dict.fromkeys(SCORES, value)
        return {
            'summary': {'policies': {'global': row, 'pretrained': row}, 'epsilon': {'h': value}},
            'differences': {'pretrained': dict.fromkeys(compared(SCORES), lead)},
        }

    found = combine([one(0.5, 0.1), one(0.9, 0.3)], PLAN, [1, 2])
    assert found['policies']['global']['success']['mean'] == pytest.approx(0.7)
    assert found['federated_minus']['pretrained']['success']['mean'] == pytest.approx(0.2)
    assert found['epsilon'] == {'h': 0.9} and found['private']
