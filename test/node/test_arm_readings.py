# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What the arm measures: speeds over the time that passed, forces as the sensor says."""

from dataclasses import replace

from fdrl_ros.env.actions import SUBSTEPS
from fdrl_ros.env.arm_control import ArmControl
from fdrl_ros.env.cohort import public_cohort
from fdrl_ros.env.operation import Operation
from fdrl_ros.env.settings import WorldSettings
from fdrl_ros.nodes.arm_readings import ArmReadings, READINGS
import numpy as np
from std_msgs.msg import Header

STAMP = Header().stamp


def snapshots(operation: Operation, control: ArmControl, cycles: int) -> list:
    """Let cycles pass as the node does, 2 or 3 sub-steps each."""
    readings, taken = ArmReadings(operation), []
    for cycle in range(cycles):
        substeps = (cycle + 1) * SUBSTEPS // 5 - cycle * SUBSTEPS // 5
        control.step(substeps)
        operation.advance(substeps)
        taken.append(readings.take(STAMP))
    return taken


def test_speed_of_a_joint_that_moves_evenly_is_even():
    operation = Operation(WorldSettings(mode='kinematic'))
    operation.reset(public_cohort(0).patient(0))
    control = ArmControl(operation)
    control.engage()
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
    operation = Operation(
        WorldSettings(mode='kinematic', force_noise=0.5), np.random.default_rng(0)
    )
    patient = public_cohort(0).patient(0)
    goal = patient.goal
    for start, pressed in ((patient.start, False), ((goal[0], goal[1], goal[2] - 0.003), True)):
        operation.reset(replace(patient, start=start))
        readings, errors = ArmReadings(operation), []
        for _ in range(200):
            operation.advance(2)
            now = readings.take(STAMP)
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
