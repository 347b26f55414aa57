# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The arm with nobody on the table: it obeys as in an operation, within the same speeds."""

from fdrl_ros.surgery.arm.controller import ArmControl, straight_quaternion
from fdrl_ros.surgery.arm.free_motion import FreeMotion
from fdrl_ros.surgery.arm.kinematics import (
    forward_kinematics,
    HOME,
    LOWER,
    UnreachableError,
    UPPER,
)
from fdrl_ros.surgery.arm.operating_state import CommandError
from fdrl_ros.surgery.arm.rotations import angle_between
from fdrl_ros.surgery.arm.velocity import TIMEOUT
from fdrl_ros.surgery.gym.actions import MAXIMUM_SPEED, SUBSTEP, SUBSTEPS
from fdrl_ros.surgery.gym.operation import Operation
from fdrl_ros.surgery.patient.cohort import public_cohort
from fdrl_ros.surgery.settings import WorldSettings
from hypothesis import given, settings, strategies
import numpy as np
import pytest
from support.sample_size import sampled

PERIOD = 0.01


class FreeArm:
    """An arm in free space with its controller, at 100 Hz."""

    def __init__(self, mode: str = 'kinematic') -> None:
        self.operation = Operation(WorldSettings(mode=mode))
        self.free = FreeMotion(self.operation.arm)
        self.control = ArmControl(self.free)
        self.cycle = 0

    def run(self, cycles: int) -> np.ndarray:
        """Let time pass; return the set-points of the tip, shape (cycles + 1, 3)."""
        tips = [self.pose[0]]
        for _ in range(cycles):
            phase = self.cycle % 5
            substeps = (phase + 1) * SUBSTEPS // 5 - phase * SUBSTEPS // 5
            self.control.step(substeps)
            self.free.advance(substeps)
            self.cycle += 1
            tips.append(self.pose[0])
        return np.array(tips)

    @property
    def pose(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the set-point."""
        return forward_kinematics(self.free.setpoint_joints())


@pytest.fixture(params=['kinematic', 'dynamic'])
def free_arm(request):
    made = FreeArm(request.param)
    yield made
    made.operation.close()


def test_an_arm_without_a_patient_goes_where_it_is_told(free_arm):
    control, free = free_arm.control, free_arm.free
    start, _ = free_arm.pose
    goal = start + [0.01, -0.005, 0.01]
    control.servo_cp(goal.tolist(), straight_quaternion(goal))
    steps = np.linalg.norm(np.diff(free_arm.run(80), axis=0), axis=1)
    assert np.allclose(free_arm.pose[0], goal, atol=1e-9)
    assert steps.max() <= MAXIMUM_SPEED * 3 * SUBSTEP * (1 + 1e-9)
    assert np.allclose(free.arm.position, goal, atol=1e-4), 'the arm follows'
    joints = HOME + [0.1, 0.05, -0.01, 0.4, 0.2, -0.2]
    control.move_jp([], joints.tolist())
    control.move_jaw([], [0.5])
    assert control.operating_state.is_busy
    free_arm.run(150)
    assert np.allclose(free.setpoint_joints(), joints) and not control.operating_state.is_busy
    assert np.allclose(free.arm.joints(), joints, atol=1e-3) and free.jaw.angle == 0.5
    assert free.load == free.measured_force == 0.0 and not any(free.force)
    control.move_cp(start.tolist(), straight_quaternion(start))
    free_arm.run(20)
    control.hold()
    held = free.setpoint_joints()
    free_arm.run(20)
    assert np.array_equal(free.setpoint_joints(), held) and np.linalg.norm(held - joints) > 1e-3


def test_the_arm_goes_on_from_where_an_operation_left_it(free_arm):
    operation, free, control = free_arm.operation, free_arm.free, free_arm.control
    patient = public_cohort(0).patient(0)
    operation.reset(patient)
    control.drive(operation)
    x, y, z = patient.start
    control.servo_cp((x, y, z + 0.02), straight_quaternion((x, y, z + 0.02)))
    control.servo_jaw([], [1.0])
    for _ in range(10):
        control.step(2)
        operation.advance(2)
    before, jaw = operation.setpoint_joints(), operation.jaw.angle
    assert 0.0 < jaw < 1.0
    free.take_over(operation)
    control.drive(free)
    tips = free_arm.run(30)
    assert np.allclose(free.setpoint_joints(), before) and np.ptp(tips, axis=0).max() < 1e-9
    assert free.jaw.angle == jaw and free.substeps == operation.substeps + 72
    control.servo_jr([], [0.0, 0.0, 0.003, 0.0, 0.0, 0.0])
    free_arm.run(30)
    assert np.allclose(free.setpoint_joints(), before + [0, 0, 0.003, 0, 0, 0])
    operation.reset(patient)
    assert np.allclose(operation.arm.position, patient.start), 'back where operations begin'


def test_a_velocity_counts_until_commands_cease():
    arm = FreeArm()
    start, turned = arm.pose
    arm.control.servo_cv((0.01, 0.0, 0.02), (0.0, 0.0, 0.0))
    tips = arm.run(40)
    assert np.allclose(tips[-1] - start, np.array([0.01, 0.0, 0.02]) * TIMEOUT, atol=1e-5)
    assert np.allclose(tips[15], tips[-1]) and not arm.control.operating_state.is_busy
    assert angle_between(arm.pose[1], turned) < 1e-9, 'the tool keeps its direction'
    for _ in range(50):
        arm.control.servo_cv((0.0, -0.01, 0.0), (0.0, 0.0, 0.5))
        arm.run(1)
    arm.control.servo_cv((0.0, 0.0, 0.0), (0.0, 0.0, 0.0))
    after = arm.run(20)
    assert np.allclose(after, after[0]), 'zero stops it at once'
    assert np.allclose(after[0] - tips[-1], [0.0, -0.005, 0.0], atol=2e-5)
    assert angle_between(arm.pose[1], turned) == pytest.approx(0.25, abs=1e-3)
    joints = arm.free.setpoint_joints()
    arm.control.servo_jv(['5', '4', '3', '2', '1', '0'], [0.0, 0.1, 0.0, 0.02, 0.0, 0.1])
    arm.run(30)
    wanted = joints + TIMEOUT * np.array([0.1, 0.0, 0.02, 0.0, 0.1, 0.0])
    assert np.allclose(arm.free.setpoint_joints(), wanted, atol=1e-6)


def test_relative_servo_commands_add_up_though_the_arm_lags_behind():
    arm = FreeArm()
    for _ in range(20):
        arm.control.servo_jr([], [0.0, 0.0, 0.002, 0.0, 0.0, 0.0])
        arm.run(1)
    assert arm.free.setpoint_joints()[2] < HOME[2] + 0.04 - 1e-3
    arm.run(100)
    assert np.allclose(arm.free.setpoint_joints(), HOME + [0, 0, 0.04, 0, 0, 0])
    arm.control.move_jr([], [0.1, 0.0, -0.04, 0.0, 0.0, 0.0])
    assert arm.control.operating_state.is_busy
    arm.run(200)
    assert np.allclose(arm.free.setpoint_joints(), HOME + [0.1, 0, 0, 0, 0, 0])
    for refused in (arm.control.servo_jr, arm.control.move_jr):
        with pytest.raises(CommandError, match='insertion'):
            refused([], [0.0, 0.0, 0.2, 0.0, 0.0, 0.0])


SPEED = strategies.floats(-10.0, 10.0)


@settings(max_examples=sampled(200, 40), deadline=None)
@given(twist=strategies.tuples(*[SPEED] * 6), joints=strategies.booleans())
def test_no_velocity_is_too_fast_or_leads_beyond_a_limit(twist, joints):
    arm = FreeArm()
    tips = [arm.pose[0]]
    try:
        for _ in range(100):
            if joints:
                arm.control.servo_jv([], twist)
            else:
                arm.control.servo_cv(twist[:3], twist[3:])
            tips.append(arm.run(1)[-1])
    except UnreachableError:
        held = arm.free.setpoint_joints()
        arm.run(5)
        assert np.array_equal(arm.free.setpoint_joints(), held), 'it holds at the limit'
    steps = np.linalg.norm(np.diff(tips, axis=0), axis=1)
    assert len(steps) == 0 or steps.max() <= MAXIMUM_SPEED * 3 * SUBSTEP
    assert np.all(arm.free.setpoint_joints() <= UPPER + 1e-9)
    assert np.all(arm.free.setpoint_joints() >= LOWER - 1e-9)


@pytest.mark.parametrize('bad', [(np.nan, 0.0, 0.0), (0.0, np.inf, 0.0), (0.0, 0.0)])
def test_what_is_no_velocity_moves_nothing(bad):
    arm = FreeArm()
    for order in (
        lambda: arm.control.servo_cv(bad, (0.0, 0.0, 0.0)),
        lambda: arm.control.servo_cv((0.0, 0.0, 0.0), bad),
        lambda: arm.control.servo_jv([], [*bad, 0.0, 0.0, 0.0]),
    ):
        with pytest.raises(CommandError, match='expected'):
            order()
    assert np.ptp(arm.run(10), axis=0).max() == 0.0
