# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The control loop in simulated time, which may stand and be set back."""

from fdrl_ros.selector.control.loop import PERIOD
import numpy as np
import pytest
from support.robot_loop import BEAT, Robot, up


def test_time_that_stands_changes_no_decision():
    steady, paused = Robot(up), Robot(up)
    steady.run(60)
    paused.run(33)
    for _ in range(200):
        cycle = paused.loop.watchdog(paused.now - PERIOD)
        assert cycle is None, 'nothing is said and nothing moves'
    paused.run(27)
    chosen = [(each.policy, each.action, each.stamp) for each in steady.selections]
    assert [(each.policy, each.action, each.stamp) for each in paused.selections] == chosen
    np.testing.assert_array_equal(steady.targets, paused.targets)


@pytest.mark.parametrize('beats', [31, 2000])
@pytest.mark.parametrize('first', ['watchdog', 'state'])
def test_robot_goes_on_after_the_clock_was_set_back(beats, first):
    robot = Robot(up)
    robot.run(100)
    robot.now -= beats * PERIOD
    robot.stamp -= beats * BEAT
    if first == 'watchdog':
        robot.loop.watchdog(robot.now)
    count, back = len(robot.timed), robot.now
    robot.run(40)
    moved = next(now for now, each in robot.timed[count:] if each.policy == 'global')
    assert moved - back <= 0.11, 'as after any leap of stamps'
    assert all(each.policy == 'global' for now, each in robot.timed[count:] if now > moved)
    tips = np.array(robot.targets[-15:])
    assert np.ptp(tips, axis=0).max() > 1e-3, 'set-points go on too'
