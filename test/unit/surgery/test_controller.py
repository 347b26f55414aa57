# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""CRTK's states and commands, and the controller on a real operation: it follows, moves, holds."""

import math

from fdrl_ros.errors import StateError
from fdrl_ros.surgery.arm import simulated_arm
from fdrl_ros.surgery.arm.controller import (
    ArmControl,
    jaw_command,
    joints_command,
    pose_command,
    straight_quaternion,
)
from fdrl_ros.surgery.arm.kinematics import (
    forward,
    forward_kinematics,
    HOME,
    JAW_LIMITS,
    JOINTS,
    LOWER,
    UnreachableError,
    UPPER,
)
from fdrl_ros.surgery.arm.motion import LineMove
from fdrl_ros.surgery.arm.operating_state import CommandError, COMMANDS, OperatingState, State
from fdrl_ros.surgery.arm.rotations import from_quaternion, from_rotation_vector, to_quaternion
from fdrl_ros.surgery.gym.actions import MAXIMUM_SPEED, SUBSTEP, SUBSTEPS
from fdrl_ros.surgery.gym.operation import Operation
from fdrl_ros.surgery.patient.cohort import public_cohort
from fdrl_ros.surgery.settings import WorldSettings
from hypothesis import assume, given, settings, strategies
import numpy as np
import pytest
from support.sample_size import sampled

PERIOD = 0.01
STILL = 40
"""Cycles after which the arm has caught up with its set-point."""


class Theatre:
    """One operation with its controller, at 100 Hz."""

    def __init__(self, mode: str = 'kinematic') -> None:
        self.operation = Operation(WorldSettings(mode=mode, horizon=100000))
        self.operation.reset(public_cohort(0).patient(0))
        self.control = ArmControl(self.operation)
        self.cycle = 0
        self.tips = [np.array(self.operation.arm.position)]
        self.busy: list[bool] = []
        self.setpoints: list[np.ndarray] = []

    def run(self, cycles: int) -> None:
        """Let time pass."""
        for _ in range(cycles):
            phase = self.cycle % 5
            substeps = (phase + 1) * SUBSTEPS // 5 - phase * SUBSTEPS // 5
            self.control.step(substeps)
            self.operation.advance(substeps)
            self.cycle += 1
            self.setpoints.append(np.array(self.operation.setpoint))
            self.tips.append(np.array(self.operation.arm.position))
            self.busy.append(self.control.operating_state.is_busy)

    @property
    def pose(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the set-point."""
        return forward_kinematics(self.operation.setpoint_joints())


@pytest.fixture
def theatre() -> Theatre:
    return Theatre()


def raised(theatre: Theatre, way: float = 0.01) -> tuple[list[float], tuple[float, ...]]:
    """Return the set-point's pose a little higher up."""
    position, rotation = theatre.pose
    return (position + [0.0, 0.0, way]).tolist(), to_quaternion(rotation)


def test_servo_cp_of_a_straight_tool_drives_the_tip_alone(theatre):
    start = theatre.operation.setpoint
    goal = (start[0], start[1], start[2] + 0.0025)
    theatre.control.servo_cp(goal, straight_quaternion(goal))
    theatre.run(1)
    assert theatre.operation.target == goal
    theatre.run(STILL)
    assert theatre.operation.setpoint == goal
    assert np.allclose(theatre.tips[-1], goal, atol=1e-5)
    assert not any(theatre.busy), 'a servo command keeps nobody waiting'


def test_servo_cp_of_a_turned_tool_bends_the_wrist_and_straightens_it_again(theatre):
    position, rotation = theatre.pose
    turned = rotation @ from_rotation_vector(np.array([0.3, -0.2, 0.1]))
    theatre.control.servo_cp(position.tolist(), to_quaternion(turned))
    theatre.run(150)
    assert np.allclose(theatre.pose[0], position, atol=1e-9)
    assert np.allclose(theatre.pose[1], turned, atol=1e-9)
    reached, tool = forward_kinematics(theatre.operation.arm.joints())
    assert np.allclose(reached, position, atol=1e-4) and np.allclose(tool, turned, atol=1e-2)
    theatre.control.servo_cp(position.tolist(), to_quaternion(rotation))
    theatre.run(200)
    assert np.allclose(theatre.operation.arm.joints()[3:], 0.0, atol=1e-3)
    assert np.allclose(theatre.operation.target, position, atol=1e-9)
    steps = np.linalg.norm(np.diff(theatre.tips, axis=0), axis=1)
    assert steps.max() < 1.5 * MAXIMUM_SPEED * PERIOD


@pytest.mark.parametrize('mode', ['kinematic', 'dynamic'])
@pytest.mark.parametrize('order', ['move_jp', 'move_cp', 'servo_jp'])
def test_set_point_that_is_told_is_the_one_that_the_arm_follows(mode, order):
    theatre = Theatre(mode)
    goal = theatre.operation.setpoint_joints() + [0.2, 0.1, -0.01, 0.3, 0.0, 0.0]
    position, rotation = forward_kinematics(goal)
    if order == 'move_cp':
        theatre.control.move_cp(position.tolist(), to_quaternion(rotation))
    else:
        getattr(theatre.control, order)([], goal.tolist())
    theatre.run(1)
    while theatre.control.operating_state.is_busy or len(theatre.busy) < 20:
        theatre.run(1)
        assert np.allclose(theatre.pose[0], theatre.operation.setpoint, atol=1e-12)
        assert len(theatre.busy) < 1000
    if order != 'servo_jp':
        assert np.allclose(theatre.operation.setpoint, position, atol=1e-9), 'there, not nearly'
    steps = np.linalg.norm(np.diff(theatre.setpoints, axis=0), axis=1)
    assert steps.max() <= MAXIMUM_SPEED * 3 * SUBSTEP * (1 + 1e-9)
    theatre.control.hold()
    theatre.run(3 * STILL)
    reached = theatre.operation.arm.joints()
    assert np.allclose(
        theatre.operation.setpoint_joints(), reached, atol=2e-3 if mode == 'dynamic' else 1e-6
    )
    theatre.operation.close()


def test_move_goes_no_slower_and_no_faster_in_a_cycle_of_fewer_sub_steps(theatre):
    theatre.control.move_jp(
        [], (theatre.operation.setpoint_joints() + [0, 0, 0.03, 0, 0, 0]).tolist()
    )
    theatre.run(45)
    substeps = [(k + 1) * SUBSTEPS // 5 - k * SUBSTEPS // 5 for k in range(5)] * 9
    steps = np.linalg.norm(np.diff(theatre.setpoints[15:45], axis=0), axis=1)
    speeds = steps / (np.array(substeps[16:45]) * SUBSTEP)
    assert 0.04 < speeds[0] < 0.05 and np.allclose(speeds, speeds[0], rtol=1e-6)


def test_move_that_runs_out_of_reach_holds_and_says_so(theatre, monkeypatch):
    theatre.control.move_cp(*raised(theatre, 0.02))
    theatre.run(10)

    def out_of_reach(self, time):
        raise UnreachableError('insertion needs more than there is')

    monkeypatch.setattr(LineMove, 'joints', out_of_reach)
    with pytest.raises(UnreachableError, match='needs'):
        theatre.control.step(2)
    assert not theatre.control.operating_state.is_busy
    theatre.run(STILL)
    assert np.allclose(theatre.setpoints[-1], theatre.setpoints[9], atol=1e-12)


COORDINATES = strategies.floats(allow_nan=False, allow_infinity=False) | strategies.sampled_from(
    [0.0, -0.1, 1e-300, 1e155, 1e200, 1.7e308]
)

DRIVEN = Theatre()


@settings(max_examples=sampled(200, 20), deadline=None)
@given(
    strategies.sampled_from(['servo_cp', 'move_cp']),
    strategies.tuples(*[COORDINATES] * 3),
    strategies.tuples(*[COORDINATES] * 4)
    | strategies.sampled_from([(0, 0, 0, 1), (1, 0, 0, 0), (0.5, 0.5, 0.5, 0.5)]),
)
def test_any_finite_pose_is_obeyed_or_refused(order, position, quaternion):
    try:
        getattr(DRIVEN.control, order)(position, quaternion)
    except StateError:
        DRIVEN.control.hold()
    DRIVEN.run(1)


def test_first_bent_wrist_waits_for_no_file(monkeypatch):
    theatre = Theatre('dynamic')
    monkeypatch.setattr(simulated_arm, 'Chain', None)
    goal = theatre.operation.setpoint_joints() + [0.0, 0.0, 0.0, 0.1, 0.0, 0.0]
    theatre.control.servo_jp([], goal.tolist())
    theatre.run(5)
    assert theatre.operation.arm.joints()[3] > 0.0
    theatre.operation.close()


def test_servo_takes_the_place_of_a_move(theatre):
    theatre.control.move_cp(*raised(theatre, 0.02))
    theatre.run(10)
    assert theatre.control.operating_state.is_busy
    here = theatre.operation.setpoint_joints()
    theatre.control.servo_jp([], here.tolist())
    assert not theatre.control.operating_state.is_busy
    theatre.run(50)
    assert np.array_equal(theatre.operation.setpoint_joints(), here)


@pytest.mark.parametrize('command', ['hold', 'pause', 'disable', 'unhome', 'fail'])
def test_arm_holds_where_its_set_point_is(theatre, command):
    theatre.control.move_cp(*raised(theatre, 0.02))
    theatre.control.move_jaw([], [0.8])
    theatre.run(12)
    if command in ('hold', 'fail'):
        getattr(theatre.control, command)()
    else:
        theatre.control.command(command)
    assert not theatre.control.operating_state.is_busy
    theatre.run(STILL)
    settled, jaw = theatre.tips[-1], theatre.operation.jaw.angle
    theatre.run(50)
    assert np.allclose(theatre.tips[-1], settled, atol=1e-7), 'it stays there'
    assert theatre.operation.jaw.angle == jaw < 0.8
    height = theatre.operation.patient.start[2]
    assert height < theatre.tips[-1][2] < height + 0.012, 'it went no further'


@pytest.mark.parametrize('command', ['pause', 'disable', 'unhome', 'fail'])
def test_arm_that_is_not_ready_takes_no_motion_command(theatre, command):
    if command == 'fail':
        theatre.control.fail()
    else:
        theatre.control.command(command)
    control = theatre.control
    pose, joints = raised(theatre), theatre.operation.setpoint_joints().tolist()
    for order in (
        lambda: control.servo_cp(*pose),
        lambda: control.move_cp(*pose),
        lambda: control.servo_jp([], joints),
        lambda: control.move_jp([], joints),
        lambda: control.servo_jaw([], [0.2]),
        lambda: control.move_jaw([], [0.2]),
    ):
        with pytest.raises(CommandError, match='expected ENABLED and homed') as refused:
            order()
    theatre.run(20)
    assert np.ptp(theatre.tips, axis=0).max() == 0.0
    way = str(refused.value).partition('(')[2].partition(' first')[0]
    for word in way.split(' and '):
        control.command(word)
    control.servo_cp(*pose)


def test_what_is_no_command_moves_nothing(theatre):
    control = theatre.control
    position, quaternion = raised(theatre)
    joints = theatre.operation.setpoint_joints().tolist()
    for order in (
        lambda: control.servo_cp((math.nan, 0.0, -0.1), quaternion),
        lambda: control.servo_cp((0.0, 0.0, -0.9), quaternion),
        lambda: control.servo_cp(position, (0.0, 0.0, 0.0, 1.0)),  # where no wrist turns
        lambda: control.move_cp((0.0, 0.0, -0.9), quaternion),
        lambda: control.servo_jp([], joints[:5]),
        lambda: control.move_jp(['yaw'], joints),
        lambda: control.servo_jaw([], [JAW_LIMITS[1] + 1.0]),
        lambda: control.move_jaw([], [math.inf]),
    ):
        with pytest.raises(StateError, match='expected|reach|puts|leaves'):
            order()
    theatre.run(20)
    assert np.ptp(theatre.tips, axis=0).max() == 0.0
    assert theatre.operation.jaw.angle == 0.0


def test_jaw_opens_at_once_by_servo_and_gently_by_move(theatre):
    control, jaw = theatre.control, theatre.operation.jaw
    control.servo_jaw(['jaw'], [0.6])
    theatre.run(30)
    assert jaw.angle == 0.6 and not any(theatre.busy)
    control.move_jaw([], [0.0])
    assert control.operating_state.is_busy
    theatre.run(20)
    assert 0.0 < jaw.angle < 0.6
    theatre.run(80)
    assert jaw.angle == pytest.approx(0.0, abs=1e-12) and not theatre.busy[-1]
    control.move_jaw([], [0.8])
    theatre.run(5)
    control.servo_jaw([], [0.1])
    theatre.run(60)
    assert jaw.angle == pytest.approx(0.1) and not theatre.busy[-1]


@given(strategies.lists(strategies.floats(-0.3, 0.3), min_size=3, max_size=3))
def test_the_quick_turn_of_a_straight_tool_is_that_of_the_kinematics(position):
    x, y, z = position
    assume(math.hypot(x, z) > 1e-6)
    pitch = math.asin(-y / math.hypot(x, y, z))
    _tip, axes = forward([math.atan2(x, -z), pitch, 0.1, 0.0, 0.0, 0.0])
    quick, slow = (
        np.array(straight_quaternion(position)),
        np.array(to_quaternion(np.array(axes).T)),
    )
    assert np.abs(quick - slow * np.sign(quick @ slow)).max() < 1e-7


# The published table, row by row: what enable, disable, pause and resume lead to.
TABLE = {
    'DISABLED': ('ENABLED', 'DISABLED', None, None),
    'ENABLED': ('ENABLED', 'DISABLED', 'PAUSED', None),
    'PAUSED': (None, 'DISABLED', 'PAUSED', 'ENABLED'),
    'FAULT': ('ENABLED', 'DISABLED', None, None),
}
CELLS = [
    (state, word, after)
    for state, row in TABLE.items()
    for word, after in zip(COMMANDS[:4], row, strict=True)
]


@pytest.mark.parametrize('homed', [False, True])
@pytest.mark.parametrize(('before', 'word', 'after'), CELLS)
def test_every_cell_of_the_table_holds(before, word, after, homed):
    arm = OperatingState(State(before), homed)
    arm.is_busy = arm.is_ready
    if after is None:
        with pytest.raises(CommandError, match=f'{word} while {before}: expected one of'):
            arm.command(word)
        after = before
    else:
        arm.command(word)
    assert (arm.state, arm.is_homed) == (after, homed)
    assert arm.is_busy == (before == after == 'ENABLED' and homed)


@pytest.mark.parametrize('state', TABLE)
def test_homing_needs_power_and_forgetting_it_needs_nothing(state):
    arm = OperatingState(State(state), is_homed=False)
    if state == 'ENABLED':
        arm.command('home')
        assert arm.is_homed and arm.is_ready
    else:
        with pytest.raises(CommandError, match='home while'):
            arm.command('home')
        assert not arm.is_homed
    arm.is_busy = arm.is_ready
    arm.command('unhome')
    assert arm.state == state and not arm.is_homed and not arm.is_busy


def test_fault_is_left_by_enable_and_home():
    arm = OperatingState()
    arm.is_busy = True
    arm.fail()
    assert (arm.state, arm.is_homed, arm.is_busy) == ('FAULT', False, False)
    arm.command('enable')
    assert not arm.is_ready
    arm.command('home')
    assert arm.is_ready


@pytest.mark.parametrize('word', ['', 'Enable', 'fault', 'free', 'enable '])
def test_unknown_state_command_is_refused_by_name(word):
    arm = OperatingState()
    with pytest.raises(CommandError, match='expected one of enable, disable'):
        arm.command(word)
    assert arm.is_ready


# What a motion command must be.


@given(strategies.permutations(range(6)))
def test_joints_are_read_by_name_by_number_and_without_names(order):
    values = [0.1, -0.2, 0.15, 0.3, -0.4, 0.5]
    shuffled = [values[each] for each in order]
    by_name = joints_command([JOINTS[each] for each in order], shuffled)
    by_number = joints_command([str(each) for each in order], shuffled)
    assert by_name.tolist() == by_number.tolist() == values
    assert joints_command([], values).tolist() == values


@pytest.mark.parametrize(
    ('names', 'positions', 'expected'),
    [
        ([], HOME.tolist()[:5], '5 joints: expected 6'),
        ([], [*HOME.tolist(), 0.0], '7 joints: expected 6'),
        (list(JOINTS[:5]), HOME.tolist(), 'expected yaw, pitch'),
        (['yaw'] * 6, HOME.tolist(), 'expected yaw, pitch'),
        (['1', '2', '3', '4', '5', '6'], HOME.tolist(), '"0" to "5"'),
    ],
)
def test_joints_of_another_number_or_name_are_refused(names, positions, expected):
    with pytest.raises(CommandError, match=expected):
        joints_command(names, positions)


@pytest.mark.parametrize('joint', range(6))
def test_joint_that_is_no_number_or_beyond_its_limit_is_refused_by_name(joint):
    for bad in (math.nan, math.inf, -math.inf, UPPER[joint] + 1e-6, LOWER[joint] - 1e-6):
        positions = HOME.tolist()
        positions[joint] = float(bad)
        with pytest.raises(CommandError, match=f'{JOINTS[joint]} = .*: expected'):
            joints_command([], positions)
    for fine in (LOWER[joint], UPPER[joint]):
        positions = HOME.tolist()
        positions[joint] = float(fine)
        assert joints_command([], positions)[joint] == fine


def test_jaw_takes_one_angle_within_its_limits():
    assert (
        jaw_command([], [0.5]) == jaw_command(['jaw'], [0.5]) == jaw_command(['0'], [0.5]) == 0.5
    )
    for bad in (math.nan, JAW_LIMITS[0] - 0.01, JAW_LIMITS[1] + 0.01):
        with pytest.raises(CommandError, match='jaw = .*: expected -0.349 to 1.396'):
            jaw_command([], [bad])
    for names, positions in (([], []), ([], [0.1, 0.2]), (['yaw'], [0.1])):
        with pytest.raises(CommandError, match='expected'):
            jaw_command(names, positions)


def test_pose_is_finite_and_its_quaternion_of_length_one():
    half = math.sqrt(0.5)
    point, rotation = pose_command((0.1, 0.2, -0.1), (half, 0.0, 0.0, half))
    assert point == (0.1, 0.2, -0.1)
    assert np.allclose(rotation, [[1, 0, 0], [0, 0, -1], [0, 1, 0]], atol=1e-12)
    _, again = pose_command(point, (half * 1.004, 0.0, 0.0, half * 1.004))
    assert np.allclose(rotation, again, atol=1e-12), 'rounding is forgiven'
    assert np.allclose(from_quaternion((0.0, 0.0, 0.0, 1.0)), np.eye(3))
    for position, quaternion in (
        ((math.nan, 0.0, 0.0), (0.0, 0.0, 0.0, 1.0)),
        ((0.0, math.inf, 0.0), (0.0, 0.0, 0.0, 1.0)),
        ((0.0, 0.0), (0.0, 0.0, 0.0, 1.0)),
        ((0.0, 0.0, 0.0), (0.0, 0.0, 0.0, 0.0)),
        ((0.0, 0.0, 0.0), (0.0, 0.0, 0.0, 2.0)),
        ((0.0, 0.0, 0.0), (0.0, math.nan, 0.0, 1.0)),
        ((0.0, 0.0, 0.0), (0.0, math.inf, 0.0, 1.0)),
    ):
        with pytest.raises(CommandError, match='expected'):
            pose_command(position, quaternion)
