# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""A policy says in time what to do, or does not become a candidate."""

import itertools
import math

from fdrl_ros.errors import PolicyError
from fdrl_ros.selector.candidates import decision_time as module
from fdrl_ros.selector.candidates.decision_time import ACTIONS, decision_time, DecisionTime, FEWEST
from fdrl_ros.surgery.gym.state import STATE_SIZE
import numpy as np
import pytest


def timed(monkeypatch, seconds, asked):
    """Return a policy that takes some seconds by a clock of the test."""
    clock = [0.0]
    monkeypatch.setattr(module, 'perf_counter', lambda: clock[0])

    def policy(state):
        assert state.shape == (STATE_SIZE,) and state.dtype == np.float32
        clock[0] += next(seconds)
        asked.append(state)
        return 3

    return policy


def test_time_of_an_action_is_told_without_what_is_loaded_at_first(monkeypatch):
    asked = []
    found = decision_time(
        timed(monkeypatch, itertools.chain([5.0], itertools.repeat(2e-4)), asked)
    )
    assert len(asked) == 1 + ACTIONS
    assert found.median == pytest.approx(2e-4) and found.p99 == pytest.approx(2e-4)
    found.check(0.02)
    assert found.words(0.02) == '0.2 ms of 20 ms'


def test_a_slow_policy_is_asked_a_few_times_and_refused(monkeypatch):
    asked = []
    found = decision_time(timed(monkeypatch, itertools.repeat(1.0), asked))
    assert len(asked) == 1 + FEWEST
    with pytest.raises(PolicyError, match=r'1e\+03 ms here: expected at most 10 ms'):
        found.check(0.02)


def test_a_few_late_actions_are_the_machine_s_and_refuse_nothing():
    found = DecisionTime.of([1e-4] * 95 + [0.5] * 5)
    found.check(0.02)
    assert found.p99 == 0.5


@pytest.mark.parametrize('answer', [-1, 99, 1.0, None, math.nan])
def test_what_is_no_action_is_refused(answer):
    with pytest.raises(PolicyError, match='gives no action'):
        decision_time(lambda state: answer)


def test_what_a_policy_raises_is_named():
    def policy(state):
        raise ZeroDivisionError('a division')

    with pytest.raises(PolicyError, match='a division'):
        decision_time(policy)
