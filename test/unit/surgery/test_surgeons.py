# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The hand-written controller, and the surgeons who make records with it."""

from dataclasses import replace
import math
from types import SimpleNamespace

from fdrl_ros.errors import SettingError, StateError, TrainingStopped
from fdrl_ros.learner.records.collection import CollectionSettings, HospitalSimulator
from fdrl_ros.surgery.gym.actions import ACTION_COUNT, ACTIONS, OPEN_JAW, STAY
from fdrl_ros.surgery.gym.episode import roll_out, run_episode
from fdrl_ros.surgery.gym.state import INDEX, scale, STATE_BOUND, STATE_SIZE
from fdrl_ros.surgery.gym.surgery_env import SurgeryEnv
from fdrl_ros.surgery.patient.cohort import Cohort, public_cohort
from fdrl_ros.surgery.patient.conditions import Conditions
from fdrl_ros.surgery.settings import WorldSettings
from fdrl_ros.surgery.task import SurgeryTask
from fdrl_ros.surgery.tasks.controller import controller, Experience
from fdrl_ros.surgery.tasks.procedures import procedure_named, PROCEDURE_NAMES
from fdrl_ros.surgery.tasks.surgeon import Habits, habits_of, operate, Surgeons
from fdrl_ros.surgery.tissue.contact import contact_stiffness
from fdrl_ros.worlds.paper.task import PaperTask
from hypothesis import given, strategies
import numpy as np
import pytest

WORLD = WorldSettings(mode='kinematic')
DISTURBED = Conditions(disturbances=True)
PUBLIC = public_cohort(910, 1.0, PROCEDURE_NAMES, DISTURBED)


def public(procedure, count):
    return [PUBLIC.patient(index, procedure=procedure) for index in range(count)]


def rngs(count, first=0):
    return [np.random.default_rng([8, first + each]) for each in range(count)]


def successes(patients, experience=Experience()):  # noqa: B008  # frozen
    return roll_out(patients, lambda states, rows, tick: controller(states, experience)).success


@pytest.mark.parametrize('procedure', PROCEDURE_NAMES)
def test_the_controller_does_every_procedure_in_spite_of_delay_and_noise(procedure):
    patients = public(procedure, 100)
    assert {patient.latency for patient in patients} == {1, 2}
    assert successes(patients).mean() >= 0.97


def test_the_controller_is_a_function_of_each_state_alone():
    patients = [PUBLIC.patient(index) for index in range(20)]
    rolled = roll_out(patients, lambda states, rows, tick: controller(states))
    order = np.random.default_rng(1).permutation(len(rolled.states))
    np.testing.assert_array_equal(controller(rolled.states[order]), rolled.actions[order])
    alone = [controller(state)[0] for state in rolled.states[order[:50]]]
    np.testing.assert_array_equal(alone, rolled.actions[order[:50]])


def pressing(stiffness, force, **others):
    """Return the state of a tip at rest on the goal of a palpation, on a surface at rest."""
    depth = (force / stiffness) ** (2.0 / 3.0)
    values = np.zeros(STATE_SIZE)
    felt = math.log(stiffness / 1000.0)
    seen = {'goal_error_z': -depth, 'force': force, 'felt_stiffness': felt, **others}
    seen = {'respiratory_rate': 16.0, **seen}
    for name, value in {'palpation': 1.0, **seen}.items():
        values[INDEX[name]] = value
    return scale(values)


@given(strategies.floats(3000.0, 26000.0), strategies.floats(0.3, 1.05))
def test_pressing_goes_to_the_felt_depth_times_a_power_of_the_force(modulus, force):
    procedure = procedure_named('palpation')
    state = pressing(contact_stiffness(modulus, procedure.contact_radius), force)
    move = ACTIONS[controller(state)[0]].displacement[2]
    error = force - procedure.target_force
    if abs(error) > procedure.tolerance:
        assert move * error > 0.0
    elif abs(error) < 0.2 * procedure.tolerance:
        assert move == 0.0


@given(strategies.integers(0, 2**32 - 1), strategies.floats(0.0, STATE_BOUND))
def test_every_state_has_an_action(seed, size):
    rng = np.random.default_rng(seed)
    states = rng.uniform(-size, size, (len(PROCEDURE_NAMES), STATE_SIZE))
    states[:, : len(PROCEDURE_NAMES)] = np.eye(len(PROCEDURE_NAMES))
    with np.errstate(all='raise', under='ignore'):
        actions = controller(states)
    assert set(actions) <= set(range(ACTION_COUNT))


def test_pressing_waits_for_a_move_that_is_still_to_come():
    low, high = pressing(1000.0, 0.4), pressing(1000.0, 0.7)
    assert ACTIONS[controller(low)[0]].displacement[2] < 0.0
    pending = low[INDEX['goal_error_z']] - high[INDEX['goal_error_z']]
    low[INDEX['goal_error_z']] = high[INDEX['goal_error_z']]
    low[INDEX['lag']] = 2.0 * pending  # the tip is where it was: the scales are 0.002 and 0.001 m
    assert controller(low)[0] == STAY


def test_a_jaw_that_opens_on_the_way_is_closed_again():
    values = np.zeros(STATE_SIZE)
    for name in ('needle_pass', 'grasped', 'jaw_target'):
        values[INDEX[name]] = 1.0
    values[[INDEX['goal_error_x'], INDEX['respiratory_rate']]] = 0.01, 16.0
    assert ACTIONS[controller(scale(values))[0]].jaw == 0
    values[INDEX['goal_error_x']] = values[INDEX['jaw_target']] = 0.0
    assert controller(scale(values))[0] == OPEN_JAW


def test_experience_undoes_what_the_hospital_s_robot_shows():
    experience = Experience((0.002, -0.001, 0.0015), 0.8)
    patients = [replace(PUBLIC.patient(index), force_noise=0.0, latency=1) for index in range(60)]
    away = [
        replace(each, calibration=experience.calibration, force_gain=experience.force_gain)
        for each in patients
    ]
    at_home = roll_out(patients, lambda states, rows, tick: controller(states))
    corrected = roll_out(away, lambda states, rows, tick: controller(states, experience))
    uncorrected = roll_out(away, lambda states, rows, tick: controller(states))
    # What was felt at several depths cannot be corrected wholly, and states are float32.
    presses = [each.procedure.name in ('palpation', 'retraction') for each in patients]
    same = [
        np.array_equal(*(each.actions[each.cases == case] for each in (at_home, corrected)))
        for case in np.flatnonzero(~np.array(presses))
    ]
    assert np.mean(same) > 0.9
    assert corrected.success.mean() > 0.95 > 0.5 > uncorrected.success.mean()


def test_experience_may_be_another_for_each_state():
    states = roll_out(public('incision', 3), lambda *seen: controller(seen[0])).states[:40]
    shifts = np.random.default_rng(2).normal(0.0, 0.002, (3, 40))
    factors = np.linspace(0.8, 1.2, 40)
    together = controller(states, Experience(shifts, factors, factors, factors))
    alone = [
        controller(state, Experience(tuple(shift), factor, factor, factor))[0]
        for state, shift, factor in zip(states, shifts.T, factors, strict=True)
    ]
    np.testing.assert_array_equal(together, alone)


@pytest.mark.parametrize(
    'wrong',
    [
        {'calibration': (0.0, 0.0)},
        {'calibration': (0.0, 0.0, np.nan)},
        {'force_gain': 0.0},
        {'protocol': -1.0},
        {'caution': np.inf},
    ],
)
def test_experience_that_nobody_can_have_is_refused(wrong):
    with pytest.raises(SettingError, match=next(iter(wrong))):
        Experience(**wrong)


@pytest.mark.parametrize('state', [np.zeros(STATE_SIZE), np.zeros(3), np.full(STATE_SIZE, np.nan)])
def test_a_state_that_is_none_is_refused(state):
    with pytest.raises(StateError):
        controller(state)


@pytest.mark.parametrize('skill', [-0.1, 1.1, np.nan])
def test_a_skill_that_is_none_is_refused(skill):
    with pytest.raises(SettingError, match='skill'):
        Habits(skill=skill)
    with pytest.raises(SettingError, match='skill'):
        Surgeons(Habits(), rngs(1), 60, skill)


def test_60_to_90_percent_of_the_operations_succeed_by_skill():
    patients = [each for name in PROCEDURE_NAMES for each in public(name, 50)]
    shares = []
    for skill in (0.0, 1.0):
        team = Surgeons(Habits(), rngs(len(patients)), 240, skill)
        shares.append(roll_out(patients, team.act).success.mean())
    # The deviation of a share of 350 operations is below 2.7 %.
    assert shares == pytest.approx([0.61, 0.91], abs=0.08)


def steady(count, skill):
    """Return surgeons who know their instruments exactly."""
    team = Surgeons(Habits(), rngs(count), 2, skill)
    team.experience = lambda rows, tick: Experience()
    return team


def test_flaws_are_as_frequent_as_the_skill_says():
    states, rows = np.repeat(pressing(1000.0, 0.7)[None], 4000, axis=0), np.arange(4000)
    assert set(controller(states)) == {STAY}
    for skill, flaws in ((0.0, 0.08 * 6 / 7 + 0.03), (1.0, 0.04 * 6 / 7 + 0.02)):
        actions = steady(4000, skill).act(states, rows, 0)
        # One wrong move in seven is to stay, as it should be; the deviation is below 0.005.
        assert (actions != STAY).mean() == pytest.approx(flaws, abs=0.02)
        assert set(actions) == set(range(6, STAY + 1))  # none is coarse


def test_who_is_late_answers_to_the_state_of_the_tick_before():
    low, high = (np.repeat(pressing(1000.0, each)[None], 4000, axis=0) for each in (0.6, 0.8))
    down, up = controller(low[:1])[0], controller(high[:1])[0]
    assert down != up
    team, rows = steady(4000, 0.0), np.arange(4000)
    team.act(low, rows, 0)
    shares = np.bincount(team.act(high, rows, 1), minlength=ACTION_COUNT) / 4000
    # Late in 0.25 of the ticks, and another move in 0.1 of all; the deviation is 0.007.
    assert shares[down] == pytest.approx(0.25 * 0.9, abs=0.04)
    assert shares[up] == pytest.approx(0.75 * 0.9, abs=0.04)


def test_an_operation_depends_on_nobody_else_and_on_its_own_generator():
    habits = habits_of(Cohort(1, 4, 1.0, 910, conditions=Conditions(1.0, True)))
    patients = [PUBLIC.patient(index) for index in range(8)]
    together = operate(habits, patients, WORLD, rngs(8))
    for part, first in ((patients[:3], 0), (patients[5:], 5)):
        alone = operate(habits, part, WORLD, rngs(len(part), first))
        for one, other in zip(alone, together[first:], strict=False):
            np.testing.assert_array_equal(one.states, other.states)
            np.testing.assert_array_equal(one.actions, other.actions)
            np.testing.assert_array_equal(one.rewards, other.rewards)
            assert (one.success, one.terminated) == (other.success, other.terminated)
    others = operate(habits, patients, WORLD, rngs(8, 8))
    assert not np.array_equal(others[0].actions, together[0].actions)


def test_side_by_side_surgeons_do_what_they_do_one_after_the_other():
    habits, patients = Habits(), [PUBLIC.patient(index) for index in range(12)]
    together = operate(habits, patients, WORLD, rngs(12))
    env = SurgeryEnv(settings=WORLD)
    for patient, rng, one in zip(patients, rngs(12), together, strict=True):
        choose = Surgeons(habits, [rng], patient.procedure.horizon).choice()
        other = run_episode(env, choose, patient)
        np.testing.assert_array_equal(one.actions, other.actions)
        np.testing.assert_allclose(one.states, other.states, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(one.rewards, other.rewards, rtol=1e-5, atol=1e-6)
        assert (one.success, one.terminated) == (other.success, other.terminated)


def test_motors_may_move_the_arm():
    (episode,) = operate(Habits(skill=1.0), public('follow', 1), WorldSettings(), rngs(1))
    assert episode.success


def test_hospitals_have_habits_as_far_as_h_says():
    def habits(heterogeneity, gap=0.0):
        cohorts = [
            Cohort(each, 4, heterogeneity, 910, conditions=Conditions(gap)) for each in range(4)
        ]
        return [habits_of(cohort) for cohort in cohorts]

    assert all(each == Habits() for each in habits(0.0))
    skills, half = (sorted(each.skill for each in habits(h)) for h in (1.0, 0.5))
    np.testing.assert_allclose(skills, [0.4, 0.6 - 0.2 / 3.0, 0.6 + 0.2 / 3.0, 0.8])
    np.testing.assert_allclose(half, 0.6 + 0.75 * (np.array(skills) - 0.6))  # H (2 - H)
    cautions = sorted(each.experience.caution for each in habits(1.0))
    np.testing.assert_allclose(cautions, 2.0 ** (np.arange(4) / 3.0))
    assert habits_of(Cohort(0, 1, 1.0, 910)) == Habits()
    made = Cohort(0, 4, 1.0, 910, conditions=Conditions(1.0)).instruments
    known = habits(1.0, 1.0)[0].experience
    assert (known.calibration, known.force_gain, known.protocol) == (
        made.calibration,
        made.force_gain,
        made.protocol,
    )
    assert habits_of(PUBLIC) == Habits()


def test_surgeons_make_records():
    cohort = Cohort(0, 4, 1.0, 910, procedures=PROCEDURE_NAMES, conditions=Conditions(1.0, True))

    def collect(patients):
        settings = CollectionSettings(patients=patients, guide='surgeon')
        told = []
        simulator = HospitalSimulator(SurgeryTask(), WORLD, settings)
        records = simulator.collect(cohort, progress=lambda *each: told.append(each))
        assert told == [(each, patients) for each in range(1, patients + 1)]
        return records

    records = collect(105)
    assert records.digest() == collect(105).digest()
    fewer = collect(7)
    end = fewer.starts[-1]
    np.testing.assert_array_equal(fewer.states, records.states[:end])
    np.testing.assert_array_equal(fewer.actions, records.actions[:end])
    assert records.patients[104] == 'hospital_1/train/104'
    assert records.task == SurgeryTask().identity(WORLD)
    lasts = records.starts[1:] - 1
    assert records.ends[lasts].all() and records.terminals[lasts].mean() > 0.5


def test_a_task_without_surgeons_has_no_records_of_them():
    task, settings = PaperTask(), CollectionSettings(patients=1, guide='surgeon')
    hospitals = SimpleNamespace(hospitals=3, heterogeneity=0.8, seed=4, procedures='')
    with pytest.raises(SettingError, match='guide = .surgeon.: expected .*no surgeons'):
        HospitalSimulator(task, task.world(), settings).collect(task.population(hospitals, 0))


def test_surgeons_can_be_told_to_stop():
    simulator = HospitalSimulator(SurgeryTask(), WORLD, CollectionSettings(guide='surgeon'))
    with pytest.raises(TrainingStopped):
        simulator.collect(PUBLIC, stopped=lambda: True)
