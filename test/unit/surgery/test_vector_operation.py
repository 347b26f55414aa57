# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Many operations at once: each row goes as the operation that its patient has alone."""

import dataclasses

from fdrl_ros.errors import SettingError, StateError
from fdrl_ros.surgery.arm.kinematics import UnreachableError
from fdrl_ros.surgery.arm.lagging_arms import HIGH, LOW, refuse_unreachable
from fdrl_ros.surgery.gym.actions import ACTION_COUNT, ACTIONS, STAY, SUBSTEPS
from fdrl_ros.surgery.gym.operation import Operation
from fdrl_ros.surgery.gym.state import INDEX, PROCEDURE_NAMES, STATE_SIZE
from fdrl_ros.surgery.gym.surgery_env import SurgeryEnv
from fdrl_ros.surgery.gym.vector_env import VectorSurgeryEnv
from fdrl_ros.surgery.gym.vector_operation import VectorOperation
from fdrl_ros.surgery.patient.cohort import Cohort, public_cohort
from fdrl_ros.surgery.patient.conditions import Conditions, NO_DISTURBANCE
from fdrl_ros.surgery.patient.events import Event
from fdrl_ros.surgery.settings import WorldSettings
from fdrl_ros.surgery.tasks.expert import expert, vector_expert_costs
from fdrl_ros.surgery.tasks.outcome import FAILURES, NO_FAILURE
from gymnasium.vector import AutoresetMode, SyncVectorEnv
import numpy as np
import pytest

WORLD = WorldSettings(mode='kinematic')
CLOSE = {'rtol': 1e-9, 'atol': 1e-12}
COHORT = Cohort(1, 3, 0.7, 4, procedures=PROCEDURE_NAMES)
COUGHS = (
    Event('breathing', 0.1, 1.1, 1.8),
    Event('breathing', 0.9, 3.0, 1.3),
    Event('breathing', 2.0, 0.5, 1.6),
    Event('bleed', 0.0, 2.0, 30.0),
    Event('bleed', 1.03, 0.4, 12.0),
    Event('desaturation', 0.55, 40.0, 9.0),
    Event('desaturation', 1.0, 0.3, 5.0),
)


def cast(heterogeneity, count, conditions=NO_DISTURBANCE):
    """Return patients of every procedure, each third of them with a cough and more."""
    cohort = Cohort(1, 3, heterogeneity, 4, procedures=PROCEDURE_NAMES, conditions=conditions)
    people = [
        cohort.patient(index, procedure=PROCEDURE_NAMES[index % len(PROCEDURE_NAMES)])
        for index in range(count)
    ]
    return [
        dataclasses.replace(each, events=COUGHS) if index % 3 == 0 else each
        for index, each in enumerate(people)
    ]


def alone(patient, world=WORLD):
    operation = Operation(world)
    operation.reset(patient)
    return operation


def go_on(operation, action):
    operation.act(ACTIONS[int(action)])
    operation.advance(SUBSTEPS)
    return operation.tick()


def compare(batch, row, step, operation, outcome):
    """Hold one row of a step against the operation that is in it."""
    states, rewards, terminated, truncated, info = step
    np.testing.assert_allclose(states[row], operation.state(), rtol=2e-7, atol=1e-9)
    np.testing.assert_allclose(rewards[row], outcome.reward, rtol=1e-9, atol=1e-10)
    assert (terminated[row], truncated[row]) == (outcome.terminated, outcome.truncated)
    assert info['success'][row] == outcome.success
    assert info['critical'][row] == outcome.critical
    failure = info['failure'][row]
    assert ('' if failure == NO_FAILURE else FAILURES[failure]) == outcome.failure
    body = operation.physiology
    assert (info['news2'][row], info['sofa'][row]) == body.scores()
    told = {
        'peak_force': outcome.peak_force,
        'mean_force': outcome.mean_force,
        'damage': outcome.damage,
        'force': operation.load,
        'tip': operation.arm.position,
        'jaw': operation.jaw.angle,
        'mean_arterial_pressure': body.pressure,
    }
    mine = [batch.values()[row], batch.time_above[:, row], *(info[name][row] for name in told)]
    alone = [operation.values(), operation.time_above, *told.values()]
    np.testing.assert_allclose(np.hstack(mine), np.hstack(alone), **CLOSE)


@pytest.mark.parametrize(
    ('share', 'pressure', 'noise', 'conditions'),
    [
        (0.7, 1e3, 0.0, Conditions()),
        (1.0, 5e4, 0.0, Conditions()),
        (0.7, 5e4, 0.05, Conditions()),
        (0.9, 5e4, 0.0, Conditions(gap=2.0, disturbances=True)),
    ],
)
def test_every_row_goes_as_the_operation_that_its_patient_has_alone(
    share, pressure, noise, conditions, monkeypatch
):
    monkeypatch.setattr('fdrl_ros.surgery.tissue.contact.PRESSURE_LIMIT', pressure)
    rng, world = (
        np.random.default_rng(int(10 * share)),
        dataclasses.replace(WORLD, force_noise=noise),
    )
    count = 14 if share == 1.0 else 7
    people = cast(0.8, count, conditions)
    if conditions.disturbances:
        assert {each.latency for each in people} == {1, 2}
    batch = VectorOperation(people, world)
    states = batch.reset()
    operations = [alone(each, world) for each in people]
    np.testing.assert_array_equal(states, [each.state() for each in operations])
    ended = set()
    while operations:
        experts = [expert(each.state(), each.patient, world) for each in operations]
        same_states = batch.states() == np.array([each.state() for each in operations])
        for row, costs in enumerate(vector_expert_costs(batch)):
            # Costs are rounded to 1e-7 m, states to float32.
            step = 1.01e-7 if same_states[row].all() else 1e-6
            np.testing.assert_allclose(costs, experts[row][1], rtol=1e-12, atol=step)
        actions = [
            best if rng.random() < share else int(rng.integers(ACTION_COUNT))
            for best, _costs in experts
        ]
        step = batch.step(actions)
        for row, operation in enumerate(operations):
            outcome = go_on(operation, actions[row])
            compare(batch, row, step, operation, outcome)
            if operation.done:
                ended.add((operation.patient.procedure.name, outcome.success))
        np.testing.assert_array_equal(batch.over, [each.done for each in operations])
        going = [each for each in operations if not each.done]
        if going and len(going) < len(operations):
            batch.select(np.flatnonzero(~batch.over))
        operations = going
    assert {name for name, _success in ended} == set(PROCEDURE_NAMES)
    assert share < 1.0 or sum(success for _name, success in ended) >= 6


def test_what_a_step_returned_does_not_change_later():
    batch = VectorOperation(cast(0.0, 7))
    batch.reset()
    step = batch.step(np.full(7, 4))
    kept = [np.copy(each) for each in (*step[:4], *step[4].values())]
    for _ in range(5):
        batch.step(np.full(7, 4))
    batch.replace(0, COHORT.patient(3))
    for before, after in zip(kept, (*step[:4], *step[4].values()), strict=True):
        np.testing.assert_array_equal(before, after)


def test_misuse_is_refused_and_nothing_moves():
    for settings in (WorldSettings(mode='dynamic'), 'kinematic'):
        with pytest.raises(SettingError):
            VectorOperation(settings=settings)
    batch, people = VectorOperation(), cast(0.0, 3)
    for call in (batch.reset, lambda: batch.step([]), lambda: batch.replace(0, people[0])):
        with pytest.raises(StateError):
            call()
    batch.reset(people)
    before = batch.values()
    for actions in ([0, 1], [[0, 1, 2]], [0, 1, ACTION_COUNT], [0, -1, 2], [0.0] * 3, [True] * 3):
        with pytest.raises(StateError, match='actions'):
            batch.step(actions)
    for row, patient in ((3, people[0]), (-1, people[0]), (0.5, people[0]), (0, 'somebody')):
        with pytest.raises(StateError):
            batch.replace(row, patient)
    for rows in ([], [0, 0], [3], [-1], [0.0], 1):
        with pytest.raises(StateError, match='rows'):
            batch.select(rows)
    with pytest.raises(StateError, match='Patient'):
        batch.reset([people[0], None])
    np.testing.assert_array_equal(batch.values(), before)
    step = batch.step([STAY, STAY, STAY])
    for row, each in enumerate(people):
        operation = alone(each)
        compare(batch, row, step, operation, go_on(operation, STAY))


def test_a_point_out_of_reach_is_refused_and_nothing_moves():
    low = dataclasses.replace(
        COHORT.patient(0),
        start=(0.0, 0.0, -0.2436),
        goal=(0.0, 0.0, -0.24),
        registration_error=-0.02,
    )
    batch = VectorOperation([COHORT.patient(1), low])
    batch.reset()
    before = batch.values()
    with pytest.raises(UnreachableError):
        batch.step([4, 4])
    np.testing.assert_array_equal(batch.values(), before)
    batch.step([4, 5])
    with pytest.raises(UnreachableError):
        batch.replace(0, dataclasses.replace(low, start=(0.5, 0.0, -0.1)))
    for name in ('goal', 'destination'):
        with pytest.raises(UnreachableError):
            batch.replace(0, dataclasses.replace(COHORT.patient(2), **{name: (0.5, 0.5, -0.13)}))
    assert batch.patients[0] == COHORT.patient(1)


def test_the_box_that_needs_no_closer_look_can_be_reached():
    sides = [np.linspace(low, high, 9) for low, high in zip(LOW[:, 0], HIGH[:, 0], strict=True)]
    points = np.stack(np.meshgrid(*sides), axis=-1).reshape(-1, 3)
    refuse_unreachable(points.T)
    operation = alone(COHORT.patient(0))
    for point in points.tolist():
        operation.set_target(tuple(point))


def test_after_the_end_a_step_is_refused_until_the_row_is_replaced_or_left_out():
    world = dataclasses.replace(WORLD, horizon=2)
    people = cast(0.0, 3)
    batch = VectorOperation(people, world)
    batch.reset()
    batch.step([STAY] * 3)
    batch.replace(1, people[2])
    assert batch.step([STAY] * 3)[3].tolist() == [True, False, True]
    with pytest.raises(StateError, match=r'\[0, 2\] are over'):
        batch.step([STAY] * 3)
    batch.select([1, 0])
    assert [each.name for each in batch.patients] == [people[2].name, people[0].name]
    batch.replace(1, people[1])
    assert batch.step([STAY] * 2)[3].tolist() == [True, False]


def test_copies_go_on_as_the_operations_that_they_are_of_and_leave_those_alone():
    batch, rng = VectorOperation(cast(0.8, 7), WORLD), np.random.default_rng(5)
    batch.reset()
    for _ in range(12):
        batch.step(rng.integers(ACTION_COUNT, size=7))
    before = batch.states()
    twin = batch.copies(3)
    first, other = rng.integers(ACTION_COUNT, size=(2, 7))
    ahead = twin.step(np.concatenate([first, other, first]))[0]
    np.testing.assert_array_equal(batch.states(), before)
    own = batch.step(first)[0]
    np.testing.assert_array_equal(ahead[:7], own)
    np.testing.assert_array_equal(ahead[14:], own)
    assert not np.array_equal(ahead[7:14], own)


def test_copies_of_operations_with_noisy_sensors_go_on_alike_and_leave_the_first_alone():
    world = dataclasses.replace(WORLD, force_noise=0.05)
    batch, twin = (VectorOperation(cast(0.5, 7), world) for _ in range(2))
    batch.reset(), twin.reset()
    moves = np.full(7, STAY)
    batch.step(moves), twin.step(moves)
    force = INDEX['force']
    ahead = batch.copies(2)
    for _ in range(40):
        measured = ahead.step(np.r_[moves, moves])[0][:, force]
        np.testing.assert_array_equal(measured[:7], measured[7:])
        np.testing.assert_array_equal(measured[:7], twin.step(moves)[0][:, force])
    assert len(set(measured.tolist())) == 7
    for _ in range(40):
        after = batch.step(moves)[0][:, force]
    np.testing.assert_array_equal(after, measured[:7])


@pytest.mark.parametrize('noise', [0.0, 0.15])
def test_the_vector_env_is_gymnasiums_own_over_single_ones(noise):
    world = dataclasses.replace(WORLD, force_noise=noise, horizon=20)
    given_both = {'settings': world, 'procedures': 'all', 'heterogeneity': 1.0}
    single = SyncVectorEnv(
        [lambda: SurgeryEnv(**given_both)] * 5, autoreset_mode=AutoresetMode.SAME_STEP
    )
    many = VectorSurgeryEnv(5, **given_both)
    assert many.metadata['autoreset_mode'] == AutoresetMode.SAME_STEP
    assert single.single_observation_space == many.single_observation_space
    assert (single.action_space, single.observation_space) == (
        many.action_space,
        many.observation_space,
    )
    rng, ends, compared = np.random.default_rng(0), 0, set()
    for seed in (7, None):
        state, info = single.reset(seed=seed)
        found, said = many.reset(seed=seed)
        np.testing.assert_array_equal(found, state)
        unknown = {each.lstrip('_') for each in info.keys() - said.keys()}
        assert unknown == {'patient'}
        for _ in range(45):
            actions = rng.integers(ACTION_COUNT, size=5)
            *step, info = single.step(actions)
            *found, said = many.step(actions)
            for one, other in zip(found, step, strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-7)
            assert ('final_obs' in info) == ('final_obs' in said)
            pairs = [(info, said)]
            if 'final_obs' in info:
                pairs.append((info['final_info'], said['final_info']))
                np.testing.assert_array_equal(said['_final_obs'], info['_final_obs'])
                np.testing.assert_array_equal(said['_final_info'], info['_final_info'])
                for row in np.flatnonzero(info['_final_obs']):
                    one, other = said['final_obs'][row], info['final_obs'][row]
                    np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-7)
                    ends += 1
            for one, other in pairs:
                final = {'final_obs', 'final_info'}
                for name in {each.lstrip('_') for each in one.keys() & other.keys()} - final:
                    there = one[f'_{name}']
                    np.testing.assert_array_equal(other[f'_{name}'], there)
                    wanted = one[name][there].tolist()
                    if name == 'failure':
                        wanted = [FAILURES.index(each) if each else NO_FAILURE for each in wanted]
                    np.testing.assert_allclose(other[name][there], wanted, **CLOSE)
                    compared.add(name)
    assert ends > 15
    assert compared >= {'tip', 'failure', 'mean_force', 'mean_arterial_pressure', 'news2', 'sofa'}


def test_the_vector_env_refuses_what_it_cannot_do():
    with pytest.raises(SettingError, match='num_envs'):
        VectorSurgeryEnv(0)
    env = VectorSurgeryEnv(2)
    with pytest.raises(StateError):
        env.step(np.zeros(2, np.int64))
    with pytest.raises(SettingError, match='seed'):
        env.reset(seed=[1])
    with pytest.raises(SettingError, match='options'):
        env.reset(options={'patient': public_cohort(0).patient(0)})
    assert env.reset(seed=[1, None])[0].shape == (2, STATE_SIZE)
