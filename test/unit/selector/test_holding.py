# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The selector holds, and says why, whenever the state, a policy or the shield is wrong."""

import dataclasses
import math
from types import SimpleNamespace

from fdrl_ros.errors import StateError
from fdrl_ros.selector import Candidate, HOLD, Reason, SelectorSettings, Shield
from fdrl_ros.selector.control.observation import (
    fault_in_words,
    StateReader,
    told_fields,
    UsableState,
)
from fdrl_ros.surgery.gym.actions import STAY
from fdrl_ros.surgery.gym.state import (
    layout_of,
    OPERATION_LAYOUT,
    PATIENT_FIELDS,
    PATIENT_LAYOUT,
    SCALES,
    STATE_SIZE,
)
from hypothesis import given, settings
from hypothesis import strategies as st
import numpy as np
import pytest
from support.choices import (
    candidate,
    constant_value,
    observe,
    select,
    selector_with,
    SPLIT,
    values_of,
)

BOUND = SelectorSettings().state_bound
PLAIN = values_of()
OURS = OPERATION_LAYOUT


def words(*halves):
    """Return what is wrong with a state in words, which are empty when the reader accepts it."""
    told = fault_in_words(*halves, BOUND)
    assert (told == '') == isinstance(StateReader(BOUND).read(*halves), UsableState)
    return told


@pytest.fixture
def selector():
    made = selector_with(candidate('global', 0.5, action=3))
    assert select(made, *observe(PLAIN), 0.0).policy == 'global'
    return made


def holds_and_recovers(selector, halves, reason, now=0.05):
    """Check that a selector holds in a state for a reason, and acts in a good one after it."""
    held = select(selector, *halves, now)
    assert (held.policy, held.action, held.reason) == (HOLD, STAY, reason)
    assert select(selector, *observe(PLAIN, 0.1), 0.1).policy == 'global'
    return held


@pytest.mark.parametrize('index', range(STATE_SIZE))
@pytest.mark.parametrize('bad', [math.nan, math.inf, -math.inf])
def test_a_number_that_is_not_finite_holds_in_that_very_call(selector, index, bad):
    values = values_of()
    values[index] = bad
    held = holds_and_recovers(selector, observe(values, 0.05), Reason.NOT_FINITE)
    assert held.risk is None and f' is {bad}' in words(*observe(values))


@pytest.mark.parametrize(
    ('part', 'changes', 'reason', 'expected'),
    [
        (0, {'received': -1.0}, Reason.STALE, ''),
        (1, {'received': -1.0}, Reason.STALE, ''),
        (0, {'received': 9.0}, Reason.CLOCK, ''),
        (1, {'received': math.nan}, Reason.CLOCK, ''),
        (
            0,
            {'layout': 'x'},
            Reason.MISMATCH,
            f"operation has layout 'x', expected {OURS!r}: no s",
        ),
        (0, {'values': [1.0] * 26}, Reason.MISMATCH, 'operation has 26 values, expected 27'),
        (0, {'values': ['x'] * SPLIT}, Reason.MISMATCH, 'operation has values that are no numb'),
        (0, {'values': [[1.0]] * SPLIT}, Reason.MISMATCH, 'operation has 27 x 1 values, expect'),
        (
            1,
            {'patient': 'a'},
            Reason.MISMATCH,
            "patient 'case_1' in the operation, 'a' in the vital signs",
        ),
        (0, {'procedure': 'x'}, Reason.MISMATCH, "procedure 'x': expected one of reach, "),
    ],
)
def test_a_state_of_another_form_or_time_holds_and_says_what_was_expected(
    selector, part, changes, reason, expected
):
    halves = list(observe(PLAIN, 0.05))
    halves[part] = dataclasses.replace(halves[part], **changes)
    holds_and_recovers(selector, halves, reason)
    assert words(*halves).startswith(expected)


def told(**changes) -> SimpleNamespace:
    """Return the fields of the vital signs as a publisher with other ones tells them."""
    names, units, scales = (
        [getattr(each, what) for each in PATIENT_FIELDS] for what in ('name', 'unit', 'scale')
    )
    source = SimpleNamespace(**{'names': names, 'units': units, 'scales': scales, **changes})
    source.layout = layout_of(source.names, source.units, source.scales)
    return source


@pytest.mark.parametrize(
    ('changes', 'expected'),
    [
        ({'scales': [100.0, 1.0, 100.0, 20.0]}, 'scale of heart_rate is 1.0, expected 100.0'),
        ({'units': ['kPa', '1/min', '%', '1/min']}, "unit of mean_arterial_pressure is 'kPa', ex"),
        ({'names': ['a', 'b', 'c', 'd']}, "field 0 is 'a', expected 'mean_arterial_pressure'"),
        ({'names': [], 'units': [], 'scales': []}, '0 fields, expected 4'),
    ],
)
def test_states_of_other_fields_hold_and_the_field_that_differs_is_named(
    selector, changes, expected
):
    operation, vitals = observe(PLAIN, 0.05)
    source = told(**changes)
    vitals = dataclasses.replace(vitals, layout=source.layout)
    holds_and_recovers(selector, (operation, vitals), Reason.MISMATCH)
    layouts = {source.layout: told_fields(source)}
    assert expected in fault_in_words(operation, vitals, BOUND, layouts)
    assert told_fields(told())[1].name == 'heart_rate'


def test_fields_of_another_hash_than_was_told_are_refused():
    lying, uneven = told(), told()
    lying.layout = OURS
    with pytest.raises(StateError, match=f"layout '{OURS}' of fields that are '{PATIENT_LAYOUT}'"):
        told_fields(lying)
    uneven.units = uneven.units[1:]
    with pytest.raises(StateError, match='4 names, 3 units, 4 scales'):
        told_fields(uneven)
    many = SimpleNamespace(names=['a'] * 257, units=['1'] * 257, scales=[1.0] * 257, layout='')
    with pytest.raises(StateError, match='257 fields'):
        told_fields(many)


@pytest.mark.parametrize('part', [0, 1])
def test_half_a_state_holds(selector, part):
    halves = list(observe(PLAIN, 0.05))
    halves[part] = None
    holds_and_recovers(selector, halves, Reason.MISSING)


@pytest.mark.parametrize(
    ('values', 'expected'),
    [
        ({'force': -25.0}, 'force is -25 N, out of range ('),
        ({'force_limit': 0.0}, 'force_limit is 0 N, expected more than 0'),
        ({'goal_error_x': 1e9}, 'goal_error_x is 1e+09 m, out of range ('),
        ({'heart_rate': 900.0}, 'heart_rate is 900 1/min, out of range (-0.1 to 400)'),
        ({'heart_rate': -1.0}, 'heart_rate is -1 1/min, out of range ('),
        ({'heart_rate': 1e200}, 'heart_rate is 1e+200 1/min, out of range ('),
        ({'oxygen_saturation': 101.0}, 'oxygen_saturation is 101 '),
        ({'jaw': 1e9, 'done': -1e9}, 'done is -1e+09, out of range ('),
    ],
)
def test_values_out_of_range_hold_and_are_named(selector, values, expected):
    halves = observe(values_of(**values), 0.05)
    holds_and_recovers(selector, halves, Reason.OUT_OF_RANGE)
    assert words(*halves).startswith(expected)


def test_of_many_faults_the_first_are_named_and_a_long_name_is_cut():
    told = words(*observe(PLAIN * math.nan))
    assert told.count(' is nan; ') == 3 and told.endswith(f'; and {STATE_SIZE - 3} more')
    mixed = words(*observe(values_of(force=-math.inf, heart_rate=900.0)))
    assert mixed.startswith('force is -inf')
    assert len(words(*observe(PLAIN, procedure='x' * 10**6))) < 300


@given(st.integers(0, STATE_SIZE - 1), st.floats(allow_nan=True, allow_infinity=True))
def test_whatever_the_reader_refuses_is_told_and_nothing_else(place, scaled):
    values = values_of()
    values[place] = scaled * SCALES[place]
    words(*observe(values))


@pytest.mark.parametrize('now', [-0.5, math.nan])
def test_a_clock_that_goes_back_holds_and_recovers(selector, now):
    holds_and_recovers(selector, observe(PLAIN, -1.0), Reason.CLOCK, now)


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
        *(
            lambda state, answer=answer: answer
            for answer in (None, math.nan, 3.0, True, -1, 15, np.array([1, 2]), 'stay')
        ),
    ],
)
def test_a_policy_that_fails_holds_then_others_take_over_then_it_may_again(policy):
    answers = [policy, lambda s: 5]
    broken = Candidate('broken', lambda s: answers[0](s), constant_value(0.9))
    selector = selector_with(broken, candidate('spare', 0.5, action=2), failure_pause=1.0)
    first = select(selector, *observe(PLAIN), 0.0)
    assert (first.policy, first.action, first.reason) == (HOLD, STAY, Reason.POLICY_FAILED)
    assert select(selector, *observe(PLAIN, 0.05), 0.05).policy == 'spare'
    answers.pop(0)
    later = select(selector, *observe(PLAIN, 2.0), 2.0)
    assert (later.policy, later.action) == ('broken', 5)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 0.1), st.floats(0, 0.1), st.floats(0, 0.1)), max_size=30))
def test_never_an_action_while_the_state_is_stale(steps):
    selector = selector_with(candidate('global', 0.5, action=3))
    now = 0.0
    for wait, *ages in steps:
        now += wait
        halves = [
            dataclasses.replace(each, received=now - age)
            for each, age in zip(observe(PLAIN), ages, strict=True)
        ]
        selection = select(selector, *halves, now)
        if now - (now - max(ages)) > selector.settings.state_timeout:
            assert selection.holds and selection.reason == Reason.STALE
        else:
            assert selection.policy == 'global'


def test_a_shield_that_fails_lets_nothing_pass_and_the_robot_goes_on_holding(
    selector, monkeypatch
):
    def fail_at(*_args, **_kinds):
        raise ZeroDivisionError('no')

    with monkeypatch.context() as patch:
        patch.setattr(Shield, 'decide', fail_at)
        held = select(selector, *observe(PLAIN, 0.05), 0.05)
    assert (held.policy, held.action, held.reason) == (HOLD, STAY, Reason.SHIELD_FAILED)
    assert held.risk is not None
    assert select(selector, *observe(PLAIN, 0.1), 0.1).policy == 'global'
