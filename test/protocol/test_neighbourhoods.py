# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Rounds in which each hospital masks with its neighbours alone: exact, secret, and nobody gains.

First sixty hospitals by the real law, then twelve in a ring with six neighbours each
(:mod:`support.rings`). `test_lying_aggregator.py` and `test_blame.py` tell their lies in such a
ring too.
"""

from collections import Counter
from dataclasses import replace
from pathlib import Path

from fdrl_ros.crypto.masking.neighbourhoods import fewest_neighbours
from fdrl_ros.crypto.masking.round_secret import RoundSecret
from fdrl_ros.crypto.masking.share_sealing import PAIR_BYTES
from fdrl_ros.crypto.masking.sharing import SHARE_BYTES
from fdrl_ros.errors import MessageError
from fdrl_ros.federation.protocol.message import (
    Blame,
    Complaint,
    DecryptRequest,
    Fault,
    HospitalPolicy,
    Phase,
    Reveal,
    RoundKey,
    Settle,
    Shares,
    Sketch,
    Verdict,
)
import numpy as np
import pytest
from support.coalition import learned
from support.dropouts import (
    contributors,
    DroppingFederation,
    PATIENCE,
    run_hurried,
    run_schedule,
    Stage,
)
from support.federation_bench import Bench
from support.interception import Interception, resealed
from support.liar import gains_nothing, Liar, lie_at_random, Story
from support.lying_hospitals import (
    complain_falsely,
    deal_another_secret,
    deal_garbage,
    dealing,
    project_pair_wrong,
    project_self_wrong,
    reveal_wrong,
)
from support.lying_schedules import run_lying
from support.restarts import check_nothing_is_reused, policy_of, RestartBench
from support.rings import AGREEING, around, HOSPITALS, NEIGHBOURS, SHARES, small_rings, WITNESSES
from support.worlds import draw_worlds, run_world, Scenario

FIRST = (1, 1)
LIAR = 'hospital_2'
RING = {'hospitals': HOSPITALS, 'neighbours': NEIGHBOURS}


@pytest.fixture
def ring():
    """Let twelve hospitals in a ring be enough."""
    with small_rings():
        yield


def graph_of(bench):
    return bench.roster.neighbourhoods


def check_sum(bench, names):
    """See that the policy is the exact sum of these hospitals."""
    assert set(contributors(bench)) == set(names)
    np.testing.assert_array_equal(bench.weights, bench.exact(contributors(bench)))


# Sixty hospitals, by the real law.

SIXTY = 60
SENT = Stage.BEFORE_SIGNING
LOST = {
    'hospital_7': Stage.BEFORE_KEYS,
    'hospital_20': Stage.BEFORE_SENDING,
    'hospital_33': Stage.BEFORE_TRAINING,
    'hospital_46': Stage.BEFORE_REVEALING,
}


@pytest.mark.parametrize('lost', [{}, LOST], ids=['nobody lost', 'four lost'])
def test_sixty_hospitals_end_with_the_very_weights_of_a_complete_graph(lost):
    weights = {}
    for neighbours in (0, fewest_neighbours(SIXTY)):
        driver = DroppingFederation(1, lost)
        bench = Bench(None, SIXTY, 1, driver=driver, neighbours=neighbours)
        assert bench.run(ticks=PATIENCE)
        assert set(driver.lost) == set(lost)
        check_sum(bench, [each for each in bench.names if lost.get(each, SENT) >= SENT])
        weights[neighbours] = bench.weights.tobytes()
        shares = [len(m.shares) for m in driver.messages if isinstance(m, Reveal)]
        held = 1 + (neighbours or SIXTY - 1)
        assert max(shares) // SHARE_BYTES in range(held - len(lost), held + 1)
    assert len(weights) == 2 and len({*weights.values()}) == 1


# Twelve hospitals in a ring: who is lost, who starts again, who lies.


@pytest.mark.usefixtures('ring')
def test_rounds_end_exactly_or_reveal_nothing_whoever_drops_out():
    found = Counter()
    for seed in range(16):
        found += run_schedule(seed, **RING)
    assert found['rounds that went through with losses'] > 2
    assert found['rounds that went on when hospitals came back'] > 2


@pytest.mark.usefixtures('ring')
def test_sums_are_exact_where_deadlines_pass_while_messages_are_on_their_way():
    for seed in range(2):
        run_hurried(seed, **RING)


@pytest.mark.parametrize('stage', [Stage.BEFORE_KEYS, Stage.BEFORE_SHARES, Stage.BEFORE_SENDING])
def test_who_has_too_few_neighbours_is_left_out_and_the_others_go_on(stage):
    """With four of its six neighbours lost it has three holders, and four are needed."""
    with small_rings(shares=4):
        driver = DroppingFederation(1, {})
        bench = Bench(None, rounds=1, threshold=7, driver=driver, **RING)
        alone = around(graph_of(bench), 'hospital_1')
        lost = [alone[step] for step in (-2, -1, 1, 2)]
        driver.schedule = dict.fromkeys(lost, stage)
        assert bench.run(ticks=PATIENCE)
        check_sum(bench, {*bench.names} - {*lost, 'hospital_1'})
        assert not bench.aggregator.orders.guilty
        for name in lost:
            bench.join(name)
        assert bench.run(ticks=1)


PHASES = (
    Phase.OPEN,
    Phase.SHARE,
    Phase.TRAIN,
    Phase.INSPECT,
    Phase.SKETCH,
    Phase.SETTLE,
    Phase.REVEAL,
    Phase.SUM,
)


@pytest.fixture(scope='module')
def undisturbed(tmp_path_factory):
    """Return the policy after as many rounds as there are phases, in which nobody is killed."""
    with small_rings():
        bench = restarting(tmp_path_factory.mktemp('undisturbed'))
        assert bench.run()
        return policy_of(bench)


def restarting(directory: Path) -> RestartBench:
    return RestartBench(directory, HOSPITALS, len(PHASES), (), neighbours=NEIGHBOURS)


@pytest.mark.usefixtures('ring')
@pytest.mark.parametrize('whose', ['aggregator', 'key_authority', 'a witness', 'no witness'])
def test_a_kill_in_any_phase_changes_nothing(whose, undisturbed, tmp_path):
    bench = restarting(tmp_path)
    witnesses = graph_of(bench).witnesses
    whom = {'a witness': min(witnesses), 'no witness': min({*bench.names} - witnesses)}
    for round, phase in enumerate(PHASES, 1):
        bench.run_to(phase, round)
        bench.restart(whom.get(whose, whose))
    assert bench.run()
    assert policy_of(bench) == undisturbed
    check_nothing_is_reused(bench)


@pytest.mark.usefixtures('ring')
def test_rounds_in_which_a_third_lie_end_exactly_or_name_the_guilty():
    found = Counter()
    for seed in range(8):
        found += run_lying(seed, **RING)
    assert found['lying'] == 8 and found['exact sums'] > 3
    assert found['guilty'] > found['liars'] // 2


@pytest.mark.usefixtures('ring')
@pytest.mark.parametrize('lie', [deal_another_secret, deal_garbage])
def test_without_two_witnesses_that_are_guilty_nobody_can_sum_and_the_rounds_end(lie):
    bench = Bench(None, rounds=2, **RING)
    guilty = sorted(graph_of(bench).witnesses)[:2]
    for name in guilty:
        lie(bench, name)
    assert bench.run(lambda: bench.aggregator.phase is Phase.FINISHED, ticks=200)
    assert bench.aggregator.orders.guilty.keys() == {*guilty}
    assert 'too few of them neighbours or witnesses' in bench.aggregator.exhausted
    # Once shares are revealed the round itself ends, with the policy before.
    assert bench.key_authority.round == (lie is deal_another_secret)
    assert not bench.key_authority.state.released.contributors
    assert all(learner.trained in ([], [1]) for learner in bench.learners.values())


@pytest.mark.usefixtures('ring')
def test_while_too_few_witnesses_are_there_the_round_waits_and_nothing_is_signed():
    bench = Bench(None, rounds=1, **RING)
    sketches = Interception(bench, Sketch)
    away = sorted(graph_of(bench).witnesses)[: WITNESSES - AGREEING + 1]
    bench.run_to(Phase.TRAIN)
    for name in away:
        bench.kill(name)
    assert bench.run(lambda: bench.aggregator.attempt == 9)  # more than may sign projections
    assert not sketches.messages and bench.aggregator.phase is Phase.OPEN
    assert f'waiting for {", ".join(sorted(away))}' in bench.driver.notes['aggregator']
    for name in away:
        bench.join(name)
    assert bench.run()
    check_sum(bench, bench.names)
    assert all(learner.trained == [1] for learner in bench.learners.values())


# What a proof of guilt takes.


@pytest.mark.parametrize(
    'lie',
    [
        deal_garbage,
        deal_another_secret,
        reveal_wrong,
        complain_falsely,
        project_pair_wrong,
        project_self_wrong,
    ],
)
def test_a_proof_grows_with_the_names_of_the_hospitals_alone(lie):
    sizes = []
    for hospitals in (HOSPITALS, 2 * HOSPITALS):
        with small_rings(hospitals=hospitals):
            bench = Bench(None, hospitals, 1, neighbours=NEIGHBOURS)
        blames = Interception(bench, Blame)
        lie(bench, LIAR)
        assert bench.run(lambda blames=blames: blames.messages)
        (blame,) = blames.messages
        assert blame.guilty == LIAR and bench.check_blame(blame) is Fault(blame.fault)
        sizes.append(len(replace(blame, keyed=(), members=(), survivors=()).to_bytes()))
    # The path of its keys has one hash more, and names are one or two digits longer.
    assert abs(sizes[1] - sizes[0]) <= 32 + 4 * NEIGHBOURS


@pytest.mark.usefixtures('ring')
def test_keys_that_an_honest_hospital_did_not_take_prove_nothing_of_its_projections():
    bench = Bench(None, rounds=1, **RING)
    bench.run_to(Phase.SETTLE)
    aggregator, guilty = bench.aggregator, 'hospital_1'
    other, state = graph_of(bench).peers(guilty)[0], aggregator.state
    forged, sketches = RoundSecret.generate(), (state.sketches[guilty],)
    shown = aggregator._shown(guilty, (other, guilty), forged.to_bytes())
    pairs = shown['pairs'][:PAIR_BYTES] + forged.public + shown['pairs'][-32:]
    proof = {'sketches': sketches, **shown, 'pairs': pairs}
    with pytest.raises(MessageError, match='sealed with other keys'):
        bench.check_blame(aggregator._blame(guilty, Fault.SKETCH, proof))


@pytest.mark.usefixtures('ring')
def test_a_complaint_with_keys_that_its_dealer_did_not_take_names_who_complains():
    bench = Bench(None, rounds=1, **RING)
    blames = Interception(bench, Blame)
    forged = RoundSecret.generate()

    def frame(complaint):
        pairs = complaint.pairs[:-32] + forged.public
        return [resealed(bench, complaint, pairs=pairs, secret=forged.to_bytes())]

    Interception(bench, Complaint, change=frame)
    complain_falsely(bench, LIAR)
    assert bench.run()
    assert {each.guilty: Fault(each.fault) for each in blames.messages} == {LIAR: Fault.COMPLAINT}
    check_sum(bench, {*bench.names} - {LIAR})


# What a hospital sends that its root does not stand for is its own harm alone.


def swapped(bench, message):
    mask, sealing = message.mask_keys, message.sealing_keys
    return {'mask_keys': sealing, 'sealing_keys': mask}


def reversed_parcels(bench, message):
    size = len(message.parcels) // len(graph_of(bench).holders(LIAR))
    parcels = [message.parcels[at : at + size] for at in range(0, len(message.parcels), size)]
    return {'parcels': b''.join(parcels[::-1])}


def nothing(bench, message):
    return dict.fromkeys(message.by_root, b'')


def sealed_with_other_keys(bench, message):
    parcels = bytearray(message.parcels)
    parcels[-1] ^= 1
    size = len(parcels) // len(graph_of(bench).holders(LIAR))
    split = [bytes(parcels[at : at + size]) for at in range(0, len(parcels), size)]
    made = dealing(bench, message, split)
    return {'parcels': made.parcels, 'parcels_root': made.parcels_root}


ROOTLESS = {
    'its lists of keys swapped': (RoundKey, swapped, 'bad signature'),
    'no lists of keys': (RoundKey, nothing, 'without what its root stands for'),
    'its parcels in another order': (Shares, reversed_parcels, 'bad signature'),
    'no parcels': (Shares, nothing, 'without what its root stands for'),
    'parcels sealed with other keys': (Shares, sealed_with_other_keys, 'with other keys'),
}


@pytest.mark.usefixtures('ring')
@pytest.mark.parametrize('name', ROOTLESS)
def test_what_the_root_does_not_stand_for_is_refused_and_the_others_go_on(name):
    kind, change, expected = ROOTLESS[name]
    bench = Bench(None, rounds=1, **RING)

    def lie(message):
        if message.sender != LIAR:
            return [message]
        return [resealed(bench, message, **change(bench, message))]

    Interception(bench, kind, change=lie)
    assert bench.run(lambda: bench.key_authority.round == 1, ticks=400)
    refused = [str(error) for name, error in bench.driver.refused if name == 'aggregator']
    assert any(expected in each for each in refused), refused
    assert not bench.aggregator.orders.guilty
    bench.run(ticks=1)
    check_sum(bench, {*bench.names} - {LIAR})


# What a coalition learns that has both servers and hospitals.


def facts_of(scenario, seed):
    """Return what a coalition learned of each chunk of a round, once that was true."""
    updates, _ = draw_worlds(scenario, np.random.default_rng(seed))
    view = run_world(scenario, updates, seed)
    modulus, found = view.bench.scheme.plain_modulus, []
    for chunk, rows in enumerate(view.rows):
        found.append([])
        for about, value in learned(rows, modulus):
            assert {*about.values()} <= {0, 1}
            found[-1].append({name for name, weight in about.items() if weight})
            total = sum(view.slots(updates, name)[chunk] for name in found[-1][-1])
            np.testing.assert_array_equal(value, total % modulus)
    assert len(found) == view.bench.scheme.ciphertexts
    return view, found


def neighbours_of(name, corrupt):
    """Return a test of a ring: whether the first hospitals are all neighbours of one."""
    names = {f'hospital_{number}' for number in range(1, corrupt + 1)}
    return lambda graph: names <= {*graph.peers(name)}


MOVED = ('hospital_11', 'hospital_12')


@pytest.mark.parametrize('stage', [*Stage])
def test_servers_and_all_neighbours_but_two_learn_the_honest_sum_and_nothing_else(stage):
    """Four corrupt neighbours hold one share less than restores a secret of hospital_12."""
    scenario = Scenario(
        HOSPITALS, SHARES - 1, MOVED, {'hospital_11': stage}, neighbours=NEIGHBOURS
    )
    with small_rings(neighbours_of('hospital_12', SHARES - 1)):
        view, found = facts_of(scenario, 1)
    honest = {*view.contributors} - {*view.coalition.seeds}
    assert 'hospital_12' in honest
    assert found == [[honest]] * len(found)


def test_with_one_share_more_they_learn_what_one_hospital_sent():
    scenario = Scenario(HOSPITALS, SHARES, MOVED, neighbours=NEIGHBOURS)
    with small_rings(neighbours_of('hospital_12', SHARES)):
        _, found = facts_of(scenario, 1)
    assert all({'hospital_12'} in facts and len(facts) > 1 for facts in found)


def test_with_a_share_of_an_honest_neighbour_they_learn_what_one_hospital_sent():
    scenario = Scenario(HOSPITALS, SHARES - 1, MOVED, neighbours=NEIGHBOURS)
    corrupt_neighbours = neighbours_of('hospital_12', SHARES - 1)

    def wanted(graph):
        return corrupt_neighbours(graph) and 'hospital_11' in graph.peers('hospital_12')

    with small_rings(wanted):
        _, found = facts_of(replace(scenario, leak=MOVED), 1)
    assert all({'hospital_12'} in facts and len(facts) > 1 for facts in found)


def test_a_ring_that_falls_into_two_parts_tells_the_sum_of_each():
    """Which it does with a chance of 2^-43 at most: three in a row at two places are corrupt."""

    def parted(graph):
        ring, half = around(graph, 'hospital_1'), HOSPITALS // 2
        return {*ring[:3], *ring[half : half + 3]} == {f'hospital_{i}' for i in range(1, 7)}

    scenario = Scenario(HOSPITALS, 6, MOVED, neighbours=NEIGHBOURS)
    with small_rings(parted):
        view, found = facts_of(scenario, 1)
        ring = around(graph_of(view.bench), 'hospital_1')
    parts = [{*ring[3:6]}, {*ring[9:]}]
    assert all(len(facts) == 2 and all(part in facts for part in parts) for facts in found)


# What an aggregator may say that lies.


def everybody(liar):
    names = tuple(liar.bench.names)
    return Story(names, names, names)


def without(liar, lost):
    left = tuple(name for name in liar.bench.names if name not in lost)
    return left


def said(liar, kind):
    return {each.sender for each in liar.said if isinstance(each, kind)}


@pytest.mark.usefixtures('ring')
def test_random_lies_gain_nothing():
    noticed, sums = [], 0
    for seed in range(4):
        liar = Liar(HOSPITALS, 2, seed, neighbours=NEIGHBOURS)
        noticed += lie_at_random(liar, liar.rng.randint(1, 3))
        assert gains_nothing(liar)
        sums += bool(liar.facts())
    assert all(noticed) and len(noticed) > 1
    assert sums


def outside(graph):
    """Tell whether neither of the corrupt hospitals is a witness."""
    return not {'hospital_11', 'hospital_12'} & graph.witnesses


def test_no_signature_counts_but_those_of_witnesses():
    with small_rings(outside):
        liar = Liar(HOSPITALS, 2, 1, neighbours=NEIGHBOURS)
    graph, story = graph_of(liar.bench), everybody(liar)
    liar.run_attempt(FIRST, story, until=Phase.TRAIN)
    for name in liar.honest:
        liar.status(name, FIRST, Phase.SETTLE, story)
    settles = [each for each in liar.said if isinstance(each, Settle)]
    assert {each.sender for each in settles} == graph.witnesses
    victim = min({*liar.honest} - graph.witnesses)
    for each in settles[: AGREEING - 1]:
        liar.tell(victim, each)
    for name in liar.corrupt:
        lie = {'settle_digest': settles[0].settle_digest, 'update_hash': bytes(32)}
        liar.tell(victim, liar.seal(Settle, name, FIRST, **lie))
    liar.status(victim, FIRST, Phase.REVEAL, story)
    complaints = [str(error) for name, error in liar.refused if name == victim]
    assert len(complaints) == 2 and all('is no witness' in each for each in complaints)
    assert not said(liar, Reveal)
    liar.tell(victim, settles[AGREEING - 1])
    assert said(liar, Reveal) == {victim}


def test_a_witness_counts_its_own_signature_once():
    with small_rings(outside):
        liar = Liar(HOSPITALS, 2, 1, neighbours=NEIGHBOURS)
    story = everybody(liar)
    liar.run_attempt(FIRST, story, until=Phase.TRAIN)
    for name in liar.honest:
        liar.status(name, FIRST, Phase.SETTLE, story)
    settles = {each.sender: each for each in liar.said if isinstance(each, Settle)}
    victim, *others = sorted(settles)
    for name in others[: AGREEING - 2]:
        liar.tell(victim, settles[name])
    liar.status(victim, FIRST, Phase.REVEAL, story)
    assert not said(liar, Reveal)
    liar.tell(victim, settles[others[AGREEING - 2]])
    assert said(liar, Reveal) == {victim}


@pytest.mark.usefixtures('ring')
@pytest.mark.parametrize('what', ['survivors', 'members'])
def test_nobody_reveals_shares_of_a_hospital_of_which_too_few_are_held(what):
    """Three in a row are left out: their neighbours on both sides have four holders left."""
    liar = Liar(HOSPITALS, 0, 1, neighbours=NEIGHBOURS)
    graph = graph_of(liar.bench)
    ring = around(graph, 'hospital_1')
    at = next(
        place for place in range(HOSPITALS) if not {*ring[place : place + 3]} & graph.witnesses
    )
    lost = ring[at : at + 3]
    left = without(liar, lost)
    story = replace(everybody(liar), survivors=left)
    story = replace(story, members=left) if what == 'members' else story
    liar.run_attempt(FIRST, story)
    few = {name for name in left if len({*graph.peers(name)} & {*left}) + 1 < SHARES}
    assert len(few) == 2
    if what == 'members':
        told, silent = 'peers of this hospital are too few', few
    else:
        lacking = few | {*lost}
        silent = {name for name in left if {*graph.holders(name)} & lacking}
        told = 'too few survivors hold shares of'
    assert {name for name, why in liar.caught() if told in why} == silent
    assert not said(liar, Reveal) & silent
    assert not liar.facts()


def apart(graph):
    """Tell whether the corrupt ones are witnesses, and hospitals 1 and 2 as far as can be."""
    corrupt = {'hospital_11', 'hospital_12'}
    return corrupt < graph.witnesses and around(graph, 'hospital_1')[6] == 'hospital_2'


@pytest.mark.parametrize('agreeing', [AGREEING - 1, AGREEING])
def test_with_fewer_witnesses_it_gets_a_sum_that_no_hospital_agreed_to(agreeing):
    """
    The neighbours of one hospital are told that it did not survive, those of another likewise.

    Each group may restore what takes the one's masks off: the sum is without both.
    """
    with small_rings(apart, agreeing=agreeing):
        liar = Liar(HOSPITALS, 2, 1, neighbours=NEIGHBOURS)
    stories = {
        one: replace(everybody(liar), survivors=without(liar, {one}))
        for one in ('hospital_1', 'hospital_2')
    }
    ring = around(graph_of(liar.bench), 'hospital_1')
    near = {*ring[-2:], *ring[:4], 'hospital_2'}
    told = {name: stories['hospital_1' if name in near else 'hospital_2'] for name in liar.honest}
    told['hospital_1'] = stories['hospital_2']
    liar.run_attempt(FIRST, told)
    assert liar.caught()
    assert gains_nothing(liar) is (agreeing == AGREEING)
    if agreeing < AGREEING:
        (fact,) = liar.facts()
        told_of = {name for name, weight in fact.items() if weight}
        assert told_of == {*liar.honest} - {'hospital_1', 'hospital_2'}


@pytest.mark.parametrize('corrupt', [2, 3])
def test_with_a_third_corrupt_neighbour_it_gets_both_secrets_of_one_hospital(corrupt):
    """Two of its four honest holders reveal for each set, and the three corrupt ones for both."""
    last = {f'hospital_{number}' for number in range(HOSPITALS, HOSPITALS - corrupt, -1)}

    def wanted(graph):
        witnesses = graph.witnesses - {'hospital_1'}
        return last <= {*graph.peers('hospital_1')} & witnesses and len(witnesses) == WITNESSES

    with small_rings(wanted):
        liar = Liar(HOSPITALS, corrupt, 1, neighbours=NEIGHBOURS)
    graph, story = graph_of(liar.bench), everybody(liar)
    other = replace(story, survivors=without(liar, {'hospital_1'}))
    one, *_, another = sorted(graph.witnesses & {*liar.honest})
    peers = sorted({*graph.peers('hospital_1')} & {*liar.honest} - {one, another})
    others = {another, *peers[: 2 - (another in graph.peers('hospital_1'))]}
    told = {name: other if name in others else story for name in liar.honest}
    liar.run_attempt(FIRST, told)
    assert liar.caught()
    assert gains_nothing(liar) is (corrupt == 2)
    alone = [{name for name, weight in about.items() if weight} for about in liar.facts()]
    assert ({'hospital_1'} in alone) is (corrupt == 3)


def of_others(told, others):
    return {'keys': others.keys, 'pairs': others.pairs, 'paths': others.paths}


def flipped(data, at=0):
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


PEER_KEYS = {
    'of another hospital': (of_others, 'delivered the keys of other hospitals'),
    'one less': (
        lambda told, others: {
            'keys': told.keys[1:],
            'pairs': told.pairs[PAIR_BYTES:],
            'paths': told.paths[96:],
        },
        'delivered the keys of other hospitals',
    ),
    'another pair': (
        lambda told, others: {'pairs': flipped(told.pairs)},
        'did not sign',
    ),
    'pairs for another': (lambda told, others: {'pairs': others.pairs}, 'did not sign'),
    'another path': (lambda told, others: {'paths': flipped(told.paths)}, 'did not sign'),
    'too short a path': (lambda told, others: {'paths': told.paths[:-1]}, 'leaves and paths'),
    'another path of its own': (
        lambda told, others: {'own_path': flipped(told.own_path)},
        'does not name',
    ),
    'the path of another': (lambda told, others: {'own_path': others.own_path}, 'does not name'),
    'no path of its own': (lambda told, others: {'own_path': b''}, 'does not name'),
    'of a signature that does not hold': (
        lambda told, others: {
            'keys': (replace(told.keys[0], seed_hash=bytes(32)), *told.keys[1:])
        },
        'bad signature',
    ),
    'to another': (lambda told, others: {'to': others.to}, 'keys for hospital_'),
}
"""What it changes of the keys that it tells one hospital, and what that one complains of."""


@pytest.mark.usefixtures('ring')
@pytest.mark.parametrize('name', PEER_KEYS)
def test_keys_that_peers_did_not_publish_are_noticed_and_gain_nothing(name):
    change, expected = PEER_KEYS[name]
    liar = Liar(HOSPITALS, 2, 1, neighbours=NEIGHBOURS)
    victim, genuine = 'hospital_1', liar.peer_keys
    stranger = around(graph_of(liar.bench), victim)[6]

    def lie(to, *about):
        told = genuine(to, *about)
        if to != victim:
            return told
        changed = replace(told, **change(told, genuine(stranger, *about)))
        return changed.signed_by(liar.bench.identities['aggregator'])

    liar.peer_keys = lie
    liar.run_attempt(FIRST, everybody(liar))
    assert any(who == victim and expected in why for who, why in liar.caught()), liar.caught()
    assert victim not in said(liar, Shares) and victim in said(liar, RoundKey)
    assert gains_nothing(liar)


@pytest.mark.usefixtures('ring')
def test_a_digest_of_other_keys_is_noticed_and_nothing_is_dealt_along_it():
    liar = Liar(HOSPITALS, 2, 1, neighbours=NEIGHBOURS)
    genuine = liar.say_status

    def lie(of, phase, keys_digest=b'', **lists):
        return genuine(of, phase, keys_digest and bytes(32), **lists)

    liar.say_status = lie
    liar.run_attempt(FIRST, everybody(liar))
    told = {who for who, why in liar.caught() if 'does not name' in why}
    assert told == {*liar.honest} and not said(liar, Shares)


# What it may ask of the key authority.


def a_signature_of_no_witness(bench, asked):
    name = min({*asked.survivors} - graph_of(bench).witnesses)
    first = asked.settles[0]
    envelope = replace(first.envelope, sender=name, counter=10**6)
    at = 32 * asked.survivors.index(name)
    hashed = asked.update_hashes[at : at + 32]
    signed = replace(first, envelope=envelope, update_hash=hashed)
    return (*asked.settles[: AGREEING - 1], signed.signed_by(bench.identities[name]))


SETTLES = {
    'too few': (lambda bench, asked: asked.settles[: AGREEING - 1], 'signatures on the survivors'),
    'a signature of no witness': (a_signature_of_no_witness, 'is no witness'),
    'none': (lambda bench, asked: (), 'signatures on the survivors'),
}


@pytest.mark.usefixtures('ring')
@pytest.mark.parametrize('name', SETTLES)
def test_key_authority_decrypts_nothing_that_too_few_witnesses_signed(name):
    change, expected = SETTLES[name]
    bench = Bench(None, rounds=1, **RING)
    decrypted = bench.spy_on_decryption(really=False)

    def lie(asked):
        return [resealed(bench, asked, settles=change(bench, asked)) if asked.settles else asked]

    Interception(bench, DecryptRequest, change=lie)
    verdicts = Interception(bench, Verdict)
    assert bench.run(lambda: bench.key_authority.round == 1, ticks=60)
    assert any(expected in each.reason for each in verdicts.messages if not each.accepted)
    assert not decrypted


@pytest.mark.usefixtures('ring')
def test_a_hospital_that_is_no_witness_and_signs_the_survivors_ends_no_round():
    bench = Bench(None, rounds=1, **RING)
    signed: list = []

    def sign_too(settle):
        name = min({*bench.names} - graph_of(bench).witnesses)
        if settle.sender == name or signed:
            return [settle]
        envelope = replace(settle.envelope, sender=name, counter=bench.stores[name].next_counter())
        lie = replace(
            settle,
            envelope=envelope,
            update_hash=bench.aggregator.state.updates.hashes((name,)),
        )
        signed.append(lie.signed_by(bench.identities[name]))
        return [signed[0], settle]

    Interception(bench, Settle, change=sign_too)
    assert bench.run(lambda: bench.key_authority.round == 1, ticks=60)
    assert signed and bench.aggregator.attempt == 1
    told = [str(error) for name, error in bench.driver.refused if name == 'aggregator']
    assert any('is no witness' in each for each in told)
    policy = bench.key_authority.state.policy(1)
    assert not policy.rolled_back


@pytest.mark.usefixtures('ring')
def test_key_authority_decrypts_nothing_of_which_one_hospital_lacks_a_share():
    """Reveals enough of all hospitals but one: of that one there is one share too few."""
    bench = Bench(None, rounds=1, **RING)
    decrypted = bench.spy_on_decryption(really=False)
    holders = graph_of(bench).holders('hospital_1')

    def lie(asked):
        few = tuple(each for each in asked.reveals if each.sender not in holders[: 8 - SHARES])
        return [resealed(bench, asked, reveals=few) if asked.settles else asked]

    asked = Interception(bench, DecryptRequest, change=lie)
    verdicts = Interception(bench, Verdict)
    assert bench.run(lambda: bench.key_authority.round == 1, ticks=60)
    told = [each.reason for each in verdicts.messages if not each.accepted]
    assert any('cannot be restored' in each for each in told), told
    assert not decrypted and asked.messages


# Own policies.


@pytest.mark.parametrize('neighbours', [0, NEIGHBOURS])
def test_own_policies_are_released_only_where_all_members_are_peers(neighbours):
    """Of the others a hospital cannot know whether they release theirs."""
    with small_rings():
        bench = Bench(None, HOSPITALS, 1, neighbours=neighbours)
    released = Interception(bench, HospitalPolicy)
    notes, note = [], bench.driver.notes
    assert bench.run(lambda: notes.append(note.get('hospital_1')) or bench.is_over())
    bench.wait(2)
    told = [each for each in notes if each and 'own policy of round 1 not released' in each]
    if neighbours:
        assert not released.messages
        assert 'not all members are peers' in told[-1]
    else:
        assert {each.sender for each in released.messages} == {*bench.names} and not told
