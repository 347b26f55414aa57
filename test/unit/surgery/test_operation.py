# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Operations: set-points, forces, endings, readings, and the same world at 100 Hz as at 20 Hz."""

import dataclasses
import math

from fdrl_ros.errors import SettingError, StateError
from fdrl_ros.surgery.arm.kinematics import forward_kinematics, straight_joints, UnreachableError
from fdrl_ros.surgery.arm.readings import read
from fdrl_ros.surgery.gym.actions import displacement
from fdrl_ros.surgery.gym.operation import Operation
from fdrl_ros.surgery.gym.state import INDEX, STATE_FIELDS
from fdrl_ros.surgery.patient.cohort import mixture, public_cohort
from fdrl_ros.surgery.settings import WorldSettings
from fdrl_ros.surgery.tasks.expert import expert
from fdrl_ros.surgery.tasks.procedures import procedure_named
import numpy as np
import pytest

KINEMATIC = WorldSettings(mode='kinematic')
STILL = dataclasses.replace(
    public_cohort(0).patient(0), breathing_amplitude=0.0, registration_error=0.0
)


def begin(patient=STILL, settings=KINEMATIC):
    operation = Operation(settings)
    operation.reset(patient)
    return operation


def press(operation, depth, ticks=10):
    """Go straight down at the goal to a depth below the planned surface, and wait."""
    x, y, z = operation.patient.goal
    operation.arm.place((x, y, z + 0.001), operation.patient.servo_lag)
    operation.setpoint = (x, y, z + 0.001)
    operation.set_target((x, y, z - depth))
    for _ in range(ticks):
        operation.advance(12)
        outcome = operation.tick()
        if operation.done:
            break
    return outcome


def test_a_pressure_above_what_tissue_bears_harms_at_a_force_that_does_not(monkeypatch):
    bearable = 3e3
    monkeypatch.setattr('fdrl_ros.surgery.tissue.contact.PRESSURE_LIMIT', bearable)
    procedure = dataclasses.replace(STILL.procedure, warn_force=8.0, force_limit=9.0)
    patient = dataclasses.replace(STILL, procedure=procedure, young_modulus=12e3, damping=0.0)
    operation = begin(patient)
    x, y, z = patient.goal
    operation.arm.place((x, y, z + 0.001), patient.servo_lag)
    operation.setpoint = (x, y, z + 0.001)
    operation.set_target((x, y, z - 0.012))
    expected = 0.0
    for _ in range(120):
        operation.advance(1)
        depth = operation.tissue.rest - operation.arm.position[2]
        if depth > 0.0:
            load = operation.tissue.normal_force(depth)
            pressure = load / (math.pi * procedure.contact_radius * depth)
            expected += load * max(0.0, pressure / bearable - 1.0) / 240
    assert expected > 0.01
    assert operation.damage == pytest.approx(expected, rel=1e-9)


def test_a_perfect_sensor_feels_the_surface_at_once():
    operation = begin()
    press(operation, 0.006, ticks=8)
    depth = operation.tissue.rest - operation.touched
    assert operation.tissue.normal_force(depth) == pytest.approx(0.02, abs=0.02)


@pytest.mark.parametrize(('noise', 'deepest'), [(0.05, 0.008), (0.15, 0.013)])
def test_a_noisy_sensor_feels_the_surface_later_and_by_what_it_measures(noise, deepest):
    world = WorldSettings(mode='kinematic', force_noise=noise, horizon=1000)
    patient = dataclasses.replace(STILL, procedure=procedure_named('retraction'))
    for seed in range(20):
        operation = begin(dataclasses.replace(patient, name=f'patient {seed}'), world)
        press(operation, 0.015, ticks=4)
        heard = [operation.measured_force]
        while math.isnan(operation.touched):
            operation.advance(12)
            operation.tick()
            assert operation.values()[INDEX['contact']] == (not math.isnan(operation.touched))
        assert heard[0] != operation.load
        assert 0.0 < operation.tissue.rest - operation.touched
        assert operation.tissue.rest - operation.touched <= deepest + 0.0025


def test_noise_alone_is_hardly_ever_felt():
    """False alarm: 4 standard deviations a tick, about 1 operation of 6 s in 500; fixed seeds."""
    world = WorldSettings(mode='kinematic', force_noise=0.15, horizon=1000)
    felt = 0
    for seed in range(40):
        operation = begin(dataclasses.replace(STILL, name=f'patient {seed}'), world)
        for _ in range(120):
            operation.advance(12)
            operation.tick()
        felt += not math.isnan(operation.touched)
    assert felt <= 1


@pytest.mark.parametrize('mode', ['dynamic', 'kinematic'])
def test_setpoints_at_100_hz_give_the_world_of_the_discrete_actions(mode):
    settings = WorldSettings(mode=mode)
    patient = mixture(3, 0.5, 0).patient(4)
    slow, fast = begin(patient, settings), begin(patient, settings)
    for _ in range(25):
        action, _costs = expert(slow.state(), patient, settings)
        start, move = slow.target, displacement(action)
        slow.set_target(tuple(np.add(start, move)))
        slow.advance(12)
        slow.tick()
        for part, substeps in enumerate((2, 3, 2, 3, 2), 1):
            fast.set_target(tuple(np.add(start, np.multiply(move, part / 5))))
            fast.advance(substeps)
        fast.tick()
        assert np.abs(np.subtract(slow.arm.position, fast.arm.position)).max() < 1e-4
        if slow.done:
            break
    assert slow.ticks == fast.ticks > 10
    slow.close(), fast.close()


def test_both_modes_agree_on_force_and_height():
    patient = mixture(3, 1.0, 0).patient(2)
    worlds = [begin(patient, WorldSettings(mode=each)) for each in ('dynamic', 'kinematic')]
    while not worlds[1].done:
        action, _costs = expert(worlds[1].state(), patient)
        for world in worlds:
            world.set_target(tuple(np.add(world.target, displacement(action))))
            world.advance(12)
            world.tick()
        heights = [each.arm.position[2] for each in worlds]
        assert heights[0] == pytest.approx(heights[1], abs=1e-4)
    assert all(each.scene.held >= patient.procedure.hold_time - 1e-9 for each in worlds)
    worlds[0].close()


def test_values_are_what_the_fields_say():
    operation = begin()
    press(operation, 0.005, ticks=5)
    values = operation.values()
    assert len(values) == len(STATE_FIELDS)
    x, y, z = np.subtract(operation.target, STILL.goal)
    assert values[INDEX['goal_error_x'] : INDEX['goal_error_z'] + 1] == pytest.approx([x, y, z])
    assert values[INDEX['force']] == operation.force[2]
    assert values[INDEX['time_left']] == pytest.approx(1 - 5 / 60)
    assert values[INDEX['contact']] == 1.0
    assert values[INDEX['depth']] == pytest.approx(0.005, abs=0.002)
    assert values[INDEX['palpation']] + values[INDEX['retraction']] == 1.0


def test_misuse_is_refused_and_leaves_the_target_alone():
    operation = Operation(KINEMATIC)
    with pytest.raises(StateError, match='reset'):
        operation.set_target((0.0, 0.0, -0.1))
    operation.reset(STILL)
    with pytest.raises(UnreachableError):
        operation.set_target((0.0, 0.0, -0.5))
    before = operation.target
    for wrong in ((math.nan, 0.0, -0.1), (0.0, 0.0), (0.0,) * 4, 'xyz', None, (0.0, True, -0.1)):
        with pytest.raises(StateError, match='expected three finite numbers'):
            operation.set_target(wrong)
    with pytest.raises(StateError, match='expected six finite numbers'):
        operation.set_joint_target([0.0] * 5, 12)
    assert operation.target is before
    assert operation.target == STILL.start
    for wrong in (0, -1, 2.5, None):
        with pytest.raises(StateError, match='sub-steps'):
            operation.set_joint_target([0.0, 0.0, 0.12, 0.0, 0.0, 0.0], wrong)
    for wrong in (-3, 1.5, 'x', None):
        with pytest.raises(StateError, match='sub-steps'):
            operation.advance(wrong)
    assert operation.substeps == 0
    for wrong in (None, 'x', math.nan, 9.0, True):
        with pytest.raises(StateError, match='jaw'):
            operation.aim_jaw(wrong)
    with pytest.raises(StateError, match='advance'):
        operation.tick()
    for wrong in ('x', {'mode': 'kinematic'}):
        with pytest.raises(SettingError, match='settings'):
            Operation(wrong)
    with pytest.raises(SettingError, match='mode'):
        WorldSettings(mode='magic')


@pytest.mark.parametrize('refused', ['arm', 'task'])
def test_a_reset_that_is_refused_lets_the_old_operation_go_on(monkeypatch, refused):
    operation = begin()
    press(operation, 0.005, ticks=2)
    before = (operation.patient, operation.arm.position, operation.scene, operation.substeps)
    other = dataclasses.replace(STILL, start=(0.4 if refused == 'arm' else 0.0, 0.0, -0.1))

    def unreachable(task):
        raise UnreachableError('the object is out of reach')

    if refused == 'task':
        monkeypatch.setattr(type(operation.task), 'begin', unreachable)
    with pytest.raises(UnreachableError):
        operation.reset(other)
    after = (operation.patient, operation.arm.position, operation.scene, operation.substeps)
    assert after == before


def pressing(mode='kinematic', noise=0.0):
    """Return an operation whose bent wrist presses and is still on its way."""
    world = WorldSettings(mode=mode, force_noise=noise)
    operation = Operation(world)
    patient = mixture(3, 1.0, 0, ('retraction',)).patient(1)
    operation.reset(patient)
    x, y, z = patient.goal
    joints = (*straight_joints(x, y, z - 0.012), 0.5, 0.3, -0.4)
    operation.set_joint_target(joints, 120)
    while operation.load < 0.2:
        operation.advance(1)
    return operation, np.array(joints)


@pytest.mark.parametrize('mode', ['kinematic', 'dynamic'])
def test_a_bent_tool_tells_force_in_its_own_axes_and_the_set_point_it_is_at(mode):
    operation, end = pressing(mode)
    now, force = read(operation), np.array(operation.force)
    position, rotation = forward_kinematics(now.joints)
    assert now.position == pytest.approx(position, abs=1e-6)
    assert now.rotation == pytest.approx(rotation, abs=1e-12)
    assert np.linalg.norm(now.body_force()) == pytest.approx(np.linalg.norm(force))
    assert rotation @ now.body_force() == pytest.approx(force, abs=1e-12)
    assert abs(now.body_force() - force).max() > 0.05  # the frames do differ
    assert now.spatial_torque() == pytest.approx(np.cross(now.position, force), abs=1e-12)
    assert now.setpoint == pytest.approx(operation.setpoint_joints())
    assert abs(now.setpoint - end).max() > 1e-3  # on its way, not at the end
    assert now.setpoint_pose()[0] == pytest.approx(operation.setpoint, abs=1e-9)
    operation.close()


def test_the_force_that_is_told_errs_as_the_sensor_does():
    operation, _end = pressing(noise=0.5)
    error = operation.measured_force - operation.load
    assert abs(error) > 0.01
    expected = np.array(operation.force) + (0.0, 0.0, error)
    assert read(operation).force == pytest.approx(expected)
