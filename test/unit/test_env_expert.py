# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The expert: succeeds, is pure, and costs what the slow obvious way costs."""

from fdrl_ros.env.actions import displacement, TICK
from fdrl_ros.env.episode import mixed_behaviour, run_episode
from fdrl_ros.env.expert import expert, expert_costs, remaining_distance
from fdrl_ros.env.operation import Operation
from fdrl_ros.env.patient import mixture
from fdrl_ros.env.settings import WorldSettings
from fdrl_ros.env.state import STATE_SIZE
from fdrl_ros.env.surgery import SurgeryEnv
from fdrl_ros.env.tissue import Tissue
from fdrl_ros.errors import StateError
import numpy as np
import pytest

KINEMATIC = WorldSettings(mode='kinematic')


@pytest.mark.parametrize('heterogeneity', [0.0, 0.5, 1.0])
@pytest.mark.parametrize(('mode', 'count'), [('dynamic', 30), ('kinematic', 120)])
def test_the_expert_succeeds(mode, count, heterogeneity):
    """A sample: 1000 patients a procedure and H, in dynamic mode, take a few minutes."""
    settings = WorldSettings(mode=mode)
    env, patients = SurgeryEnv(settings=settings), mixture(3, heterogeneity, 11)
    won = 0
    for index in range(count):
        patient = patients.patient(index)
        choose = lambda state, who=patient: expert(state, who, settings)[0]  # noqa: E731
        won += run_episode(env, choose, patient).success
    env.close()
    assert won >= 0.99 * count


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
        assert batch.shape == (len(episode.states), 13)
        for index in reversed(range(len(episode.states))):
            action, costs = expert(episode.states[index], episode.patient)
            assert np.array_equal(costs, batch[index])
            assert action == int(np.flatnonzero(costs == costs.min())[0])


def test_costs_are_the_remaining_distance_after_the_move():
    """Below the force margin the cost is the potential that the reward is made of."""
    patient = mixture(3, 0.5, 0).patient(1)
    operation = Operation(KINEMATIC)
    operation.reset(patient)
    tissue = Tissue(patient)
    for _ in range(12):
        action, costs = expert(operation.state(), patient, KINEMATIC)
        for each in range(13):
            moved = np.add(operation.target, displacement(each))
            error = tuple((moved - patient.goal).tolist())
            slow = remaining_distance(tissue, patient, error, operation.time + TICK)
            assert costs[each] == pytest.approx(slow, abs=3e-7)
        operation.set_target(tuple(np.add(operation.target, displacement(action)).tolist()))
        operation.advance(12)
        operation.tick()


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
