# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What an arm tells of a moment: in which frames, and of which set-point."""

from fdrl_ros.surgery.arm.kinematics import forward_kinematics, straight_joints
from fdrl_ros.surgery.arm.readings import read
from fdrl_ros.surgery.gym.operation import Operation
from fdrl_ros.surgery.patient.cohort import mixture
from fdrl_ros.surgery.settings import WorldSettings
import numpy as np
import pytest


def pressing(mode='kinematic', noise=0.0):
    """Return an operation whose bent wrist presses and is still on its way."""
    world = WorldSettings(mode=mode, force_noise=noise)
    operation = Operation(world, np.random.default_rng(1))
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
