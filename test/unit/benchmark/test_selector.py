# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""`benchmark/selector.py`: which answer is of which state, and that losses make figures worse."""

import numpy as np
import pytest

MS = 1_000_000
PERIOD = 10 * MS
STEP = 5
"""States for each decision, at 100 Hz."""


@pytest.fixture
def work(module):
    return module('selector_work')


@pytest.fixture
def answers(work):
    """Give 100 states, each with a set-point after 1 ms, every fifth with an action after 2 ms."""
    made = work.Answers()
    made.begin = 10
    limit, force = work.INDEX['force_limit'], work.INDEX['force']
    for number in range(100):
        sent = number * PERIOD
        made.sent.append(sent)
        made.set_points_heard.append((sent + MS, sent + MS // 2))
        if number % STEP == 0:
            values = np.full(26, 3.0)
            changed = work.with_number(values, number)
            made.actions.append((sent + 2 * MS, sent))
            made.risks.append((sent, changed[force] / changed[limit]))
    return made


def test_answers_are_of_the_states_that_they_tell(answers):
    assert answers.decisions() == pytest.approx(np.full(18, 0.002))
    assert answers.set_points() == pytest.approx(np.full(86, 0.001))
    assert sorted(set(answers.whole().round(6))) == [0.001, 0.002]


def test_a_missing_set_point_makes_those_after_it_late(answers):
    del answers.set_points_heard[52]
    times = answers.set_points()
    assert (times == 1.0).sum() == 1
    assert (times > 0.010).sum() == 4
    assert len(times) == 86


def test_a_missing_decision_counts_as_never(answers):
    del answers.actions[9], answers.risks[9]
    assert (answers.decisions() == 1.0).sum() == 1
    assert (answers.whole() == 1.0).sum() == 1


def test_a_hold_for_want_of_a_state_counts_as_never(answers):
    answers.actions.insert(10, (answers.sent[47] + MS, answers.sent[47] + MS // 2))
    assert (answers.decisions() == 1.0).sum() == 1


def test_states_move_from_tick_to_tick_and_every_operation_is_another_patient(work):
    played = work.episodes(2)
    slow = [beat for beat, _ in zip(work.beats(played, 20.0), range(200), strict=False)]
    fast = [beat for beat, _ in zip(work.beats(played, 100.0), range(1000), strict=False)]
    assert all(np.array_equal(a.values, b.values) for a, b in zip(slow, fast[::5], strict=True))
    lengths = [each.length for each in played]
    assert len({each.patient for each in slow[: sum(lengths) + 1]}) == 3
