# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Who spoils a round is named by what it signed, left out, and nobody trains or pays again."""

from collections import Counter
from contextlib import contextmanager
from dataclasses import fields, replace

from fdrl_ros.crypto.masking.merkle import root_and_paths
from fdrl_ros.errors import MessageError
from fdrl_ros.federation.aggregator import aggregator
from fdrl_ros.federation.protocol.blame import PROVEN
from fdrl_ros.federation.protocol.message import (
    Blame,
    Complaint,
    DecryptRequest,
    Delivery,
    Fault,
    MaskedUpdate,
    message_from_bytes,
    Phase,
    Reveal,
    RoundKey,
    Settle,
    Shares,
)
import numpy as np
import pytest
from support.federation_bench import Bench, ENCRYPTION
from support.interception import Interception, resealed
from support.journaled_federation import Journaled
from support.lying_hospitals import (
    complain_falsely,
    deal_another_secret,
    deal_garbage,
    deal_others,
    mask_wrong,
    project_pair_wrong,
    project_self_wrong,
    reveal_wrong,
    send_garbage,
    send_too_much,
)
from support.lying_schedules import run_lying
from support.restarts import PowerCut
from support.rings import HOSPITALS, NEIGHBOURS, small_rings

LIAR = 'hospital_2'


def blamed(taps):
    """Return who was blamed of what, each once."""
    return {each.guilty: Fault(each.fault) for each in taps.messages}


def checked(blame, bench):
    return bench.check_blame(blame)


def check_sum(bench, names):
    """See that the policy is the exact sum of these hospitals, and that each trained once."""
    policy = bench.policy
    assert not policy.rolled_back and set(policy.contributors) == set(names)
    np.testing.assert_array_equal(bench.weights, bench.exact(policy.contributors))
    assert all(bench.learners[name].trained == [1] for name in names)


def honest(bench, *, without=()):
    return [name for name in bench.names if name not in (LIAR, *without)]


@pytest.fixture(params=['all mask with all', 'a ring'])
def graph(request):
    """Return options of five hospitals that all mask with all, or of twelve in a ring."""
    with graph_named(request.param) as options:
        yield options


@contextmanager
def graph_named(name):
    if name == 'a ring':
        with small_rings(lambda graph: 'hospital_5' in graph.peers(LIAR)):
            yield {'hospitals': HOSPITALS, 'neighbours': NEIGHBOURS}
    else:
        yield {'hospitals': 5}


@pytest.mark.parametrize(
    ('lie', 'fault'),
    [
        (deal_garbage, Fault.PARCEL),
        (lambda bench, liar: deal_garbage(bench, liar, ['hospital_5']), Fault.PARCEL),
        (deal_others, Fault.PARCEL),
        (complain_falsely, Fault.COMPLAINT),
        (deal_another_secret, Fault.DEAL),
        (lambda bench, liar: deal_another_secret(bench, liar, ['hospital_5']), Fault.DEAL),
        (send_garbage, Fault.UPDATE),
        (mask_wrong, Fault.UPDATE),
        (send_too_much, Fault.UPDATE),
        (project_pair_wrong, Fault.SKETCH),
        (project_self_wrong, Fault.SKETCH),
    ],
    ids=[
        *('garbage', 'garbage to one', 'others', 'complaint', 'another secret', 'to one'),
        *('update', 'mask', 'too much', 'pair', 'self'),
    ],
)
def test_a_liar_is_named_and_the_round_ends_without_it(lie, fault, graph):
    bench = Bench(rounds=1, **graph)
    blames = Interception(bench, Blame)
    lie(bench, LIAR)
    assert bench.run()
    assert blamed(blames) == {LIAR: fault}
    check_sum(bench, honest(bench))
    assert bench.aggregator.left_out.keys() == {LIAR}


def test_a_wrong_reveal_names_its_holder_and_the_sum_is_had_without_it(graph):
    bench = Bench(rounds=2, **graph)
    blames = Interception(bench, Blame)
    reveal_wrong(bench, LIAR)
    assert bench.run(lambda: bench.policy and bench.policy.envelope.round == 1)
    assert blamed(blames) == {LIAR: Fault.REVEAL}
    check_sum(bench, bench.names)  # its update counts, and it is left out from then on
    assert bench.run()
    assert set(bench.policy.contributors) == set(honest(bench))


@pytest.mark.parametrize('place', [0, 1, 2, 3, 4])
def test_any_wrong_share_is_found_also_of_oneself(place, graph):
    bench = Bench(rounds=1, **graph)
    blames = Interception(bench, Blame)
    reveal_wrong(bench, LIAR, place)
    assert bench.run()
    assert blamed(blames) == {LIAR: Fault.REVEAL}


def test_a_wrong_share_of_who_dropped_out_is_found_too():
    bench = Bench(hospitals=6, rounds=1)  # t = 5
    blames = Interception(bench, Blame)
    deal_another_secret(bench, 'hospital_6')
    bench.run_to(Phase.TRAIN)
    bench.kill('hospital_6')
    assert bench.run()
    assert blamed(blames) == {'hospital_6': Fault.DEAL}
    check_sum(bench, bench.names[:5])


def test_several_liars_are_all_named():
    bench = Bench(hospitals=10, rounds=1)  # t = 7
    blames = Interception(bench, Blame)
    deal_garbage(bench, 'hospital_1')
    reveal_wrong(bench, 'hospital_4')
    deal_another_secret(bench, 'hospital_7')
    assert bench.run()
    assert blamed(blames) == {
        'hospital_1': Fault.PARCEL,
        'hospital_4': Fault.REVEAL,
        'hospital_7': Fault.DEAL,
    }
    left = [name for name in bench.names if name not in blamed(blames)]
    check_sum(bench, left)


def test_with_three_hospitals_one_liar_ends_the_federation():
    bench = Bench(hospitals=3, rounds=1)
    deal_garbage(bench, LIAR)
    assert bench.run(lambda: bench.aggregator.phase is Phase.FINISHED)
    why = 'it sealed shares that their holder cannot open'
    told = f'2 hospitals are left without hospital_2 ({why}), 3 are needed'
    assert bench.aggregator.exhausted == told
    assert bench.policy.envelope.round == 0
    bench.restart('aggregator')
    assert bench.run(lambda: bench.aggregator.phase is Phase.FINISHED)
    assert bench.aggregator.exhausted


def test_a_proof_is_kept_whatever_is_said_of_the_hospital_later_in_the_round(tmp_path):
    bench = Bench(tmp_path, hospitals=5, rounds=1)
    blames = Interception(bench, Blame)
    deal_garbage(bench, LIAR)
    assert bench.run(lambda: blames.messages)
    (proof,) = blames.messages
    word = resealed(bench, proof, fault=int(Fault.SILENT))
    for each in (word, word):
        bench.aggregator.state.keep_blames([each], {})
    bench.restart('aggregator')
    assert {each.fault for each in bench.aggregator.state.blames()} == {
        proof.fault,
        Fault.SILENT,
    }
    assert bench.run()


def test_a_federation_that_ended_goes_on_when_an_operator_admits_enough():
    bench = Bench(rounds=2, hospitals=3)
    honestly = bench.driver.post
    deal_garbage(bench, LIAR)
    assert bench.run(lambda: bench.aggregator.phase is Phase.FINISHED)
    bench.driver.post = honestly
    bench.order('admit', LIAR)
    assert not bench.aggregator.exhausted
    assert bench.run() and bench.key_authority.round == 2
    policy = bench.key_authority.state.policy(2)
    assert policy.contributors == tuple(bench.names) and not policy.rolled_back


def test_too_few_after_shares_were_revealed_end_with_the_older_policy():
    bench = Bench(hospitals=4, rounds=1)  # t = 3
    blames = Interception(bench, Blame)
    deal_another_secret(bench, LIAR)
    bench.run_to(Phase.REVEAL)
    bench.kill('hospital_4')
    assert bench.run(lambda: blames.messages)
    bench.order('withdraw', 'hospital_4')
    assert bench.run(lambda: bench.policy.envelope.round == 1)
    assert bench.policy.rolled_back and not bench.policy.contributors


def test_who_is_away_after_a_false_deal_is_waited_for_and_never_unmasked():
    """Two sums whose difference is one honest hospital must not be had."""
    bench = Bench(hospitals=6, rounds=1)  # t = 5
    blames, reveals = Interception(bench, Blame), Interception(bench, Reveal)
    deal_another_secret(bench, LIAR)
    assert bench.run(lambda: blames.messages)
    bench.kill('hospital_4')
    assert bench.run(lambda: bench.aggregator.attempt == 5)
    assert {each.id for each in reveals.messages} == {(1, 1)}
    bench.join('hospital_4')
    assert bench.run()
    check_sum(bench, honest(bench))


def test_who_stays_away_after_a_false_deal_ends_the_round_and_is_not_blamed():
    bench = Bench(hospitals=7, rounds=2)  # t = 5
    blames = Interception(bench, Blame)
    deal_another_secret(bench, LIAR)
    assert bench.run(lambda: blames.messages)
    bench.kill('hospital_4')
    assert bench.run(lambda: bench.policy.envelope.round == 2)
    assert bench.key_authority.state.policy(1).rolled_back
    assert bench.policy.contributors == tuple(honest(bench, without=('hospital_4',)))
    assert blamed(blames) == {LIAR: Fault.DEAL}


@pytest.mark.parametrize('kind', [Shares, MaskedUpdate])
def test_who_is_silent_after_a_false_deal_is_blamed(kind):
    bench = Bench(hospitals=7, rounds=2)  # t = 5
    blames = Interception(bench, Blame)
    deal_another_secret(bench, LIAR)
    assert bench.run(lambda: blames.messages)
    Interception(bench, kind, change=lambda m: [] if m.sender == 'hospital_4' else [m])
    assert bench.run(lambda: bench.policy.envelope.round == 2, ticks=9000)
    assert bench.key_authority.state.policy(1).rolled_back
    assert bench.policy.contributors == tuple(honest(bench, without=('hospital_4',)))
    assert blamed(blames) == {LIAR: Fault.DEAL, 'hospital_4': Fault.SILENT}
    trained = [bench.learners[name].trained for name in bench.policy.contributors]
    assert trained == [[1, 2]] * 5


@pytest.mark.parametrize('scheme', ['bfv', 'ckks'])
def test_a_witness_that_does_not_sign_is_blamed_where_updates_have_no_projections(scheme):
    encryption = replace(ENCRYPTION, scheme=scheme, projections=0)
    bench = Bench(hospitals=7, rounds=2, encryption=encryption)
    blames = Interception(bench, Blame)
    Interception(bench, Settle, change=lambda m: [] if m.sender == LIAR else [m])
    for name in bench.names[-2:]:
        bench.kill(name)
    assert bench.run(lambda: bench.key_authority.round == 1, ticks=4000)
    assert bench.key_authority.state.policy(1).rolled_back
    assert blamed(blames) == {LIAR: Fault.SILENT}
    for name in bench.names[-2:]:
        bench.join(name)
    assert bench.run()
    assert set(bench.policy.contributors) == {*bench.names} - {LIAR}


@pytest.mark.parametrize('kind', [Shares, MaskedUpdate, Settle])
def test_witnesses_that_never_answer_pause_a_ring_and_stall_no_round(kind):
    with small_rings():
        bench = Bench(hospitals=HOSPITALS, neighbours=NEIGHBOURS, rounds=3)
        late = sorted(bench.roster.neighbourhoods.witnesses)[:2]
        blames = Interception(bench, Blame)
        lost = Interception(bench, kind, change=lambda m: [] if m.sender in late else [m])
        assert bench.run(lambda: bench.aggregator.phase is Phase.PAUSED, ticks=30_000)
        assert f'from {late[0]}, {late[1]} (' in bench.aggregator.orders.paused_for
        lost.change = lambda message: [message]
        bench.order('resume')
        assert bench.run()
    assert not blames.messages and set(bench.policy.contributors) == set(bench.names)


def test_who_signs_and_never_reveals_ends_a_round_and_is_blamed_for_the_second():
    bench = Bench(hospitals=7, rounds=4)  # t = 5
    blames, away = Interception(bench, Blame), bench.names[-2:]
    Interception(bench, Reveal, change=lambda m: [] if m.sender == LIAR else [m])
    for round in (1, 2):
        for name in away:
            bench.kill(name)
        bench.run_to(Phase.REVEAL, round)
        for name in away:
            bench.join(name)
        assert not blames.messages
        assert bench.run(lambda of=round: bench.key_authority.round == of, ticks=9000)
        assert bench.key_authority.state.policy(round).rolled_back
    assert bench.run()
    assert blamed(blames) == {LIAR: Fault.SILENT}
    assert bench.policy.contributors == tuple(honest(bench))


def test_an_aggregator_that_hears_nobody_abandons_no_bound_round():
    bench = Bench(hospitals=7, rounds=1)  # t = 5
    blames = Interception(bench, Blame)
    deal_another_secret(bench, LIAR)
    assert bench.run(lambda: blames.messages)
    silent = Interception(bench, RoundKey, change=lambda m: [])
    attempt = bench.aggregator.attempt
    assert bench.run(lambda: bench.aggregator.attempt == attempt + 50, ticks=9000)
    silent.change = lambda message: [message]
    for name in honest(bench):
        bench.restart(name)
    assert bench.run()
    check_sum(bench, honest(bench))


def test_waits_from_before_a_set_was_bound_do_not_count(tmp_path):
    bench = Bench(tmp_path, hospitals=4, rounds=1)
    bench.run_to(Phase.REVEAL)
    state = bench.aggregator.state
    assert [state.note_wait('for keys') for _ in range(3)] == [1, 2, 3]
    assert state.note_wait('for shares') == 1
    state.reopen(())
    assert state.note_wait('for keys') == state.note_wait('for shares') == 1


def test_a_kill_while_somebody_is_blamed_for_silence_loses_no_blame(tmp_path, monkeypatch):
    bench = Journaled(tmp_path, hospitals=7, rounds=2)
    blames = Interception(bench, Blame)
    Interception(bench, Settle, change=lambda m: [] if m.sender == LIAR else [m])
    for name in bench.names[-2:]:
        bench.kill(name)

    tell = aggregator.Aggregator._tell

    def killed(aggregator, blames):
        if any(blame.fault == Fault.SILENT for blame in blames):
            raise KeyboardInterrupt
        return tell(aggregator, blames)

    monkeypatch.setattr(aggregator.Aggregator, '_tell', killed)
    with pytest.raises(KeyboardInterrupt):
        bench.run(ticks=4000)
    assert bench.aggregator.state.abandoned and not blames.messages
    monkeypatch.undo()
    lost = Interception(bench, DecryptRequest, change=lambda m: [])
    for _ in range(2):
        bench.restart('aggregator')
        assert bench.aggregator.state.abandoned and LIAR in bench.aggregator.orders.guilty
        bench.wait(3)
        entries = bench.aggregator.channel.journal.entries()
        assert [each.fields['hospital'] for each in entries if each.kind == 'blame'] == [LIAR]
    lost.change = lambda message: [message]
    assert bench.run(lambda: bench.key_authority.round == 1)
    assert bench.key_authority.state.policy(1).rolled_back
    assert blamed(blames) == {LIAR: Fault.SILENT}


@pytest.mark.parametrize('party', ['aggregator', 'key_authority', 'hospital_1'])
@pytest.mark.parametrize('lie', [deal_garbage, deal_another_secret, reveal_wrong])
def test_who_starts_again_when_somebody_was_blamed_goes_on(tmp_path, party, lie):
    bench = Bench(tmp_path, hospitals=6, rounds=1)
    blames = Interception(bench, Blame)
    lie(bench, LIAR)
    assert bench.run(lambda: blames.messages)
    bench.restart(party)
    assert bench.run()
    assert blamed(blames).keys() == {LIAR}
    assert set(bench.policy.contributors) >= set(honest(bench))
    assert bench.aggregator.left_out.keys() == {LIAR}


@pytest.mark.parametrize('lie', [deal_garbage, deal_another_secret, reveal_wrong, send_garbage])
def test_an_aggregator_killed_as_its_journal_tells_of_guilt_still_proves_it(
    tmp_path, monkeypatch, lie
):
    """Hospitals reveal again without the guilty one only if they saw the proof."""
    bench = Journaled(tmp_path, hospitals=6, rounds=1)
    blames = Interception(bench, Blame)
    lie(bench, LIAR)
    note = aggregator.note_blame

    def killed_after_the_line(journal, *about):
        def put(name, value):
            raise PowerCut

        monkeypatch.setattr(journal._store, 'put', put)
        note(journal, *about)

    with monkeypatch.context() as patch:
        patch.setattr(aggregator, 'note_blame', killed_after_the_line)
        with pytest.raises(PowerCut):
            bench.run(ticks=300)
    bench.restart('aggregator')
    assert bench.run()
    assert blamed(blames).keys() == {LIAR}
    assert set(bench.policy.contributors) >= set(honest(bench))


def test_the_journals_keep_a_proof_that_anybody_can_check(tmp_path):
    bench = Bench(hospitals=5, rounds=1)
    deal_garbage(bench, LIAR)
    assert bench.run()
    for name in ('aggregator', 'hospital_1'):
        entries = bench.parties[name].channel.journal.entries()
        (entry,) = [each for each in entries if each.kind == 'blame']
        proof = message_from_bytes(bytes.fromhex(entry.fields['proof']))
        assert entry.fields['hospital'] == LIAR
        assert checked(proof, bench) is Fault.PARCEL


def test_an_operator_may_admit_who_was_guilty_again():
    bench = Bench(hospitals=5, rounds=3)
    reveal_wrong(bench, LIAR)
    assert bench.run(lambda: bench.policy and bench.policy.envelope.round == 2)
    assert LIAR not in bench.policy.contributors
    bench.order('admit', LIAR)
    assert not bench.aggregator.left_out
    assert bench.run()
    assert LIAR in bench.policy.contributors


def test_who_is_guilty_of_the_same_again_in_a_later_round_is_left_out_again():
    bench = Bench(hospitals=6, rounds=2)
    deal_another_secret(bench, LIAR)
    assert bench.run(lambda: bench.policy and bench.policy.envelope.round == 1)
    bench.order('admit', LIAR)
    assert bench.run()
    assert set(bench.policy.contributors) == set(honest(bench))


def test_a_round_whose_guilty_hospital_was_admitted_again_ends_if_another_is_withdrawn():
    bench = Bench(hospitals=6, rounds=1)  # t = 5
    blames = Interception(bench, Blame)
    deal_another_secret(bench, LIAR)
    assert bench.run(lambda: blames.messages)
    bench.kill('hospital_4')
    bench.order('admit', LIAR)
    bench.order('withdraw', 'hospital_4')
    assert bench.run(lambda: bench.policy.envelope.round == 1)
    assert bench.policy.rolled_back


def test_who_shows_its_keys_to_the_aggregator_alone_does_not_stop_the_rounds():
    bench = Bench(hospitals=5, rounds=1)
    deliver = bench.driver.deliver

    def targeted(name, message):
        withheld = isinstance(message, RoundKey) and message.sender == LIAR
        if not withheld or name == 'aggregator':
            deliver(name, message)

    bench.driver.deliver = targeted
    assert bench.run()
    assert set(bench.policy.contributors) == set(bench.names)


# Proofs that prove nothing.


@pytest.fixture(scope='module', params=['all mask with all', 'a ring'])
def proofs(request):
    """Return a good proof of each fault, and the federation."""
    with graph_named(request.param) as options:
        return proofs_of(options)


def proofs_of(options):
    found = {}
    for fault, lie in (
        (Fault.PARCEL, deal_garbage),
        (Fault.COMPLAINT, complain_falsely),
        (Fault.REVEAL, reveal_wrong),
        (Fault.DEAL, deal_another_secret),
        (Fault.UPDATE, send_garbage),
        (Fault.SKETCH, project_pair_wrong),
    ):
        bench = Bench(rounds=1, **options)
        blames = Interception(bench, Blame)
        lie(bench, LIAR)
        assert bench.run()
        found[fault] = bench, blames.messages[0]
    return found


CHECKED = sorted({*PROVEN, Fault.UPDATE})
"""Faults with evidence; the others are the aggregator's word alone."""


def forged(blame, name):
    """Return a proof with something else in one place."""
    value = getattr(blame, name)
    if name == 'guilty':
        return replace(blame, guilty='hospital_1')
    if isinstance(value, bytes):
        return replace(blame, **{name: value[:-1] + bytes([value[-1] ^ 1])})
    if isinstance(value, tuple):
        return replace(blame, **{name: value[:-1]})
    return replace(blame, **{name: value % len(Fault) + 1})


@pytest.mark.parametrize('fault', CHECKED)
@pytest.mark.parametrize(
    'name',
    [each.name for each in fields(Blame) if each.name != 'envelope'],
)
def test_a_changed_proof_proves_nothing(proofs, fault, name):
    bench, blame = proofs[fault]
    assert checked(blame, bench) is fault
    if not getattr(blame, name) or (name, fault) in UNUSED:
        return
    with pytest.raises(MessageError):
        checked(forged(blame, name), bench)


UNUSED = {
    *(
        (name, fault)
        for name in ('members', 'survivors')
        for fault in (Fault.PARCEL, Fault.COMPLAINT)
    ),
    ('members', Fault.DEAL),
    ('survivors', Fault.DEAL),
    *((name, Fault.UPDATE) for name in ('keyed', 'keys_digest', 'terms_digest', 'members')),
    ('survivors', Fault.SKETCH),
}
"""Fields that the proof of a fault does not rest on: the last survivor is not the liar."""


@pytest.mark.parametrize('fault', CHECKED)
def test_no_proof_holds_of_an_honest_hospital(proofs, fault):
    bench, blame = proofs[fault]
    for name in honest(bench):
        for other in CHECKED:
            with pytest.raises(MessageError):
                checked(replace(blame, guilty=name, fault=int(other)), bench)


def test_a_proof_in_the_name_of_another_attempt_proves_nothing(proofs):
    for bench, blame in proofs.values():
        envelope = replace(blame.envelope, attempt=blame.envelope.attempt + 1)
        with pytest.raises(MessageError, match='signed for attempt'):
            checked(replace(blame, envelope=envelope), bench)


def test_projections_are_judged_by_the_keys_that_their_hospital_took(proofs):
    """Who starts again may be shown other keys of a peer, and deal along these as well."""
    bench, blame = proofs[Fault.SKETCH]
    (dealt,), guilty = blame.dealt, blame.guilty
    holders = bench.roster.neighbourhoods.holders(guilty)
    leaves = [bytes(len(blame.parcels))] * len(holders)
    leaves[holders.index(next(name for name in blame.ends if name != guilty))] = blame.parcels
    root, paths = root_and_paths(leaves)
    again = resealed(bench, dealt, parcels_root=root)
    path = paths[leaves.index(blame.parcels)]
    with pytest.raises(MessageError, match='other shares than the projections'):
        checked(replace(blame, dealt=(again,), paths=path), bench)


@pytest.mark.parametrize('fault', sorted(PROVEN))
def test_a_proof_under_other_terms_proves_nothing(proofs, fault):
    """With another roster the key of whoever signed may be another one, and its word a lie."""
    bench, blame = proofs[fault]
    with pytest.raises(MessageError, match='under other terms'):
        checked(resealed(bench, blame, terms_digest=bytes(32)), bench)


def test_hospitals_take_no_proof_that_proves_nothing():
    bench = Bench(hospitals=5, rounds=1)

    def spoil(blame):
        return [resealed(bench, replace(blame, guilty='hospital_1'))]

    Interception(bench, Blame, change=spoil)
    deal_another_secret(bench, LIAR)
    bench.run(ticks=100)
    refused = [str(error) for name, error in bench.driver.refused if name != 'aggregator']
    assert refused and all('proves nothing against' in each for each in refused)
    assert not any(bench.parties[name].state.record.of(1).guilty for name in bench.names)


def test_complaints_that_are_out_of_place_convict_nobody():
    bench = Bench(hospitals=5, rounds=1)
    complaints = Interception(bench, Complaint, change=lambda message: [])
    deal_garbage(bench, LIAR)
    bench.run_to(Phase.TRAIN)
    assert bench.run(lambda: complaints.messages)
    complaint = complaints.messages[0]
    for changes in (
        {'dealer': complaint.sender},
        {'dealer': 'hospital_9'},
        {'keys_digest': bytes(32)},
        {'envelope': replace(complaint.envelope, attempt=9)},
    ):
        with pytest.raises(MessageError):
            bench.aggregator.handle(resealed(bench, replace(complaint, **changes)), 0.0)
    assert not bench.aggregator.orders.guilty
    # Who reveals another secret than the one of its key complains falsely.
    false = resealed(bench, replace(complaint, secret=bytes(32)))
    bench.hear('aggregator', false)
    assert bench.aggregator.orders.guilty.keys() == {complaint.sender}


def test_a_parcel_that_the_aggregator_made_up_uncovers_nothing_and_names_nobody():
    bench = Bench(hospitals=5, rounds=1)
    complaints = Interception(bench, Complaint)

    def spoil(message):
        return [resealed(bench, message, parcels=bytes(len(message.parcels)))]

    Interception(bench, Delivery, change=spoil)
    bench.run(ticks=50)
    assert not complaints.messages
    assert 'not signed by its dealer' in bench.driver.notes['hospital_1']


@pytest.mark.parametrize('hospitals', [5, 10])
def test_rounds_in_which_a_third_lie_end_exactly_or_name_the_guilty(hospitals):
    """`test/nightly/test_dropouts_in_full.py` has 1,000."""
    found = Counter()
    for seed in range(12):
        found += run_lying(seed, hospitals)
    assert found['lying'] == 12 and found['exact sums'] > 6
    assert found['guilty'] > found['liars'] // 2


def test_a_round_is_abandoned_once_its_sum_lacks_somebody_without_proof():
    """Honest hospitals reveal for no sum without that hospital, and none of them is excluded."""
    bench = Bench(rounds=1, hospitals=12)
    blames = Interception(bench, Blame)
    deal_another_secret(bench, 'hospital_1')
    assert bench.run(lambda: blames.messages)
    send_garbage(bench, 'hospital_2')
    project_pair_wrong(bench, 'hospital_3')
    assert bench.run(lambda: bench.policy and bench.policy.envelope.round == 1)
    assert bench.policy.rolled_back and 'abandoned' in bench.policy.reason
    assert blamed(blames) == {
        'hospital_1': Fault.DEAL,
        'hospital_2': Fault.UPDATE,
        'hospital_3': Fault.SKETCH,
    }
