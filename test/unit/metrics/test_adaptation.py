# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Variation rate and alpha_adapt: by hand, where undefined, and online against batch."""

import math

from fdrl_ros.errors import StateError
from fdrl_ros.metrics.adaptation import AdaptationMeter, alpha_adapt, state_change
from hypothesis import given
from hypothesis import strategies as st
import numpy as np
import pytest

cases_strategy = st.lists(
    st.lists(
        st.tuples(st.floats(-2, 2), st.floats(-2, 2), st.integers(0, 2)), min_size=0, max_size=12
    ),
    min_size=1,
    max_size=6,
)


def arrays(case):
    states = np.array([step[:2] for step in case], dtype=float).reshape(-1, 2)
    return states, np.array([step[2] for step in case], dtype=int)


def slow_alpha(cases, threshold):
    """Count with loops, as Eq. 11 is written."""
    ratios = []
    for states, actions in cases:
        changed = answered = 0
        for t in range(1, len(states)):
            d = math.dist(states[t], states[t - 1])
            if d > threshold:
                changed += 1
                answered += int(actions[t] != actions[t - 1])
        if changed:
            ratios.append(answered / changed)
    return (sum(ratios) / len(ratios), len(ratios)) if ratios else (math.nan, 0)


def test_distance_is_euclidean():
    assert state_change(np.array([3.0, 4.0]), np.zeros(2)) == pytest.approx(5.0)


STILL = (np.zeros((5, 1)), np.arange(5))


@pytest.mark.parametrize(
    ('cases', 'expected'),
    [
        ([(np.array([[0.0], [1.0], [1.1], [2.1], [3.1]]), np.array([0, 1, 0, 0, 2]))], (2 / 3, 1)),
        ([STILL, (np.zeros((1, 1)), np.zeros(1))], (math.nan, 0)),
        ([STILL, (np.arange(5.0)[:, None], np.arange(5))], (1.0, 1)),
    ],
    ids=['by hand', 'undefined', 'no change does not dilute'],
)
def test_alpha_is_the_share_of_changes_that_are_answered(cases, expected):
    assert alpha_adapt(cases) == pytest.approx(expected, nan_ok=True)


@given(cases_strategy, st.floats(0.1, 2))
def test_online_equals_batch_and_the_slow_count(raw, threshold):
    cases = [arrays(case) for case in raw]
    meter, alpha = AdaptationMeter(threshold), (math.nan, 0)
    for states, actions in cases:
        for state, action in zip(states, actions, strict=True):
            alpha = meter.add(state, int(action)).overall[:2]
        meter.end_case()
    batch = alpha_adapt(cases, threshold)
    assert alpha == pytest.approx(batch, abs=1e-12, nan_ok=True)
    assert batch == pytest.approx(slow_alpha(cases, threshold), abs=1e-12, nan_ok=True)


def test_states_and_actions_must_pair():
    with pytest.raises(StateError):
        alpha_adapt([(np.zeros((3, 1)), np.zeros(2))])


def test_the_meter_keeps_no_reference_to_the_state():
    meter = AdaptationMeter()
    state = np.zeros(2)
    meter.add(state, 0)
    state[:] = 1.0
    assert meter.add(state, 1).change == pytest.approx(math.sqrt(2))
