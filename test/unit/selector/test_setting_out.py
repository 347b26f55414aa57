# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Whoever moved the arm in between, and whoever came: the robot sets out anew, not held."""

from fdrl_ros.selector import Candidate, HOLD, Limiter, Reason
from fdrl_ros.selector.control.loop import ControlLoop
from fdrl_ros.selector.control.plausibility import PlausibilitySettings
from fdrl_ros.surgery.patient.cohort import public_cohort
import numpy as np
import pytest
from unit.selector.test_faults import freeze, Line, up

FIRST, NEXT = (public_cohort(3, procedures=('palpation',)).patient(each) for each in (0, 1))
WAY = PlausibilitySettings().frozen_way
APART = np.linalg.norm(np.subtract(FIRST.start, NEXT.start))


def line_under_way() -> Line:
    line = Line(up, FIRST)
    for _ in range(40):
        line.say()
    assert line.last.policy == 'global'
    return line


def goes_on(line: Line, beats: int = 20) -> bool:
    """Tell whether the robot acts, and moves, within some beats."""
    before = np.array(line.operation.target)
    for _ in range(beats):
        line.say()
    return line.last.policy == 'global' and not np.array_equal(before, line.operation.target)


def surgeon(line: Line):
    return line.loop.take_over, line.loop.hand_back


def lock(line: Line):
    selector = line.loop.selector
    return lambda: selector.lock(HOLD), lambda: selector.lock(None)


def pause(line: Line):
    loop = line.loop
    return lambda: loop.receive_arm_state('PAUSED', True), lambda: loop.receive_arm_state(
        'ENABLED', True
    )


def want(line: Line):
    selector = line.loop.selector
    return (
        lambda: selector.set_candidates([]),
        lambda: selector.set_candidates([Candidate('global', up)]),
    )


@pytest.mark.parametrize('hold', [surgeon, lock, pause, want])
def test_next_patient_may_come_while_it_holds(hold):
    assert APART > WAY
    line = line_under_way()
    begin, end = hold(line)
    begin()
    line.say()
    line.place(NEXT)
    count = len(line.heard)
    for _ in range(100):
        line.say()
    held = line.heard[count:]
    assert len(held) >= 15 and all(each.holds for _, each in held)
    assert Reason.FROZEN not in {each.reason for _, each in held}
    end()
    assert goes_on(line)


def test_operation_that_is_begun_again_at_once_is_not_taken_for_frozen():
    """So soon it is the same case: nothing but the leap of the set-point and the time tells."""
    line = Line(up, FIRST)
    for _ in range(12):
        line.say()
    line.loop.take_over()
    line.move(tuple(np.add(FIRST.start, [0.0, 0.0, 2.0 * WAY])))
    line.say()
    line.place(FIRST)
    for _ in range(60):
        line.say()
    assert line.last.reason is Reason.SURGEON
    line.loop.hand_back()
    assert goes_on(line)


@pytest.mark.parametrize('hold', [surgeon, want])
def test_patient_who_waits_for_long_is_not_taken_for_frozen(hold):
    line = line_under_way()
    settings = PlausibilitySettings(frozen_vitals=0.5)
    line.loop = ControlLoop(line.loop.selector, Limiter(), settings)
    begin, end = hold(line)
    begin()
    line.place(NEXT)
    for _ in range(100):
        line.say()
    assert Reason.FROZEN not in {each.reason for _, each in line.heard}
    end()
    assert goes_on(line)


@pytest.mark.parametrize('hold', [surgeon, pause, want])
def test_it_sets_out_where_others_left_the_arm(hold):
    line = line_under_way()
    begin, end = hold(line)
    begin()
    line.say()
    left = np.array(line.operation.target)
    for _ in range(20):
        left = left + [0.0005, 0.0, 0.0]
        line.move(tuple(left))
        line.say()
        np.testing.assert_array_equal(line.operation.target, left)
    end()
    for _ in range(6):
        line.say()
    assert line.last.policy == 'global'
    assert np.linalg.norm(line.operation.target - left) < 0.004, 'no leap back'


@pytest.mark.parametrize('hold', [surgeon, pause])
def test_frozen_goal_is_found_again_after_it_set_out_anew(hold):
    line = Line(lambda state: 4, FIRST)
    for _ in range(40):
        line.say()
    spoil = freeze('goal_error_x', 'goal_error_y', 'goal_error_z')
    for again in range(2):
        if again:
            begin, end = hold(line)
            begin()
            line.say(spoil)
            end()
        before, count = np.array(line.operation.target), len(line.heard)
        for _ in range(60):
            line.say(spoil)
        assert line.last.reason is Reason.FROZEN
        assert Reason.UNVALUED in {each.reason for _, each in line.heard[count:]}
        assert np.linalg.norm(line.operation.target - before) < WAY + 0.003
    assert goes_on(line)
