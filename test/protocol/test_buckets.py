# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Rounds with a sum for each bucket: what is released, what a coalition learns, who drops out."""

from collections import Counter
from itertools import permutations
import re

from fdrl_ros.crypto.he.schemes import EncryptionSettings
from fdrl_ros.crypto.masking.buckets import kept, within
from fdrl_ros.errors import CryptoError, LedgerCorruptError, RoundError, SettingError
from fdrl_ros.federation.hospital.state import Promises
from fdrl_ros.federation.key_authority.robust import combine, RULES
from fdrl_ros.federation.key_authority.state import Validation
from fdrl_ros.federation.protocol.message import (
    Blame,
    DecryptRequest,
    Fault,
    GlobalPolicy,
    MaskedUpdate,
    Phase,
    Reveal,
    RoundKey,
    RoundStatus,
    Shares,
    Sketch,
    Verdict,
)
from fdrl_ros.federation.protocol.sketches import MOST_SKETCHES
import numpy as np
import pytest
from support.coalition import learned
from support.dropouts import CHUNKED, draw_schedule, DroppingFederation, PATIENCE, Stage
from support.federation_bench import Bench, ENCRYPTION
from support.interception import declining, Interception, refusals, resealed
from support.lying_hospitals import (
    deal_another_secret,
    deal_garbage,
    mask_wrong,
    project_pair_wrong,
    project_self_wrong,
    reveal_wrong,
    send_too_much,
)
from support.worlds import draw_worlds, run_world, Scenario

SCHEDULES = 10
TWELVE = {'hospitals': 12, 'buckets': 4}  # t = 9: one bucket may be lost


def exact(bench, survivors, rule='mean'):
    """Return what the first round has to release, from the survivors' very integers."""
    buckets = within(bench.roster.buckets_of(1), survivors)
    start = bench.start.astype(np.float64)
    codec = bench.hospital_terms.codec
    averages, weights = [], []
    for bucket in buckets:
        sizes = [bench.roster.member(name).size for name in bucket]
        rows = 0
        for name, size in zip(bucket, sizes, strict=True):
            learner = bench.learners[name]
            after, share = bench.start + learner.delta(1), size / bench.roster.n_max
            uniforms = learner.rounding(1, start.size)
            rows = rows + np.stack(list(codec.encode(after, bench.start, share, uniforms)))
        averages.append(codec.average(rows, sizes, bench.roster.n_max))
        weights.append(float(sum(sizes)))
    return (start + combine(rule, np.stack(averages), np.array(weights))).astype(np.float32)


def check_round(bench, contributors, rule='mean'):
    """See that the policy is made of the exact sums of these hospitals, each trained once."""
    policy = bench.policy
    assert not policy.rolled_back
    assert sorted(policy.contributors) == sorted(contributors)
    np.testing.assert_array_equal(bench.weights, exact(bench, contributors, rule))
    assert all(bench.learners[name].trained == [1] for name in contributors)


def others(bench, name):
    """Return who is in no bucket with a hospital in round 1."""
    bucket = next(each for each in bench.roster.buckets_of(1) if name in each)
    return [each for each in bench.names if each not in bucket]


@pytest.mark.parametrize('rule', RULES)
def test_the_policy_is_what_the_rule_makes_of_the_exact_average_of_each_bucket(rule):
    bench = Bench(rounds=1, combine=rule, **TWELVE)
    assert bench.run()
    check_round(bench, bench.names, rule)


def test_the_mean_of_buckets_is_fed_avg_over_all():
    bench = Bench(rounds=2, **TWELVE)
    assert bench.run()
    np.testing.assert_allclose(bench.weights, bench.expected(2), atol=1e-4)


def test_one_sum_of_a_bucket_is_decrypted_in_a_round_and_nothing_else():
    bench = Bench(rounds=2, **TWELVE)
    decrypted = bench.spy_on_decryption()
    assert bench.run()
    chunks = bench.hospital_terms.codec.scheme.ciphertexts
    assert len(decrypted) == len(set(decrypted)) == 2 * 4 * chunks


@pytest.mark.parametrize('stage', [Phase.OPEN, Phase.TRAIN, Phase.SETTLE])
def test_whoever_is_left_in_a_bucket_of_too_few_is_left_out_with_it(stage):
    bench = Bench(rounds=1, **TWELVE)
    gone = 'hospital_5'
    bench.run_to(stage)
    bench.kill(gone)
    if stage is Phase.SETTLE:  # its update counts
        assert bench.run()
        check_round(bench, bench.names)
        return
    left = others(bench, gone)
    assert bench.run(lambda: bench.policy and bench.policy.envelope.round == 1)
    check_round(bench, left)
    alone = {*bench.names} - {*left, gone}
    # Who cannot be summed does not train and pay for nothing, if that is known before.
    trained = Counter(bool(bench.learners[name].trained) for name in alone)
    assert trained[True] == (2 if stage is Phase.TRAIN else 0)


def test_a_bucket_of_four_goes_on_without_one():
    bench = Bench(rounds=1, hospitals=12, buckets=3)  # t = 9
    bench.run_to(Phase.TRAIN)
    bench.kill('hospital_5')
    assert bench.run(lambda: bench.policy and bench.policy.envelope.round == 1)
    check_round(bench, [name for name in bench.names if name != 'hospital_5'])


def test_who_was_left_out_takes_part_again_in_a_round_with_other_buckets():
    bench = Bench(rounds=2, **TWELVE)
    bench.run_to(Phase.TRAIN)
    bench.kill('hospital_5')
    assert bench.run(lambda: bench.policy and bench.policy.envelope.round == 1)
    bench.join('hospital_5')
    assert bench.run()
    assert sorted(bench.policy.contributors) == sorted(bench.names)


@pytest.mark.parametrize('why', ['budget', 'away'])
def test_whom_two_in_different_buckets_leave_alone_are_summed_in_a_later_round(why):
    """Enough are there, but a round has the same buckets however often it is tried."""
    bench = Bench(rounds=100, **TWELVE)
    gone = [bucket[0] for bucket in bench.roster.buckets_of(1)[:2]]
    left = [name for name in bench.names if name not in gone]
    found = next(
        number for number in range(2, 101) if len(kept(bench.roster.buckets_of(number), left)) >= 9
    )
    for name in gone:
        if why == 'budget':
            bench.learners[name].rounds_affordable = 0
        elif why == 'away':
            bench.kill(name)
    assert bench.run(lambda: bench.key_authority.round == found, ticks=5000)
    for number in range(1, found):
        policy = bench.key_authority.state.policy(number)
        assert policy.rolled_back and 'abandoned' in policy.reason
    policy = bench.key_authority.state.policy(found)
    assert not policy.rolled_back
    assert policy.contributors == kept(bench.roster.buckets_of(found), left)
    assert all(bench.learners[name].trained == [found] for name in policy.contributors)


def test_who_is_silent_after_training_stops_one_round_and_costs_no_projections():
    bench = Bench(rounds=100, **TWELVE)
    gone = [bucket[0] for bucket in bench.roster.buckets_of(1)[:2]]
    Interception(
        bench,
        MaskedUpdate,
        change=lambda each: [] if each.sender in gone and each.id[0] == 1 else [each],
    )
    sketches = Interception(bench, Sketch)
    assert bench.run(lambda: bench.key_authority.round == 2)
    first, second = map(bench.key_authority.state.policy, (1, 2))
    assert first.rolled_back and 'abandoned' in first.reason
    assert sorted(second.contributors) == sorted(bench.names)
    assert not [each for each in sketches.messages if each.id[0] == 1]


def silenced(bench, gone):
    """Let some train, and never send their update; return the proofs and claims of guilt."""
    Interception(bench, MaskedUpdate, change=lambda m: [] if m.sender in gone else [m])
    return Interception(bench, Blame)


def test_who_is_silent_after_training_again_is_not_admitted_any_more(tmp_path):
    """Also if the aggregator is restarted, or a round is summed without them meanwhile."""
    bench = Bench(tmp_path, rounds=100, **TWELVE)
    gone = [bucket[0] for bucket in bench.roster.buckets_of(1)[:2]]
    blames = silenced(bench, gone)
    assert bench.run(lambda: bench.key_authority.round == 1)
    assert not blames.messages  # once is no reason
    bench.restart('aggregator')
    rounds = range(2, 101)
    apart = next(
        number
        for number in rounds
        if sum(not set(gone).isdisjoint(each) for each in bench.roster.buckets_of(number)) == 2
    )
    assert bench.run(lambda: bench.key_authority.round == apart, ticks=9000)
    assert {each.guilty: bench.check_blame(each) for each in blames.messages} == dict.fromkeys(
        gone, Fault.SILENT
    )
    assert not set(gone) & set(bench.aggregator.orders.admitted)
    trained = {name: len(bench.learners[name].trained) for name in bench.names}
    bench.run(lambda: bench.key_authority.round == apart + 2, ticks=9000)
    others = [name for name in bench.names if name not in gone]
    in_sums = [
        set(bench.key_authority.state.policy(number).contributors)
        for number in range(apart + 1, bench.key_authority.round + 1)
    ]
    for name in others:  # nobody trains for a round that cannot be summed
        assert len(bench.learners[name].trained) == trained[name] + sum(
            name in each for each in in_sums
        )


@pytest.mark.parametrize('excuse', ['declines', 'has other keys'])
def test_no_excuse_after_training_hides_who_is_silent(excuse):
    bench = Bench(rounds=100, **TWELVE)
    gone = [bucket[0] for bucket in bench.roster.buckets_of(1)[:2]]
    keys, blames = Interception(bench, RoundKey), Interception(bench, Blame)

    def change(message):
        if message.sender not in gone:
            return [message]
        if message.chunk:
            return []
        if excuse == 'declines':
            return declining(bench, message)
        key = next(each for each in reversed(keys.messages) if each.sender == message.sender)
        return [resealed(bench, key, seed_hash=bytes(32))]

    Interception(bench, MaskedUpdate, change=change)
    assert bench.run(lambda: len(blames.messages) == 2, ticks=9000)
    assert {each.guilty for each in blames.messages} == set(gone)
    assert max(each.envelope.round for each in blames.messages) == max(
        bench.learners['hospital_1'].trained
    )
    rounds = map(bench.key_authority.state.policy, range(1, bench.key_authority.round + 1))
    assert sum(each.rolled_back for each in rounds) <= 2


def test_who_was_late_once_is_not_blamed_beside_those_who_are_silent():
    bench = Bench(rounds=100, **TWELVE)
    *gone, honest = [bucket[0] for bucket in bench.roster.buckets_of(1)[:3]]
    late: set = set()

    def change(message):
        if message.sender == honest and message.envelope.attempt == 1:
            late.add(message.envelope.round)
            return []
        return [] if message.sender in gone else [message]

    blames = Interception(bench, Blame)
    Interception(bench, MaskedUpdate, change=change)
    assert bench.run(lambda: len(blames.messages) == 2, ticks=9000)
    assert {each.guilty for each in blames.messages} == set(gone) and len(late) >= 2


def test_if_too_few_would_be_left_nobody_is_blamed():
    bench = Bench(rounds=100, **TWELVE)
    often_late = bench.names[:6]
    blames = Interception(bench, Blame)

    def pairs(round):
        """Return the six in pairs of two different buckets, a pair for each attempt; or none."""
        buckets = bench.roster.buckets_of(round)
        place = {name: number for number, each in enumerate(buckets) for name in each}
        for six in permutations(often_late):
            found = six[:2], six[2:4], six[4:]
            if all(place[one] != place[other] for one, other in found):
                return found
        return ()

    def change(message):
        round, attempt = message.id
        late = pairs(round)[attempt - 1 : attempt]
        return [] if late and message.sender in late[0] else [message]

    lost = Interception(bench, MaskedUpdate, change=change)
    assert bench.run(lambda: bench.aggregator.phase in (Phase.PAUSED, Phase.FINISHED), ticks=9000)
    assert bench.aggregator.phase is Phase.PAUSED and not blames.messages
    assert bench.aggregator.orders.paused_for and bench.policy.rolled_back
    assert bench.aggregator.orders.admitted == bench.names
    # Somebody mends it: then again once is no reason for blame.
    round, lost.change = bench.aggregator.round, lambda message: [message]
    bench.order('resume')
    assert bench.run(lambda: bench.policy.envelope.round == round, ticks=3000)
    assert not bench.policy.rolled_back and not bench.aggregator.state.silent_rounds


def test_a_restart_after_a_round_is_abandoned_counts_it_once(tmp_path):
    bench = Bench(tmp_path, rounds=100, **TWELVE)
    gone = [bucket[0] for bucket in bench.roster.buckets_of(1)[:2]]
    blames = silenced(bench, gone)
    lost = Interception(bench, DecryptRequest, change=lambda m: [m] if m.survivors else [])
    assert bench.run(lambda: bench.aggregator.state.abandoned, ticks=3000)
    assert bench.run(lambda: lost.messages and not lost.messages[-1].survivors)
    attempt = bench.aggregator.attempt
    for _ in range(3):
        bench.restart('aggregator')
        assert bench.run(lambda: bench.aggregator.phase is Phase.SUM, ticks=100)
    lost.change = lambda message: [message]
    assert bench.run(lambda: bench.policy.envelope.round == 1, ticks=3000)
    assert bench.policy.envelope.attempt == attempt
    assert not blames.messages
    assert bench.aggregator.state.silent_rounds == dict.fromkeys(gone, 1)


def test_absence_before_training_uses_up_no_patience_with_silence_after_it():
    bench = Bench(rounds=100, **TWELVE)
    gone = [bucket[0] for bucket in bench.roster.buckets_of(1)[:2]]
    for name in gone:
        bench.kill(name)
    assert bench.run(lambda: bench.aggregator.attempt == 3, ticks=2000)
    for name in gone:
        bench.join(name)
    Interception(
        bench,
        MaskedUpdate,
        change=lambda m: [] if m.sender in gone and m.envelope.attempt == 3 else [m],
    )
    assert bench.run(lambda: bench.key_authority.round == 1, ticks=3000)
    assert not bench.key_authority.state.policy(1).rolled_back


def test_who_is_back_is_not_counted_where_the_absence_of_others_ends_a_round():
    bench = Bench(rounds=100, **TWELVE)
    away, back, other = [bucket[0] for bucket in bench.roster.buckets_of(1)[:3]]
    bench.kill(away)
    Interception(
        bench,
        MaskedUpdate,
        change=lambda m: [] if m.sender == back and m.id == (1, 1) else [m],
    )
    assert bench.run(lambda: bench.aggregator.state.silences, ticks=2000)
    bench.kill(other)
    assert bench.run(lambda: bench.aggregator.state.abandoned, ticks=4000)
    assert not bench.aggregator.state.silent_rounds


@pytest.mark.parametrize('sizes', [TWELVE, {'hospitals': 9, 'buckets': 3}])
def test_who_is_silent_for_good_is_named_where_no_later_round_can_do_without(sizes):
    bench = Bench(rounds=1, **sizes)
    count = 2 if sizes is TWELVE else 1
    gone = [bucket[0] for bucket in bench.roster.buckets_of(1)[:count]]
    blames = silenced(bench, gone)
    assert bench.run(lambda: bench.key_authority.round == 1, ticks=9000)
    assert bench.key_authority.state.policy(1).rolled_back
    assert bench.aggregator.attempt == MOST_SKETCHES
    if sizes is TWELVE:
        found = {each.guilty: bench.check_blame(each) for each in blames.messages}
        assert found == dict.fromkeys(gone, Fault.SILENT)
    else:  # no seven of the eight others are ever in buckets of three
        assert not blames.messages and gone[0] in bench.aggregator.orders.paused_for


def test_two_that_never_deal_shares_end_a_last_round():
    bench = Bench(rounds=1, **TWELVE)
    gone = [bucket[0] for bucket in bench.roster.buckets_of(1)[:2]]
    Interception(bench, Shares, change=lambda m: [] if m.sender in gone else [m])
    blames = Interception(bench, Blame)
    assert bench.run(lambda: bench.key_authority.round == 1, ticks=9000)
    assert {each.guilty for each in blames.messages} == set(gone)


def test_statuses_name_who_is_missing_and_no_mates_of_theirs():
    bench = Bench(rounds=3, **TWELVE)
    (silent, *_), (other, *_), *_ = bench.roster.buckets_of(1)
    statuses = Interception(bench, RoundStatus)
    Interception(bench, MaskedUpdate, change=lambda m: [] if m.sender == silent else [m])
    Interception(bench, Sketch, change=lambda m: [] if m.sender == other else [m])
    assert bench.run(lambda: bench.key_authority.round == 1, ticks=9000)
    reasons = {each.reason for each in statuses.messages if each.phase == Phase.FAILED}
    assert reasons
    for reason in reasons:
        (late,) = re.findall(r'no answer in time from ([^;]*)', reason)
        assert set(late.split(', ')) == {silent, other}
        assert 'too few of one bucket: ' in reason


def test_whom_an_operator_admits_again_begins_anew():
    bench = Bench(rounds=100, **TWELVE)
    gone = [bucket[0] for bucket in bench.roster.buckets_of(1)[:2]]
    silenced(bench, gone)
    assert bench.run(lambda: bench.aggregator.state.silent_rounds, ticks=9000)
    bench.aggregator.state.note_silences(gone)
    for name in gone:
        bench.order('admit', name)
    state = bench.aggregator.state
    assert not set(gone) & (state.silences.keys() | state.silent_rounds.keys())


@pytest.mark.parametrize('why', ['guilty', 'budget'])
def test_all_ends_if_nobody_is_awaited_who_could_be_summed(why):
    bench = Bench(rounds=1, **TWELVE)
    honestly = bench.driver.post
    gone = [bucket[0] for bucket in bench.roster.buckets_of(1)[:2]]
    for name in gone:
        if why == 'budget':
            bench.learners[name].rounds_affordable = 0
        else:
            deal_garbage(bench, name)
    assert bench.run(lambda: bench.aggregator.phase is Phase.FINISHED, ticks=500)
    told, others = bench.aggregator.exhausted.split(', and nobody else ')
    assert 'too few of one bucket: ' in told and 'nobody' not in told
    assert f'left out: {", ".join(sorted(gone))}' in told and others
    assert bench.key_authority.round == 0
    assert not any(learner.trained for learner in bench.learners.values())
    if why == 'guilty':  # an operator may admit them again
        bench.driver.post = honestly
        for name in gone:
            bench.order('admit', name)
        assert bench.run()
        assert sorted(bench.policy.contributors) == sorted(bench.names)


def test_a_round_waits_for_a_hospital_whose_ledger_may_be_mended():
    bench = Bench(rounds=20, hospitals=9, buckets=3)
    learner = bench.learners['hospital_5']
    verify = learner.verify_ledger

    def lost(*seen):
        raise LedgerCorruptError('has 0 entries and had 1')

    learner.verify_ledger = lost
    bench.run(lambda: bench.aggregator.attempt > 8, ticks=3000)
    assert bench.key_authority.round == 0 and not bench.aggregator.exhausted
    learner.verify_ledger = verify
    bench.restart('hospital_5')
    assert bench.run(lambda: bench.key_authority.round == 1, ticks=3000)
    assert sorted(bench.key_authority.state.policy(1).contributors) == sorted(bench.names)


def test_who_is_silent_after_training_in_every_other_round_is_named_all_the_same():
    bench = Bench(rounds=100, **TWELVE)
    gone = [bucket[0] for bucket in bench.roster.buckets_of(1)[:2]]
    rolled_back: list = []

    def alternate(message):
        silent = message.sender in gone and not (rolled_back and rolled_back[-1])
        return [] if silent else [message]

    policies = Interception(bench, GlobalPolicy)
    blames = Interception(bench, Blame)
    Interception(bench, MaskedUpdate, change=alternate)

    def watched():
        rolled_back[:] = [each.rolled_back for each in policies.messages]
        return blames.messages

    assert bench.run(watched, ticks=30_000)
    assert {each.guilty for each in blames.messages} <= set(gone)
    assert sum(rolled_back) <= 2


@pytest.mark.parametrize('sizes', [TWELVE, {'hospitals': 15, 'buckets': 5}])
def test_one_silent_and_one_absent_hospital_hold_up_no_round(sizes):
    """The mates of the absent one are there, though they do not have to train."""
    bench = Bench(rounds=100, **sizes)
    one, other = bench.roster.buckets_of(1)[:2]
    left = [name for name in bench.names if name not in (one[0], other[0])]
    helps = [
        number
        for number in range(2, 101)
        if len(kept(bench.roster.buckets_of(number), left)) >= bench.roster.quorum
    ]
    assert helps
    bench.kill(one[0])
    silenced(bench, [other[0]])
    assert bench.run(lambda: bench.aggregator.state.abandoned, ticks=3000)
    assert bench.aggregator.state.silent_rounds == {other[0]: 1}
    assert bench.run(lambda: bench.key_authority.round == 1, ticks=100)
    assert bench.key_authority.state.policy(1).rolled_back
    # The status of an abandoned round contradicts nothing that hospitals were told before.
    assert not [error for _, error in refusals(bench, RoundError) if 'changed' in error.detail]


def test_waiting_for_enough_hospitals_is_not_waiting_in_vain_for_a_bucket():
    """Whoever comes at the fourth attempt is still waited for."""
    bench = Bench(rounds=100, **TWELVE)
    gone = [bucket[0] for bucket in bench.roster.buckets_of(1)]
    for name in gone:
        bench.kill(name)
    assert bench.run(lambda: bench.aggregator.attempt >= 4, ticks=2000)
    assert bench.key_authority.round == 0
    for name in gone[:2]:
        bench.join(name)
    seen = bench.aggregator.attempt
    assert bench.run(lambda: bench.aggregator.attempt > seen + 1, ticks=2000)
    assert bench.key_authority.round == 0
    for name in gone[2:]:
        bench.join(name)
    assert bench.run(lambda: bench.key_authority.round == 1, ticks=2000)
    assert not bench.key_authority.state.policy(1).rolled_back


def test_a_round_waits_for_whom_no_buckets_can_do_without():
    """Nine in buckets of three, seven have to agree."""
    bench = Bench(rounds=2, hospitals=9, buckets=3)
    bench.kill('hospital_5')
    bench.wait(300)
    assert bench.policy.envelope.round == 0 and not bench.aggregator.exhausted
    bench.join('hospital_5')
    assert bench.run()
    assert sorted(bench.policy.contributors) == sorted(bench.names)


def test_a_federation_ends_of_which_no_buckets_can_sum_enough():
    bench = Bench(rounds=2, hospitals=9, buckets=3)
    deal_garbage(bench, 'hospital_2')
    assert bench.run(lambda: bench.aggregator.exhausted)
    assert '6 can be summed at most, 7 are needed' in bench.aggregator.exhausted
    bench = Bench(rounds=2, hospitals=9, buckets=3)
    bench.learners['hospital_2'].rounds_affordable = 0
    assert bench.run(lambda: bench.aggregator.exhausted)
    assert 'budget' in bench.aggregator.exhausted


def test_an_operator_can_stop_a_federation_that_has_too_few_left(tmp_path):
    bench = Bench(tmp_path, rounds=2, hospitals=9, buckets=3)
    honestly = bench.driver.post
    deal_garbage(bench, 'hospital_2')
    assert bench.run(lambda: bench.aggregator.exhausted)
    bench.driver.post = honestly
    refused = len(bench.driver.refused)
    for action in ('pause', 'resume'):
        bench.order(action)
        assert bench.aggregator.phase is Phase.FINISHED
    assert len(bench.driver.refused) == refused + 2
    bench.order('stop')
    bench.order('admit', 'hospital_2')
    for _ in range(2):
        bench.wait(20)
        assert bench.aggregator.phase is Phase.FINISHED and not bench.aggregator.exhausted
        assert 'stopped by' in bench.aggregator.reason
        bench.restart('aggregator')
    assert bench.key_authority.round == 0


@pytest.mark.parametrize('buckets', [2, 4])
def test_rounds_end_with_exact_sums_or_reveal_nothing_whoever_drops_out(buckets):
    found = Counter()
    for seed in range(SCHEDULES):
        driver = DroppingFederation(seed, draw_schedule(seed, 12))
        options = {**TWELVE, 'buckets': buckets, 'combine': 'median'}
        bench = Bench(rounds=1, shape=CHUNKED, driver=driver, **options)
        decrypted = bench.spy_on_decryption()
        ended = bench.run(lambda at=bench.key_authority: at.round == 1, ticks=PATIENCE)
        abandoned = ended and bench.key_authority.state.released.rolled_back
        through = ended and not abandoned
        assert through or not decrypted
        driver.schedule.clear()
        for name in driver.lost:
            bench.join(name)
        assert bench.run(ticks=PATIENCE)
        if abandoned:  # survivors did not reveal for as long as training may take
            assert not decrypted
            continue
        names = bench.policy.contributors
        dealt = bench.roster.buckets_of(1)
        assert len(names) >= bench.roster.quorum and kept(dealt, names) == names
        np.testing.assert_array_equal(bench.weights, exact(bench, names, 'median'))
        assert len(decrypted) == 2 * len(within(dealt, names))  # two chunks
        found += Counter({'through': through and bool(driver.lost), 'later': not through})
        found['fewer'] += len(names) < 12 - len(driver.lost)
    assert found['through'] and found['later']
    assert buckets == 2 or found['fewer']


LIES = {
    'parcel': (deal_garbage, Fault.PARCEL),
    'deal': (deal_another_secret, Fault.DEAL),
    'mask': (mask_wrong, Fault.UPDATE),
    'length': (send_too_much, Fault.UPDATE),
    'pair': (project_pair_wrong, Fault.SKETCH),
    'self': (project_self_wrong, Fault.SKETCH),
}


@pytest.mark.parametrize('lie', LIES)
def test_a_liar_is_named_and_its_bucket_left_out(lie):
    tell, fault = LIES[lie]
    bench = Bench(rounds=1, **TWELVE)
    blames = Interception(bench, Blame)
    tell(bench, 'hospital_2')
    assert bench.run()
    assert {each.guilty: Fault(each.fault) for each in blames.messages} == {'hospital_2': fault}
    check_round(bench, others(bench, 'hospital_2'))


def test_a_liar_in_a_bucket_of_five_is_left_out_alone():
    bench = Bench(rounds=1, hospitals=10, buckets=2)  # t = 7
    blames = Interception(bench, Blame)
    deal_another_secret(bench, 'hospital_2')
    assert bench.run()
    assert {each.guilty for each in blames.messages} == {'hospital_2'}
    check_round(bench, [name for name in bench.names if name != 'hospital_2'])


def test_a_round_ends_of_whose_sums_none_is_left():
    """Shares were revealed for sums without the hospitals that come back, so they cannot help."""
    bench = Bench(rounds=2, hospitals=8, buckets=2)  # t = 6
    blames = Interception(bench, Blame)
    away, liars = ([bucket[place] for bucket in bench.roster.buckets_of(1)] for place in (0, 1))
    for name in liars:
        deal_another_secret(bench, name)
    bench.run_to(Phase.TRAIN)
    for name in away:
        bench.kill(name)
    assert bench.run(lambda: len(blames.messages) == len(liars))
    for name in away:
        bench.join(name)
    assert bench.run(lambda: bench.policy and bench.policy.envelope.round == 1)
    assert bench.policy.rolled_back and 'abandoned' in bench.policy.reason
    assert {each.guilty: Fault(each.fault) for each in blames.messages} == dict.fromkeys(
        liars, Fault.DEAL
    )


def test_a_wrong_reveal_is_found():
    bench = Bench(rounds=1, **TWELVE)
    blames = Interception(bench, Blame)
    reveal_wrong(bench, 'hospital_2')
    assert bench.run(lambda: bench.policy and bench.policy.envelope.round == 1)
    assert {each.guilty: Fault(each.fault) for each in blames.messages} == {
        'hospital_2': Fault.REVEAL
    }
    check_round(bench, bench.names)


PHASES = Phase.SHARE, Phase.TRAIN, Phase.SETTLE, Phase.REVEAL, Phase.SUM


@pytest.mark.parametrize('party', ['aggregator', 'key_authority', 'hospital_3'])
@pytest.mark.parametrize(
    'phase', [Phase.SHARE, Phase.TRAIN, Phase.SETTLE, Phase.REVEAL, Phase.SUM]
)
def test_a_kill_changes_nothing(party, phase, tmp_path):
    bench = Bench(tmp_path, rounds=1, combine='median', **TWELVE)
    bench.run_to(phase)
    bench.restart(party)
    assert bench.run()
    check_round(bench, bench.names, 'median')


def test_a_bucket_that_fails_on_public_patients_is_left_out_and_named():
    bench = Bench(rounds=1, combine='median', test_buckets=True, **TWELVE)
    assert bench.run(lambda: bench.aggregator.phase is Phase.TRAIN)
    good = others(bench, 'hospital_5')
    bad = sorted({*bench.names} - {*good})
    alone, tried = exact(bench, bad), []

    def validate(weights):
        tried.append(weights)
        return Validation(not np.array_equal(weights, alone), 'as tried')

    bench.validate = validate
    assert bench.run()
    np.testing.assert_array_equal(bench.weights, exact(bench, good, 'median'))
    assert len(tried) == 4 + 1  # each bucket, and the policy
    told = 'left out 1 of 4 sums: fails on public patients: ' + ', '.join(bad)
    assert bench.policy.reason.endswith(told)
    assert sorted(bench.policy.contributors) == sorted(bench.names)


def test_a_round_of_which_every_bucket_fails_ends_with_the_older_policy():
    bench = Bench(rounds=1, test_buckets=True, **TWELVE)
    bench.validate = lambda weights: Validation(False, 'fails')
    assert bench.run()
    assert bench.policy.rolled_back
    assert 'left out 4 of 4 sums' in bench.policy.reason
    np.testing.assert_array_equal(bench.weights, bench.start)


def test_one_bucket_alone_is_not_released():
    """Two of its hospitals would know the third's update."""
    bench = Bench(rounds=1, test_buckets=True, **TWELVE)
    assert bench.run(lambda: bench.aggregator.phase is Phase.TRAIN)
    alone = exact(bench, bench.roster.buckets_of(1)[0])
    bench.validate = lambda weights: Validation(np.array_equal(weights, alone), 'as tried')
    assert bench.run()
    assert bench.policy.rolled_back
    assert 'left out 3 of 4 sums' in bench.policy.reason
    np.testing.assert_array_equal(bench.weights, bench.start)


@pytest.mark.parametrize('rule', RULES)
def test_whoever_moves_its_sum_out_of_range_moves_it_to_the_end_of_the_range(rule):
    """Its update keeps the bound, which is several limits: no projection shows it."""
    bench = Bench(rounds=1, combine=rule, **TWELVE)
    blames = Interception(bench, Blame)
    send_too_much(bench, 'hospital_2', factor=3.5, numbers=1)
    assert bench.run(lambda: bench.policy and bench.policy.envelope.round == 1)
    assert not blames.messages and not bench.policy.rolled_back
    assert 'left out' not in bench.policy.reason
    honest = exact(bench, bench.names, rule)
    if rule != 'geometric_median':  # which weighs whole averages
        np.testing.assert_array_equal(bench.weights[1:], honest[1:])
    sizes = {name: bench.roster.member(name).size for name in bench.names}
    farthest = max(
        len(bucket) * ENCRYPTION.limit * bench.roster.n_max / sum(map(sizes.get, bucket))
        for bucket in bench.roster.buckets_of(1)
    )
    assert abs(bench.weights[0] - bench.start[0]) <= farthest * (1 + 1e-6)


# What the aggregator may not ask for, and what nobody learns.


def test_no_honest_hospital_signs_for_a_bucket_of_two(monkeypatch):
    bench = Bench(rounds=1, **TWELVE)
    reveals, gone = Interception(bench, Reveal), 'hospital_5'
    bench.run_to(Phase.TRAIN)
    monkeypatch.setattr(type(bench.aggregator), '_kept', lambda self, names: names)
    bench.kill(gone)
    bench.run_to(Phase.SETTLE)
    bench.wait(5)
    assert not reveals.messages and bench.policy.envelope.round == 0
    refusals = [bench.driver.notes[name] for name in bench.names if name != gone]
    assert all('too few of one bucket' in each for each in refusals)


def test_no_honest_hospital_masks_among_members_of_whom_two_are_in_a_bucket(monkeypatch):
    bench = Bench(rounds=1, **TWELVE)
    monkeypatch.setattr(type(bench.aggregator), '_kept', lambda self, names: names)
    bench.kill('hospital_5')
    bench.run_to(Phase.TRAIN)
    bench.wait(5)
    assert not any(learner.trained for learner in bench.learners.values())


def test_the_key_authority_decrypts_no_sum_of_two(monkeypatch):
    """Even if all hospitals would sign for it."""
    bench = Bench(rounds=1, **TWELVE)
    decrypted, verdicts = bench.spy_on_decryption(), Interception(bench, Verdict)
    bench.run_to(Phase.TRAIN)
    monkeypatch.setattr(type(bench.aggregator), '_kept', lambda self, names: names)
    monkeypatch.setattr(
        'fdrl_ros.federation.hospital.hospital.check_whole', lambda *arguments: None
    )
    bench.kill('hospital_5')
    bench.run_to(Phase.SUM)
    bench.wait(5)
    assert not decrypted
    assert any('too few of one bucket' in each.reason for each in verdicts.messages)


def test_a_hospital_reveals_for_the_same_buckets_alone():
    """Another roster has other buckets, whose sums over the same survivors tell differences."""
    names = tuple('abcdefghi')
    one, other = (names[:3], names[3:6], names[6:]), (names[::3], names[1::3], names[2::3])
    promises = Promises(1, revealed=('a', 'b', 'c', '', 'd', 'e', 'f', '', 'g', 'h', 'i'))
    assert promises.summed == one
    promises.check_revealing(names, '', one)
    for wanted, buckets in ((names, other), (names, ()), (names[:6], one), (names[:-1], one)):
        with pytest.raises(RoundError, match='another survivor set'):
            promises.check_revealing(wanted, '', buckets)
    guilty = Promises(1, revealed=promises.revealed, guilty=('a',))
    guilty.check_revealing(names[3:], '', one)
    with pytest.raises(RoundError, match='another survivor set'):
        guilty.check_revealing(names[1:], '', one)


BUCKETED = {
    'nobody lost': {},
    'one lost before sending': {'hospital_12': Stage.BEFORE_SENDING},
    'one lost while sending': {'hospital_12': Stage.WHILE_SENDING},
    'one lost before revealing': {'hospital_12': Stage.BEFORE_REVEALING},
}


@pytest.mark.parametrize('schedule', BUCKETED)
def test_a_coalition_learns_the_sum_of_each_buckets_honest_survivors_and_no_more(schedule):
    """Both servers and four hospitals: of a bucket with two of these they know the third."""
    scenario = Scenario(12, 4, ('hospital_11', 'hospital_10'), BUCKETED[schedule], buckets=4)
    updates, _ = draw_worlds(scenario, np.random.default_rng(3))
    view = run_world(scenario, updates, 5)
    modulus, corrupt = view.bench.scheme.plain_modulus, set(view.bench.names[:4])
    buckets = within(view.bench.roster.buckets_of(1), view.contributors)
    assert len(view.contributors) >= 9
    expected = {frozenset(bucket) - corrupt for bucket in buckets} - {frozenset()}
    for chunk, rows in enumerate(view.rows):
        found = {}
        for about, value in learned(rows, modulus):
            (sign,) = {weight for weight in about.values() if weight}  # a sum, nothing else
            found[frozenset(name for name, weight in about.items() if weight)] = sign * value
        assert found.keys() == expected
        for names, value in found.items():
            total = sum(view.slots(updates, name)[chunk] for name in names)
            np.testing.assert_array_equal(total % modulus, value % modulus)


def test_an_unknown_rule_is_refused_before_anybody_trains():
    with pytest.raises(SettingError, match='combine'):
        Bench(combine='krum', **TWELVE)


def test_buckets_of_ckks_are_refused():
    with pytest.raises(CryptoError, match='buckets'):
        Bench(encryption=EncryptionSettings(limit=0.5, scheme='ckks', projections=0), **TWELVE)
