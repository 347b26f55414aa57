# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Parties that are killed and started again: the end is the same, and nothing is reused.

They die after an event, after a message, and before, after and within durable writes. Here are
some 20 of the thousand points of a run of two rounds, and 30 kills in one of four rounds;
`test/nightly/test_restarts_in_full.py` has all of them, and 200 kills in twenty rounds.
"""

from random import Random

from fdrl_ros.federation.protocol.message import MaskedUpdate, Phase
import pytest
from support.federation_bench import Bench
from support.liar import Liar, Story
from support.restarts import (
    check_nothing_is_reused,
    draw_points,
    points_of,
    policy_of,
    RestartBench,
)

EVERY = 48


def undisturbed(directory, hospitals, rounds):
    """Return the points of a run that nobody disturbs, and the policy that it ends with."""
    for name in ('points', 'undisturbed'):
        (directory / name).mkdir()
    bench = RestartBench(directory / 'undisturbed', hospitals, rounds, ())
    assert bench.run()
    check_nothing_is_reused(bench)
    return points_of(directory / 'points', hospitals, rounds), policy_of(bench)


def test_a_kill_at_any_point_changes_nothing(tmp_path):
    points, policy = undisturbed(tmp_path, hospitals=3, rounds=2)
    assert len(points) > 800
    for number, point in enumerate(points[::EVERY]):
        directory = tmp_path / str(number)
        directory.mkdir()
        bench = RestartBench(directory, 3, 2, [point])
        assert bench.run(ticks=3000), point
        assert bench.driver.killed == [point]
        assert policy_of(bench) == policy, point
        check_nothing_is_reused(bench)


def test_many_kills_of_everybody_change_nothing(tmp_path):
    points, policy = undisturbed(tmp_path, hospitals=5, rounds=4)
    (tmp_path / 'killed').mkdir()
    bench = RestartBench(tmp_path / 'killed', 5, 4, draw_points(Random(1), points, 30))
    assert bench.run(ticks=3000)
    assert len(bench.driver.killed) > 20
    assert policy_of(bench) == policy
    check_nothing_is_reused(bench)


def test_a_sum_that_comes_when_the_round_is_over_is_not_missed():
    bench = Bench(rounds=3)
    aggregator = bench.aggregator
    assert bench.run(lambda: aggregator.round == 3 and aggregator.phase is Phase.SUM)
    *_, policy = bench.key_authority.handle(
        bench.signed_order('roll_back', to_round=1), bench.driver.now
    ).messages
    # The operator was quicker than the sum: what it would be made of is erased.
    bench.hear('aggregator', policy)
    bench.driver.post(policy)
    assert bench.run()
    assert bench.policy.rolled_back


def test_a_hospital_killed_before_it_notes_a_retry_goes_on_in_it_and_not_before():
    liar = Liar(5, 2, seed=1)
    names = tuple(liar.bench.names)
    story = Story(names, names, names)
    liar.run_attempt((1, 1), story, until=Phase.TRAIN)

    def killed(*arguments):
        raise KeyboardInterrupt

    liar.parties['hospital_1'].state.keep_sent = killed
    with pytest.raises(KeyboardInterrupt):
        liar.run_attempt((1, 2), story, until=Phase.TRAIN)
    liar.restart('hospital_1')
    said = len(liar.said)
    for attempt in (1, 2):
        liar.run_attempt((1, attempt), story, until=Phase.TRAIN)
    again = [each for each in liar.said[said:] if isinstance(each, MaskedUpdate)]
    ours = [each.envelope.attempt for each in again if each.envelope.sender == 'hospital_1']
    assert ours == [2]
