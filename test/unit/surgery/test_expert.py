# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The expert: succeeds, is pure, and costs what the slow obvious way costs."""

from fdrl_ros.errors import StateError
from fdrl_ros.surgery.gym.actions import ACTIONS, TICK
from fdrl_ros.surgery.gym.episode import mixed_behaviour, run_episode
from fdrl_ros.surgery.gym.operation import Operation
from fdrl_ros.surgery.gym.state import PROCEDURE_NAMES, STATE_SIZE
from fdrl_ros.surgery.gym.surgery_env import SurgeryEnv
from fdrl_ros.surgery.gym.vector_operation import VectorOperation
from fdrl_ros.surgery.patient.cohort import mixture
from fdrl_ros.surgery.settings import WorldSettings
from fdrl_ros.surgery.tasks.expert import expert, expert_costs, vector_expert_costs
from fdrl_ros.surgery.tasks.task import Prospect
import numpy as np
import pytest
from support.sample_size import sampled

KINEMATIC = WorldSettings(mode='kinematic')


def states_of_random_hands():
    rng, behave = np.random.default_rng(3), mixed_behaviour(0.5)
    env = SurgeryEnv(settings=KINEMATIC)
    for index in range(6):
        patient = mixture(3, 0.5, 0).patient(index)
        yield run_episode(env, lambda state, who=patient: behave(state, who, rng), patient)
    env.close()


def test_asking_in_any_order_and_in_batches_gives_the_same_answers():
    for episode in states_of_random_hands():
        batch = expert_costs(episode.states, episode.patient)
        assert batch.shape == (len(episode.states), 15)
        for index in reversed(range(len(episode.states))):
            action, costs = expert(episode.states[index], episode.patient)
            assert np.array_equal(costs, batch[index])
            assert action == int(np.flatnonzero(costs == costs.min())[0])


@pytest.mark.parametrize('procedure', PROCEDURE_NAMES)
def test_costs_are_what_remains_after_the_move_as_the_reward_counts_it(procedure):
    patient = mixture(3, 0.5, 0, (procedure,)).patient(1)
    operation = Operation(KINEMATIC)
    operation.reset(patient)
    task = operation.task
    while not operation.done:
        action, costs = expert(operation.state(), patient, KINEMATIC)
        for number, each in enumerate(ACTIONS):
            x, y, z = np.add(operation.target, each.displacement).tolist()
            told = operation.jaw.told if each.jaw is None else float(each.jaw)
            time = (operation.ticks + 1) * TICK + patient.servo_lag
            breath, scene = operation.tissue.breath(time)[0], operation.scene
            state = operation.jaw.opening, told, float(scene.grasped), scene.done
            slow = task.remaining(Prospect(x, y, z, breath, time, *state))
            # The penalty on predicted force comes on top of it.
            assert costs[number] >= slow - 5e-7
            if number == action:
                assert costs[number] == pytest.approx(slow, abs=5e-7)
        operation.act(ACTIONS[action])
        operation.advance(12)
        operation.tick()
    assert operation.scene.done == 1.0


@pytest.mark.parametrize('heterogeneity', [0.0, 0.5, 1.0])
@pytest.mark.parametrize('procedure', PROCEDURE_NAMES)
def test_the_expert_succeeds_in_every_procedure_at_every_heterogeneity(procedure, heterogeneity):
    """A sample; test/nightly holds 1000 patients of each, with the motors too."""
    patients, count = mixture(3, heterogeneity, 12, (procedure,)), sampled(200, 30)
    batch = VectorOperation([patients.patient(index) for index in range(count)])
    batch.reset()
    ends = []
    while len(ends) < count:
        _, _, terminated, truncated, said = batch.step(vector_expert_costs(batch).argmin(axis=1))
        over = terminated | truncated
        ends += said['success'][over].tolist()
        assert (said['peak_force'] < [each.procedure.force_limit for each in batch.patients]).all()
        if over.any() and not over.all():
            batch.select(np.flatnonzero(~over))
    assert sum(ends) >= 0.99 * count - 1


def test_a_deep_press_makes_pulling_back_the_best_action():
    patient = mixture(3, 1.0, 0).patient(2)
    operation = Operation(KINEMATIC)
    operation.reset(patient)
    x, y, z = patient.goal
    operation.set_target((x, y, z - 0.03))
    action, costs = expert(operation.state(), patient)
    assert action == 5
    assert costs[4] > costs[12] > costs[5]


def test_states_that_are_none_are_refused():
    patient = mixture(3, 0.5, 0).patient(0)
    with pytest.raises(StateError):
        expert(np.zeros(STATE_SIZE - 1, np.float32), patient)
    with pytest.raises(StateError):
        expert(np.full(STATE_SIZE, np.inf, np.float32), patient)
