# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Whoever drops out of a round and whenever, it ends with the exact sum of those that sent.

Messages arrive in any order that topics allow. Here are 28 schedules, and 6 in which deadlines
pass meanwhile; `test/nightly/test_dropouts_in_full.py` has 1,000 and 200.
"""

from collections import Counter

import pytest
from support.dropouts import draw_schedule, run_hurried, run_schedule, Stage

SCHEDULES, HURRIED = 14, {5: 4, 10: 2}


@pytest.mark.parametrize('hospitals', [5, 10])
def test_rounds_end_exactly_or_reveal_nothing_whoever_drops_out(hospitals):
    found = Counter()
    for seed in range(SCHEDULES):
        found += run_schedule(seed, hospitals)
    assert found['schedules'] == SCHEDULES
    assert found['rounds that went through with losses'] > SCHEDULES // 4
    assert found['rounds that went on when hospitals came back'] > 1


@pytest.mark.parametrize('hospitals', [5, 10])
def test_sums_are_exact_where_deadlines_pass_while_messages_are_on_their_way(hospitals):
    found = Counter()
    for seed in range(HURRIED[hospitals]):
        found += run_hurried(seed, hospitals)
    assert found['hurried'] == HURRIED[hospitals]


def test_schedules_cover_every_stage_of_a_loss():
    drawn = {s for seed in range(SCHEDULES) for s in draw_schedule(seed, 10).values()}
    assert drawn == set(Stage) - {Stage.NEVER}
