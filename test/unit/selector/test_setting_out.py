# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Whoever moved the arm in between, and whoever came: the robot sets out anew, not held."""

from fdrl_ros.selector import Candidate, HOLD, Limiter, Reason
from fdrl_ros.selector.control.loop import ControlLoop
from fdrl_ros.selector.control.plausibility import PlausibilitySettings
from fdrl_ros.surgery.patient.cohort import public_cohort
import numpy as np
import pytest
from support.robot_loop import freeze, StateStream, up

FIRST, NEXT = (public_cohort(3, procedures=('palpation',)).patient(each) for each in (0, 1))
WAY = PlausibilitySettings().frozen_way
APART = np.linalg.norm(np.subtract(FIRST.start, NEXT.start))


def line_under_way() -> StateStream:
    stream = StateStream(up, FIRST)
    stream.run(40)
    assert stream.last.policy == 'global'
    return stream


def goes_on(stream: StateStream, beats: int = 20) -> bool:
    """Tell whether the robot acts, and moves, within some beats."""
    before = np.array(stream.operation.target)
    stream.run(beats)
    return stream.last.policy == 'global' and not np.array_equal(before, stream.operation.target)


def surgeon(stream: StateStream):
    return stream.loop.take_over, stream.loop.hand_back


def lock(stream: StateStream):
    selector = stream.loop.selector
    return lambda: selector.lock(HOLD), lambda: selector.lock(None)


def pause(stream: StateStream):
    loop = stream.loop
    return lambda: loop.receive_arm_state('PAUSED', True), lambda: loop.receive_arm_state(
        'ENABLED', True
    )


def want(stream: StateStream):
    selector = stream.loop.selector
    return (
        lambda: selector.set_candidates([]),
        lambda: selector.set_candidates([Candidate('global', up)]),
    )


@pytest.mark.parametrize('hold', [surgeon, lock, pause, want])
def test_next_patient_may_come_while_it_holds(hold):
    assert APART > WAY
    stream = line_under_way()
    begin, end = hold(stream)
    begin()
    stream.publish()
    stream.place(NEXT)
    count = len(stream.timed)
    stream.run(100)
    held = stream.timed[count:]
    assert len(held) >= 15 and all(each.holds for _, each in held)
    assert Reason.FROZEN not in {each.reason for _, each in held}
    end()
    assert goes_on(stream)


def test_operation_that_is_begun_again_at_once_is_not_taken_for_frozen():
    """So soon it is the same case: nothing but the leap of the set-point and the time tells."""
    stream = StateStream(up, FIRST)
    stream.run(12)
    stream.loop.take_over()
    stream.move(tuple(np.add(FIRST.start, [0.0, 0.0, 2.0 * WAY])))
    stream.publish()
    stream.place(FIRST)
    stream.run(60)
    assert stream.last.reason is Reason.SURGEON
    stream.loop.hand_back()
    assert goes_on(stream)


@pytest.mark.parametrize('hold', [surgeon, want])
def test_patient_who_waits_for_long_is_not_taken_for_frozen(hold):
    stream = line_under_way()
    settings = PlausibilitySettings(frozen_vitals=0.5)
    stream.loop = ControlLoop(stream.loop.selector, Limiter(), settings)
    begin, end = hold(stream)
    begin()
    stream.place(NEXT)
    stream.run(100)
    assert Reason.FROZEN not in {each.reason for _, each in stream.timed}
    end()
    assert goes_on(stream)


@pytest.mark.parametrize('hold', [surgeon, pause, want])
def test_it_sets_out_where_others_left_the_arm(hold):
    stream = line_under_way()
    begin, end = hold(stream)
    begin()
    stream.publish()
    left = np.array(stream.operation.target)
    for _ in range(20):
        left = left + [0.0005, 0.0, 0.0]
        stream.move(tuple(left))
        stream.publish()
        np.testing.assert_array_equal(stream.operation.target, left)
    end()
    stream.run(6)
    assert stream.last.policy == 'global'
    assert np.linalg.norm(stream.operation.target - left) < 0.004, 'no leap back'


@pytest.mark.parametrize('hold', [surgeon, pause])
def test_frozen_goal_is_found_again_after_it_set_out_anew(hold):
    stream = StateStream(lambda state: 4, FIRST)
    stream.run(40)
    spoil = freeze('goal_error_x', 'goal_error_y', 'goal_error_z')
    for again in range(2):
        if again:
            begin, end = hold(stream)
            begin()
            stream.publish(spoil)
            end()
        before, count = np.array(stream.operation.target), len(stream.timed)
        stream.run(60, spoil)
        assert stream.last.reason is Reason.FROZEN
        assert Reason.UNVALUED in {each.reason for _, each in stream.timed[count:]}
        assert np.linalg.norm(stream.operation.target - before) < WAY + 0.003
    assert goes_on(stream)
