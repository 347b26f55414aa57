# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""After the last round: every hospital makes its home policy once, and releases it if it likes."""

from dataclasses import replace

from fdrl_ros.errors import RoundError
from fdrl_ros.federation.protocol.message import (
    GlobalPolicy,
    HospitalPolicy,
    LedgerHeads,
    Phase,
)
from fdrl_ros.federation.settings import RoundSettings
from fdrl_ros.federation.virtual import VirtualFederation
from fdrl_ros.learner.home import HomeSetup, HomeTrainer
from fdrl_ros.learner.settings import HomeSettings, LearnerSettings
from fdrl_ros.learner.trainer import TrainingSetup
from fdrl_ros.policy import decode_weights, digest_of
from fdrl_ros.privacy.ledger.chain import Head
from fdrl_ros.privacy.noise import NoiseSource
import numpy as np
import pytest
from support.federation_bench import SHAPE, START
from support.home_federation import at_home, Homes
from support.interception import Interception
from support.small_hospital import ledger_of, PRIVACY, records_of


def test_every_hospital_makes_its_home_policy_once_after_the_last_round():
    bench = Homes(rounds=2)
    assert bench.run(lambda: at_home(bench))
    bench.wait(5)
    for name in bench.names:
        learner, hospital = bench.learners[name], bench.parties[name]
        assert learner.asked == [(2, None)]
        assert hospital.home.base == hospital.policy.digest
        np.testing.assert_array_equal(hospital.home.weights, bench.weights + learner.number)
    assert (
        'round 2: the personal policy was chosen for use at home'
        in bench.driver.notes['hospital_1']
    )


def test_it_is_made_of_the_last_policy_also_when_that_comes_after_the_news_of_the_end():
    bench = Homes(rounds=2)
    late = Interception(
        bench, GlobalPolicy, change=lambda m: [m] if m.envelope.round < 2 else []
    ).messages
    assert bench.run(lambda: bench.key_authority.round == 2)
    bench.hear('aggregator', late[-1])
    assert bench.aggregator.phase is Phase.FINISHED
    bench.wait(3)
    assert not bench.learners['hospital_1'].asked
    for name in bench.names:
        bench.hear(name, late[-1])
    assert bench.run(lambda: at_home(bench))
    assert bench.learners['hospital_1'].asked == [(2, None)]


def test_a_released_home_policy_follows_the_own_policy_of_the_last_round():
    bench = Homes(rounds=2)
    tap = Interception(bench, HospitalPolicy)
    assert bench.run(lambda: at_home(bench))
    bench.wait(2)
    for name in bench.names:
        mine = [each for each in tap.messages if each.sender == name]
        assert [each.envelope.round for each in mine] == [1, 2, 2]
        own, home = mine[1:]
        assert own.envelope.counter < home.envelope.counter
        weights = decode_weights(home.weights, SHAPE.n_parameters)
        np.testing.assert_array_equal(weights, bench.parties[name].home.weights)
        assert (home.epsilon, home.delta, home.unit) == (9.0, 1e-4, 'patient')


def test_a_home_policy_that_is_not_released_is_signed_for_the_own_robots_alone():
    bench = Homes(rounds=1, release=False)
    tap = Interception(bench, HospitalPolicy)
    hospital = bench.parties['hospital_1']
    assert hospital.signed_home() is None
    with pytest.raises(RoundError, match='no policy came yet'):
        hospital.home_job()
    assert bench.run(lambda: at_home(bench))
    assert not tap.messages
    assert hospital.signed_home().digest == digest_of(hospital.home.weights)


def test_layers_that_a_hospital_kept_come_with_the_shared_ones():
    personal = ('advantage',)
    bench = Homes(rounds=2, personal=personal)
    assert bench.run(lambda: at_home(bench))
    kept = np.setdiff1d(np.arange(SHAPE.n_parameters), SHAPE.shared(personal))
    for name in bench.names:
        ((_, own),) = bench.learners[name].asked
        moved = sum(bench.learners[name].delta(round)[kept] for round in (1, 2))
        np.testing.assert_allclose(own[kept], START[kept] + moved, atol=1e-5)
        shared = SHAPE.shared(personal)
        np.testing.assert_array_equal(own[shared], bench.weights[shared])


def test_a_hospital_that_starts_again_makes_it_again_and_rounds_that_go_on_another_one():
    bench = Homes(rounds=1)
    assert bench.run(lambda: at_home(bench))
    before = bench.parties['hospital_2'].home
    bench.restart('hospital_2')
    assert bench.run(lambda: at_home(bench))
    after = bench.parties['hospital_2'].home
    assert bench.learners['hospital_2'].asked == [(1, None)] * 2
    np.testing.assert_array_equal(before.weights, after.weights)
    bench.settings = RoundSettings(rounds=2)
    bench.restart('aggregator')
    assert bench.run(
        lambda: at_home(bench) and all(bench.parties[n].home.round == 2 for n in bench.names)
    )
    assert [round for round, _ in bench.learners['hospital_1'].asked] == [1, 2]


def test_a_hospital_that_was_stopped_keeps_no_home_policy_until_it_starts_again():
    bench = Homes(rounds=1)
    bench.learners['hospital_3'].stops = True
    assert bench.run()
    bench.wait(3)
    assert bench.parties['hospital_3'].home is None
    assert bench.parties['hospital_1'].home
    bench.learners['hospital_3'].stops = False
    bench.restart('hospital_3')
    assert bench.run(lambda: at_home(bench))


def test_with_a_ledger_that_lacks_what_a_server_saw_nothing_is_made_at_home():
    bench = Homes(rounds=1)
    assert bench.run(lambda: bench.aggregator.phase is Phase.SUM)
    wrong = Interception(
        bench,
        LedgerHeads,
        change=lambda message: (
            [restored(bench, message)] if message.sender == 'key_authority' else [message]
        ),
    )
    assert bench.run()
    bench.wait(3)
    assert wrong.messages
    assert bench.parties['hospital_1'].restored
    assert not bench.learners['hospital_1'].asked
    assert bench.learners['hospital_2'].asked


def restored(bench, message):
    """Return a head of the first hospital that is further than its ledger; of others theirs."""
    further = Head(99, bytes(32)).to_bytes()
    envelope = replace(message.envelope, counter=bench.stores['key_authority'].next_counter())
    head = further if message.to == 'hospital_1' and message.head else message.head
    changed = replace(message, envelope=envelope, head=head)
    return changed.signed_by(bench.identities['key_authority'])


def test_a_virtual_federation_makes_private_home_policies_in_the_ledgers_of_its_rounds(tmp_path):
    learner = LearnerSettings(epochs=1, transitions_per_patient=2, hidden=5)
    home = HomeSettings(epochs=2)
    learners, ledgers = {}, []
    for number in (1, 2, 3):
        name = f'hospital_{number}'
        folder = tmp_path / name
        folder.mkdir()
        ledgers.append(ledger_of(folder, name, PRIVACY))
        setup = TrainingSetup(SHAPE, learner, PRIVACY, ledgers[-1], NoiseSource.seeded(number))
        records = records_of([3] * 10, (4, 3), first=100 * number)
        learners[name] = HomeTrainer(setup, records, folder / 'checkpoint', HomeSetup(home, START))
    federation = VirtualFederation(learners, START, SHAPE.layout)
    weights = federation.play(2)
    found = federation.home()
    assert list(found) == list(learners)
    for name, ledger in zip(found, ledgers, strict=True):
        assert len(ledger.chain.entries) == 2 + 2 + 1
        assert found[name].epsilon == ledger.epsilon()
        assert (found[name].round, found[name].base) == (2, digest_of(weights))
        assert not np.array_equal(found[name].weights, weights) or found[name].chosen == 'global'
    again = federation.home()
    assert all(np.array_equal(found[name].weights, again[name].weights) for name in found)
    for ledger in ledgers:
        ledger.close()
