# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
A kill at every point of a run of two rounds, and 200 kills or more in each of ten runs of twenty.

Takes about four minutes; run by `make nightly NIGHTLY=test/nightly/test_restarts_in_full.py`.
Whoever dies, and in the middle of whatever, the last policy is that of an undisturbed run.
"""

from collections import Counter
from random import Random

import pytest
from support.restarts import (
    check_nothing_is_reused,
    draw_points,
    points_of,
    policy_of,
    RestartBench,
)

SETTINGS = {'rounds_of_one_kill': 2, 'rounds': 20, 'kills_drawn': 220, 'runs': 10}

pytestmark = pytest.mark.slow


def run_with(directory, hospitals, rounds, points, seed=0):
    directory.mkdir()
    bench = RestartBench(directory, hospitals, rounds, points, seed)
    assert bench.run(ticks=5000), points
    check_nothing_is_reused(bench)
    return bench


def test_a_kill_at_any_point_changes_nothing(tmp_path, figures):
    rounds, found = SETTINGS['rounds_of_one_kill'], Counter()
    points = points_of(tmp_path, 3, rounds)
    policy = policy_of(run_with(tmp_path / 'undisturbed', 3, rounds, ()))
    for number, point in enumerate(points):
        bench = run_with(tmp_path / str(number), 3, rounds, [point])
        assert bench.driver.killed == [point] and policy_of(bench) == policy, point
        found[point.kind] += 1
    figures.append({'hospitals': 3, 'rounds': rounds, 'kills': dict(found)})


def test_200_random_kills_in_twenty_rounds_change_nothing(tmp_path, figures):
    rounds, kills, found = SETTINGS['rounds'], SETTINGS['kills_drawn'], []
    points = points_of(tmp_path, 5, rounds)
    policy = policy_of(run_with(tmp_path / 'undisturbed', 5, rounds, ()))
    for seed in range(SETTINGS['runs']):
        drawn = draw_points(Random(seed), points, kills)
        bench = run_with(tmp_path / str(seed), 5, rounds, drawn, seed)
        assert policy_of(bench) == policy, seed
        found.append(len(bench.driver.killed))
    figures.append({'hospitals': 5, 'rounds': rounds, 'kills': found})
    assert min(found) >= 200
