# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The limiter is continuous and slow, stands still, retreats, and fits the other limits."""

import math

from fdrl_ros.errors import SettingError, StateError
from fdrl_ros.selector import HOLD, Limiter, LimiterSettings, Reason, Selection, SelectorSettings
from fdrl_ros.selector.control.loop import check_limits
from fdrl_ros.shield.retreat import retreat, RISE
from fdrl_ros.shield.settings import ShieldSettings
from fdrl_ros.shield.shield import COARSE_UP
from fdrl_ros.surgery.gym.actions import (
    ACTION_COUNT,
    COARSE_STEP,
    DISPLACEMENTS,
    MAXIMUM_SPEED,
    STAY,
    TICK,
)
from hypothesis import given
from hypothesis import strategies as st
import numpy as np
import pytest

PERIOD = 0.01


def act(action, policy='global'):
    return Selection(policy, action, 0.0, 0.0, Reason.BEST, 0.0)


def started(**settings):
    limiter = Limiter(LimiterSettings(**settings))
    limiter.reset(np.zeros(3), 0.0)
    return limiter


@pytest.mark.parametrize('action', range(ACTION_COUNT))
def test_one_tick_makes_exactly_the_move(action):
    limiter = started()
    limiter.accept(act(action), 0.0)
    half = limiter.setpoint(TICK / 2)
    np.testing.assert_allclose(half.position, DISPLACEMENTS[action] / 2, atol=1e-15)
    assert not half.holding
    np.testing.assert_allclose(limiter.setpoint(TICK).position, DISPLACEMENTS[action], atol=1e-15)


@given(
    st.lists(
        st.tuples(
            st.floats(0.0, 0.2),
            st.sampled_from(['step', 'act', 'hold', 'back']),
            st.integers(0, 12),
        ),
        max_size=60,
    )
)
def test_the_set_point_never_outruns_the_speed_limit(events):
    limiter = started()
    now, last, last_time = 0.0, np.zeros(3), 0.0
    for wait, event, action in events:
        now += wait
        if event == 'act':
            limiter.accept(act(action), now)
        elif event == 'hold':
            limiter.accept(act(STAY, HOLD), now)
        elif event == 'back':
            limiter.accept(act(COARSE_UP, HOLD), now, np.array([0.0, 0.6, 0.8]))
        else:
            point = limiter.setpoint(now)
            way = np.linalg.norm(point.position - last)
            assert way <= MAXIMUM_SPEED * (now - last_time) + 1e-12
            last, last_time = point.position, now


def test_without_a_fresh_action_it_stands():
    limiter = started()
    limiter.accept(act(5), 0.0)
    assert not limiter.setpoint(0.1).holding
    late = limiter.setpoint(0.11)
    assert late.holding
    np.testing.assert_array_equal(limiter.setpoint(5.0).position, late.position)


def test_hold_stops_in_the_middle_of_a_move():
    limiter = started()
    limiter.accept(act(1), 0.0)
    limiter.accept(act(STAY, HOLD), 0.02)
    np.testing.assert_allclose(limiter.setpoint(0.05).position, [0.001, 0, 0], atol=1e-15)
    assert limiter.setpoint(0.06).holding


def test_hold_with_an_action_upwards_draws_the_tip_back_along_the_shaft():
    limiter = started()
    away = np.array([0.6, 0.0, 9.98]) / np.hypot(0.6, 9.98)
    limiter.accept(act(1), 0.0)
    limiter.accept(act(COARSE_UP, HOLD), 0.0, away)
    half = limiter.setpoint(TICK / 2)
    np.testing.assert_allclose(half.position, COARSE_STEP / 2 * away, atol=1e-15)
    assert half.retracting and half.holding
    limiter.accept(act(STAY, HOLD), TICK)
    after = limiter.setpoint(2 * TICK)
    np.testing.assert_allclose(after.position, COARSE_STEP * away, atol=1e-15)
    assert after.holding and not after.retracting


@given(st.floats(0.0, np.pi), st.floats(-np.pi, np.pi))
def test_a_hold_draws_the_tip_upwards_whatever_the_shaft(tilt, round_it):
    away = np.sin(tilt) * np.cos(round_it), np.sin(tilt) * np.sin(round_it), np.cos(tilt)
    way = np.array(retreat(COARSE_STEP, away))
    assert way[2] >= RISE * COARSE_STEP - 1e-15
    assert np.linalg.norm(way) == pytest.approx(COARSE_STEP)
    assert np.cross(way, away)[2] == pytest.approx(0.0, abs=1e-12)  # to the side of the shaft
    if np.cos(tilt) > RISE:
        np.testing.assert_allclose(way, COARSE_STEP * np.array(away), atol=1e-15)


@pytest.mark.parametrize('action', [each for each in range(ACTION_COUNT) if each not in (5, 11)])
def test_hold_with_any_other_action_moves_nothing(action):
    limiter = started()
    limiter.accept(act(action, HOLD), 0.0)
    np.testing.assert_array_equal(limiter.setpoint(TICK).position, np.zeros(3))


def test_a_retraction_that_nobody_repeats_ends():
    limiter = started()
    limiter.accept(act(COARSE_UP, HOLD), 0.0)
    assert limiter.setpoint(TICK).retracting
    late = limiter.setpoint(1.0)
    np.testing.assert_allclose(late.position, [0, 0, COARSE_STEP], atol=1e-15)
    assert not late.retracting


@pytest.mark.parametrize('now', [0.01, math.nan, -1.0])
def test_a_clock_that_goes_back_stops_the_tip_where_it_was(now):
    limiter = started()
    limiter.accept(act(1), 0.0)
    before = limiter.setpoint(0.03)
    after = limiter.setpoint(now)
    np.testing.assert_array_equal(after.position, before.position)
    assert after.holding
    limiter.accept(act(1), 0.05)
    limiter.setpoint(0.05)
    assert not limiter.setpoint(0.06).holding


@pytest.mark.parametrize('tip', [np.zeros(2), np.array([0, math.nan, 0])])
def test_before_a_tip_that_is_somewhere_there_is_no_set_point(tip):
    limiter = Limiter()
    with pytest.raises(StateError):
        limiter.reset(tip, 0.0)
    limiter.accept(act(1), 0.0)
    assert limiter.setpoint(0.1) is None


def test_an_action_that_there_is_not_is_refused_and_holds():
    limiter = started()
    limiter.accept(act(1), 0.0)
    with pytest.raises(StateError):
        limiter.accept(act(15), 0.02)
    assert limiter.setpoint(0.03).holding


OFF = ShieldSettings(active=False)


def test_shipped_limits_agree_and_a_slow_arm_is_fine_where_nothing_is_vetoed():
    check_limits(SelectorSettings(), LimiterSettings(), ShieldSettings())
    check_limits(SelectorSettings(), LimiterSettings(speed_limit=0.03), OFF)


@pytest.mark.parametrize(
    ('selector', 'limiter', 'shield', 'words'),
    [
        ({'dwell': 2.0}, {}, OFF, 'selector.dwell = 2.0: expected at most selector.patience, 1 s'),
        ({'state_timeout': 0.005}, {}, OFF, 'selector.state_timeout = 0.005: expected at least'),
        ({}, {'speed_limit': 0.005}, OFF, 'limiter.speed_limit = 0.005: expected at least 0.01'),
        ({}, {'speed_limit': 0.03}, ShieldSettings(), 'the shield counts on drawing back'),
        ({}, {}, ShieldSettings(usual_swing=0.05), 'shield.usual_swing = 0.05: expected at most'),
        ({}, {}, ShieldSettings(stiffest=1e4), 'at most shield.stiffest, 10000: nothing goes'),
    ],
)
def test_contradictions_are_refused(selector, limiter, shield, words):
    with pytest.raises(SettingError) as caught:
        check_limits(SelectorSettings(**selector), LimiterSettings(**limiter), shield)
    assert words in str(caught.value)
