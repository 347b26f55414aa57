# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Tasks by closed forms, and the expert: it succeeds, is pure, and costs what is left."""

import dataclasses
import math

from fdrl_ros.errors import StateError
from fdrl_ros.surgery.constants import constant
from fdrl_ros.surgery.gym.actions import ACTIONS, CLOSE_JAW, OPEN_JAW, STAY, TICK
from fdrl_ros.surgery.gym.episode import mixed_behaviour, run_episode
from fdrl_ros.surgery.gym.operation import Operation
from fdrl_ros.surgery.gym.state import PROCEDURE_NAMES, STATE_SIZE
from fdrl_ros.surgery.gym.surgery_env import SurgeryEnv
from fdrl_ros.surgery.gym.vector_operation import VectorOperation
from fdrl_ros.surgery.patient.cohort import Cohort, mixture
from fdrl_ros.surgery.patient.events import Event
from fdrl_ros.surgery.settings import WorldSettings
from fdrl_ros.surgery.tasks.expert import expert, expert_costs, vector_expert_costs
from fdrl_ros.surgery.tasks.registry import task_of
from fdrl_ros.surgery.tasks.task import Prospect, Reading, Scene
from fdrl_ros.surgery.tissue.contact import tissue_of
from hypothesis import example, given, settings, strategies
import numpy as np
import pytest
from support.sample_size import sampled

KINEMATIC = WorldSettings(mode='kinematic')
MILLIMETRE = 0.001
WITH_JAW = ('needle_pass', 'peg_transfer')
near = strategies.floats(-0.02, 0.02)
share = strategies.floats(0.0, 1.0)


def patient_for(procedure, index=0, still=True):
    """Return a patient; a still one does not breathe and lies where the plan says."""
    found = Cohort(1, 3, 0.5, 5, procedures=PROCEDURE_NAMES).patient(index, procedure=procedure)
    if not still:
        return found
    return dataclasses.replace(found, breathing_amplitude=0.0, registration_error=0.0, events=())


def task_for(procedure, index=0, still=True):
    patient = patient_for(procedure, index, still)
    return task_of(patient, tissue_of(patient))


def reading(tip, jaw=0.0, time=1.0, normal=0.0):
    return Reading(tip, normal, jaw, time, 0.0, TICK)


def judge(task, scene, read):
    """Bring a scene up to date; return what the procedure is lost by, or nothing."""
    return task.loss if task.progress(scene, read) else ''


def begin(procedure, patient=None):
    operation = Operation(KINEMATIC)
    operation.reset(patient or patient_for(procedure))
    return operation


def act(operation, action, times=1):
    for _ in range(times):
        operation.act(ACTIONS[action])
        operation.advance(12)
        outcome = operation.tick()
        if operation.done:
            break
    return outcome


def operate(operation, until):
    """Let the expert operate until something is so, or the end."""
    outcome = None
    while not operation.done and not until(operation):
        action = expert(operation.state(), operation.patient, KINEMATIC)[0]
        outcome = act(operation, action)
    return outcome


# Incision.


def blade(task, along, beside, depth):
    x, y, z = task.goal
    return (
        x + along * task.along_x - beside * task.along_y,
        y + along * task.along_y + beside * task.along_x,
        z - depth,
    )


@settings(max_examples=sampled(100, 20))
@given(share, strategies.floats(-0.004, 0.016), strategies.floats(-0.003, 0.003), near)
@example(0.0, 0.002, 0.0, 0.003)
@example(0.0, 0.0, 0.0, 0.007)  # the limit itself, which rounding puts on either side
def test_a_cut_grows_only_near_its_line_and_depth_and_by_one_bite_at_most(
    done, along, beside, depth
):
    task, scene = task_for('incision'), Scene(done=done)
    failure = judge(task, scene, reading(blade(task, along, beside, depth)))
    front = done * task.length
    margins = [
        constant('incision.line_tolerance') - abs(beside),
        constant('incision.depth_tolerance') - abs(depth - constant('incision.depth')),
        along - front,
        front + constant('incision.bite') - along,
    ]
    deeper = depth - constant('incision.depth_limit')
    if abs(deeper) > 1e-9:
        assert failure == ('depth' if deeper > 0.0 else '')
    if min(margins) > 1e-9:
        assert scene.done == pytest.approx(min(along / task.length, 1.0), abs=1e-9)
    elif min(margins) < -1e-9:
        assert scene.done == pytest.approx(done, abs=1e-15)
    assert -1e-12 <= scene.done - done <= (constant('incision.bite') + 1e-9) / task.length


# Needle and ring.


@pytest.mark.parametrize('procedure', WITH_JAW)
@given(near, near, near)
def test_letting_go_elsewhere_is_a_drop_and_at_the_place_it_is_success(procedure, x, y, z):
    task = task_for(procedure)
    scene = Scene(done=0.5, grasped=True, object=task.pick)
    tip = tuple((np.array(task.place) + (x, y, z)).tolist())
    failure = judge(task, scene, reading(tip, 0.6))
    over = max(abs(x), abs(y), abs(z)) - task.place_tolerance
    assert not scene.grasped
    if over < -1e-9:
        assert (failure, scene.done, scene.object) == ('', 1.0, tip)
    elif over > 1e-9:
        assert failure == 'drop' and scene.done < 1.0


def test_a_needle_let_go_on_the_way_is_lost():
    operation = begin('needle_pass')
    operate(operation, lambda each: each.scene.grasped)
    act(operation, 5)
    assert operation.scene.object == operation.arm.position
    outcome = act(operation, OPEN_JAW, 10)
    assert (outcome.failure, outcome.terminated) == ('drop', True)


@pytest.mark.parametrize('procedure', sorted(set(PROCEDURE_NAMES) - set(WITH_JAW)))
def test_orders_to_a_jaw_that_is_not_used_do_nothing(procedure):
    told, still = begin(procedure), begin(procedure)
    for action in (OPEN_JAW, CLOSE_JAW, OPEN_JAW, OPEN_JAW):
        rewards = [act(told, action).reward, act(still, STAY).reward]
        assert rewards[0] == rewards[1]
        np.testing.assert_array_equal(told.state(), still.state())
    assert told.jaw.angle == told.jaw.target == 0.0


# Reach and follow.


@given(strategies.lists(strategies.booleans(), min_size=1, max_size=80))
@example([True] * 8)
@example([True] * 7 + [False] + [True] * 7)
def test_follow_counts_time_with_breaks_and_reach_without(there):
    for procedure in ('reach', 'follow'):
        task, scene, run, total = task_for(procedure), Scene(), 0, 0
        for tick, at in enumerate(there):
            time = tick * TICK
            x, y, z = task.waypoint(0.0, scene.done, time, 0.0)
            off = 0.9 if at else 1.1
            tip = (x + off * task.tolerance, y, z - 0.5 * task.tolerance)
            assert judge(task, scene, reading(tip, time=time)) == ''
            run, total = (run + 1 if at else 0), total + at
            ticks = run if procedure == 'reach' else total
            wanted = min(ticks * TICK / task.hold_time, 1.0)
            assert scene.done == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize('procedure', PROCEDURE_NAMES)
def test_waypoints_are_continuous_in_time(procedure):
    patient = dataclasses.replace(
        patient_for(procedure, still=False), events=(Event('breathing', 1.0, 2.5, 1.8),)
    )
    tissue = tissue_of(patient)
    task, step = task_of(patient, tissue), 0.002
    way = np.array(
        [
            task.waypoint(0.0, 0.3, each, tissue.breath(each)[0])
            for each in np.arange(0.0, 6.0, step).tolist()
        ]
    )
    stride = np.linalg.norm(np.diff(way, axis=0), axis=1)
    if procedure != 'follow':
        assert stride.max() == 0.0
        return
    rate = 2.0 * math.pi * patient.respiratory_rate / 60.0
    breath = patient.breathing_amplitude * 1.8 * (rate + 2.0 / constant('events.ramp'))
    circling = 2.0 * math.pi / constant('follow.circle_time') * task.radius
    assert 0.9 * circling * step < stride.max() < 1.1 * math.hypot(circling, breath) * step


# All of them: what remains.


@settings(max_examples=sampled(100, 20))
@given(
    strategies.sampled_from(PROCEDURE_NAMES),
    strategies.tuples(near, near, near, near, strategies.floats(0.0, 6.0), share),
    strategies.tuples(*[strategies.booleans()] * 2, share),
)
def test_no_cost_is_negative_and_only_a_held_ring_meets_resistance(procedure, place, jaw):
    task = task_for(procedure, still=False)
    x, y, z, breath, time, opening = place
    told, grasped, done = jaw
    off = [a + b for a, b in zip(patient_for(procedure).goal, (x, y, z), strict=True)]
    at = Prospect(*off, breath, time, opening, float(told), float(grasped), done)
    assert task.remaining(at) >= 0.0
    pull = task.resistance(float(grasped), *off)
    assert not any(pull) or (procedure == 'peg_transfer' and grasped)


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
    patients, count = mixture(3, heterogeneity, 12, (procedure,)), sampled(200, 15)
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
