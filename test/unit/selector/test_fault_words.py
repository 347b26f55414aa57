# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What is wrong with a state is told in words, and told of every state that is refused."""

import dataclasses
import math

from fdrl_ros.selector import SelectorSettings
from fdrl_ros.selector.control.observation import fault_in_words, StateReader, UsableState
from fdrl_ros.surgery.gym.state import SCALES, STATE_SIZE
from hypothesis import given
from hypothesis import strategies as st
import pytest
from support.choices import NAMES, observe, SPLIT, values_of

BOUND = SelectorSettings().state_bound


def words(part=None, state=None, **changes):
    halves = list(observe(values_of() if state is None else state))
    if part is not None:
        halves[part] = dataclasses.replace(halves[part], **changes)
    told = fault_in_words(*halves, BOUND)
    assert (told == '') == isinstance(StateReader(BOUND).read(*halves), UsableState)
    return told


@pytest.mark.parametrize(
    ('part', 'changes', 'expected'),
    [
        (0, {'patient': 'a'}, "patient 'a' in the operation, 'case_1' in the vital signs"),
        (0, {'procedure': 'appendectomy'}, "procedure 'appendectomy': expected one of reach, "),
        (0, {'names': NAMES[0][:-1]}, 'operation has 21 names, expected 22'),
        (1, {'names': NAMES[1][::-1]}, "name 0 of the vital signs is 'respiratory_rate', expe"),
        (0, {'values': [1.0] * (SPLIT - 1)}, 'operation has 21 values, expected 22'),
        (0, {'values': [[1.0]] * SPLIT}, 'operation has 22 x 1 values, expected 22'),
        (0, {'values': ['x'] * SPLIT}, 'operation has values that are no numbers'),
        (1, {'scales': []}, 'vital signs has 0 scales, expected 4'),
        (1, {'scales': [100.0, 1.0, 100.0, 20.0]}, 'scale of heart_rate is 1.0, expected 100.0'),
    ],
)
def test_another_form_is_told_with_what_was_expected(part, changes, expected):
    assert words(part, **changes).startswith(expected)


@pytest.mark.parametrize(
    ('values', 'expected'),
    [
        ({'force': math.nan}, 'force is nan'),
        ({'force': -math.inf, 'heart_rate': 900.0}, 'force is -inf'),
        ({'heart_rate': 900.0}, 'heart_rate is 900 1/min, out of range (-0.1 to 400)'),
        ({'force_limit': 0.0}, 'force_limit is 0 N, expected more than 0'),
        ({'jaw': 1e9, 'done': -1e9}, 'done is -1e+09, out of range ('),
    ],
)
def test_values_out_of_order_are_named(values, expected):
    assert words(state=values_of(**values)).startswith(expected)


def test_of_many_the_first_are_named_and_the_rest_is_counted():
    told = words(state=values_of() * math.nan)
    assert told.count(' is nan; ') == 3 and told.endswith(f'; and {STATE_SIZE - 3} more')


def test_a_long_name_is_cut():
    assert len(words(0, procedure='x' * 10**6)) < 300


@given(st.integers(0, STATE_SIZE - 1), st.floats(allow_nan=True, allow_infinity=True))
def test_whatever_the_reader_refuses_is_told_and_nothing_else(place, scaled):
    values = values_of()
    values[place] = scaled * SCALES[place]
    words(state=values)
