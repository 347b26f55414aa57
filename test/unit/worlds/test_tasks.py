# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The worlds that ship as tasks: patients by number, guides, identity, and what they refuse."""

from contextlib import closing
from dataclasses import replace
from types import SimpleNamespace

from fdrl_ros.deployment.plan import Plan
from fdrl_ros.errors import SettingError
from fdrl_ros.learner.privacy_cost import ChargedMechanism
from fdrl_ros.learner.records.collection import HospitalSimulator
from fdrl_ros.privacy.accountant.accountant import epsilon_pld
from fdrl_ros.resources import resource
from fdrl_ros.worlds.cartpole import CartPoleTask, FALL, STEPS
from fdrl_ros.worlds.icu_sepsis.assets import icu_sepsis
from fdrl_ros.worlds.icu_sepsis.records import features_of
from fdrl_ros.worlds.icu_sepsis.task import IcuSepsisTask, SepsisWorldSettings
from fdrl_ros.worlds.icu_sepsis.values import optimum
from fdrl_ros.worlds.paper.env import PaperHospital
from fdrl_ros.worlds.paper.task import PaperTask, PaperWorldSettings
from gymnasium.envs.classic_control.cartpole import CartPoleEnv
import numpy as np
import pytest

TASKS = [CartPoleTask(), PaperTask(), IcuSepsisTask()]
CHOSEN = SimpleNamespace(hospitals=3, heterogeneity=0.8, seed=4, procedures='')

every_task = pytest.mark.parametrize('task', TASKS, ids=lambda task: task.name)


def operated(task, patient, choose):
    with closing(task.make_env(task.world())) as env:
        return task.operate(env, choose, patient, np.random.default_rng(0))


@every_task
def test_a_patient_is_a_function_of_hospital_split_and_number(task):
    populations = [task.population(CHOSEN, each) for each in (0, 1, 2, None)]
    assert [(each.hospital, each.public) for each in populations[1:]] == [
        (1, False),
        (2, False),
        (0, True),
    ]
    drawn = [
        each.patient(index, split)
        for each in populations
        for split in ('train', 'test')
        for index in range(5)
    ]
    assert drawn[3] == task.population(CHOSEN, 0).patient(3)
    assert len({each.name for each in drawn}) == len({each.seed for each in drawn}) == len(drawn)


@every_task
def test_an_episode_repeats_whoever_was_treated_before(task):
    patients = [task.population(CHOSEN, 1).patient(each) for each in range(2)]
    with closing(task.make_env(task.world())) as env:
        after = [
            task.operate(env, lambda state: 1, each, np.random.default_rng(5)) for each in patients
        ][1]
    alone = operated(task, patients[1], lambda state: 1)
    np.testing.assert_array_equal(after.states, alone.states)
    np.testing.assert_array_equal(after.rewards, alone.rewards)
    assert alone.states.shape == (len(alone.actions) + 1, task.spec(task.world()).size)
    assert (alone.states.dtype, alone.actions.dtype) == (np.float32, np.int64)


@every_task
def test_the_guide_does_better_than_chance(task):
    spec, rng = task.spec(task.world()), np.random.default_rng(1)
    patients = [task.population(CHOSEN, each % 3).patient(each, 'test') for each in range(60)]
    guided, lost = (
        np.mean([operated(task, each, who(each)).rewards.sum() for each in patients])
        for who in (
            lambda each: task.guide(each, task.world()),
            lambda each: lambda state: spec.draw_action(rng),
        )
    )
    assert guided > lost + 0.05


@every_task
def test_a_plan_of_the_task_is_whole_and_has_no_procedures(task):
    plan = Plan({'federation': {'task': task.name}}).checked()
    assert plan.identity == task.identity(task.world())
    assert plan.privacy.delta < 1.0 / plan.collection.patients
    with pytest.raises(SettingError, match=r'federation\.procedures'):
        plan.changed({'federation': {'procedures': 'palpation'}})


def test_carts_differ_by_hospital_and_public_ones_are_gymnasium_s_own():
    task = CartPoleTask()

    def median(hospital, name):
        population = task.population(CHOSEN, hospital)
        return np.median([population.patient(each).values[name] for each in range(200)])

    usual = CartPoleEnv()
    for name in ('gravity', 'length', 'force_mag'):
        assert median(None, name) == pytest.approx(getattr(usual, name), rel=0.05)
    assert median(0, 'length') < 0.8 * median(1, 'length') < 0.64 * median(2, 'length')
    assert median(0, 'force_mag') > median(2, 'force_mag')


def test_the_reward_of_a_cart_is_how_upright_and_central_it_is():
    task = CartPoleTask()
    patient = task.population(CHOSEN, 1).patient(0)
    fallen = operated(task, patient, lambda state: 0)
    assert not fallen.success and fallen.terminated
    angle, place = fallen.states[1:, 2], fallen.states[1:, 0]
    expected = -(angle**2 + place**2 / 2.0)
    np.testing.assert_allclose(fallen.rewards[:-1], expected[:-1], rtol=1e-3)
    assert fallen.rewards[-1] == pytest.approx(expected[-1] + FALL, rel=1e-3)
    held = operated(task, patient, task.guide(patient, task.world()))
    assert held.success and len(held.actions) == STEPS and not held.terminated


def test_the_paper_s_guide_is_the_exact_expert_of_the_patient_s_hospital():
    task = PaperTask()
    patient = task.population(CHOSEN, 2).patient(0)
    home = PaperHospital(2, 3, 0.8, 4)
    assert patient.hospital == home
    found = operated(task, patient, task.guide(patient, task.world()))
    assert [home.expert(state)[0] for state in found.states[:-1]] == found.actions.tolist()
    public = {task.population(CHOSEN, None, 1.0).patient(each).hospital for each in range(20)}
    assert {each.hospital for each in public} == {0, 1, 2}


def test_the_skill_of_the_sepsis_records_is_the_share_of_best_treatments():
    task, model = IcuSepsisTask(), icu_sepsis()
    best, seen = optimum(model).actions, features_of(model)
    patient = task.population(CHOSEN, 0).patient(0)
    always = task.guide(patient, SepsisWorldSettings(skill=1.0))
    assert [always(seen[state]) for state in range(50)] == best[:50].tolist()
    half = task.guide(patient, SepsisWorldSettings(skill=0.5))
    state = int(np.argmin(model.clinicians[np.arange(713), best]))
    share = np.mean([half(seen[state]) == best[state] for _ in range(2000)])
    assert share == pytest.approx(0.5, abs=0.05)  # 4.5 standard deviations


def test_sick_patients_of_sepsis_go_to_other_hospitals():
    task, sofa = IcuSepsisTask(), icu_sepsis().sofa
    means = [
        np.mean([sofa[task.population(CHOSEN, h).patient(each).state] for each in range(200)])
        for h in range(3)
    ]
    assert max(means) - min(means) > 2.0
    survived = operated(task, task.population(CHOSEN, 0).patient(1), lambda state: 12)
    assert set(survived.rewards.tolist()) <= {-1.0, 0.0, 1.0} and survived.terminated


def test_records_of_the_paper_s_plan_are_single_transitions_and_its_epsilon_is_below_8():
    plan = Plan.load(resource('config/paper/paper_world.yaml'))
    simulator = HospitalSimulator(plan.task, plan.world, plan.collection)
    records = simulator.collect(plan.population(0))
    assert records.n_patients == records.n_transitions == 100
    assert plan.network.hidden == (64, 64) and len(plan.hospitals) == 3
    assert np.bincount(records.actions).min() > 15  # of 33; chance 1e-4
    steps = plan.rounds.rounds * plan.learner.epochs * 4
    assert 7.9 < epsilon_pld([(plan.privacy.noise_multiplier, 0.25, steps)], 1e-4) < 8.0
    whole = replace(simulator, world=PaperWorldSettings()).collect(plan.population(0))
    assert whole.longest > 5
    same = [whole.states[whole.starts[:-1]], whole.actions[whole.starts[:-1]]]
    assert np.array_equal(records.states, same[0]) and np.array_equal(records.actions, same[1])
    # A patient joins as often, so epsilon is the same.
    costs = [
        ChargedMechanism.from_settings(each, plan.learner, plan.privacy).charge(steps)
        for each in (records, whole)
    ]
    assert costs[0] == costs[1] and costs[0].sampling_probability == 0.25
    tested = plan.population(0).patient(0, 'test')
    assert len(operated(plan.task, tested, lambda state: 2).actions) > 1
