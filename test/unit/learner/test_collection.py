# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Collecting by simulation and the public start: repeatable, separate by patient, stoppable."""

from fdrl_ros.errors import RecordsError, SettingError, TrainingStopped
from fdrl_ros.learner.pretraining import pretrain, PretrainingSettings, Start
from fdrl_ros.learner.records.collection import CollectionSettings, HospitalSimulator
from fdrl_ros.learner.settings import LearnerSettings
from fdrl_ros.policy import NetworkShape
from fdrl_ros.surgery.gym.actions import ACTION_COUNT
from fdrl_ros.surgery.gym.state import STATE_SIZE
from fdrl_ros.surgery.patient.cohort import Cohort, public_cohort
from fdrl_ros.surgery.settings import WorldSettings
from fdrl_ros.surgery.task import SurgeryTask
from fdrl_ros.surgery.tasks.expert import expert
import numpy as np
import pytest

COHORT = Cohort(0, 3, 0.5, 7)
ONE, SIX = CollectionSettings(patients=1), CollectionSettings(patients=6)
WORLD = WorldSettings(mode='kinematic')
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
