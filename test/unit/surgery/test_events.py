# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Events in an operation: drawn from their rate alone, smooth for the tissue, over in the end."""

import itertools
import math

from fdrl_ros.errors import SettingError
from fdrl_ros.surgery.patient.breathing import (
    breathing_clock,
    breathing_factor,
    breathing_motion,
)
from fdrl_ros.surgery.patient.events import draw_events, Event, KINDS, spans
from hypothesis import given, settings
from hypothesis import strategies as st
import numpy as np
import pytest
from support.sample_size import sampled

COUGHS = st.lists(
    st.builds(
        Event,
        st.just('breathing'),
        st.floats(0.0, 20.0),
        st.floats(0.2, 10.0),
        st.floats(1.0, 3.0),
    ),
    max_size=3,
)
TIMES = st.floats(0.0, 40.0)


def coughs(*events):
    return spans(events, 'breathing')


def test_events_are_a_pure_function_of_the_generator():
    draws = [draw_events(np.random.default_rng(5), 3.0, 300.0) for _ in range(2)]
    assert draws[0] == draws[1] != draw_events(np.random.default_rng(6), 3.0, 300.0)


def test_no_rate_or_no_span_gives_no_event():
    assert draw_events(np.random.default_rng(0), 0.0, 600.0) == ()
    assert draw_events(np.random.default_rng(0), 5.0, 0.0) == ()


def test_events_come_at_their_rate_in_order_and_kinds_take_turns():
    """Rare events hardly overlap: a Poisson count. False alarm: 1 in 1000; the seed is fixed."""
    rng = np.random.default_rng(1)
    drawn = [draw_events(rng, 0.2, 300.0) for _ in range(3000)]
    count = sum(len(each) for each in drawn)
    assert 0.95 * 3000 < count < 3000 + 3.3 * math.sqrt(3000)
    shares = [sum(e.kind == kind for each in drawn for e in each) / count for kind in KINDS]
    assert shares == pytest.approx([1 / 3] * 3, abs=0.04)
    for events in drawn:
        assert [each.start for each in events] == sorted(each.start for each in events)
        assert all(0.0 <= each.start < 300.0 for each in events)


def test_two_events_of_a_kind_never_overlap():
    events = draw_events(np.random.default_rng(2), 60.0, 600.0)
    assert len(events) > 30
    for kind in KINDS:
        alike = [each for each in events if each.kind == kind]
        assert len(alike) > 5
        assert all(one.end <= two.start for one, two in itertools.pairwise(alike))


def test_a_higher_rate_moves_the_same_events_forward():
    slow = draw_events(np.random.default_rng(3), 0.5, 240.0)
    fast = draw_events(np.random.default_rng(3), 0.51, 240.0)
    assert slow and len(fast) >= len(slow)
    for one, two in zip(slow, fast, strict=False):
        assert (two.kind, two.duration, two.magnitude) == (one.kind, one.duration, one.magnitude)
        assert two.start == pytest.approx(one.start / 1.02)


@given(COUGHS, TIMES)
def test_the_breathing_factor_is_1_outside_events_and_within_their_sum(events, time):
    factor, derivative = breathing_factor(coughs(*events), time)
    assert 1.0 <= factor <= 1.0 + sum(each.magnitude - 1.0 for each in events) + 1e-12
    if not any(each.start < time < each.end for each in events):
        assert (factor, derivative) == (1.0, 0.0)


def test_the_breathing_factor_reaches_its_magnitude_between_the_ramps():
    event = Event('breathing', 10.0, 5.0, 2.0)
    assert breathing_factor(coughs(event), 10.5) == pytest.approx((1.5, 1.5))
    assert breathing_factor(coughs(event), 12.5) == (2.0, 0.0)
    assert breathing_factor(coughs(event), 14.5) == pytest.approx((1.5, -1.5))
    short = Event('breathing', 0.0, 1.0, 3.0)
    assert breathing_factor(coughs(short), 0.5) == pytest.approx((3.0, 0.0))


@settings(max_examples=sampled(200, 20))
@given(COUGHS, TIMES)
def test_factor_and_clock_are_the_integrals_of_what_is_returned(events, time):
    step, events = 1e-4, coughs(*events)
    factor, derivative = breathing_factor(events, time)
    later, next_derivative = breathing_factor(events, time + step)
    # Steepest change of the derivative: 6 excess / ramp^2, the shortest ramp being 0.1 s.
    assert abs(later - factor - derivative * step) <= 3600.0 * step**2
    assert abs(next_derivative - derivative) <= 3600.0 * step
    moved = breathing_clock(events, time + step) - breathing_clock(events, time)
    assert moved == pytest.approx(0.5 * step * (factor + later), abs=1e-9)


@settings(max_examples=sampled(200, 20))
@given(COUGHS, TIMES, st.floats(0.0, 6.28))
def test_the_surface_is_continuous_with_its_speed(events, time, phase):
    step = 1e-5
    motion = (0.003, 2.0, phase, coughs(*events))
    height, speed, _ = breathing_motion(*motion, time)
    later, next_speed, _ = breathing_motion(*motion, time + step)
    assert (later - height) / step == pytest.approx(0.5 * (speed + next_speed), abs=1e-6)
    assert abs(next_speed - speed) < 0.003 * 5000.0 * step


@pytest.mark.parametrize(
    ('wrong', 'name'),
    [
        (('cut', 0.0, 1.0, 1.0), 'kind'),
        (('bleed', math.nan, 1.0, 1.0), 'start'),
        (('bleed', 0.0, 0.0, 1.0), 'duration'),
        (('bleed', 0.0, math.inf, 1.0), 'duration'),
        (('bleed', 0.0, 1.0, math.inf), 'magnitude'),
        (('desaturation', 0.0, 1.0, 101.0), 'magnitude'),
        (('breathing', 0.0, 1.0, 0.9), 'magnitude'),
        (('breathing', 0.0, 1.0, 1e3), 'magnitude'),
        (('bleed', 0.0, 1.0, True), 'magnitude'),
    ],
)
def test_events_that_cannot_happen_are_refused(wrong, name):
    with pytest.raises(SettingError, match=name):
        Event(*wrong)


@pytest.mark.parametrize('wrong', [(-1.0, 60.0), (math.nan, 60.0), (61.0, 60.0), (1.0, math.inf)])
def test_rates_and_spans_that_cannot_be_are_refused(wrong):
    with pytest.raises(SettingError, match='rate|span'):
        draw_events(np.random.default_rng(0), *wrong)
