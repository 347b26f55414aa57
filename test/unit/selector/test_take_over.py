# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""A surgeon locks a policy, takes the arm over at once, and hands it back where it is."""

from fdrl_ros.selector import Candidate, HOLD, Reason
from fdrl_ros.surgery.gym.actions import STAY
import numpy as np
import pytest
from support.robot_loop import Robot

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
    for _ in range(30):
        robot.run_period()
        np.testing.assert_array_equal(robot.targets[-1], before)
    taken = robot.selections[told:]
    assert {each.reason for each in taken} == {Reason.SURGEON}
    assert all(each.holds and each.action == STAY for each in taken)
    steps = [each.risk.steps for each in taken]
    assert steps == list(range(steps[0], steps[0] + len(steps))) and len(steps) >= 5


def test_faults_are_told_while_the_surgeon_drives_but_nothing_is_commanded(robot):
    robot.loop.take_over()
    before = robot.targets[-1]
    robot.run_period(vitals=np.nan)
    robot.run(20, publish=False)
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
    robot.run(6, vitals=np.nan)
    assert robot.selections[-1].reason is Reason.NOT_FINITE
