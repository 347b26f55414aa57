# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The tasks of docs/tutorial load from their files, and their guides do what is to be learned."""

from contextlib import closing
from pathlib import Path

from fdrl_ros.deployment.plan import Plan
from fdrl_ros.learner.records.collection import HospitalSimulator
from fdrl_ros.surgery.tasks.procedures import procedure_named
import numpy as np
import pytest

FOLDER = Path(__file__).resolve().parents[3] / 'docs' / 'tutorial'
TASKS = {'reach': 'Reach', 'endoscope': 'Endoscope', 'spleen': 'SpleenTask'}


def plan_of(name, **values):
    task = {'task': f'{FOLDER}/{name}.py:{TASKS[name]}'}
    return Plan({'federation': task, **values}).checked()


@pytest.mark.parametrize('name', TASKS)
def test_the_guide_succeeds_where_random_actions_do_not(name):
    plan = plan_of(name)
    rng, task = np.random.default_rng(3), plan.task
    patients = [plan.population(each % 3).patient(each, 'test') for each in range(24)]
    with closing(task.make_env(plan.world)) as env:

        def share(who):
            episodes = [task.operate(env, who(each), each, rng) for each in patients]
            return np.mean([each.success for each in episodes])

        assert share(lambda each: task.guide(each, plan.world)) > 0.9
        assert share(lambda each: lambda state: plan.spec.draw_action(rng)) < 0.35


@pytest.mark.parametrize('name', TASKS)
def test_its_records_are_of_the_task_and_fit_the_network(name):
    plan = plan_of(name, collection={'patients': 4}, privacy={'batch': 2})
    simulator = HospitalSimulator(plan.task, plan.world, plan.collection)
    records = simulator.collect(plan.population(1))
    assert records.task == plan.identity and records.n_patients == 4
    assert records.states.dtype == plan.spec.dtype
    policy = plan.network.policy(plan.network.draw(np.random.default_rng(0)))
    action = policy(records.states[0])
    assert np.shape(action) == records.actions.shape[1:]


def test_the_network_of_the_endoscope_has_as_many_weights_as_its_page_says():
    assert plan_of('endoscope').network.layout.n_parameters == 2181


def test_a_user_s_procedure_has_the_user_s_numbers():
    plan = plan_of('spleen')
    usual = procedure_named('palpation')
    for hospital in (0, None):
        patient = plan.population(hospital).patient(0)
        assert (patient.procedure.name, patient.procedure.target_force) == ('palpation', 0.5)
        assert patient.procedure.force_limit < usual.force_limit
    usual_plan = Plan({'federation': {'procedures': 'palpation'}}).checked()
    assert plan.identity != usual_plan.identity
