# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What the arm measures: speeds over the time that passed, forces as the sensor says."""

from fdrl_ros.nodes.arm.arm_readings import ArmReadings, READINGS
from fdrl_ros.surgery.arm.controller import ArmControl, straight_quaternion
from fdrl_ros.surgery.gym.actions import MAXIMUM_SPEED, SUBSTEPS
from fdrl_ros.surgery.gym.operation import Operation
from fdrl_ros.surgery.patient.cohort import public_cohort
from fdrl_ros.surgery.settings import WorldSettings
import numpy as np
import pytest
from std_msgs.msg import Header

STAMP = Header().stamp


def snapshots(operation: Operation, control: ArmControl, cycles: int) -> list:
    """Let cycles pass as the node does, 2 or 3 sub-steps each."""
    readings, taken = ArmReadings(operation), []
    readings.snapshot(STAMP)
    for cycle in range(cycles):
        substeps = (cycle + 1) * SUBSTEPS // 5 - cycle * SUBSTEPS // 5
        control.step(substeps)
        operation.advance(substeps)
        lag = 1.0 - ((cycle + 1) * SUBSTEPS % 5) / 5
        taken.append(readings.snapshot(STAMP, lag))
    return taken


@pytest.mark.parametrize('mode', ['kinematic', 'dynamic'])
@pytest.mark.parametrize('command', ['move_cp', 'servo_cp'])
def test_every_cycle_of_a_motion_goes_as_far_and_never_faster_than_allowed(mode, command):
    operation = Operation(WorldSettings(mode=mode))
    operation.reset(public_cohort(0).patient(0))
    control, start = ArmControl(operation), np.array(operation.setpoint)
    before = ArmReadings(operation).snapshot(STAMP)
    goal = start + [0.012, 0.0, 0.010]
    turned = straight_quaternion(goal if command == 'servo_cp' else start)
    getattr(control, command)(goal.tolist(), turned)
    taken = [before, *snapshots(operation, control, 110)]
    told = np.array([each.setpoint_pose()[0] for each in taken])
    steps = np.linalg.norm(np.diff(told, axis=0), axis=1)
    longest = MAXIMUM_SPEED * 0.01
    # Between two readings joints go evenly, which is even for the tip to 0.2 um in a cycle.
    assert steps.max() <= longest + 2e-7
    cruise = steps[steps > 0.999 * steps.max()]
    assert len(cruise) > (15 if command == 'move_cp' else 28), 'all but where it starts and stops'
    measured = np.array([each.position for each in taken])
    assert np.linalg.norm(np.diff(measured, axis=0), axis=1).max() <= longest * 1.02
    # At rest nothing lags.
    assert np.allclose(told[-1], goal, atol=1e-9)
    readings = ArmReadings(operation)
    for lag in (0.6, 0.2):
        assert np.array_equal(readings.snapshot(STAMP, lag).position, operation.arm.position)
    operation.close()


def test_what_is_told_is_one_sub_step_behind_and_catches_up_when_time_stops():
    operation = Operation(WorldSettings(mode='kinematic'))
    operation.reset(public_cohort(0).patient(0))
    x, y, z = operation.setpoint
    readings, stride = ArmReadings(operation), MAXIMUM_SPEED / 240.0
    readings.snapshot(STAMP)
    operation.set_target((x, y, z + 0.02))
    told = []
    for substeps, lag in ((2, 0.6), (2, 0.2), (3, 0.8), (2, 0.4), (3, 1.0), (0, 1.0)):
        operation.advance(substeps)
        told.append(readings.snapshot(STAMP, lag).setpoint_pose()[0][2] - z)
    assert np.allclose(told, np.array([1.4, 3.8, 6.2, 8.6, 11.0, 12.0]) * stride, atol=1e-7)


def test_speed_of_a_joint_that_moves_evenly_is_even():
    operation = Operation(WorldSettings(mode='kinematic'))
    operation.reset(public_cohort(0).patient(0))
    control = ArmControl(operation)
    control.move_jp([], (operation.setpoint_joints() + [0.0, 0.0, 0.05, 0.0, 0.0, 0.0]).tolist())
    cruise = snapshots(operation, control, 90)[40:80]
    speeds = np.array([each.joint_speeds[2] for each in cruise])
    assert 0.04 < speeds[0] < 0.05 and np.allclose(speeds, speeds[0], rtol=1e-3)
    tips = np.array([np.linalg.norm(each.velocity) for each in cruise])
    assert np.allclose(speeds, tips, rtol=1e-3)
    control.move_jaw([], [1.0])
    turned = [each.jaw_speed for each in snapshots(operation, control, 25)[15:]]
    assert np.allclose(turned, turned[0], rtol=1e-6) and turned[0] > 1.0


def test_measured_force_errs_as_the_sensor_does():
    operation = Operation(WorldSettings(mode='kinematic', force_noise=0.5))
    patient = public_cohort(0).patient(0)
    goal = patient.goal
    for target, pressed in ((patient.start, False), ((goal[0], goal[1], goal[2] - 0.003), True)):
        operation.reset(patient)
        operation.set_target(target)
        operation.advance(480)
        readings, errors = ArmReadings(operation), []
        for _ in range(200):
            operation.advance(2)
            now = readings.snapshot(STAMP)
            assert bool(operation.load) == pressed
            error = now.force[2] - operation.force[2]
            assert np.isclose(error, operation.measured_force - operation.load)
            for topic in ('body/measured_cf', 'spatial/measured_cf'):
                force = READINGS[topic][1](now).wrench.force
                norm = np.linalg.norm([force.x, force.y, force.z])
                assert np.isclose(norm, np.linalg.norm(now.force))
                if not pressed:
                    assert np.isclose(norm, abs(operation.measured_force))
            errors.append(error)
        assert 0.4 < np.std(errors) < 0.6
