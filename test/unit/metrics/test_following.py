# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""How the hand follows the organ: by hand, bounds, who cannot win, and online against batch."""

import math

from fdrl_ros.errors import StateError
from fdrl_ros.metrics.following import following, FollowingMeter, informedness
from fdrl_ros.metrics.task import FINE_STEP
from hypothesis import given
from hypothesis import strategies as st
import numpy as np
import pytest

STEP = FINE_STEP
PERIOD = 75
BREATHING = 0.003 * np.sin(2.0 * math.pi * np.arange(10 * PERIOD) / PERIOD)

steps = st.tuples(st.integers(-4, 4), st.sampled_from([-5, -1, 0, 1, 5]))
cases_strategy = st.lists(st.lists(steps, max_size=25), min_size=1, max_size=5)


def arrays(raw):
    """Return surfaces a quarter of a fine step apart, off its multiples, and whole moves."""
    return [
        (np.array([s for s, _ in case]) * 0.26 * STEP, np.array([m for _, m in case]) * STEP)
        for case in raw
    ]


def slow_answers(surfaces, moves):
    """Return the signs of the answers to rises and to falls of one case."""
    changes, last = [], 0
    for t in range(1, len(surfaces)):
        if abs(surfaces[t] - surfaces[last]) >= STEP:
            changes.append((t, surfaces[t] > surfaces[last]))
            last = t
    ends = [*(t for t, _ in changes), len(surfaces)][1:]
    answers = {True: [], False: []}
    for (begin, rose), end in zip(changes, ends, strict=True):
        steps = round(float(np.sum(moves[begin:end])) / STEP)
        answers[rose].append((steps > 0) - (steps < 0))
    return answers[True], answers[False]


def follower():
    """Return the moves of a hand that goes a fine step as soon as the organ is one ahead."""
    hand, moves = 0.0, []
    for surface in BREATHING:
        ahead = surface - hand
        moves.append(math.copysign(STEP, ahead) if abs(ahead) >= STEP else 0.0)
        hand += moves[-1]
    return np.array(moves)


def mean(values):
    return sum(values) / len(values) if values else math.nan


def close(found, expected):
    return found == pytest.approx(expected, abs=1e-12, nan_ok=True)


def test_answers_by_hand():
    surfaces = STEP * np.array([0.0, 0.4, 1.1, 1.2, 2.3, 1.9, 1.0, 1.0])
    moves = STEP * np.array([-5.0, -5.0, 1.0, 0.0, -1.0, 1.0, 0.0, -1.0])
    # It rises at step 2 (up), at step 4 (nothing in the sum), and falls at step 6 (down).
    found = following([(surfaces, moves)])
    assert found == (0.5, -1.0, 1, 1)
    assert found.informedness == 0.75


@given(cases_strategy)
def test_online_equals_batch_and_the_slow_count(raw):
    cases, meter = arrays(raw), FollowingMeter()
    for surfaces, moves in cases:
        for surface, move in zip(surfaces, moves, strict=True):
            meter.add(surface, move)
        meter.end_case()
    answers = [slow_answers(*case) for case in cases]
    rises, falls = ([mean(each[way]) for each in answers if each[way]] for way in (0, 1))
    expected = (mean(rises), mean(falls), len(rises), len(falls))
    assert close(tuple(following(cases)), expected) and close(tuple(meter.overall), expected)


@given(cases_strategy)
def test_the_measure_is_bounded_and_turns_with_the_moves(raw):
    cases = arrays(raw)
    found = following(cases).informedness
    assert math.isnan(found) or -1.0 <= found <= 1.0
    turned = following([(surfaces, -moves) for surfaces, moves in cases]).informedness
    assert close(turned, -found)


@given(cases_strategy, st.sampled_from([-STEP, 0.0, STEP]))
def test_who_always_does_the_same_gets_nothing(raw, move):
    cases = [(surfaces, np.full(len(surfaces), move)) for surfaces, _ in arrays(raw)]
    found = following(cases)
    assert found.informedness == 0.0 or math.isnan(found.informedness)
    assert math.isnan(found.informedness) == (not (found.rises and found.falls))


def test_who_follows_wins_who_flees_loses_and_chance_gets_nothing():
    follows, count = follower(), len(BREATHING)
    # Of a hand that is two ticks late most answers still lie before the next change.
    late = np.r_[0.0, 0.0, follows[:-2]]
    rng = np.random.default_rng(3)
    chance = [(BREATHING, rng.choice([-STEP, 0.0, STEP], count)) for _ in range(60)]
    to_and_fro = np.resize([STEP, -STEP], count)
    assert following([(BREATHING, follows)]).informedness > 0.85
    assert following([(BREATHING, -follows)]).informedness < -0.85
    assert following([(BREATHING, late)]).informedness > 0.3
    # 60 cases of about 100 changes: five standard deviations of such a mean are below 0.06.
    assert abs(following(chance).informedness) < 0.06
    cases = [(np.roll(BREATHING, shift), to_and_fro) for shift in range(PERIOD)]
    assert abs(following(cases).informedness) < 0.02


def test_an_organ_that_rests_is_undefined_not_zero():
    meter = FollowingMeter()
    meter.add(0.0, STEP)
    meter.add(0.9 * STEP, STEP)
    assert meter.case[2:] == (0, 0)
    meter.end_case()
    meter.add(5 * STEP, STEP)  # of another case: no change of this one
    meter.end_case()
    assert meter.overall[2:] == (0, 0) and math.isnan(meter.overall.informedness)


def test_the_present_case_has_its_own_answers():
    meter = FollowingMeter()
    for surface in (0.0, 1.0, 2.0, 0.0):
        meter.add(surface * STEP, STEP)
    assert meter.case == (1.0, pytest.approx(math.nan, nan_ok=True), 2, 0), 'the fall is open'
    meter.end_case()
    assert meter.overall == (1.0, 1.0, 1, 1) and meter.case[2:] == (0, 0)


def test_impossible_numbers_are_refused():
    for bad in ((math.nan, 0.0), (0.0, math.inf)):
        with pytest.raises(StateError, match='finite'):
            FollowingMeter().add(*bad)
    with pytest.raises(StateError, match='as many'):
        following([(np.zeros(3), np.zeros(2))])


def test_informedness_is_half_the_difference():
    assert informedness(0.5, -0.25) == 0.375
