# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The selector holds whenever anything is wrong: with the state, a policy or the shield."""

import dataclasses
import math

from fdrl_ros.selector import Candidate, Reason, Shield
from fdrl_ros.surgery.gym.actions import STAY
from fdrl_ros.surgery.gym.state import STATE_SIZE
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
import numpy as np
import pytest
from support.choices import (
    candidate,
    constant_value,
    NAMES,
    observe,
    select,
    selector_with,
    SPLIT,
    values_of,
)


@pytest.mark.parametrize('index', range(STATE_SIZE))
@pytest.mark.parametrize('bad', [math.nan, math.inf, -math.inf])
def test_a_number_that_is_not_finite_holds_in_that_very_call(index, bad):
    selector = selector_with(candidate('global', 0.5, action=3))
    values = values_of()
    values[index] = bad
    selection = select(selector, *observe(values), 0.0)
    assert selection.holds and selection.action == STAY
    assert selection.reason == Reason.NOT_FINITE
    assert selection.risk is None and selector.adaptation() is None
    again = select(selector, *observe(values_of(), 0.05), 0.05)
    assert again.policy == 'global'


def change(part, **changes):
    def apply(operation, patient):
        inputs = [operation, patient]
        inputs[part] = dataclasses.replace(inputs[part], **changes)
        return inputs

    return apply


@pytest.mark.parametrize(
    ('spoil', 'reason'),
    [
        (lambda o, p: (None, p), Reason.MISSING),
        (lambda o, p: (o, None), Reason.MISSING),
        (change(0, received=-1.0), Reason.STALE),
        (change(1, received=-1.0), Reason.STALE),
        (change(0, received=9.0), Reason.CLOCK),
        (change(1, received=math.nan), Reason.CLOCK),
        (change(0, names=NAMES[0][:-1]), Reason.MISMATCH),
        (change(1, names=NAMES[1][::-1]), Reason.MISMATCH),
        (change(0, values=[1.0] * (SPLIT - 1)), Reason.MISMATCH),
        (change(0, values=['x'] * SPLIT), Reason.MISMATCH),
        (change(0, values=[[1.0]] * SPLIT), Reason.MISMATCH),
        (change(0, scales=[1.0] * SPLIT), Reason.MISMATCH),
        (change(1, scales=[]), Reason.MISMATCH),
        (change(1, patient='another'), Reason.MISMATCH),
        (change(0, procedure='unheard of'), Reason.MISMATCH),
        (change(0, values=values_of(force=1e6)[:SPLIT]), Reason.OUT_OF_RANGE),
        (change(0, values=values_of(force=-25)[:SPLIT]), Reason.OUT_OF_RANGE),
        (change(0, values=values_of(force_limit=0)[:SPLIT]), Reason.OUT_OF_RANGE),
        (change(0, values=values_of(goal_error_x=1e9)[:SPLIT]), Reason.OUT_OF_RANGE),
        (change(1, values=values_of(heart_rate=-1)[SPLIT:]), Reason.OUT_OF_RANGE),
        (change(1, values=values_of(oxygen_saturation=101)[SPLIT:]), Reason.OUT_OF_RANGE),
        (change(1, values=values_of(heart_rate=1e200)[SPLIT:]), Reason.OUT_OF_RANGE),
    ],
)
def test_whatever_is_wrong_with_the_state_it_holds_and_recovers(spoil, reason):
    selector = selector_with(candidate('global', 0.5, action=3))
    assert select(selector, *observe(values_of()), 0.0).policy == 'global'
    selection = select(selector, *spoil(*observe(values_of(), 0.05)), 0.05)
    assert selection.holds and selection.action == STAY
    assert selection.reason == reason
    assert select(selector, *observe(values_of(), 0.1), 0.1).policy == 'global'


@pytest.mark.parametrize('now', [-0.5, math.nan])
def test_a_clock_that_goes_back_holds_and_recovers(now):
    selector = selector_with(candidate('global', 0.5))
    select(selector, *observe(values_of()), 0.0)
    assert select(selector, *observe(values_of(), -1.0), now).reason == Reason.CLOCK
    assert select(selector, *observe(values_of(), 0.05), 0.05).policy == 'global'


def fail(state):
    raise RuntimeError('no')


def spoil_state(state):
    state[:] = 0.0
    return 1


@pytest.mark.parametrize(
    'policy',
    [
        fail,
        spoil_state,
        lambda s: None,
        lambda s: math.nan,
        lambda s: 3.0,
        lambda s: True,
        lambda s: -1,
        lambda s: 15,
        lambda s: np.array([1, 2]),
        lambda s: 'stay',
    ],
)
def test_a_policy_that_fails_holds_then_others_take_over_then_it_may_again(policy):
    answers = [policy, lambda s: 5]
    broken = Candidate('broken', lambda s: answers[0](s), constant_value(0.9))
    selector = selector_with(broken, candidate('spare', 0.5, action=2), failure_pause=1.0)
    first = select(selector, *observe(values_of()), 0.0)
    assert first.holds and first.reason == Reason.POLICY_FAILED and first.action == STAY
    assert select(selector, *observe(values_of(), 0.05), 0.05).policy == 'spare'
    answers.pop(0)
    later = select(selector, *observe(values_of(), 2.0), 2.0)
    assert (later.policy, later.action) == ('broken', 5)


@hypothesis_settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 0.1), st.floats(0, 0.1), st.floats(0, 0.1)), max_size=30))
def test_never_an_action_while_the_state_is_stale(steps):
    selector = selector_with(candidate('global', 0.5, action=3))
    now = 0.0
    for wait, age, patient_age in steps:
        now += wait
        operation, patient = observe(values_of())
        selection = select(
            selector,
            dataclasses.replace(operation, received=now - age),
            dataclasses.replace(patient, received=now - patient_age),
            now,
        )
        if now - (now - max(age, patient_age)) > selector.settings.state_timeout:
            assert selection.holds and selection.reason == Reason.STALE
        else:
            assert selection.policy == 'global'


def test_a_shield_that_fails_lets_nothing_pass_and_the_robot_goes_on_holding(monkeypatch):
    selector = selector_with(candidate('global', 0.5, action=3))
    select(selector, *observe(values_of()), 0.0)

    def fail_at(*_args, **_kinds):
        raise ZeroDivisionError('no')

    monkeypatch.setattr(Shield, 'decide', fail_at)
    selection = select(selector, *observe(values_of(), 0.05), 0.05)
    assert selection.holds and selection.action == STAY and selection.risk is not None
    assert selection.reason == Reason.SHIELD_FAILED
    monkeypatch.undo()
    assert select(selector, *observe(values_of(), 0.1), 0.1).policy == 'global'
