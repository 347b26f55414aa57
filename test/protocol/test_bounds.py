# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Nobody moves a sum further than honest hospitals may; who tries is named, and nobody else."""

from dataclasses import replace
import os

from fdrl_ros.crypto.he.parameters import pack_bits
from fdrl_ros.crypto.masking.sketch import values_bytes
from fdrl_ros.errors import MessageError, RoundError
from fdrl_ros.federation.aggregator import aggregator
from fdrl_ros.federation.hospital.state import HospitalState, Promises, Sketched
from fdrl_ros.federation.key_authority.state import KeyAuthorityState
from fdrl_ros.federation.protocol.blame import check_blame
from fdrl_ros.federation.protocol.message import (
    Blame,
    DecryptRequest,
    Dispute,
    Fault,
    MaskedUpdate,
    Opening,
    Phase,
    Reveal,
    RoundStatus,
    Settle,
    Sketch,
    Verdict,
)
from fdrl_ros.federation.protocol.sketches import MOST_SKETCHES
from fdrl_ros.federation.protocol.store import Store
from fdrl_ros.policy import decode_weights
import numpy as np
import pytest
from support.dropouts import CHUNKED
from support.federation_bench import Bench, ENCRYPTION, KnownLearner, SHAPE
from support.interception import declining, Interception, refusals, resealed
from support.journaled_federation import Journaled
from support.lying_hospitals import (
    deal_another_secret,
    hide_too_much,
    open_as_well,
    project_pair_wrong,
    project_self_wrong,
    send_too_much,
)
from support.rings import small_rings

LIAR = 'hospital_2'
MODEST = replace(ENCRYPTION, norm=0.25)
"""What :class:`ModestLearner` makes fits into this norm; the limit alone allows 40."""


class ModestLearner(KnownLearner):
    """Moves the weights by as little as a round of training does."""

    def delta(self, round):
        return super().delta(round) * np.float32(0.01)


class ModestBench(Bench):
    """A federation of a network with 64 projections, in two ciphertexts."""

    learner = ModestLearner

    def __init__(self, hospitals=5, directory=None, **options):
        options = {'encryption': MODEST, 'rounds': 1, **options}
        super().__init__(directory, hospitals, shape=CHUNKED, **options)
        self.blames = Interception(self, Blame)
        self.verdicts = Interception(self, Verdict)
        self.reveals = Interception(self, Reveal)
        self.sketches = Interception(self, Sketch)

    def blamed(self):
        """Return who was blamed of what, having checked each proof."""
        return {each.guilty: self.check_blame(each) for each in self.blames.messages}

    def is_released(self):
        """Tell whether the honest have a policy; a liar refuses the sum of what it never sent."""
        return self.policy is not None and self.policy.envelope.round == 1

    def is_refused(self):
        """Tell whether the key authority refused the newest request."""
        return any(not each.accepted for each in self.verdicts.messages[-1:])

    def check_sum(self, without=()):
        """Check that the policy is the exact sum of all but some, who trained once."""
        names = [name for name in self.names if name not in without]
        assert set(self.policy.contributors) == set(names) and not self.policy.rolled_back
        found = decode_weights(self.policy.weights, self.start.size)
        np.testing.assert_array_equal(found, self.exact(self.policy.contributors))
        assert all(each.trained in ([], [1]) for each in self.learners.values())


# The attack: a sum is moved by as much as all hospitals together may move it.


def moved_by_all(bench):
    """Let the liar move the first number of the sum by twice the distance of the limits."""
    send_too_much(bench, LIAR, factor=2, numbers=1)


def test_without_projections_a_liar_moves_the_sum_by_the_limit_of_all():
    free = replace(MODEST, norm=0.0, projections=0)
    bench = ModestBench(encryption=free)
    moved_by_all(bench)
    assert bench.run(bench.is_released)
    assert bench.blamed() == {} and not bench.sketches.messages
    assert set(bench.policy.contributors) == set(bench.names)
    error = bench.weights - bench.exact(bench.names)
    sizes = [bench.roster.member(name).size for name in bench.names]
    moved = 2 * 2 * free.limit * bench.roster.n_max / sum(sizes)
    assert error[0] == pytest.approx(moved, rel=1e-5)
    assert not error[1:].any()
    assert moved > 40 * abs(bench.exact(bench.names) - bench.start).max()


def test_with_projections_it_is_named_and_the_sum_is_that_of_the_others():
    bench = ModestBench()
    moved_by_all(bench)
    assert bench.run()
    assert bench.blamed() == {LIAR: Fault.UPDATE}
    bench.check_sum(without={LIAR})
    assert bench.policy.envelope.attempt == 1
    assert bench.key_authority.state.refused == {LIAR}


def test_an_honest_federation_is_bounded_and_nobody_is_named():
    bench = ModestBench(rounds=2)
    assert bench.run()
    assert bench.blamed() == {}
    assert [each.bounded for each in bench.verdicts.messages if each.inspected] == [
        *(False, True),
        *(False, True),
    ]
    size = values_bytes(64 * 5, bench.scheme.plain_modulus)
    assert {len(each.values) for each in bench.sketches.messages} == {size}
    assert len({each.nonce for each in bench.sketches.messages}) == 2
    np.testing.assert_allclose(bench.weights, bench.expected(2), atol=1e-4)


def test_an_update_that_is_too_long_by_training_is_scaled_down_and_taken():
    bench = ModestBench(encryption=replace(MODEST, norm=0.05))
    assert bench.run()
    assert bench.blamed() == {} and set(bench.policy.contributors) == set(bench.names)
    sizes = [bench.roster.member(name).size for name in bench.names]
    moved = np.linalg.norm(bench.weights - bench.start)
    most = bench.roster.n_max / sum(sizes) * len(sizes) * 0.05
    assert 0 < moved < most + 0.01


# Who lies about its masks, so that its update looks shorter.


def test_a_liar_about_its_own_mask_is_proven_guilty_after_the_reveals():
    bench = ModestBench()
    hide_too_much(bench, LIAR, LIAR)
    assert bench.run()
    assert bench.blamed() == {LIAR: Fault.SKETCH}
    # It went unseen until its self seed was known, and nothing was decrypted of that attempt.
    (first, *_) = [each for each in bench.verdicts.messages if each.bounded]
    assert not first.refused
    assert any('signed false projections' in each.reason for each in bench.verdicts.messages)
    assert bench.reveals.messages[0].envelope.attempt == 1
    assert bench.policy.envelope.attempt == 2
    bench.check_sum(without={LIAR})
    proof = bench.blames.messages[0]
    assert proof.ends == (LIAR,)


def test_a_liar_about_the_mask_with_one_that_dropped_out_is_proven_guilty():
    bench = ModestBench(hospitals=7)
    hide_too_much(bench, LIAR, 'hospital_5')
    bench.run_to(Phase.TRAIN)
    bench.kill('hospital_5')
    assert bench.run()
    assert bench.blamed() == {LIAR: Fault.SKETCH}
    (proof,) = bench.blames.messages
    assert proof.ends == ('hospital_5', LIAR)
    bench.check_sum(without={LIAR, 'hospital_5'})


@pytest.mark.parametrize('liar', ['hospital_1', 'hospital_4', 'hospital_5'])
def test_every_liar_is_named_wherever_it_stands_among_the_members(liar):
    bench = ModestBench()
    project_self_wrong(bench, liar)
    assert bench.run()
    assert bench.blamed() == {liar: Fault.SKETCH}
    bench.check_sum(without={liar})


def test_two_that_shift_projections_to_each_other_hide_no_huge_update():
    """Either of them is too long: its word is taken; then the other lied about a known mask."""
    bench = ModestBench(hospitals=8)
    hide_too_much(bench, LIAR, 'hospital_6')
    assert bench.run()
    assert bench.blamed() == {'hospital_6': Fault.UPDATE, LIAR: Fault.SKETCH}
    bench.check_sum(without={LIAR, 'hospital_6'})


def test_two_that_share_it_may_add_what_both_may_add():
    """Which is too much for one alone; the theorem bounds what they add by twice the bound."""
    alone = ModestBench()
    send_too_much(alone, LIAR, factor=0.7, numbers=1)
    assert alone.run()
    assert alone.blamed() == {LIAR: Fault.UPDATE}
    together = ModestBench()
    hide_too_much(together, LIAR, 'hospital_1', factor=0.7, numbers=1, share=0.5)
    assert together.run(together.is_released)
    assert together.blamed() == {}
    assert set(together.policy.contributors) == set(together.names)
    error = together.weights - together.exact(together.names)
    bound = together.key_authority._codec.bound
    step, sizes = bound.quantisation.step, [10, 20, 30, 40, 50]
    assert error[0] == pytest.approx(0.7 * 2 * MODEST.limit * 50 / sum(sizes), rel=1e-3)
    assert error[0] < 2 * bound.slack * bound.length * step / 2 * 50 / sum(sizes)


def test_an_update_within_its_bound_moves_a_sum_to_the_end_of_its_range_and_stops_nobody():
    """The bound is many limits where weights are many; the range of a sum is n limits."""
    bench = ModestBench(encryption=ENCRYPTION)
    send_too_much(bench, LIAR, factor=5, numbers=1)
    assert bench.run(bench.is_released)
    bound = bench.key_authority._codec.bound
    assert bench.blamed() == {} and bound.norm > 2 * 5 * ENCRYPTION.limit
    assert not bench.policy.rolled_back and set(bench.policy.contributors) == set(bench.names)
    honest, sizes = bench.exact(bench.names), [10, 20, 30, 40, 50]
    np.testing.assert_array_equal(bench.weights[1:], honest[1:])
    farthest = len(sizes) * ENCRYPTION.limit * max(sizes) / sum(sizes)
    assert bench.weights[0] - bench.start[0] == pytest.approx(farthest, rel=1e-5)


def test_what_an_update_holds_beyond_its_last_number_stops_nobody():
    bench = Bench(rounds=1, hospitals=5)
    send_too_much(bench, LIAR, factor=1, numbers=1, first=SHAPE.n_parameters)
    blames = Interception(bench, Blame)
    assert bench.run(lambda: bench.policy and bench.policy.envelope.round == 1)
    assert not blames.messages and not bench.policy.rolled_back
    np.testing.assert_array_equal(bench.weights, bench.exact(bench.names))


@pytest.mark.parametrize('restarted', [False, True])
def test_who_is_silent_most_often_is_named_also_if_the_aggregator_starts_again(
    tmp_path, restarted
):
    bench = five_of_seven(directory=tmp_path, rounds=2)
    Interception(
        bench,
        Sketch,
        change=lambda m: [] if m.sender == (LIAR if m.id[1] < 8 else 'hospital_3') else [m],
    )
    assert bench.run(lambda: bench.aggregator.attempt == 8)
    if restarted:
        bench.restart('aggregator')
    assert bench.run(lambda: bench.key_authority.round == 1)
    assert bench.key_authority.state.policy(1).rolled_back
    assert bench.blamed() == {LIAR: Fault.SILENT}


# Two ends of a pair that contradict each other.


@pytest.mark.parametrize('liar', ['hospital_1', 'hospital_2'])
@pytest.mark.parametrize('opens', ['hospital_1', 'hospital_2', 'both'])
def test_whichever_end_opens_a_mask_the_liar_is_named(liar, opens):
    bench = ModestBench()
    project_pair_wrong(bench, liar)  # that of these two
    openings = Interception(
        bench, Opening, change=lambda m: [m] if opens in (m.sender, 'both') else []
    )
    open_as_well(bench, liar)
    assert bench.run()
    assert bench.blamed() == {liar: Fault.SKETCH}
    assert {each.sender for each in openings.messages} == {'hospital_1', 'hospital_2'}
    assert refusals(bench, RoundError) == []
    (proof,) = bench.blames.messages
    assert opens in (proof.ends[0], 'both')
    assert bench.policy.envelope.attempt == 1
    bench.check_sum(without={liar})


def contradict_all(bench, liar):
    """Sign false projections of the masks with all others."""

    def changed(message):
        if message.sender != liar:
            return [message]
        size, values = len(message.values) // len(bench.names), bytearray(message.values)
        for place, name in enumerate(bench.names):
            if name != liar:
                values[place * size] ^= 1
        return [resealed(bench, message, values=bytes(values))]

    Interception(bench, Sketch, change=changed)


def test_who_contradicts_everybody_is_named():
    bench = ModestBench()
    contradict_all(bench, LIAR)
    open_as_well(bench, LIAR)
    assert bench.run()
    assert bench.blamed() == {LIAR: Fault.SKETCH}
    assert refusals(bench, RoundError) == []
    bench.check_sum(without={LIAR})


def test_who_contradicts_another_is_named_although_a_third_is_silent():
    bench = ModestBench(hospitals=8)
    project_pair_wrong(bench, LIAR)
    silent = {'hospital_7'}
    Interception(bench, Sketch, change=lambda m: [] if m.sender in silent else [m])
    assert bench.run()
    assert bench.blamed() == {LIAR: Fault.SKETCH}
    assert bench.policy.envelope.attempt == 1
    bench.check_sum(without={LIAR, *silent})


def test_who_contradicts_everybody_at_the_last_moment_is_named():
    bench, late = ModestBench(), []

    def held(message):
        if message.sender == LIAR and not late:
            late.append(message)
            return []
        return [message]

    Interception(bench, Sketch, change=held)
    contradict_all(bench, LIAR)
    assert bench.run(lambda: bench.aggregator.phase is Phase.SKETCH and late)
    aggregator, end = bench.aggregator, bench.aggregator._deadline
    assert bench.run(lambda: bench.driver.now >= end - 1)
    said = aggregator.handle(late[0], end - 1e-3) + aggregator.tick(end)
    for message in said.messages:
        bench.driver.post(message)
    assert bench.run()
    assert bench.blamed() == {LIAR: Fault.SKETCH}
    assert bench.policy.envelope.attempt == 1
    bench.check_sum(without={LIAR})


def shortened(bench, liar):
    """Sign projections of the wrong length."""

    def cut(message):
        short = resealed(bench, message, values=message.values[:-8])
        return [short if message.sender == liar else message]

    Interception(bench, Sketch, change=cut)


def test_malformed_projections_leave_their_signer_out_of_the_same_attempt():
    bench = ModestBench()
    shortened(bench, LIAR)
    assert bench.run()
    assert bench.blamed() == {LIAR: Fault.MALFORMED}
    assert bench.policy.envelope.attempt == 1
    bench.check_sum(without={LIAR})


@pytest.mark.parametrize('silent', [Sketch, Settle])
def test_with_three_hospitals_who_is_silent_costs_the_others_one_round(tmp_path, silent):
    bench = ModestBench(hospitals=3, rounds=3, directory=tmp_path)
    lost = Interception(bench, silent, change=lambda m: [] if m.sender == LIAR else [m])
    statuses = Interception(bench, RoundStatus)
    assert bench.run(lambda: bench.aggregator.phase is Phase.PAUSED)
    assert bench.run(lambda: bench.policy.envelope.round == 1, ticks=100)
    assert f'no answer came in time from {LIAR} ' in statuses.messages[-1].reason
    if silent is Sketch:
        assert f'no answer in time from {LIAR}' in {each.reason for each in statuses.messages}
    assert bench.blamed() == {} and bench.policy.rolled_back
    bench.restart('aggregator')
    assert not bench.run(ticks=200) and bench.aggregator.phase is Phase.PAUSED
    assert f'no answer came in time from {LIAR} ' in statuses.messages[-1].reason, 'it is kept'
    assert all(each.trained == [1] for each in bench.learners.values())
    lost.change = lambda message: [message]
    bench.order('resume')
    assert bench.run()


def test_with_three_hospitals_who_spoils_a_round_costs_the_others_that_one(tmp_path):
    bench = ModestBench(hospitals=3, rounds=3, directory=tmp_path)
    shortened(bench, LIAR)
    assert bench.run(lambda: bench.aggregator.phase is Phase.FINISHED)
    assert bench.blamed() == {LIAR: Fault.MALFORMED}
    assert bench.aggregator.orders.guilty.keys() == {LIAR}
    # It is the aggregator's word: no share is ever revealed a second time on it.
    assert not bench.parties['hospital_1'].state.record.of(1).guilty
    assert f'without {LIAR} (it ' in bench.aggregator.exhausted
    assert all(each.trained == [1] for each in bench.learners.values())
    bench.restart('aggregator')
    assert bench.run(lambda: bench.aggregator.phase is Phase.FINISHED)


def test_projections_of_other_terms_prove_nothing():
    """With another modulus or norm those of an honest hospital would seem to be false."""
    bench = ModestBench()
    project_pair_wrong(bench, LIAR)
    assert bench.run()
    (blame,) = bench.blames.messages
    terms = bench.hospital_terms
    assert check_blame(blame, bench.roster, terms.codec, blame.terms_digest) is Fault.SKETCH
    with pytest.raises(RoundError, match='under other terms'):
        check_blame(blame, bench.roster, terms.codec, bytes(32))


def test_a_proof_that_comes_before_the_terms_counts_when_these_are_here(tmp_path):
    bench = ModestBench(hospitals=8, directory=tmp_path)
    project_pair_wrong(bench, LIAR)
    assert bench.run(lambda: bench.blames.messages)
    bench.restart('hospital_1')
    assert bench.run()
    assert not any('blames' in str(error) for _, error in refusals(bench, RoundError))
    assert (1, LIAR, Fault.SKETCH) in bench.parties['hospital_1']._blamed


def test_one_that_nobody_opens_a_mask_of_is_left_behind_with_the_other_end():
    """Who is away and who lies cannot be told apart."""
    bench = ModestBench(hospitals=8)
    project_pair_wrong(bench, LIAR)
    Interception(bench, Opening, change=lambda m: [])
    assert bench.run()
    assert bench.blamed() == {}
    bench.check_sum(without={'hospital_1', LIAR})


def test_a_hospital_that_starts_again_is_shown_the_dispute_again(tmp_path):
    bench = ModestBench(directory=tmp_path)
    project_pair_wrong(bench, LIAR)
    early = []

    def lost(message):
        """Arrive before the one that started again has signed again."""
        if message.to != 'hospital_1' or early:
            return [message]
        early.append(message)
        return []

    Interception(bench, Dispute, change=lost)
    openings = Interception(bench, Opening, change=lambda m: [m] if m.sender != LIAR else [])
    assert bench.run(lambda: early)
    bench.restart('hospital_1')
    assert bench.run()
    assert bench.blamed() == {LIAR: Fault.SKETCH}
    assert 'hospital_1' in {each.sender for each in openings.messages}
    assert bench.policy.envelope.attempt == 1
    bench.check_sum(without={LIAR})


def test_a_round_that_must_be_of_one_set_goes_on_without_who_contradicts_another():
    bench = ModestBench(hospitals=7)
    deal_another_secret(bench, 'hospital_3')

    def changed(message):
        if message.sender != LIAR or message.envelope.attempt == 1:
            return [message]
        values = bytes([message.values[0] ^ 1]) + message.values[1:]
        return [resealed(bench, message, values=values)]

    Interception(bench, Sketch, change=changed)
    assert bench.run()
    assert bench.blamed() == {'hospital_3': Fault.DEAL, LIAR: Fault.SKETCH}
    bench.check_sum(without={'hospital_3', LIAR})


def test_who_opens_a_mask_again_after_the_dispute_makes_the_aggregator_project_nothing(
    monkeypatch,
):
    bench = ModestBench()
    project_pair_wrong(bench, LIAR)
    project_pair_wrong(bench, 'hospital_4')  # of whom nobody opens anything: the phase goes on
    openings, drawn = (
        Interception(bench, Opening, change=lambda m: [m] if LIAR in (m.sender, m.peer) else []),
        [],
    )
    assert bench.run(lambda: bench.blames.messages)
    of_masks = aggregator.Sketch.of_masks
    monkeypatch.setattr(
        aggregator.Sketch,
        'of_masks',
        lambda self, keys: drawn.append(keys) or of_masks(self, keys),
    )
    for _ in range(3):
        seen = next(m for m in openings.messages if LIAR in (m.sender, m.peer))
        bench.hear('aggregator', resealed(bench, seen))
        assert bench.aggregator.phase is Phase.SKETCH
    assert not drawn
    assert bench.run()


# An aggregator that lies.


def at_sketches(directory=None, hospitals=5, **options):
    """Return a federation whose hospitals have signed projections, but no key authority sees."""
    bench = ModestBench(hospitals, directory, **options)
    bench.statuses = Interception(bench, RoundStatus)
    bench.sketches = Interception(bench, Sketch, change=lambda message: [])
    openings = Interception(bench, Opening)
    assert bench.run(lambda: len(bench.sketches.messages) == hospitals)
    bench.status = bench.statuses.messages[-1]
    assert bench.status.phase == Phase.SKETCH
    return bench, openings


def told(bench, name, message):
    """Let a hospital hear a message, and return why it refused it."""
    before = len(bench.driver.refused)
    bench.hear(name, message)
    bench.run(lambda: not bench.driver.queue, ticks=0)
    return [str(error) for who, error in bench.driver.refused[before:] if who == name]


def dispute(bench, sketch, to='hospital_1'):
    channel = bench.aggregator.channel
    return channel.send(Dispute, bench.status.id, to=to, sketch=sketch).messages[0]


def test_a_dispute_without_a_contradiction_makes_nobody_open_anything():
    bench, openings = at_sketches()
    signed = {each.sender: each for each in bench.sketches.messages}
    honest, own = signed[LIAR], signed['hospital_1']
    wrong_size = resealed(bench, honest, values=honest.values[:-1])
    false = bytes([honest.values[0] ^ 1]) + honest.values[1:]
    lies = {
        'no dispute': honest,
        'other projections than': own,
        'other projections': resealed(bench, honest, nonce=bytes(32), values=false),
        'than those in': resealed(bench, honest, setup_digest=bytes(32), values=false),
        'bytes of projections': wrong_size,
        'signature': replace(honest, values=false),
    }
    for expected, sketch in lies.items():
        (why,) = told(bench, 'hospital_1', dispute(bench, sketch))
        assert expected in why
    envelope = replace(honest.envelope, attempt=2)
    other = replace(honest, envelope=envelope, values=false).signed_by(bench.identities[LIAR])
    assert told(bench, 'hospital_1', dispute(bench, other))
    bits = bench.scheme.plain_modulus.bit_length()
    full = pack_bits([2**bits - 1] * (8 * len(honest.values) // bits), bits)
    (why,) = told(bench, 'hospital_1', dispute(bench, resealed(bench, honest, values=full)))
    assert 'below the modulus' in why
    # It is for another one, and of another attempt.
    real = resealed(bench, honest, values=false)
    assert told(bench, 'hospital_1', dispute(bench, real, to='hospital_3'))
    assert not openings.messages
    bench.hear('hospital_1', dispute(bench, real))
    (opening,) = openings.messages
    assert (opening.sender, opening.peer) == ('hospital_1', LIAR)


def test_an_opening_without_a_dispute_convicts_nobody():
    bench, openings = at_sketches()
    signed = {each.sender: each for each in bench.sketches.messages}
    for each in signed.values():
        bench.hear('aggregator', each)
    channel = bench.parties[LIAR].channel
    digest = bench.aggregator.state.key_list.digest
    for secret in (bytes(32), os.urandom(32), b'short'):
        lie = {'peer': 'hospital_1', 'keys_digest': digest, 'secret': secret}
        (message,) = channel.send(Opening, bench.status.id, **lie).messages
        bench.hear('aggregator', message)
    assert bench.run()
    assert bench.blamed() == {}
    bench.check_sum()


def test_an_opening_with_another_secret_convicts_nobody():
    bench = ModestBench()
    project_pair_wrong(bench, LIAR)
    false = Interception(
        bench,
        Opening,
        change=lambda m: [resealed(bench, m, secret=os.urandom(32)) if m.sender == LIAR else m],
    )
    open_as_well(bench, LIAR)
    assert bench.run()
    assert len(false.messages) == 2
    assert bench.blamed() == {LIAR: Fault.SKETCH}


def test_other_projections_in_the_same_attempt_are_refused(tmp_path):
    bench, _ = at_sketches(tmp_path)
    other = resealed(bench, bench.status, nonce=bytes(32))
    told(bench, 'hospital_1', other)
    assert len(bench.sketches.messages) == 5
    # Nor does it after a restart.
    bench.restart('hospital_1')
    bench.run(lambda: not bench.driver.queue, ticks=0)
    again = [each for each in bench.sketches.messages if each.sender == 'hospital_1']
    assert len({(each.nonce, each.values) for each in again}) == 1 < len(again)
    bench.restart('hospital_1')
    bench.driver.latched = {
        place: resealed(bench, other) if place[:2] == ('aggregator', RoundStatus) else each
        for place, each in bench.driver.latched.items()
    }
    bench.restart('hospital_1')
    bench.run(lambda: not bench.driver.queue, ticks=0)
    assert 'other projections in attempt 1' in bench.driver.notes['hospital_1']
    assert {each.nonce for each in bench.sketches.messages} == {bench.status.nonce}


class JournaledBench(Journaled, ModestBench):
    """Keeps journals as well."""


def test_who_lost_its_state_signs_no_other_projections_in_an_attempt(tmp_path):
    bench = JournaledBench(directory=tmp_path)
    held = Interception(bench, Sketch, change=lambda m: [] if m.envelope.attempt == 1 else [m])
    assert bench.run(lambda: len(held.messages) == 5)
    status = bench.driver.latched['aggregator', RoundStatus, '']
    assert status.phase == Phase.SKETCH
    bench.kill('hospital_1')
    for path in tmp_path.glob('hospital_1.*'):
        path.unlink()
    bench.clocks['hospital_1'] += 20.0
    bench.driver.latched['aggregator', RoundStatus, ''] = resealed(bench, status, nonce=bytes(32))
    bench.join('hospital_1')
    promises = bench.parties['hospital_1'].state.record.of(1)
    assert promises.sketched == (Sketched(1, status.nonce),)
    assert bench.parties['hospital_1'].state.floor == (1, 2)
    assert bench.run()
    mine = {each.envelope.attempt: each.nonce for each in held.messages}
    assert mine[1] == status.nonce
    assert bench.blamed() == {}
    assert 'hospital_1' in bench.policy.contributors or bench.policy.envelope.attempt == 1


def test_a_hospital_signs_projections_in_a_few_attempts_of_a_round():
    few = Promises(1)
    for attempt in range(1, MOST_SKETCHES + 1):
        few.check_sketching(attempt, bytes([attempt]) * 32)
        few = replace(few, sketched=(*few.sketched, Sketched(attempt, bytes([attempt]) * 32)))
    few.check_sketching(3, bytes([3]) * 32)  # again the same
    with pytest.raises(RoundError, match='other projections in attempt 3'):
        few.check_sketching(3, bytes([4]) * 32)
    with pytest.raises(RoundError, match='8 attempts'):
        few.check_sketching(MOST_SKETCHES + 1, bytes(32))


def test_what_was_signed_is_kept_and_forgotten_with_its_round(tmp_path):
    store = Store(tmp_path / 'state.sqlite')
    state = HospitalState(store, 3)
    state.keep_sketched((1, 1), bytes(32))
    state.keep_sketched((1, 1), bytes(32))
    state = HospitalState(store, 3)
    assert state.record.of(1).sketched == (Sketched(1, bytes(32)),)
    with pytest.raises(RoundError, match='other projections'):
        state.keep_sketched((1, 1), bytes([1]) * 32)
    state.keep_sketched((2, 1), bytes([1]) * 32)
    assert state.record.since(2).of(1).sketched == ()


def test_a_round_whose_attempts_all_failed_after_projections_is_abandoned(tmp_path):
    """No hospital signs more of them: it would never end."""
    bench = ModestBench(hospitals=4, directory=tmp_path, rounds=2)
    for attempt in range(1, MOST_SKETCHES + 1):
        assert bench.run(lambda n=attempt: len(bench.sketches.messages) >= 4 * n)
        assert bench.aggregator.phase is Phase.SKETCH
        bench.restart('aggregator')
    assert bench.run(lambda: bench.policy.envelope.round == 1)
    assert bench.policy.rolled_back
    assert len({each.nonce for each in bench.sketches.messages}) == MOST_SKETCHES
    assert bench.run()
    assert set(bench.policy.contributors) == set(bench.names)
    assert all(each.trained == [1, 2] for each in bench.learners.values())


def five_of_seven(**options):
    """Return a federation of seven hospitals, of whom two are away, and five are needed."""
    bench = ModestBench(hospitals=7, **options)
    for name in bench.names[-2:]:
        bench.kill(name)
    return bench


def test_who_declines_after_training_is_named_once_its_round_is_abandoned():
    bench = five_of_seven(rounds=3)
    Interception(
        bench,
        Sketch,
        change=lambda m: declining(bench, m) if m.sender == LIAR else [m],
    )
    assert bench.run(bench.blamed, ticks=9000)
    assert bench.blamed() == {LIAR: Fault.SILENT}
    assert bench.learners['hospital_3'].trained == [1]


def test_a_restart_blames_nobody_in_the_place_of_who_was_silent_most_often(tmp_path):
    bench = five_of_seven(directory=tmp_path, rounds=5)

    def change(message):
        late = message.sender == 'hospital_3' and message.envelope.attempt == 3
        return [] if late or message.sender == LIAR else [message]

    Interception(bench, Sketch, change=change)
    Interception(bench, DecryptRequest, change=lambda m: [m] if m.survivors else [])
    assert bench.run(lambda: bench.aggregator.state.abandoned, ticks=9000)
    for _ in range(2):
        bench.restart('aggregator')
        assert bench.run(lambda: bench.aggregator.phase is Phase.SUM, ticks=100)
    assert bench.aggregator.orders.guilty.keys() == {LIAR}
    assert bench.blamed() == {LIAR: Fault.SILENT}


def test_who_was_late_where_the_others_went_on_is_not_blamed_for_restarts(tmp_path):
    bench = ModestBench(hospitals=5, directory=tmp_path, rounds=2)
    late = Interception(
        bench,
        MaskedUpdate,
        change=lambda m: [] if m.sender == 'hospital_3' and m.id == (1, 1) else [m],
    )
    for _ in range(MOST_SKETCHES):
        assert bench.run(lambda: bench.aggregator.phase is Phase.SKETCH)
        bench.restart('aggregator')
    assert late.messages and bench.run()
    assert bench.blamed() == {}


def test_nobody_is_blamed_for_attempts_that_failed_for_other_reasons(tmp_path):
    bench = ModestBench(hospitals=7, rounds=2, directory=tmp_path)
    for name in bench.names[-2:]:
        bench.kill(name)
    late = {'hospital_1', 'hospital_2'}  # at the same time, twice

    def change(message):
        round, attempt = message.id
        return [] if message.sender in late and round == 1 and attempt <= 2 else [message]

    Interception(bench, Sketch, change=change)
    assert bench.run(lambda: bench.aggregator.state.silences == dict.fromkeys(late, 2), ticks=4000)
    for _ in range(MOST_SKETCHES - 2):
        assert bench.run(lambda: bench.aggregator.phase is Phase.SKETCH)
        bench.restart('aggregator')
    assert bench.run(lambda: bench.aggregator.round == 2, ticks=3000)
    assert bench.blamed() == {} and late <= set(bench.aggregator.orders.admitted)


def test_if_too_few_witnesses_would_be_left_nobody_is_blamed():
    with small_rings():
        bench = ModestBench(hospitals=12, neighbours=6, rounds=3)
        late = sorted(bench.roster.neighbourhoods.witnesses)[:2]
        lost = Interception(bench, Settle, change=lambda m: [] if m.sender in late else [m])
        bench.run(lambda: bench.aggregator.phase in (Phase.PAUSED, Phase.FINISHED), ticks=6000)
        assert bench.aggregator.phase is Phase.PAUSED and bench.blamed() == {}
        assert f'from {late[0]}, {late[1]} (' in bench.aggregator.orders.paused_for
        lost.change = lambda message: [message]
        bench.order('resume')
        assert bench.run()
    assert bench.blamed() == {} and set(bench.policy.contributors) == set(bench.names)


def test_the_round_for_which_the_aggregator_paused_is_released_after_a_restart(tmp_path):
    bench = ModestBench(hospitals=3, rounds=3, directory=tmp_path)
    Interception(bench, Sketch, change=lambda m: [] if m.sender == LIAR else [m])
    lost = Interception(bench, DecryptRequest, change=lambda m: [m] if m.survivors else [])
    assert bench.run(lambda: bench.aggregator.state.abandoned and lost.messages, ticks=3000)
    bench.restart('aggregator')
    lost.change = lambda message: [message]
    assert bench.run(lambda: bench.aggregator.phase is Phase.PAUSED, ticks=3000)
    assert bench.policy.envelope.round == 1 and bench.policy.rolled_back
    assert LIAR in bench.aggregator.orders.paused_for


@pytest.mark.parametrize('how', ['paused meanwhile', 'restarted'])
def test_who_is_withdrawn_while_the_survivors_are_signed_is_not_summed(tmp_path, how):
    bench = ModestBench(hospitals=5, rounds=1, directory=tmp_path)
    held = Interception(bench, Settle, change=lambda m: [])
    bench.run_to(Phase.SETTLE)
    if how == 'paused meanwhile':
        bench.order('pause')
        bench.order('withdraw', LIAR)
        bench.order('resume')
    else:
        bench.aggregator.orders.keep('withdraw', LIAR)  # killed before it failed the attempt
        bench.restart('aggregator')
    held.change = lambda message: [message]
    assert bench.run()
    assert LIAR not in bench.policy.contributors and bench.policy.envelope.attempt == 2


@pytest.mark.parametrize('here', ['all', 'but for one', 'one is in time once'])
def test_if_projections_do_not_come_nobody_is_blamed_and_an_operator_resumes(here):
    bench = ModestBench(hospitals=5, rounds=3)
    if here == 'but for one':
        bench.kill('hospital_5')

    def change(message):
        in_time = message.sender == 'hospital_1' and message.envelope.attempt == 1
        return [message] if here == 'one is in time once' and in_time else []

    statuses = Interception(bench, RoundStatus)
    lost = Interception(bench, Sketch, change=change)
    assert bench.run(lambda: bench.aggregator.phase is Phase.PAUSED, ticks=6000)
    bench.wait(20)
    assert bench.aggregator.phase is Phase.PAUSED and bench.policy.envelope.round == 1
    assert bench.policy.rolled_back and bench.blamed() == {}
    reason = statuses.messages[-1].reason
    assert 'no answer came in time from' in reason and 'settle_timeout' in reason
    assert all(learner.trained in ([], [1]) for learner in bench.learners.values())
    lost.change = lambda message: [message]
    if here == 'but for one':
        bench.join('hospital_5')
    bench.order('resume')
    assert bench.run()
    assert set(bench.policy.contributors) == set(bench.names)


def test_who_was_late_once_is_not_blamed_for_attempts_that_restarts_ended(tmp_path):
    bench = ModestBench(hospitals=5, directory=tmp_path, rounds=2)
    late = ('hospital_1', 'hospital_2')
    Interception(
        bench, Sketch, change=lambda m: [] if m.sender in late and m.id == (1, 1) else [m]
    )
    assert bench.run(lambda: bench.aggregator.state.silences, ticks=3000)
    for _ in range(MOST_SKETCHES - 1):
        assert bench.run(lambda: bench.aggregator.phase is Phase.SKETCH)
        bench.restart('aggregator')
    assert bench.run()
    assert bench.blamed() == {}


def test_a_survivor_that_does_not_reveal_is_waited_for_and_not_counted_silent():
    bench = ModestBench(hospitals=5, rounds=2)
    bench.run_to(Phase.REVEAL)
    late = {'hospital_1', 'hospital_2'}
    held = Interception(bench, Reveal, change=lambda m: [] if m.sender in late else [m])
    bench.wait(200)
    assert bench.aggregator.phase in (Phase.REVEAL, Phase.FAILED)
    assert not bench.aggregator.state.silences
    held.change = lambda message: [message]
    for name in late:
        bench.restart(name)
    assert bench.run()


def test_an_aggregator_that_gives_half_another_nonce_gains_nothing():
    bench = ModestBench()
    decrypted = bench.spy_on_decryption()
    deliver, half = bench.driver.deliver, set(bench.names[::2])

    def delivered(name, message):
        if isinstance(message, RoundStatus) and message.phase == Phase.SKETCH and name in half:
            message = resealed(bench, message, nonce=bytes(32))
        deliver(name, message)

    bench.driver.deliver = delivered
    bench.aggregator._check_sketch = lambda message: True
    bench.aggregator._disputes = lambda names: []
    assert bench.run(bench.is_refused, ticks=100)
    last = bench.verdicts.messages[-1]
    assert not last.accepted and not last.bounded and not last.refused
    assert 'not all signed the projections that were asked for' in last.reason
    assert bench.blamed() == {} and not bench.reveals.messages and not decrypted
    assert bench.key_authority.state.refused == set()
    assert refusals(bench, MessageError) == []


@pytest.mark.parametrize('lie', ['fewer', 'twice', 'another attempt', 'another mask', 'forged'])
def test_the_key_authority_takes_no_projections_that_are_not_all_signed(lie):
    bench = ModestBench()
    decrypted, request = bench.spy_on_decryption(), bench.aggregator._request

    def changed(message):
        first, *others = message.sketches
        values = bytes([first.values[0] ^ 1]) + first.values[1:]
        elsewhere = replace(first.envelope, attempt=2)
        new = {
            'fewer': others,
            'twice': [first, first, *others],
            'another attempt': [
                replace(first, envelope=elsewhere).signed_by(bench.identities[first.sender]),
                *others,
            ],
            'another mask': [resealed(bench, first, values=values[512:] + values[:512]), *others],
            'forged': [replace(first, values=values), *others],
        }[lie]
        return bench.aggregator.channel.sign(
            type(message), *message.id, **content(message) | {'sketches': tuple(new)}
        )

    def lied():
        effects = request()
        messages = [changed(m) if m.sketches else m for m in effects.messages]
        return replace(effects, messages=tuple(messages))

    bench.aggregator._request = lied
    assert bench.run(bench.is_refused, ticks=100)
    last = bench.verdicts.messages[-1]
    assert not last.accepted and not last.refused and not last.bounded
    assert bench.blamed() == {} and not bench.reveals.messages and not decrypted


def content(message):
    return {name: value for name, value in vars(message).items() if name != 'envelope'}


# The number that the projections follow from.


def test_a_nonce_is_of_the_updates_that_were_named_before(tmp_path):
    path, start = tmp_path / 'state.sqlite', np.zeros(3, dtype=np.float32)
    store = Store(path)
    state = KeyAuthorityState(store, start)
    named = {name: bytes([place]) * 32 for place, name in enumerate(('a', 'b', 'c'))}
    nonce = state.nonce((1, 1), named)
    assert len(nonce) == 32
    fewer = {name: named[name] for name in ('a', 'c')}
    assert state.nonce((1, 1), named) == state.nonce((1, 1), fewer) == nonce
    store.close()
    state = KeyAuthorityState(Store(path), start)
    assert state.nonce((1, 1), fewer) == nonce
    swapped = state.nonce((1, 1), {**fewer, 'c': bytes(32)})
    assert swapped != nonce
    back = state.nonce((1, 1), named)
    assert back not in (nonce, swapped)  # by then everybody may know the old one
    more = state.nonce((1, 1), {**named, 'd': bytes(32)})
    assert more not in (nonce, swapped, back)
    assert state.nonce((1, 2), named) not in (nonce, swapped, back, more)


@pytest.mark.parametrize('phase', [Phase.SKETCH, Phase.SETTLE, Phase.REVEAL])
def test_a_key_authority_that_starts_again_goes_on_with_the_same_nonce(tmp_path, phase):
    bench = ModestBench(directory=tmp_path)
    bench.run_to(phase)
    bench.restart('key_authority')
    assert bench.run()
    nonces = {each.nonce for each in bench.verdicts.messages if each.inspected}
    assert nonces == {each.nonce for each in bench.sketches.messages} and len(nonces) == 1
    assert bench.policy.envelope.attempt == 1
    bench.check_sum()


def test_a_key_authority_that_starts_again_still_finds_who_lied(tmp_path):
    bench = ModestBench(directory=tmp_path)
    hide_too_much(bench, LIAR, LIAR)
    bench.run_to(Phase.SETTLE)
    bench.restart('key_authority')
    assert bench.run()
    assert bench.blamed() == {LIAR: Fault.SKETCH}
    bench.check_sum(without={LIAR})
