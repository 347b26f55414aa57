# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Rounds through the in-process driver: exact sums, missing hospitals, restarts, roll-backs."""

from fdrl_ros.errors import BudgetExceededError, LateError, ReplayError, RoundError
from fdrl_ros.federation.key_authority.state import Validation
from fdrl_ros.federation.protocol.message import (
    GlobalPolicy,
    HospitalPolicy,
    MaskedUpdate,
    Phase,
    RoundStatus,
)
from fdrl_ros.policy import decode_weights
import numpy as np
import pytest
from support.federation_bench import Bench, SHAPE, START
from support.interception import Interception, refusals, resealed


def killed(*arguments):
    raise KeyboardInterrupt


@pytest.mark.parametrize('moment', ['before', 'after', 'validation'])
def test_key_authority_killed_around_the_decryption_decrypts_no_other_sum(moment):
    bench = Bench(hospitals=4, rounds=1)
    decrypted = bench.spy_on_decryption()
    with pytest.MonkeyPatch.context() as patch:
        if moment == 'validation':
            patch.setattr(bench, 'validate', killed)
        else:
            spied = bench.secret.decrypt
            cut = killed if moment == 'before' else lambda each: (spied(each), killed())
            patch.setattr(bench.secret, 'decrypt', cut)
        with pytest.raises(KeyboardInterrupt):
            bench.run()
    bench.restart('key_authority')
    assert bench.run()
    assert len(set(decrypted)) == bench.scheme.ciphertexts  # whatever was decrypted, it was this
    assert moment != 'validation' or len(decrypted) == bench.scheme.ciphertexts
    np.testing.assert_allclose(bench.weights, bench.expected(1), atol=1e-3)


def test_policy_that_fails_on_public_patients_is_rolled_back():
    bench = Bench(rounds=2)
    verdicts = iter([Validation(False, 'success fell'), Validation(True, 'ok')])
    bench.validate = lambda weights: next(verdicts)
    assert bench.run(lambda: bench.key_authority.round == 1)
    bench.run(lambda: bench.policy.envelope.round == 1)
    assert bench.policy.rolled_back
    np.testing.assert_array_equal(bench.weights, START)
    assert bench.run()
    assert not bench.policy.rolled_back


def test_spent_budgets_end_the_federation_in_the_first_attempt_that_meets_them():
    bench = Bench(rounds=4)
    bench.learners['hospital_2'].rounds_affordable = 2
    statuses = Interception(bench, RoundStatus).messages
    bench.run_to(Phase.FINISHED)
    reason = bench.aggregator.exhausted
    assert reason.startswith('the privacy budget does not pay for round 3: hospital_2: epsilon 7')
    assert bench.driver.notes['aggregator'].endswith(f'FINISHED, {reason}')
    assert not bench.run(ticks=500, until=lambda: bench.aggregator.phase is not Phase.FINISHED)
    opened = [each.envelope.round for each in statuses if each.phase == Phase.OPEN]
    assert opened == [1, 2, 3] and bench.key_authority.round == 2
    assert all(learner.trained == [1, 2] for learner in bench.learners.values())
    for server in ('aggregator', 'hospital_2'):
        bench.restart(server)
        bench.run_to(Phase.FINISHED)
        assert bench.aggregator.exhausted == reason


def test_budgets_of_withdrawn_hospitals_end_nothing():
    bench = Bench(hospitals=4, rounds=2)
    bench.learners['hospital_1'].rounds_affordable = 0
    assert bench.run(lambda: bench.aggregator.left_out)
    for name in ('hospital_1', 'hospital_2'):
        bench.order('withdraw', name)
    assert not bench.run(ticks=200) and not bench.aggregator.exhausted
    bench.order('admit', 'hospital_2')
    assert bench.run(lambda: bench.key_authority.round == 2)


def test_nobody_waits_for_a_hospital_whose_budget_ends_in_training():
    bench = Bench(hospitals=4, rounds=1)

    def overspend(*arguments, **options):
        raise BudgetExceededError(7.0, 9.0, 8.0)

    bench.learners['hospital_1'].train = overspend
    assert bench.run()
    assert bench.driver.now < bench.settings.open_timeout < bench.settings.train_timeout
    assert 'hospital_1' not in bench.parties['hospital_2'].policy.contributors


def test_a_round_that_waits_for_an_operator_says_so():
    bench = Bench(hospitals=3, rounds=1)
    bench.order('withdraw', 'hospital_2')
    assert bench.run(lambda: bench.aggregator.attempt == 2, ticks=2000)
    words = 'too few hospitals are admitted: an operator can admit hospital_2'
    assert bench.aggregator.reason == words


def test_what_comes_while_a_round_is_paused_is_late_and_nothing_to_warn_of():
    bench = Bench(hospitals=4, rounds=1)
    held = Interception(bench, MaskedUpdate, change=lambda message: [])
    assert bench.run(lambda: held.messages)
    bench.order('pause')
    for message in held.messages:
        with pytest.raises(LateError, match='MaskedUpdate in phase PAUSED'):
            bench.aggregator.handle(message, bench.driver.now)


def test_pause_resume_withdraw_admit_and_stop():
    bench = Bench(hospitals=4, rounds=3)
    aggregator = bench.aggregator
    assert bench.run(lambda: aggregator.phase is Phase.TRAIN)
    bench.order('pause')
    assert not bench.run(ticks=200)
    assert aggregator.phase is Phase.PAUSED
    bench.order('withdraw', 'hospital_4')
    bench.order('resume')
    assert bench.run(lambda: aggregator.round == 2)
    policy = bench.policy
    bench.run(lambda: bench.policy.envelope.round == 1)
    policy = bench.policy
    assert policy.contributors == ('hospital_1', 'hospital_2', 'hospital_3')
    bench.order('admit', 'hospital_4')
    assert bench.run(lambda: bench.key_authority.round == 3 or aggregator.round == 4)
    bench.order('stop')
    assert aggregator.phase is Phase.FINISHED
    bench.order('withdraw', 'hospital_3')
    for action in ('pause', 'resume', 'stop'):
        order = bench.signed_order(action)
        for error, words in ((RoundError, 'has ended'), (ReplayError, 'not newer')):
            with pytest.raises(error, match=words):
                aggregator.handle(order, bench.driver.now)
    assert not aggregator.orders.paused
    for learner in bench.learners.values():
        assert learner.trained == sorted(set(learner.trained))


def test_admit_lets_a_federation_go_on_that_ended_for_the_budget_of_one():
    bench = Bench(hospitals=3, rounds=3)
    bench.learners['hospital_2'].rounds_affordable = 1
    assert bench.run(lambda: bench.aggregator.exhausted)
    for again in (False, True):
        bench.order('admit', 'hospital_2')
        assert not bench.aggregator.exhausted
        if not again:  # it says the same of itself in the next attempt
            assert bench.run(lambda: bench.aggregator.phase is Phase.FINISHED, ticks=200)
            bench.learners['hospital_2'].rounds_affordable = 9
            bench.restart('hospital_2')
    assert bench.run()


def test_a_federation_that_a_roll_back_reopens_is_not_exhausted():
    bench = Bench(hospitals=3, rounds=4)
    bench.learners['hospital_2'].rounds_affordable = 1
    assert bench.run(lambda: bench.aggregator.exhausted)
    bench.learners['hospital_2'].rounds_affordable = 9
    bench.order('roll_back', to_round=0)
    assert bench.run()
    assert not bench.aggregator.exhausted


def test_released_hospital_policy_is_the_local_one(bench):
    released = Interception(bench, HospitalPolicy).messages
    assert bench.run(lambda: len(released) >= 3)
    one = next(m for m in released if m.envelope.sender == 'hospital_1')
    weights = decode_weights(one.weights, SHAPE.n_parameters)
    np.testing.assert_allclose(weights, START + bench.learners['hospital_1'].delta(1), atol=1e-6)
    assert one.unit == 'patient' and one.delta == 1e-4 and not one.secure


def test_a_policy_is_private_only_if_every_hospital_in_it_signed_so():
    """One seeded round leaves its mark on all later policies, also after a restart."""
    bench = Bench(None, rounds=4)
    policies = Interception(bench, GlobalPolicy).messages
    learners = bench.learners.values()
    for each in learners:
        each.secure = True
    assert bench.run(lambda: bench.key_authority.round == 1)
    bench.learners['hospital_2'].secure = False
    assert bench.run(lambda: bench.key_authority.round == 2)
    bench.learners['hospital_2'].secure = True
    assert bench.run(lambda: bench.key_authority.round == 3)
    bench.restart('key_authority')
    assert bench.run()
    found = {each.envelope.round: each.secure for each in policies}
    assert found == {0: True, 1: True, 2: False, 3: False, 4: False}


def test_a_hospital_refuses_a_policy_that_calls_its_seeded_noise_secure():
    bench = Bench(None, rounds=1)

    def lie(policy):
        return [resealed(bench, policy, secure=True)] if policy.envelope.round else [policy]

    Interception(bench, GlobalPolicy, change=lie)
    bench.learners['hospital_1'].secure = True
    bench.run(lambda: len(refusals(bench, RoundError)) == 2)
    assert {name for name, _ in refusals(bench, RoundError)} == {'hospital_2', 'hospital_3'}
    found = {name: bench.parties[name].policy.envelope.round for name in bench.learners}
    assert found == {'hospital_1': 1, 'hospital_2': 0, 'hospital_3': 0}
