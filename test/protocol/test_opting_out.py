# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Policies that other hospitals release do not uncover the update of one that releases none."""

from fdrl_ros.federation.protocol.attempt import tree_of_updates
from fdrl_ros.federation.protocol.message import (
    GlobalPolicy,
    HospitalPolicy,
    LedgerHeads,
    Phase,
    Reveal,
    Settle,
)
from fdrl_ros.policy import decode_weights, digest_of, encode_weights
import numpy as np
import pytest
from support.federation_bench import ENCRYPTION, SHAPE
from support.home_federation import at_home, Homes
from support.interception import Interception
from support.liar import Liar, Story

OUT = 'hospital_2'
QUANTUM = 2.0 * ENCRYPTION.limit / (2**ENCRYPTION.bits - 1)


class OptingOut(Homes):
    """Four hospitals, of which one or none keeps its policies to itself."""

    def __init__(self, directory=None, *, out=OUT):
        self.out = out
        super().__init__(directory, hospitals=4, rounds=1)
        self.released = Interception(self, HospitalPolicy).messages

    def make(self, name):
        self.release = name != self.out
        return super().make(name)

    def own_policies(self):
        """Return weights that were released and are no home policy, by hospital."""
        weights = {
            m.digest: (m.sender, decode_weights(m.weights, SHAPE.n_parameters))
            for m in self.released
        }
        homes = {self.parties[name].signed_home().digest for name in self.names}
        return dict(each for digest, each in weights.items() if digest not in homes)


def others_taken_off(bench, policies):
    """
    Attack: take hospitals' policies of a round off its sum, of which one hospital is left.

    Whoever hears what is public can do that: global policies, policies of hospitals and roster.
    """
    sizes = {name: bench.roster.member(name).size for name in bench.names}
    left = sum(sizes.values()) * (bench.weights.astype(float) - bench.start)
    for name, weights in policies.items():
        left -= sizes[name] * (weights.astype(float) - bench.start)
    return left / sizes[OUT]


def test_policies_of_all_others_give_the_update_of_the_last_one_who_agreed_to_release_it_too():
    bench = OptingOut(out='')
    assert bench.run(lambda: at_home(bench))
    own = bench.own_policies()
    assert own.keys() == set(bench.names)
    del own[OUT]
    error = np.abs(others_taken_off(bench, own) - bench.learners[OUT].delta(1)).max()
    assert error < len(own) * QUANTUM * bench.roster.n_max / bench.roster.member(OUT).size


def test_beside_one_that_opted_out_the_others_release_what_the_sum_does_not_tell_of_it():
    bench = OptingOut()
    assert bench.run(lambda: at_home(bench))
    bench.wait(2)
    assert bench.own_policies() == {}
    # The home policies that they release are made of the sum, not of what the sum is made of.
    assert sorted(each.sender for each in bench.released) == sorted({*bench.names} - {OUT})
    for each in bench.released:
        moved = bench.weights + bench.learners[each.sender].number
        np.testing.assert_array_equal(decode_weights(each.weights, SHAPE.n_parameters), moved)


def test_who_is_told_why_its_policy_is_not_released():
    bench = OptingOut()
    assert bench.run(lambda: bench.key_authority.round == 1)
    told = []
    assert bench.run(lambda: told.append(bench.driver.notes.get('hospital_1')) or at_home(bench))
    assert f'own policy of round 1 not released: {OUT} keeps its own' in told


def test_an_opted_out_hospital_whom_a_round_goes_on_without_keeps_nobody_from_releasing():
    bench = OptingOut()
    bench.order('withdraw', OUT)
    assert bench.run(lambda: at_home(bench))
    assert OUT not in bench.policy.contributors
    assert bench.own_policies().keys() == set(bench.names) - {OUT}


@pytest.mark.parametrize(('out', 'count'), [('', 4), (OUT, 0)])
@pytest.mark.parametrize('phase', [Phase.SETTLE, Phase.SUM])
def test_what_the_others_signed_is_known_after_a_restart(tmp_path, phase, out, count):
    bench = OptingOut(tmp_path, out=out)
    bench.run_to(phase)
    for name in bench.names:
        bench.restart(name)
    assert bench.run(lambda: at_home(bench))
    assert len(bench.own_policies()) == count


def test_servers_that_name_another_attempt_than_that_of_their_sum_get_no_own_policy():
    """They have all four's sum of one attempt, and open another one for all but who opted out."""
    liar = Liar(4, corrupt=0, seed=1)
    bench, make = liar.bench, liar.bench.make

    def made(name):
        bench.release = name != 'hospital_4'
        return make(name)

    bench.make = made
    liar.restart_all()
    all_four = tuple(bench.names)
    three = all_four[:3]
    liar.run_attempt((1, 1), Story(all_four, all_four, all_four))
    assert len([each for each in liar.said if isinstance(each, Reveal)]) == 4
    hashes = {each.sender: each.update_hash for each in liar.said if isinstance(each, Settle)}
    stories = dict.fromkeys(three, Story(three, three, three))
    stories['hospital_4'] = Story(all_four, all_four, all_four)
    liar.run_attempt((1, 2), stories, until=Phase.TRAIN)
    root, paths = tree_of_updates(all_four, b''.join(hashes[name] for name in all_four))
    policy = liar.seal(
        GlobalPolicy,
        'key_authority',
        (1, 2),
        weights=encode_weights(bench.start),
        digest=digest_of(bench.start),
        contributors=all_four,
        updates_root=root,
        rolled_back=False,
        secure=False,
        reason='',
    )
    for name in all_four:
        head = bench.learners[name].head().to_bytes()
        for server, of in (('aggregator', (1, 9)), ('key_authority', (1, 2))):
            seen = liar.seal(LedgerHeads, server, of, to=name, head=head, path=paths[name])
            liar.tell(name, seen)
        liar.tell(name, policy)
        assert liar.parties[name].policy is not None
    assert not [each for each in liar.said if isinstance(each, HospitalPolicy)]
