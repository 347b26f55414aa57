# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""A robot holds while nothing is seen, and moves finely without its jaw."""

from itertools import pairwise

from fdrl_ros.segmentation.camera_check import CameraFault
from fdrl_ros.selector import Reason
from fdrl_ros.selector.control.loop import ControlLoop
from fdrl_ros.selector.control.visibility import (
    NO_PICTURE,
    View,
    VisibilityCheck,
    VisibilitySettings,
)
from fdrl_ros.surgery.gym.actions import ACTIONS, finest
from hypothesis import given
from hypothesis import strategies as st
import numpy as np
import pytest
from support.robot_loop import Robot

SETTINGS = VisibilitySettings()
UP = next(number for number, each in enumerate(ACTIONS) if each.name == 'coarse +z')
ENOUGH = 2.0 * SETTINGS.jaw_share
NONE = 0.0, float('nan')
"""No jaw, and the confidence of no pixel."""


class Seeing(Robot):
    """A robot whose segmenter tells something at 10 Hz."""

    def __init__(self) -> None:
        super().__init__(lambda state: UP)
        made = self.loop
        self.visibility = VisibilityCheck(SETTINGS, 0.5)
        self.loop = ControlLoop(made.selector, made.limiter, visibility=self.visibility)
        self.seen, self.jaw, self.silent = True, ENOUGH, False
        self.confidence = 0.9
        self.beats = 0

    def publish(self, *given, **named) -> None:
        if self.beats % 10 == 0 and not self.silent:
            self.visibility.receive(self.seen, (self.jaw, self.confidence), self.time)
        self.beats += 1
        super().publish(*given, **named)


@pytest.fixture
def robot():
    made = Seeing()
    made.run(20)
    assert made.last.policy == 'global'
    return made


def test_a_robot_that_needs_no_visibility_acts_without_it():
    robot = Robot(lambda state: UP)
    robot.run(20)
    assert robot.last.policy == 'global'


def test_a_robot_without_any_visibility_message_holds_once_a_decision_period():
    robot = Seeing()
    robot.silent = True
    robot.run(31)
    assert {each.reason for each in robot.selections} == {Reason.NO_VISIBILITY}
    assert {round(b - a, 6) for (a, _), (b, _) in pairwise(robot.timed)} == {0.05}
    assert all(each.risk is not None for each in robot.selections), 'risk is still monitored'


@pytest.mark.parametrize('beats', range(1, 11))
def test_the_next_state_holds_once_nothing_is_seen_and_the_robot_moves_again_after(robot, beats):
    robot.run(beats)
    robot.visibility.receive(False, NONE, robot.time)
    robot.silent = True
    told, before = robot.now, len(robot.timed)
    robot.run(1)
    ((now, held),) = robot.timed[before:]
    assert (now, held.reason, held.holds) == (told, Reason.NO_VISIBILITY, True)
    tip = robot.targets[-1]
    robot.run(20)
    np.testing.assert_array_equal(robot.targets[-1], tip)
    assert robot.last.reason == Reason.NO_VISIBILITY
    robot.visibility.receive(True, (ENOUGH, 0.9), robot.time)
    robot.run(6)
    assert robot.last.policy == 'global'


def test_silence_of_the_segmenter_holds_at_the_stated_age(robot):
    robot.silent = True
    told = 1e-9 * robot.stamp
    robot.run(60)
    held = next(each for each in robot.selections if each.reason == Reason.NO_VISIBILITY)
    assert held.stamp is not None
    age = 1e-9 * held.stamp - told
    assert SETTINGS.longest_age - 0.1 <= age <= SETTINGS.longest_age + 0.011


def test_without_the_jaw_in_view_moves_are_fine_and_with_it_coarse(robot):
    assert robot.last.action == UP
    robot.jaw = SETTINGS.jaw_share / 2.0
    robot.run(20)
    assert ACTIONS[robot.last.action].name == 'fine +z' and robot.last.policy == 'global'
    robot.jaw = ENOUGH
    robot.run(20)
    assert robot.last.action == UP
    robot.jaw, robot.confidence = 0.5, 0.3  # of four parts, as a network that guesses
    robot.run(20)
    assert ACTIONS[robot.last.action].name == 'fine +z'


def test_a_clock_that_was_set_back_forgets_what_was_seen(robot):
    robot.silent = True
    robot.now -= 30.0
    robot.run(1)
    assert robot.visibility.at(robot.time) is View.NOTHING


@pytest.mark.parametrize(
    ('seen', 'jaw', 'ahead', 'expected'),
    [
        (True, ENOUGH, 0.0, View.CLEAR),
        (True, 0.0, 0.0, View.NO_JAW),
        (True, float('nan'), 0.0, View.NO_JAW),
        (False, ENOUGH, 0.0, View.NOTHING),
        (True, ENOUGH, -0.31, View.NOTHING),
        (True, ENOUGH, 0.49, View.CLEAR),
        (True, ENOUGH, 0.51, View.NOTHING),
    ],
)
def test_what_is_told_counts_within_its_time(seen, jaw, ahead, expected):
    check = VisibilityCheck(SETTINGS, 0.5)
    assert check.receive(seen, (jaw, 0.9), 100.0 + ahead)
    assert check.at(100.0) is expected


def test_an_older_picture_does_not_end_the_hold():
    check = VisibilityCheck(SETTINGS, 0.5)
    assert check.receive(False, NONE, 100.0)
    assert not check.receive(True, (ENOUGH, 0.9), 99.9)
    assert check.at(100.0) is View.NOTHING


@pytest.mark.parametrize('late', [0.4, 0.2, 0.0, -0.1])
def test_a_camera_that_stops_is_told_and_a_late_picture_ends_that_whatever_its_clock(late):
    check = VisibilityCheck(SETTINGS, 0.5)
    assert check.receive(True, (ENOUGH, 0.9), 100.0 + late)
    assert check.receive(False, NONE, 100.15, NO_PICTURE)
    assert check.at(100.16) is View.NOTHING
    assert check.receive(True, (ENOUGH, 0.9), 100.1 + late)
    assert check.at(100.17) is View.CLEAR


def test_a_message_that_nothing_is_seen_counts_even_if_it_comes_late():
    check = VisibilityCheck(SETTINGS, 0.5)
    assert check.receive(True, (ENOUGH, 0.9), 100.0)
    assert check.receive(False, NONE, 99.9, 'dark')
    assert check.at(100.0) is View.NOTHING
    assert not check.receive(True, (ENOUGH, 0.9), 99.95)
    assert check.at(100.0) is View.NOTHING


def test_robot_and_segmenter_have_the_same_reason_for_no_picture():
    assert NO_PICTURE == CameraFault.NO_PICTURE


@given(st.sampled_from(range(len(ACTIONS))))
def test_the_finest_move_has_the_direction_of_the_asked_one(action):
    asked, made = (np.array(ACTIONS[each].displacement) for each in (action, finest(action)))
    assert ACTIONS[finest(action)].jaw == ACTIONS[action].jaw
    assert finest(finest(action)) == finest(action)
    np.testing.assert_array_equal(np.sign(asked), np.sign(made))
    assert np.abs(made).max() <= 0.0005
