# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Rounds through the in-process driver: exact sums, missing hospitals, restarts, roll-backs."""

from fdrl_ros.errors import BudgetExceededError, FdrlError
from fdrl_ros.federation.key_authority.state import Validation
from fdrl_ros.federation.protocol.message import HospitalPolicy, Phase, RoundStatus
from fdrl_ros.federation.protocol.update_codec import fed_avg, UpdateCodec
from fdrl_ros.policy import decode_weights
import numpy as np
import pytest
from support.federation_bench import Bench, ENCRYPTION, SHAPE, START
from support.tap import Tap


def weights_of(bench, name='hospital_1'):
    policy = bench.parties[name].policy
    return decode_weights(policy.weights, SHAPE.n_parameters)


def test_rounds_give_the_weighted_average_within_the_quantiser(bench):
    assert bench.run()
    step = 2 * ENCRYPTION.limit / (2**ENCRYPTION.bits - 1)
    # Each of three updates is off by less than a step, and the sum is scaled by n_max / n.
    bound = 2 * 3 * step * 30 / 60 + 1e-6
    np.testing.assert_allclose(weights_of(bench), bench.expected(2), atol=bound)
    assert all(learner.trained == [1, 2] for learner in bench.learners.values())
    assert len({bench.parties[name].policy.digest for name in bench.names}) == 1
    assert not bench.driver.refused


def test_decrypted_sum_is_exactly_the_sum_of_the_quantised_updates(bench):
    assert bench.run(lambda: bench.key_authority.round == 1)
    codec = UpdateCodec.agree(SHAPE.n_parameters, 3, ENCRYPTION.bits, ENCRYPTION.limit)
    total = np.zeros((codec.scheme.ciphertexts, codec.scheme.slots), dtype=np.int64)
    for name in bench.names:
        learner, member = bench.learners[name], bench.roster.member(name)
        total += codec.encode(
            START + learner.delta(1),
            START,
            member.size / 30,
            learner.rounding(1, SHAPE.n_parameters),
        )
    average = codec.average(total % codec.scheme.plain_modulus, [10, 20, 30], 30)
    expected = fed_avg(START, average)
    bench.run(lambda: bench.parties['hospital_1'].policy.envelope.round == 1)
    np.testing.assert_array_equal(weights_of(bench), expected)


def test_with_three_hospitals_a_missing_one_is_waited_for():
    bench = Bench(None, hospitals=3, rounds=1)
    bench.kill('hospital_2')
    assert not bench.run(ticks=200)
    assert bench.aggregator.phase is Phase.OPEN
    assert all(not bench.learners[name].trained for name in bench.names)
    bench.join('hospital_2')
    assert bench.run()
    np.testing.assert_allclose(weights_of(bench), bench.expected(1), atol=1e-3)


def test_hospital_killed_in_training_comes_back_and_nobody_trains_twice():
    bench = Bench(None, hospitals=3, rounds=1)
    assert bench.run(lambda: bench.aggregator.phase is Phase.TRAIN)
    bench.kill('hospital_3')
    # The others train and send; their updates of this attempt are of no use now.
    assert bench.run(
        lambda: bench.learners['hospital_1'].trained and bench.learners['hospital_2'].trained
    )
    bench.join('hospital_3')
    assert bench.run()
    np.testing.assert_allclose(weights_of(bench), bench.expected(1), atol=1e-3)
    assert all(learner.trained == [1] for learner in bench.learners.values())


@pytest.mark.parametrize('reason', [KeyboardInterrupt, FdrlError])
def test_key_authority_killed_between_sum_and_release_decrypts_no_second_sum(reason):
    bench = Bench(None, hospitals=3, rounds=1)
    decryptions = []
    decrypt = bench.secret.decrypt
    bench.secret.decrypt = lambda each: decryptions.append(each) or decrypt(each)

    def fail(weights):
        raise reason('the process of the validation ended')

    bench.validate = fail
    with pytest.raises(reason):
        bench.run()
    bench.validate = lambda weights: Validation(True, 'ok')
    bench.restart('key_authority')
    assert bench.run()
    assert len(decryptions) == bench.scheme.ciphertexts
    np.testing.assert_allclose(weights_of(bench), bench.expected(1), atol=1e-3)


@pytest.mark.parametrize('moment', ['before', 'after'])
def test_key_authority_killed_around_the_decryption_decrypts_no_other_sum(moment):
    bench = Bench(None, hospitals=4, rounds=1)
    decrypted: list = []
    decrypt = bench.secret.decrypt

    def power_cut(ciphertext):
        if moment == 'after':
            decrypted.append(ciphertext)
        raise KeyboardInterrupt

    bench.secret.decrypt = power_cut
    with pytest.raises(KeyboardInterrupt):
        bench.run()
    bench.secret.decrypt = lambda each: decrypted.append(each) or decrypt(each)
    bench.restart('key_authority')
    assert bench.run()
    assert len(set(decrypted)) == bench.scheme.ciphertexts  # whatever was decrypted, it was this
    np.testing.assert_allclose(weights_of(bench), bench.expected(1), atol=1e-3)


def test_policy_that_fails_on_public_patients_is_rolled_back():
    bench = Bench(None, hospitals=3, rounds=2)
    verdicts = iter([Validation(False, 'success fell'), Validation(True, 'ok')])
    bench.validate = lambda weights: next(verdicts)
    assert bench.run(lambda: bench.key_authority.round == 1)
    bench.run(lambda: bench.parties['hospital_1'].policy.envelope.round == 1)
    assert bench.parties['hospital_1'].policy.rolled_back
    np.testing.assert_array_equal(weights_of(bench), START)
    assert bench.run()
    assert not bench.parties['hospital_1'].policy.rolled_back


def test_hospital_without_budget_declines_before_anything_is_spent():
    bench = Bench(None, hospitals=4, rounds=2)
    bench.learners['hospital_1'].rounds_affordable = 1
    assert bench.run()
    assert bench.learners['hospital_1'].trained == [1]
    assert bench.learners['hospital_2'].trained == [1, 2]


def test_spent_budgets_end_the_federation_in_the_first_attempt_that_meets_them():
    bench = Bench(None, hospitals=3, rounds=4)
    bench.learners['hospital_2'].rounds_affordable = 2
    statuses = Tap(bench, RoundStatus).messages
    assert bench.run(lambda: bench.aggregator.phase is Phase.FINISHED)
    reason = bench.aggregator.exhausted
    assert reason.startswith('the privacy budget does not pay for round 3: hospital_2: epsilon 7')
    assert bench.driver.notes['aggregator'].endswith(f'FINISHED, {reason}')
    assert not bench.run(ticks=500, until=lambda: bench.aggregator.phase is not Phase.FINISHED)
    opened = [each.envelope.round for each in statuses if each.phase == Phase.OPEN]
    assert opened == [1, 2, 3] and bench.key_authority.round == 2
    assert all(learner.trained == [1, 2] for learner in bench.learners.values())
    for server in ('aggregator', 'hospital_2'):
        bench.restart(server)
        assert bench.run(lambda: bench.aggregator.phase is Phase.FINISHED)
        assert bench.aggregator.exhausted == reason


def test_budgets_of_withdrawn_hospitals_end_nothing():
    bench = Bench(None, hospitals=4, rounds=2)
    bench.learners['hospital_1'].rounds_affordable = 0
    assert bench.run(lambda: bench.aggregator.left_out)
    for name in ('hospital_1', 'hospital_2'):
        bench.order('withdraw', name)
    assert not bench.run(ticks=200) and not bench.aggregator.exhausted
    bench.order('admit', 'hospital_2')
    assert bench.run(lambda: bench.key_authority.round == 2)


def test_nobody_waits_for_a_hospital_whose_budget_ends_in_training():
    bench = Bench(None, hospitals=4, rounds=1)

    def overspend(*arguments, **options):
        raise BudgetExceededError(7.0, 9.0, 8.0)

    bench.learners['hospital_1'].train = overspend
    assert bench.run()
    assert bench.driver.now < bench.settings.open_timeout < bench.settings.train_timeout
    assert 'hospital_1' not in bench.parties['hospital_2'].policy.contributors


def test_pause_resume_withdraw_admit_and_stop():
    bench = Bench(None, hospitals=4, rounds=3)
    aggregator = bench.aggregator
    assert bench.run(lambda: aggregator.phase is Phase.TRAIN)
    bench.order('pause')
    assert not bench.run(ticks=200)
    assert aggregator.phase is Phase.PAUSED
    bench.order('withdraw', 'hospital_4')
    bench.order('resume')
    assert bench.run(lambda: aggregator.round == 2)
    policy = bench.parties['hospital_1'].policy
    bench.run(lambda: bench.parties['hospital_1'].policy.envelope.round == 1)
    policy = bench.parties['hospital_1'].policy
    assert policy.contributors == ('hospital_1', 'hospital_2', 'hospital_3')
    bench.order('admit', 'hospital_4')
    assert bench.run(lambda: bench.key_authority.round == 3 or aggregator.round == 4)
    bench.order('stop')
    assert aggregator.phase is Phase.FINISHED
    for learner in bench.learners.values():
        assert learner.trained == sorted(set(learner.trained))


def test_released_hospital_policy_is_the_local_one(bench):
    released = Tap(bench, HospitalPolicy).messages
    assert bench.run(lambda: len(released) >= 3)
    one = next(m for m in released if m.envelope.sender == 'hospital_1')
    weights = decode_weights(one.weights, SHAPE.n_parameters)
    np.testing.assert_allclose(weights, START + bench.learners['hospital_1'].delta(1), atol=1e-6)
    assert one.unit == 'patient' and one.delta == 1e-4 and not one.secure
