# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Any Gymnasium env as a task: patients by number, episodes that repeat, refusals."""

from types import SimpleNamespace
from typing import ClassVar

from fdrl_ros.errors import SettingError, TaskError
from fdrl_ros.tasks import GymTask
from fdrl_ros.tasks.task import NoSettings
import numpy as np
import pytest
from support.pole import Pole

POLE, WORLD = Pole(), NoSettings()
CHOSEN = SimpleNamespace(hospitals=3, heterogeneity=0.5, seed=1, procedures='')


def episode(task, patient, choose=lambda state: 0):
    env = task.make_env(WORLD)
    try:
        return task.operate(env, choose, patient, np.random.default_rng(0))
    finally:
        env.close()


def test_every_patient_is_a_function_of_hospital_split_and_number():
    populations = [POLE.population(CHOSEN, each) for each in (0, 1, 2, None)]
    drawn = [
        each.patient(index, split)
        for each in populations
        for split in ('train', 'test')
        for index in range(4)
    ]
    assert drawn[0] == POLE.population(CHOSEN, 0).patient(0)
    assert len({each.name for each in drawn}) == len({each.seed for each in drawn}) == len(drawn)
    lengths = [each.patient(0).values['length'] for each in populations]
    np.testing.assert_allclose(lengths, [0.35, 0.5, 0.65, 0.5])
    public = POLE.population(CHOSEN, None, 1.0)
    assert 0.2 <= public.patient(3).values['length'] <= 0.8


def test_an_episode_repeats_and_has_the_patient_s_values():
    patient = POLE.population(CHOSEN, 2).patient(0)
    one, two = (episode(POLE, patient) for _ in range(2))
    np.testing.assert_array_equal(one.states, two.states)
    other = episode(POLE, POLE.population(CHOSEN, 2).patient(1))
    assert not np.array_equal(one.states[0], other.states[0])
    short = type(patient)(patient.name, patient.seed, {'length': 0.1})
    assert not np.array_equal(one.states[1:3], episode(POLE, short).states[1:3])
    assert one.terminated and not one.success and one.rewards.sum() == len(one.actions) < 20


def test_nothing_of_a_patient_reaches_the_next_one():
    named = POLE.population(CHOSEN, 2).patient(0)
    bare = type(named)('bare', 5, {})
    alone = episode(POLE, bare)
    env = POLE.make_env(WORLD)
    POLE.operate(env, lambda state: 0, named, np.random.default_rng(0))
    after = POLE.operate(env, lambda state: 0, bare, np.random.default_rng(0))
    np.testing.assert_array_equal(after.states, alone.states)
    env.close()


def test_the_controller_reaches_the_end_and_succeeds():
    patient = POLE.population(CHOSEN, 1).patient(3)
    found = episode(POLE, patient, POLE.guide(patient, WORLD))
    assert found.success and not found.terminated and found.states.shape == (61, 4)
    assert np.abs(found.states).max() < 5.0, 'numbers are divided by their scales'


def test_a_change_of_the_world_changes_the_identity():
    class Longer(Pole):
        env_arguments = {'max_episode_steps': 61}

    class Newer(Pole):
        version = 2

    hashes = {task.identity(WORLD).world_hash for task in (POLE, Longer(), Newer())}
    assert len(hashes) == 3 and Pole().identity(WORLD) == POLE.identity(WORLD)


def test_what_a_user_can_get_wrong_is_said():
    class Unknown(Pole):
        env_id = 'NoSuchEnv-v9'

    class Aimless(Pole):
        success_return = None

    class Strange(Pole):
        """Its env has no such number."""

        def draw_patient(self, lean, rng):
            return {'lenght': 1.0}

    class Absent(Pole):
        """Nobody acts."""

        def controller(self, observation, patient):
            return None

    patient = POLE.population(CHOSEN, 0).patient(0)
    with pytest.raises(TaskError, match='NoSuchEnv'):
        Unknown().spec(WORLD)
    with pytest.raises(TaskError, match='success_return'):
        episode(Aimless(), patient)
    strange = Strange()
    with pytest.raises(TaskError, match='lenght'):
        episode(strange, strange.population(CHOSEN, 0).patient(0))
    with pytest.raises(TaskError, match='no action'):
        episode(Absent(), patient, Absent().guide(patient, WORLD))
    with pytest.raises(SettingError, match='has none'):
        POLE.check(SimpleNamespace(procedures='reach'))
    assert GymTask.guide(type('Plain', (GymTask,), {'name': 'plain'})(), patient, WORLD) is None


def test_an_argument_that_each_process_sees_as_another_is_refused():
    class Odd(Pole):
        env_arguments: ClassVar = {'thing': object()}

    with pytest.raises(TaskError, match='same in every process'):
        Odd().constants()
