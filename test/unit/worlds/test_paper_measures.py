# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Measures of the paper's world: by hand, exactly over all states, and their scales."""

from types import SimpleNamespace

from fdrl_ros.deployment.layout import Layout
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.deployment.prepare import changed_settings
from fdrl_ros.experiments.evaluation import Evaluator, PolicyContender, RandomContender
from fdrl_ros.experiments.reports.assessment import evaluator_of
from fdrl_ros.tasks.task import SimpleEpisode
from fdrl_ros.worlds.paper.env import PaperHospital, STATES
from fdrl_ros.worlds.paper.law import DISCOUNT, ended, GRID
from fdrl_ros.worlds.paper.task import PaperTask, PaperWorldSettings
from fdrl_ros.worlds.paper.utility import agreement, as_expert, exact_return, UNIFORM, utility
import numpy as np
import pytest

CHOSEN = SimpleNamespace(hospitals=3, heterogeneity=0.8, seed=4, procedures='')
HOMES = [PaperHospital(each, 3, 0.8, 4) for each in range(3)]
GOING = np.flatnonzero(~ended(GRID))
TASK = PaperTask()


def measured(levels, actions, **scales):
    """Measure an operation at hospital 2 that met these levels."""
    patient = TASK.population(CHOSEN, 1).patient(0, 'test')
    states = np.array(levels, np.float32) / 3
    rewards = np.zeros(len(actions), np.float32)
    made = SimpleEpisode(patient, states, np.array(actions), rewards, False, True)
    return TASK.measure(made, PaperWorldSettings(**scales))


def test_risk_and_adaptation_by_hand():
    """Force 1, 2, 3 thirds and damage 0, 1, 3 thirds after the steps; the last one collapses."""
    levels = [[2, 0, 0, 1, 2], [2, 1, 0, 1, 2], [1, 2, 1, 2, 2], [1, 3, 3, 3, 2]]
    found = measured(levels, [0, 1, 1])
    risks = [0.4 / 3, 0.4 * 2 / 3 + 0.4 / 3, 0.4 + 0.4 + 0.2]
    assert found['r_mit'] == pytest.approx(1.0 - np.mean(risks))
    # Half of the highest damage counts as all of it.
    halved = [0.4 / 3, 0.4 * 2 / 3 + 0.4 * 2 / 3, 1.0]
    assert measured(levels, [0, 1, 1], full_damage=0.5)['r_mit'] == pytest.approx(
        1.0 - np.mean(halved)
    )
    # One level moves before action 1, four before the last action: sqrt(1) / 3 and sqrt(4) / 3.
    assert found['alpha_adapt'] == 0.0
    assert measured(levels, [0, 1, 1], change_threshold=0.3)['alpha_adapt'] == 0.5
    assert np.isnan(measured(levels, [0, 1, 1], change_threshold=0.7)['alpha_adapt'])


def test_an_action_counts_up_to_the_tolerance_of_the_patients_own_hospital():
    costs = HOMES[1].law.costs
    ordered = np.sort(costs[GOING], axis=1)
    state = int(GOING[np.argmax((ordered[:, 1] > 0.002) & (ordered[:, 1] < 0.01))])
    second = int(np.argsort(costs[state])[1])
    levels = [GRID[state].tolist(), GRID[state].tolist()]
    assert measured(levels, [second])['a_task_on_policy'] == 1.0
    assert measured(levels, [second], tolerance=0.001)['a_task_on_policy'] == 0.0
    worst = int(np.argmax(costs[state]))
    assert measured(levels, [worst])['a_task_on_policy'] == 0.0


def test_accuracy_is_the_slow_count_over_states_and_hospitals():
    policy = np.random.default_rng(1).integers(3, size=1024)
    for tolerance in (0.0, 0.01, 0.05):
        right = [
            [float(home.law.costs[state, policy[state]] <= max(tolerance, 1e-9)) for home in HOMES]
            for state in GOING
        ]
        found = agreement(HOMES, policy, tolerance)
        assert found.a_task == pytest.approx(np.mean(right))
        near = np.mean([home.law.costs[GOING] <= max(tolerance, 1e-9) for home in HOMES], axis=0)
        assert found.ceiling == pytest.approx(near.max(axis=1).mean())
        assert found.chance == pytest.approx(agreement(HOMES, UNIFORM, tolerance).a_task)


def test_the_ceiling_is_reached_by_a_policy_and_passed_only_by_own_ones():
    shares = np.mean([as_expert(each, np.arange(1024)) for each in HOMES], axis=0)
    best = shares.argmax(axis=1)
    found = agreement(HOMES, best)
    assert found.a_task == found.ceiling < 1.0
    assert agreement(HOMES, [each.best for each in HOMES]).a_task == 1.0
    assert agreement(HOMES, best, 0.01).ceiling > found.ceiling
    alike = [PaperHospital(each, 3, 0.0, 4) for each in range(3)]
    assert agreement(alike, alike[0].best).ceiling == 1.0


def test_the_return_of_random_actions_solves_the_mean_law():
    home = HOMES[0]
    mean = np.mean([home.law.transitions(each) for each in range(3)], axis=0)
    mean[ended(GRID)] = 0.0
    value = np.linalg.solve(np.eye(1024) - DISCOUNT * mean, home.law.rewards.mean(axis=1))
    assert exact_return([home], UNIFORM) == pytest.approx(home.law.start_chances() @ value)


def test_exact_numbers_of_a_run_are_those_of_the_study():
    plan = Plan({'federation': {'task': 'paper', 'heterogeneity': 0.8, 'seed': 4}}).checked()
    evaluator = evaluator_of(plan)
    policy = plan.network.policy(plan.network.draw(np.random.default_rng(2)))
    found = evaluator.figures(PolicyContender('global', policy))
    actions = np.array([policy(state) for state in STATES])
    assert utility(HOMES, actions) == pytest.approx(
        [
            found[each]
            for each in (
                'a_task_exact',
                'a_task_exact_ceiling',
                'exact_return',
                'exact_expert_return',
            )
        ]
    )
    chance = evaluator.figures(RandomContender())
    assert chance['a_task'] == pytest.approx(chance['a_task_chance'])
    expert = evaluator.figures(evaluator.baselines()[0])
    assert expert['a_task'] == expert['a_task_exact'] == 1.0 > expert['a_task_ceiling']
    assert expert['exact_return'] == pytest.approx(found['exact_expert_return'])


def test_a_table_has_the_exact_numbers_beside_those_of_patients():
    plan = Plan({'federation': {'task': 'paper'}, 'evaluation': {'workers': 1}}).checked()
    evaluator = evaluator_of(plan)
    assert type(evaluator) is Evaluator
    evaluations = evaluator.evaluate([RandomContender()], 60)
    score = evaluations['random'].score
    said = evaluator.extras([], evaluations).lines[1]
    assert f'a_task_ceiling {score["a_task_ceiling"]:.3f}' in said
    assert score['a_task'] == pytest.approx(score['a_task_chance'])
    # A mean of 60 operations of some 11 steps, each of them right with chance 0.36.
    assert score['a_task_on_policy'] == pytest.approx(score['a_task'], abs=0.15)
    assert 0.5 < score['r_mit'] < 1.0 and 0.0 < score['alpha_adapt'] < 1.0
    assert {'a_task', 'r_mit', 'alpha_adapt'} <= {
        name for name, each in evaluator.scores.items() if each.heading
    }


def test_scales_may_change_after_training_and_what_is_recorded_may_not(tmp_path):
    plan = Plan({'federation': {'task': 'paper'}}).checked()
    layout = Layout(tmp_path)
    layout.plan.parent.mkdir(parents=True, exist_ok=True)
    layout.plan.write_text(plan.to_yaml())
    scaled = plan.changed(
        {'world': {'tolerance': 0.1, 'full_damage': 0.5, 'change_threshold': 0.2}}
    )
    assert changed_settings(layout, scaled) == []
    assert repr(scaled.world) == repr(plan.world)
    assert changed_settings(layout, plan.changed({'world': {'record_steps': 1}})) == [
        'world.record_steps'
    ]
