# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Collecting by simulation and the public start: repeatable, separate by patient, stoppable."""

from dataclasses import replace
from itertools import pairwise

from fdrl_ros.deployment.plan import Plan
from fdrl_ros.deployment.prepare import check_plan, public_records
from fdrl_ros.errors import RecordsError, SettingError, TrainingStopped
from fdrl_ros.learner.pretraining import pretrain, PretrainingSettings, Start
from fdrl_ros.learner.records.collection import CollectionSettings, HospitalSimulator
from fdrl_ros.learner.settings import LearnerSettings
from fdrl_ros.policy import NetworkShape
from fdrl_ros.surgery.gym.actions import ACTION_COUNT
from fdrl_ros.surgery.gym.state import PROCEDURE_NAMES, STATE_SIZE
from fdrl_ros.surgery.patient.cohort import Cohort, public_cohort
from fdrl_ros.surgery.patient.conditions import Conditions
from fdrl_ros.surgery.settings import WorldSettings
from fdrl_ros.surgery.task import SurgeryTask
from fdrl_ros.surgery.tasks.controller import controller
from fdrl_ros.surgery.tasks.expert import expert
import numpy as np
import pytest

COHORT = Cohort(0, 3, 0.5, 7)
ONE, SIX = CollectionSettings(patients=1), CollectionSettings(patients=6)
WORLD = WorldSettings(mode='kinematic')
DISTURBED = Conditions(disturbances=True)
SHAPE = NetworkShape(STATE_SIZE, ACTION_COUNT, (8, 8))


def collect(cohort=COHORT, settings=SIX, policy=None, **hooks):
    return HospitalSimulator(SurgeryTask(), WORLD, settings, policy).collect(cohort, **hooks)


@pytest.fixture(scope='module')
def records():
    return collect()


def test_collecting_again_gives_the_same_records_of_every_patient(records):
    assert collect().digest() == records.digest()
    assert records.patients.tolist() == [f'hospital_1/train/{number}' for number in range(6)]


def test_what_is_recorded_of_a_patient_depends_on_no_other_patient(records):
    fewer = collect(settings=CollectionSettings(patients=4))
    end = fewer.starts[-1]
    np.testing.assert_array_equal(fewer.states, records.states[:end])
    np.testing.assert_array_equal(fewer.actions, records.actions[:end])


@pytest.mark.parametrize('other', [Cohort(1, 3, 0.5, 7), Cohort(0, 3, 0.5, 8), public_cohort(7)])
def test_hospitals_and_seeds_collect_other_records(other):
    one, two = (collect(each, ONE) for each in (COHORT, other))
    assert not np.array_equal(one.states, two.states)


def test_without_exploration_the_expert_acts_alone():
    settings = CollectionSettings(patients=1, exploration=0.0, variation=0.0)
    found, patient = collect(COHORT, settings), COHORT.patient(0)
    assert found.actions.tolist() == [expert(each, patient, WORLD)[0] for each in found.states]


def test_full_exploration_moves_at_random():
    settings = CollectionSettings(patients=6, exploration=1.0, variation=0.0)
    actions = collect(COHORT, settings).actions
    counts = np.bincount(actions, minlength=ACTION_COUNT)
    # Chi-squared with 12 degrees of freedom passes 40 with probability 7e-5; the seed is fixed.
    expected = len(actions) / ACTION_COUNT
    assert np.sum((counts - expected) ** 2) / expected < 40.0


def test_a_released_policy_may_guide():
    settings = CollectionSettings(patients=2, exploration=0.0, variation=0.0, guide='policy')
    assert set(collect(COHORT, settings, lambda state: 12).actions) == {12}
    with pytest.raises(SettingError):
        collect(COHORT, settings)


def test_progress_is_told_and_a_stop_is_heard(records):
    told = []
    collect(progress=lambda done, count: told.append((done, count)))
    assert told == [(each, 6) for each in range(1, 7)]
    with pytest.raises(TrainingStopped):
        collect(stopped=lambda: True)
    with pytest.raises(TrainingStopped):
        pretrained(records, PretrainingSettings(steps=5), 1, stopped=lambda: True)


def pretrained(records, settings, seed, shape=SHAPE, **hooks):
    rng = np.random.default_rng(seed)
    start = Start(shape.draw(rng), shape, LearnerSettings())
    return pretrain(records, start, settings, rng, **hooks)


def test_pretraining_repeats_and_learns(records):
    settings = PretrainingSettings(steps=60, batch=64)
    weights = pretrained(records, settings, 3)
    np.testing.assert_array_equal(weights, pretrained(records, settings, 3))
    assert not np.array_equal(weights, pretrained(records, settings, 4))
    assert weights.dtype == np.float32
    unlearned = pretrained(records, PretrainingSettings(steps=0), 5)
    np.testing.assert_array_equal(unlearned, SHAPE.draw(np.random.default_rng(5)))


def test_a_step_takes_no_more_transitions_than_there_are(records):
    count = len(records.actions)
    settings = [PretrainingSettings(steps=2, batch=batch) for batch in (count, 10**6)]
    np.testing.assert_array_equal(*(pretrained(records, each, 3) for each in settings))


def test_records_of_another_network_are_refused(records):
    for shape in (NetworkShape(STATE_SIZE + 1, ACTION_COUNT), NetworkShape(STATE_SIZE, 2)):
        with pytest.raises(RecordsError, match='of the network|the network takes'):
            pretrained(records, PretrainingSettings(steps=1), 1, shape)


# A controller, and labels of a guide.

LABELLED = CollectionSettings(patients=5, exploration=0.5, guide='controller')


def labelled(labels='guide', world=WORLD, settings=LABELLED, task=None, cohort=COHORT):
    simulator = HospitalSimulator(task or SurgeryTask(), world, settings, labels=labels)
    return simulator.collect(cohort)


def test_labels_are_what_the_guide_would_do_in_the_states_that_were_met():
    done, told = labelled('done'), labelled()
    np.testing.assert_array_equal(told.actions, controller(told.states))
    for name in ('states', 'next_states', 'rewards', 'starts', 'terminals'):
        np.testing.assert_array_equal(getattr(done, name), getattr(told, name))
    explored = (done.actions != told.actions).mean()
    assert 0.3 < explored < 0.6  # half of the moves are drawn, one in 15 of those is the guide's


def test_labels_of_the_expert_are_its_own():
    settings = CollectionSettings(patients=2, exploration=0.5)
    done, told = labelled('done', settings=settings), labelled(settings=settings)
    np.testing.assert_array_equal(done.states, told.states)
    for index, (first, last) in enumerate(pairwise(told.starts)):
        patient = COHORT.patient(index)
        expected = [expert(each, patient, WORLD)[0] for each in told.states[first:last]]
        assert told.actions[first:last].tolist() == expected
    assert (done.actions != told.actions).any()


@pytest.mark.parametrize('cohort', [COHORT, public_cohort(7, 1.0, PROCEDURE_NAMES, DISTURBED)])
def test_side_by_side_and_alone_a_controller_does_the_same(cohort):
    """The arrays of a batch differ from one operation by rounding only."""
    together = labelled(cohort=cohort)
    alone = labelled(cohort=cohort, task=OneByOne())
    np.testing.assert_array_equal(together.actions, alone.actions)
    np.testing.assert_array_equal(together.starts, alone.starts)
    np.testing.assert_allclose(together.states, alone.states, atol=1e-4)


class OneByOne(SurgeryTask):
    """Surgery in a world that knows no batches."""

    def operate_together(self, patients, choose, world):
        return None


def test_what_a_controller_does_with_a_patient_depends_on_no_other_patient(monkeypatch):
    many = labelled()
    monkeypatch.setattr('fdrl_ros.learner.records.collection._SIDE_BY_SIDE', 2)
    assert labelled().digest() == many.digest()
    fewer = labelled(settings=replace(LABELLED, patients=3))
    np.testing.assert_array_equal(fewer.states, many.states[: fewer.starts[-1]])


class Unguided(SurgeryTask):
    """Surgery that nobody can do."""

    def hand_written(self, world):
        return None

    def guide(self, patient, world):
        return None


@pytest.mark.parametrize(
    'guide, labels, wanted',
    [
        ('controller', 'done', 'nobody wrote a controller'),
        ('expert', 'guide', 'nobody guides'),
        ('surgeon', 'guide', 'where one guides'),
        ('expert', 'right', 'where one guides'),
    ],
)
def test_a_guide_that_there_is_not_is_refused(guide, labels, wanted):
    with pytest.raises(SettingError, match=wanted):
        labelled(labels, settings=replace(LABELLED, guide=guide), task=Unguided())


# The public records of a plan.

PUBLIC = {
    'federation': {'seed': 3},
    'pretraining': {'patients': 4},
}


def plan_of(**changes):
    return Plan().changed({**PUBLIC, **changes})


def test_public_records_of_the_expert_are_explored_as_those_of_hospitals():
    chosen = {'heterogeneity': 0.0, 'guide': 'expert', 'labels': 'done', 'exploration': -1.0}
    plan = plan_of(
        collection={'exploration': 0.3, 'guide': 'surgeon'},
        pretraining={**PUBLIC['pretraining'], **chosen},
    )
    usual = CollectionSettings(patients=4, exploration=0.3)
    population = SurgeryTask().population(plan.federation, None)
    expected = HospitalSimulator(SurgeryTask(), WORLD, usual).collect(population)
    assert public_records(plan).digest() == expected.digest()


def test_public_records_are_by_default_what_the_controller_would_do_with_kinematic_arms():
    plan = plan_of()
    assert plan.world.mode == 'dynamic'
    found = public_records(plan)
    settings = CollectionSettings(4, exploration=0.2, variation=0.0, guide='controller')
    cohort = public_cohort(3, 1.0, PROCEDURE_NAMES, DISTURBED)
    expected = labelled(settings=settings, cohort=cohort)
    assert found.digest() == expected.digest()
    assert any(cohort.patient(index).latency for index in range(4))


@pytest.mark.parametrize('algorithm', ['', 'advantage_weighted'])
def test_labels_of_a_guide_are_refused_where_rewards_are_learned_from(algorithm):
    plan = plan_of(learner={'algorithm': algorithm}, pretraining={'labels': 'guide'})
    for check in (public_records, lambda each: check_plan(each, None)):
        with pytest.raises(SettingError, match='learns from the rewards'):
            check(plan)
