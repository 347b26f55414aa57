# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Masks come off whoever drops out, restarts or reveals wrong shares in the middle of a round."""

from fdrl_ros.federation.protocol.message import (
    Phase,
    Reveal,
    Settle,
)
import numpy as np
import pytest
from support.federation_bench import Bench
from support.interception import Interception


def ends_with(bench, names):
    """Run to the end; the policy must be the average over exactly these hospitals."""
    assert bench.run()
    policy = bench.parties[names[0]].policy
    assert not policy.rolled_back and set(policy.contributors) == set(names)
    weights = bench.weights
    np.testing.assert_allclose(weights, bench.expected(1, sorted(names)), atol=2e-3)


@pytest.mark.parametrize('kind', [Settle, Reveal])
def test_what_arrives_late_or_after_a_restart_of_the_aggregator_still_counts(kind):
    bench = Bench(hospitals=4, rounds=1)
    held = []
    tap = Interception(bench, kind, change=lambda m: held.append(m) or [] if not done else [m])
    done: list = []
    phase = Phase.SETTLE if kind is Settle else Phase.REVEAL
    assert bench.run(lambda: len(held) == 4 and bench.aggregator.phase is phase)
    bench.kill('hospital_4')
    bench.restart('aggregator')
    done.append(True)
    # Said while the aggregator waits for the others, and never again.
    for message in held[:3]:
        bench.driver.post(message)
    assert bench.aggregator.phase is Phase.WAITING and tap
    ends_with(bench, bench.names)


def test_a_hospital_that_starts_again_needs_nobody_who_is_gone():
    bench = Bench(hospitals=6, rounds=1)  # t = 5
    bench.run_to(Phase.TRAIN)
    bench.kill('hospital_6')
    reveals = Interception(bench, Reveal)
    bench.run_to(Phase.SETTLE)
    bench.restart('hospital_1')
    ends_with(bench, bench.names[:5])
    assert 'hospital_1' in {each.envelope.sender for each in reveals.messages}


def test_who_starts_again_is_told_old_messages_and_does_not_complain(caplog):
    bench = Bench(None, 4, 3)
    bench.run(lambda: bench.aggregator.round == 2 and bench.aggregator.phase is Phase.SETTLE)
    for name in ('hospital_1', 'aggregator', 'key_authority'):
        bench.restart(name)
    assert bench.run()
    assert not bench.driver.refused
    assert not [each for each in caplog.records if each.levelname == 'WARNING']


def test_a_hospital_that_stays_away_is_waited_for_once_and_welcome_when_it_is_back():
    bench = Bench(None, 5, 5)
    bench.kill('hospital_2')
    took, started = [], bench.driver.now
    for round in (1, 2, 3):
        assert bench.run(lambda past=round: bench.aggregator.round > past)
        took.append(bench.driver.now - started)
        started = bench.driver.now
        assert 'hospital_2' not in bench.policy.contributors
    assert took[0] >= bench.settings.open_timeout
    assert max(took[1:]) <= bench.settings.absent_timeout + 1.0
    bench.join('hospital_2')
    assert bench.run()
    assert 'hospital_2' in bench.policy.contributors
