# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Limits that cannot hold together are refused, with the name of one and what it contradicts."""

from fdrl_ros.errors import SettingError
from fdrl_ros.selector import LimiterSettings, SelectorSettings
from fdrl_ros.selector.control.loop import check_limits
from fdrl_ros.shield.settings import ShieldSettings
import pytest

OFF = ShieldSettings(active=False)


def test_shipped_limits_agree():
    check_limits(SelectorSettings(), LimiterSettings(), ShieldSettings())


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


def test_slow_arm_is_fine_where_nothing_is_vetoed():
    check_limits(SelectorSettings(), LimiterSettings(speed_limit=0.03), OFF)
