# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
An older copy of any party's whole directory is put back, at any moment.

No epsilon is ever stated below what others can have read, no restored hospital releases a policy
beyond what was acknowledged, and the others' rounds end. `make nightly ARGS='-k
restored_directories'` does it 200 times.
"""

from fdrl_ros.federation.protocol.message import MaskedUpdate, Phase
import pytest
from support.interception import Interception
from support.restored_directories import check_restore, RestoringBench, ROUNDS

EVENTS = 520
"""Of an undisturbed run, about."""


def test_an_undisturbed_run_spends_what_it_states(tmp_path):
    bench = RestoringBench(tmp_path, 0)
    assert bench.run()
    assert abs(bench.events - EVENTS) < 25
    for name in bench.names:
        learner = bench.learners[name]
        assert len(learner.links) == len(bench.out[name]) == learner.blocks * (ROUNDS + 1)


@pytest.mark.parametrize('seed', range(10))
def test_whatever_is_put_back_epsilon_is_no_lower_than_the_truth_and_nobody_waits(tmp_path, seed):
    check_restore(tmp_path, seed, EVENTS)


@pytest.mark.parametrize('begun', [False, True])
def test_a_hospital_that_lost_what_it_sent_in_an_attempt_does_not_spoil_it(tmp_path, begun):
    """Its keys, or its update alone, are made anew: both differ from what the others have."""
    bench = RestoringBench(tmp_path, 3 if begun else 0)  # seeds in which it is heard in time
    name = 'hospital_1'
    said = Interception(bench, MaskedUpdate).messages

    def sent():
        return {each.ciphertext for each in said if each.sender == name}

    if begun:
        assert bench.run(lambda: bench.parties[name].state.received((1, 1)))
    bench.copy(name, 'older')
    assert bench.run(lambda: sent() if begun else bench.aggregator.phase is Phase.TRAIN)
    bench.put_back(name, 'older')
    assert bench.run(lambda: bench.key_authority.round == 1)
    assert bench.driver.now < bench.settings.open_timeout
    assert bench.key_authority.state.released.rolled_back is False
    assert (name in bench.key_authority.state.released.contributors) == begun
    assert len(sent()) == 2 * begun


def test_no_epsilon_is_stated_after_the_last_round_before_home_is_charged_again(tmp_path):
    bench = RestoringBench(tmp_path, 0)
    name = 'hospital_1'
    assert bench.run(lambda: bench.key_authority.round == ROUNDS)
    assert bench.run(lambda: bench.aggregator.phase is Phase.FINISHED)
    assert bench.run(lambda: bench.parties[name].policy.envelope.round == ROUNDS)
    bench.copy(name, 'older')
    assert bench.run()
    bench.put_back(name, 'older')
    hospital, learner = bench.parties[name], bench.learners[name]
    assert bench.run(lambda: hospital.acknowledged)
    assert not hospital.accounted and len(learner.links) < len(bench.out[name])
    assert bench.run(lambda: hospital.accounted)
    assert len(learner.links) == len(bench.out[name])
