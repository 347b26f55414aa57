# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""A surgeon locks a policy or takes the arm over; the robot then sets out from where it is."""

from functools import partial

from fdrl_ros.selector import Candidate, HOLD, Limiter, Reason
from fdrl_ros.selector.control.loop import ControlLoop
from fdrl_ros.selector.control.plausibility import PlausibilitySettings
from fdrl_ros.surgery.gym.actions import STAY
from fdrl_ros.surgery.patient.cohort import public_cohort
import numpy as np
import pytest
from support.robot_loop import freeze, number, Robot, up

UP = 5


def answers(action):
    return lambda state: action


@pytest.fixture
def robot():
    made = Robot(answers(UP))
    made.run(20)
    return made


def test_no_set_point_comes_from_the_very_next_cycle_and_risk_is_still_watched(robot):
    before, told = robot.targets[-1], len(robot.selections)
    robot.loop.take_over()
    robot.run(30)
    np.testing.assert_array_equal(robot.targets[-30:], [before] * 30)
    taken = robot.selections[told:]
    assert {each.reason for each in taken} == {Reason.SURGEON}
    assert all(each.holds and each.action == STAY for each in taken)
    steps = [each.risk.steps for each in taken]
    assert steps == list(range(steps[0], steps[0] + len(steps))) and len(steps) >= 5


def test_faults_are_told_while_the_surgeon_drives_but_nothing_is_commanded(robot):
    robot.loop.take_over()
    before = robot.targets[-1]
    robot.publish(spoil=number('heart_rate', np.nan))
    robot.keep_silent(20)
    assert robot.selections[-1].reason is Reason.STALE
    np.testing.assert_array_equal(robot.targets[-1], before)


def test_only_the_locked_policy_acts_until_it_is_unlocked(robot):
    selector = robot.loop.selector
    selector.set_candidates(
        [Candidate('global', answers(UP)), Candidate('hospital_1', answers(0))]
    )
    for name, action in (('hospital_1', 0), ('global', UP)):
        selector.lock(name)
        robot.run(6)
        last = robot.selections[-1]
        assert (last.policy, last.action, last.reason) == (name, action, Reason.LOCKED)
    selector.lock(HOLD)
    robot.run(6)
    assert robot.selections[-1].holds and robot.selections[-1].reason is Reason.LOCKED
    selector.lock(None)
    robot.run(6)
    assert robot.selections[-1].reason is not Reason.LOCKED


@pytest.mark.parametrize(
    ('locked', 'reason'), [('hospital_9', Reason.NO_POLICY), ('global', Reason.POLICY_FAILED)]
)
def test_robot_holds_when_the_locked_policy_is_not_there_or_fails(locked, reason):
    robot = Robot(answers(UP))

    def fail(state):
        raise ValueError('no answer')

    candidates = [Candidate('global', fail), Candidate('hospital_1', answers(UP))]
    robot.loop.selector.set_candidates(candidates)
    robot.loop.selector.lock(locked)
    robot.run(20)
    assert {each.reason for each in robot.selections} == {reason}
    assert all(each.holds for each in robot.selections)


def test_state_faults_come_before_a_lock(robot):
    robot.loop.selector.lock('global')
    robot.run(6, spoil=number('heart_rate', np.nan))
    assert robot.selections[-1].reason is Reason.NOT_FINITE


FIRST, NEXT = (public_cohort(3, procedures=('palpation',)).patient(each) for each in (0, 1))
WAY = PlausibilitySettings().frozen_way
APART = np.linalg.norm(np.subtract(FIRST.start, NEXT.start))


def line_under_way(**plausibility) -> Robot:
    stream = Robot(up, FIRST)
    settings = PlausibilitySettings(**plausibility)
    stream.loop = ControlLoop(stream.loop.selector, Limiter(), settings)
    stream.run(40)
    assert stream.last.policy == 'global'
    return stream


def goes_on(stream: Robot, beats: int = 20) -> bool:
    """Tell whether the robot acts, and moves, within some beats."""
    before = np.array(stream.operation.target)
    stream.run(beats)
    return stream.last.policy == 'global' and not np.array_equal(before, stream.operation.target)


def holds(stream: Robot, kind: str):
    """Return what begins and ends a hold of some kind."""
    loop, selector = stream.loop, stream.loop.selector
    return {
        'surgeon': (loop.take_over, loop.hand_back),
        'lock': (partial(selector.lock, HOLD), partial(selector.lock, None)),
        'pause': [partial(loop.receive_arm_state, told, True) for told in ('PAUSED', 'ENABLED')],
        'want': [
            partial(selector.set_candidates, some) for some in ([], [Candidate('global', up)])
        ],
    }[kind]


@pytest.mark.parametrize(
    ('hold', 'frozen_vitals'), [('surgeon', 0.5), ('want', 0.5), ('lock', 600.0), ('pause', 600.0)]
)
def test_next_patient_may_come_and_wait_for_long_while_it_holds(hold, frozen_vitals):
    assert APART > WAY
    stream = line_under_way(frozen_vitals=frozen_vitals)
    begin, end = holds(stream, hold)
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
    stream = Robot(up, FIRST)
    stream.run(12)
    stream.loop.take_over()
    stream.move(tuple(np.add(FIRST.start, [0.0, 0.0, 2.0 * WAY])))
    stream.publish()
    stream.place(FIRST)
    stream.run(60)
    assert stream.last.reason is Reason.SURGEON
    stream.loop.hand_back()
    assert goes_on(stream)


@pytest.mark.parametrize('hold', ['surgeon', 'pause', 'want'])
def test_it_sets_out_where_others_left_the_arm(hold):
    stream = line_under_way()
    begin, end = holds(stream, hold)
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


@pytest.mark.parametrize('hold', ['surgeon', 'pause'])
def test_frozen_goal_is_found_again_after_it_set_out_anew(hold):
    stream = Robot(lambda state: 4, FIRST)
    stream.run(40)
    spoil = freeze('goal_error_x', 'goal_error_y', 'goal_error_z')
    for again in range(2):
        if again:
            begin, end = holds(stream, hold)
            begin()
            stream.publish(spoil)
            end()
        before, count = np.array(stream.operation.target), len(stream.timed)
        stream.run(60, spoil)
        assert stream.last.reason is Reason.FROZEN
        assert Reason.UNVALUED in {each.reason for _, each in stream.timed[count:]}
        assert np.linalg.norm(stream.operation.target - before) < WAY + 0.003
    assert goes_on(stream)
