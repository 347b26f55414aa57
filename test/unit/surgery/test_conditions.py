# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Disturbances of operations, and the gap between hospitals and the public simulator."""

import dataclasses
import math

from fdrl_ros.errors import SettingError
from fdrl_ros.surgery.gym.actions import ACTIONS, STAY, SUBSTEPS
from fdrl_ros.surgery.gym.operation import Operation
from fdrl_ros.surgery.gym.state import INDEX, unscale
from fdrl_ros.surgery.patient.cohort import Cohort, public_cohort
from fdrl_ros.surgery.patient.conditions import Conditions, Instruments
from fdrl_ros.surgery.settings import WorldSettings
from fdrl_ros.surgery.tasks.procedures import PROCEDURE_NAMES
from hypothesis import given, settings
from hypothesis import strategies as st
import numpy as np
import pytest

WORLD = WorldSettings(mode='kinematic')
NEW = ('latency', 'force_noise', 'force_gain', 'calibration', 'protocol')


def cohort(hospital=0, gap=0.0, disturbances=False, heterogeneity=1.0, seed=5):
    return Cohort(
        hospital,
        4,
        heterogeneity,
        seed,
        procedures=PROCEDURE_NAMES,
        conditions=Conditions(gap, disturbances),
    )


def test_without_conditions_patients_are_as_they_were_and_public_ones_know_no_gap():
    for index in range(20):
        plain = cohort().patient(index)
        assert Instruments(plain.calibration, plain.force_gain, plain.protocol) == Instruments()
        assert (plain.latency, plain.force_noise) == (0, 0.0)
        moved = cohort(gap=2.0).patient(index)
        assert dataclasses.replace(moved, **vars(Instruments())) == plain
    wide = public_cohort(5, 1.0, PROCEDURE_NAMES, Conditions(4.0))
    assert wide.patient(3) == public_cohort(5, 1.0, PROCEDURE_NAMES).patient(3)


def test_disturbances_change_what_they_say_and_nothing_else():
    plain, other = cohort(), cohort(disturbances=True)
    people = [other.patient(index) for index in range(400)]
    assert {each.latency for each in people} == {1, 2}
    noises = [each.force_noise for each in people]
    assert 0.0 <= min(noises) < 0.005 and 0.045 < max(noises) <= 0.05
    lags = [
        math.log(each.servo_lag / plain.patient(index).servo_lag)
        for index, each in enumerate(people)
    ]
    assert np.std(lags) == pytest.approx(0.2, rel=0.15) and abs(np.mean(lags)) < 0.05
    changed = {'latency': 0, 'force_noise': 0.0}
    for index, each in enumerate(people[:50]):
        before = plain.patient(index)
        kept = {'servo_lag': before.servo_lag, 'young_modulus': before.young_modulus}
        assert dataclasses.replace(each, **changed, **kept) == before


@given(st.floats(0.0, 4.0), st.floats(0.0, 1.0), st.integers(0, 2**31))
@settings(max_examples=60, deadline=None)
def test_a_gap_is_a_constant_of_the_hospital_within_its_levels(gap, heterogeneity, seed):
    made = [cohort(each, gap, False, heterogeneity, seed).instruments for each in range(4)]
    for own in made:
        common = np.array([0.0008, -0.0005, 0.0006])
        assert np.all(np.abs(np.array(own.calibration) - gap * common) <= gap * 0.0008 + 1e-12)
        assert abs(math.log(own.force_gain) + 0.12 * gap) <= 0.12 * gap + 1e-12
        assert abs(math.log(own.protocol)) <= min(0.08 * gap, math.log(1.25)) + 1e-12
    if heterogeneity == 0.0:
        assert len(set(made)) == 1
    twice = cohort(1, gap, False, heterogeneity, seed)
    assert twice.instruments == made[1] and twice.patient(0).force_gain == made[1].force_gain


def test_a_twice_as_wide_gap_moves_twice_as_far():
    one, two = (cohort(2, gap).instruments for gap in (1.0, 2.0))
    np.testing.assert_allclose(two.calibration, 2.0 * np.array(one.calibration))
    assert two.force_gain == pytest.approx(one.force_gain**2)


@pytest.mark.parametrize(('gap', 'disturbances'), [(-0.1, False), (4.1, False), (1.0, 1)])
def test_conditions_that_are_not_defined_are_refused(gap, disturbances):
    with pytest.raises(SettingError, match='gap|disturbances'):
        Conditions(gap, disturbances)


def operate(patient, actions):
    """Return the operation after these actions, and its states in units."""
    operation = Operation(WORLD)
    operation.reset(patient)
    states = [unscale(operation.state())]
    for action in actions:
        operation.act(ACTIONS[action])
        operation.advance(SUBSTEPS)
        operation.tick()
        states.append(unscale(operation.state()))
    return operation, np.array(states)


@pytest.mark.parametrize('latency', [0, 1, 2, 5])
def test_the_arm_follows_each_command_after_its_latency(latency):
    """Late by so many ticks, the arm goes the very way of one that is not late."""
    patient = dataclasses.replace(cohort().patient(1, procedure='needle_pass'), force_noise=0.0)
    moves = [0, 13, 2, 9, 4, 14, *[STAY] * 8]
    late = dataclasses.replace(patient, latency=latency)
    first, seen = operate(patient, moves)
    second, told = operate(late, [*moves, *[STAY] * latency])
    assert second.arm.position == pytest.approx(first.arm.position, abs=1e-12)
    assert second.jaw.angle == pytest.approx(first.jaw.angle, abs=1e-12)
    error = INDEX['goal_error_x']
    # The state shows the commanded set-point at once, and the tip that has not got there.
    np.testing.assert_allclose(told[: len(seen), error], seen[:, error], atol=1e-8)
    if latency:
        assert told[1, INDEX['lag_x']] == pytest.approx(0.0025, abs=1e-6)
    jaw = INDEX['jaw_target'], INDEX['jaw']
    np.testing.assert_allclose(told[: len(seen), jaw[0]], seen[:, jaw[0]])
    np.testing.assert_allclose(told[latency:, jaw[1]][: len(seen)], seen[:, jaw[1]], atol=1e-6)


def test_calibration_moves_what_is_shown_and_nothing_that_happens():
    patient, off = cohort().patient(1, procedure='incision'), (0.002, -0.001, 0.0015)
    moves = [4] * 6 + [STAY] * 6
    plain, seen = operate(patient, moves)
    moved, shown = operate(dataclasses.replace(patient, calibration=off), moves)
    assert moved.arm.position == plain.arm.position and moved.load == plain.load
    places = [INDEX[f'goal_error_{axis}'] for axis in 'xyz']
    np.testing.assert_allclose(shown[:, places], seen[:, places] - off, atol=1e-8)
    rest = [n for n in range(seen.shape[1]) if n not in (*places, INDEX['felt_stiffness'])]
    np.testing.assert_array_equal(shown[:, rest], seen[:, rest])


def test_the_gain_is_in_the_measured_force_and_the_protocol_in_what_succeeds():
    patient = cohort().patient(1, procedure='palpation')
    moves = [4] * 8 + [STAY] * 20
    plain, seen = operate(patient, moves)
    weak, shown = operate(dataclasses.replace(patient, force_gain=0.5), moves)
    force = INDEX['force']
    assert plain.load == weak.load > 0.1
    np.testing.assert_allclose(shown[:, force], 0.5 * seen[:, force], rtol=1e-6)
    firm = dataclasses.replace(patient, protocol=1.2)
    operation = Operation(WORLD)
    operation.reset(firm)
    assert operation.task.target_force == pytest.approx(1.2 * patient.procedure.target_force)
    error = operation.values()[INDEX['force_error']]
    assert error == pytest.approx(1.0)  # the state shows the textbook's target


def test_the_stiffness_felt_comes_near_the_organs_and_is_nothing_before_contact():
    for index in range(12):
        patient = dataclasses.replace(
            cohort(index % 4).patient(index, procedure='retraction'),
            breathing_amplitude=0.0,
            events=(),
        )
        operation, states = operate(patient, [4] * 5)
        x, y, _ = patient.goal
        operation.set_target((x, y, patient.goal[2] + patient.registration_error - 0.004))
        for _ in range(40):
            operation.advance(SUBSTEPS)
            operation.tick()
        felt = unscale(operation.state())[INDEX['felt_stiffness']]
        true = math.log(operation.tissue.stiffness / 1000.0)
        assert states[0, INDEX['felt_stiffness']] == 0.0
        assert felt == pytest.approx(true, abs=0.15)
