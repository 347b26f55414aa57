# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""CRTK's table of states, and what is no command."""

import math

from fdrl_ros.surgery.arm.controller import jaw_command, joints_command, pose_command
from fdrl_ros.surgery.arm.kinematics import HOME, JAW_LIMITS, JOINTS, LOWER, UPPER
from fdrl_ros.surgery.arm.operating_state import CommandError, COMMANDS, OperatingState, State
from fdrl_ros.surgery.arm.rotations import from_quaternion
from hypothesis import given, strategies
import numpy as np
import pytest

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


@pytest.mark.parametrize('homed', [False, True])
@pytest.mark.parametrize('state', TABLE)
def test_motion_is_refused_unless_enabled_and_homed_and_the_way_out_is_told(state, homed):
    arm = OperatingState(State(state), homed)
    if state == 'ENABLED' and homed:
        return
    with pytest.raises(CommandError, match='expected ENABLED and homed') as refused:
        arm.require_ready('move_jp')
    way = str(refused.value).partition('(')[2].partition(' first')[0]
    for word in way.split(' and '):
        arm.command(word)
    arm.require_ready('move_jp')


def test_fault_is_left_by_enable_and_home_and_entered_by_no_command():
    arm = OperatingState()
    arm.is_busy = True
    arm.fail()
    assert (arm.state, arm.is_homed, arm.is_busy) == ('FAULT', False, False)
    arm.command('enable')
    assert not arm.is_ready
    arm.command('home')
    assert arm.is_ready
    for state in State:
        for word in COMMANDS:
            other = OperatingState(state)
            if state is not State.FAULT:
                try:
                    other.command(word)
                except CommandError:
                    pass
                assert other.state is not State.FAULT


@given(strategies.lists(strategies.sampled_from([*COMMANDS, 'fail', 'move'])))
def test_arm_is_never_busy_unless_ready(words):
    arm = OperatingState()
    for word in words:
        if word == 'fail':
            arm.fail()
        elif word == 'move':
            arm.is_busy = arm.is_ready
        else:
            try:
                arm.command(word)
            except CommandError:
                pass
        assert arm.is_ready or not arm.is_busy


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
        ([], HOME.tolist()[:5], '5 positions: expected 6'),
        ([], [*HOME.tolist(), 0.0], '7 positions: expected 6'),
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
