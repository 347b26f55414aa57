# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The registry takes a policy that is signed, whole and new, and offers it when it is good."""

from dataclasses import replace

from fdrl_ros.errors import (
    MessageError,
    PolicyError,
    RoundError,
    SignatureError,
    SupervisionError,
)
from fdrl_ros.federation.protocol.channel import Channel
from fdrl_ros.federation.protocol.store import Store
from fdrl_ros.policy import encode_weights
from fdrl_ros.selector.candidates.candidate import HOLD
from fdrl_ros.selector.candidates.registry import PolicyRegistry, Status
from fdrl_ros.selector.candidates.supervision import Supervision
import numpy as np
import pytest
from support.signed_policies import (
    digest_of,
    IDENTITIES,
    model_of,
    own,
    released,
    report_on,
    ROSTER,
    SHAPE,
    sign_global,
    sign_own,
    weights,
)

NOTHING = Supervision()


@pytest.fixture
def registry():
    return PolicyRegistry(ROSTER, SHAPE, kept=2)


def pass_all(registry, supervision=NOTHING):
    """Find everything good that is pending."""
    while version := registry.pending(supervision):
        registry.add_report(version, report_on(version.policy))
        registry.add_model(version, model_of(version.policy))


def statuses(registry, supervision=NOTHING):
    return [
        (each.name, each.round, str(registry.status(each, supervision)))
        for each in registry.versions
    ]


def test_policy_is_a_candidate_once_it_is_tested_and_valued(registry):
    assert registry.receive(own(2, 'hospital_2'), 5.0).name == 'hospital_2'
    assert registry.receive(released(1, 1), 6.0).came == 6.0
    assert [each.name for each in registry.candidates(NOTHING)] == ['hold']
    for expected in ('global', 'hospital_2'):
        version = registry.pending(NOTHING)
        assert version.name == expected
        registry.add_report(version, report_on(version.policy))
        assert registry.status(version, NOTHING) is Status.VALUING
        registry.add_model(version, model_of(version.policy))
    assert registry.pending(NOTHING) is None
    assert [each.name for each in registry.candidates(NOTHING)] == ['global', 'hospital_2', 'hold']


def test_newer_policy_waits_behind_the_older_one_until_it_is_found_good(registry):
    registry.receive(released(1, 1), 0.0)
    older = registry.pending(NOTHING)
    pass_all(registry)
    registry.receive(released(2, 2), 0.0)
    assert registry.candidates(NOTHING)[0].policy is older.policy
    assert statuses(registry) == [('global', 2, 'valuing'), ('global', 1, 'candidate')]
    newer = registry.pending(NOTHING)
    with pytest.raises(PolicyError, match='value model'):
        registry.add_model(newer, model_of(older.policy))
    with pytest.raises(PolicyError, match='safety report'):
        registry.add_report(newer, report_on(older.policy))
    with pytest.raises(PolicyError, match='another'):
        registry.add_report(newer, report_on(newer.policy, basis='another'))
    pass_all(registry)
    assert registry.candidates(NOTHING)[0].policy is newer.policy
    assert statuses(registry) == [('global', 2, 'candidate'), ('global', 1, 'replaced')]


def hold_model():
    return replace(model_of(SHAPE.policy(weights(0))), policy=HOLD)


def value_next(registry, supervision=NOTHING):
    """Value holding, or what else is pending and tested; return its name."""
    version = None if registry.hold_pending else registry.pending(supervision)
    registry.add_model(version, model_of(version.policy) if version else hold_model())
    registry.use_newer_values(supervision)
    return version.name if version else HOLD


def receive_tested(registry, message, **found):
    """Receive a policy and test it."""
    version = registry.receive(message, 0.0)
    registry.add_report(version, report_on(version.policy, **found))
    registry.use_newer_values(NOTHING)
    return version


def valued_at_home(*hospitals):
    """Return a registry of a robot of hospital_1, with candidates that are valued for it."""
    registry = of_hospital('hospital_1')
    receive_tested(registry, released(1, 1))
    for seed, name in enumerate(hospitals, 2):
        receive_tested(registry, own(seed, name))
    registry.value_with('first')
    registry.use_newer_values(NOTHING)
    while registry.hold_pending or registry.pending(NOTHING):
        value_next(registry)
    return registry


def models(registry, supervision=NOTHING):
    """Return the candidates with their estimates."""
    return [(each.name, each.value) for each in registry.candidates(supervision)]


def names(registry, supervision=NOTHING):
    return [each.name for each in registry.candidates(supervision)]


@pytest.mark.parametrize('hospitals', [['hospital_1', 'hospital_2'], ['hospital_2', 'hospital_3']])
def test_candidates_keep_their_values_until_all_are_valued_for_another_robot(hospitals):
    registry = valued_at_home(*hospitals)
    locked = Supervision(locked='global')
    before = models(registry)
    assert len(before) == 4 and all(value for _, value in before)
    registry.value_with('now')
    registry.use_newer_values(locked)
    expected = [HOLD, *sorted(each for each, _ in before if each != HOLD)]
    for name in expected[:-1]:
        assert value_next(registry, locked) == name
        assert models(registry, locked) == before
        assert {each for _, _, each in statuses(registry)} == {'candidate'}
    value_next(registry, locked)
    after = models(registry)
    assert [name for name, _ in after] == [name for name, _ in before]
    assert not {id(value) for _, value in after} & {id(value) for _, value in before}
    assert registry.pending(NOTHING) is None and not registry.hold_pending


def test_values_in_use_count_again_where_the_robot_turns_out_to_be_the_same():
    registry = valued_at_home('hospital_1')
    before = models(registry)
    registry.value_with('now')
    value_next(registry)
    registry.value_with('first')
    registry.use_newer_values(NOTHING)
    assert models(registry) == before
    assert registry.pending(NOTHING) is None and not registry.hold_pending


def test_a_version_that_is_valued_for_another_robot_waits_for_the_others():
    registry = valued_at_home('hospital_1', 'hospital_2')
    before = models(registry)
    registry.value_with('now')
    newer = receive_tested(registry, own(7, 'hospital_2', 2))
    assert models(registry) == before and registry.status(newer, NOTHING) is Status.VALUING
    while registry.hold_pending or registry.pending(NOTHING):
        assert models(registry) == before
        value_next(registry)
    assert names(registry) == [name for name, _ in before]
    assert registry.status(newer, NOTHING) is Status.CANDIDATE


def test_where_nothing_stands_policies_become_candidates_one_by_one():
    registry = of_hospital('hospital_1')
    receive_tested(registry, released(1, 1))
    receive_tested(registry, own(2, 'hospital_1'))
    registry.value_with('first')
    value_next(registry)
    registry.value_with('now')
    registry.use_newer_values(NOTHING)
    assert value_next(registry) == HOLD
    assert value_next(registry) == 'global' and names(registry) == ['global', HOLD]
    assert value_next(registry) == 'home' and names(registry) == ['global', 'home', HOLD]


def test_a_home_policy_that_fails_its_test_changes_no_candidate():
    registry = valued_at_home('hospital_1', 'hospital_2')
    before, known = models(registry), registry.calibrated(NOTHING)
    newest = registry.receive(own(7, 'hospital_1', 2), 0.0)
    assert registry.calibrated(NOTHING) == known, 'it is not tested yet'
    registry.add_report(newest, report_on(newest.policy, force_failures=0.9))
    assert registry.calibrated(NOTHING) == known
    assert models(registry) == before and registry.pending(NOTHING) is None
    # What stands in its place is valued anew as well.
    registry.value_with('now')
    valued = [value_next(registry) for _ in before]
    assert valued == [HOLD, 'global', 'home', 'hospital_2'] and len(names(registry)) == 4


def test_all_are_tested_before_one_is_valued(registry):
    first, second = (
        registry.receive(each, 0.0) for each in (released(1, 1), own(2, 'hospital_2'))
    )
    assert not registry.hold_pending, 'there may be nothing to choose'
    registry.add_report(first, report_on(first.policy))
    assert registry.pending(NOTHING) is second and registry.hold_pending
    registry.add_report(second, report_on(second.policy))
    assert registry.pending(NOTHING) is first


def test_the_version_before_a_refused_one_has_its_turn(registry):
    registry.receive(released(1, 1), 0.0)
    older, newest = (registry.receive(released(each, each), 0.0) for each in (2, 3))
    newest.refusal = 'it has 3 layers'
    assert registry.pending(NOTHING) is older
    assert registry.status(older, NOTHING) is Status.VALUING
    assert registry.pending(NOTHING.with_pin('global', newest.digest)) is None


def test_the_home_policy_tells_how_far_a_robot_is_off_and_without_it_all_others():
    registry = of_hospital('hospital_1')
    assert registry.calibrated(NOTHING) == ()
    receive_tested(registry, own(2, 'hospital_2'))
    receive_tested(registry, released(1, 1))
    registry.receive(own(9, 'hospital_3'), 0.0)
    others = ['global', 'hospital_2']
    assert [each.name for each in registry.calibrated(NOTHING)] == others, 'all that are tested'
    home = receive_tested(registry, own(3, 'hospital_1'))
    assert registry.calibrated(NOTHING) == (home,)
    newer = receive_tested(registry, own(4, 'hospital_1', 2))
    assert registry.calibrated(NOTHING) == (newer,)
    assert registry.calibrated(NOTHING.with_pin('home', home.digest)) == (home,)
    vetoed = Supervision(vetoed=frozenset({'home'}))
    assert [each.name for each in registry.calibrated(vetoed)] == others
    for each, left in ((newer, (home,)), (home, None)):
        registry.add_report(each, report_on(each.policy, force_failures=0.9))
        if left:
            assert registry.calibrated(NOTHING) == left
    assert [each.name for each in registry.calibrated(NOTHING)] == others


def test_what_tells_how_far_the_robot_is_off_is_kept_with_its_values(registry):
    first = receive_tested(registry, released(1, 1))
    registry.value_with('first', (first.policy,))
    for number in (2, 3, 4):
        receive_tested(registry, released(number, number))
        while registry.hold_pending or registry.pending(NOTHING):
            value_next(registry)
        registry.prune(NOTHING)
    assert [each.round for each in registry.versions] == [4, 3, 1]
    registry.value_with('now', (registry.versions[0].policy,))
    while registry.hold_pending or registry.pending(NOTHING):
        value_next(registry)
    assert registry.prune(NOTHING) == [first]
    assert first.digest not in registry.values.models


def test_an_older_version_can_be_pinned_and_is_valued_then(registry):
    first = receive_tested(registry, released(1, 1))
    second = receive_tested(registry, released(2, 2))
    with pytest.raises(SupervisionError, match='not valued yet'):
        registry.to_pin('global', '2')
    while registry.hold_pending or registry.pending(NOTHING):
        value_next(registry)
    assert names(registry) == ['global', HOLD] and registry.ready(second)
    assert registry.to_pin('global', '1') is first
    pinned = NOTHING.with_pin('global', first.digest)
    assert names(registry, pinned) == [HOLD] and registry.pending(pinned) is first
    value_next(registry, pinned)
    assert registry.candidates(pinned)[0].policy is first.policy


def test_policy_that_fails_its_test_leaves_the_one_before_it(registry):
    registry.receive(released(1, 1), 0.0)
    pass_all(registry)
    version = registry.receive(released(2, 2), 0.0)
    registry.add_report(version, report_on(version.policy, force_failures=0.9))
    assert registry.pending(NOTHING) is None
    assert statuses(registry) == [('global', 2, 'refused'), ('global', 1, 'candidate')]
    assert 'by force' in version.refusal


def test_weights_that_come_back_keep_what_was_found_of_them(registry):
    registry.receive(released(1, 1), 0.0)
    pass_all(registry)
    registry.receive(released(2, 2), 0.0)
    pass_all(registry)
    version = registry.receive(released(1, 3, rolled_back=True), 9.0)
    assert version.round == 3 and registry.ready(version)
    assert statuses(registry) == [('global', 3, 'candidate'), ('global', 2, 'replaced')]
    with pytest.raises(RoundError):
        registry.receive(released(1, 1), 9.0)


def test_what_is_not_signed_whole_and_new_is_refused(registry):
    good = released(1, 5)
    assert registry.receive(good, 0.0)
    assert registry.receive(good, 1.0) is None, 'the same of another trainer'
    for bad, error in (
        (replace(good, weights=encode_weights(weights(9))), SignatureError),
        (released(2, 6, sender='hospital_1'), SignatureError),
        (released(2, 6, sender='aggregator'), SignatureError),
        (released(2, 4), RoundError),
        (released(2, 5), RoundError),
        (released(2, 6, digest=digest_of(weights(1))), MessageError),
        (released(2, 6, weights=b'\x00' * 8), MessageError),
        (
            released(2, 6, weights=np.full(SHAPE.n_parameters, np.nan, '<f4').tobytes()),
            MessageError,
        ),
    ):
        with pytest.raises(error):
            registry.receive(bad, 0.0)
    version = registry.pending(NOTHING)
    assert (version.name, version.policy.digest) == ('global', good.digest)


def test_oldest_versions_are_forgotten_but_never_what_stands_or_is_pinned(registry):
    first = registry.receive(released(1, 1), 0.0)
    pass_all(registry)
    pinned = NOTHING.with_pin('global', first.digest)
    for number in (2, 3, 4):
        registry.receive(released(number, number), 0.0)
        assert first not in registry.prune(NOTHING), 'it stands until another one is good'
    assert [each.round for each in registry.versions] == [4, 3, 1]
    pass_all(registry)
    assert registry.prune(pinned) == []
    assert registry.prune(NOTHING) == [first]


def test_pinned_version_stands_and_the_newest_again_when_it_is_unpinned(registry):
    for number in (1, 2):
        registry.receive(released(number, number), 0.0)
        pass_all(registry)
    first = registry.to_pin('global', '1')
    assert registry.to_pin('global', first.digest[:12]) is first
    pinned = NOTHING.with_pin('global', first.digest)
    assert registry.candidates(pinned)[0].policy is first.policy
    assert statuses(registry, pinned) == [('global', 2, 'replaced'), ('global', 1, 'candidate')]
    registry.receive(released(3, 3), 0.0)
    assert registry.pending(pinned) is None, 'nobody needs its value now'
    assert registry.candidates(pinned.with_pin('global', ''))[0].policy is not first.policy


def test_who_waits_for_another_try_lets_others_go_first(registry):
    first = registry.receive(released(1, 1), 0.0)
    second = registry.receive(own(2, 'hospital_2'), 0.0)
    assert registry.pending(NOTHING) is first
    assert registry.pending(NOTHING, {first.digest}) is second
    assert registry.pending(NOTHING, {first.digest, second.digest}) is None
    first.setback = 'no space left'
    assert registry.status(first, NOTHING) is Status.VALUING
    with pytest.raises(SupervisionError, match='no space left'):
        registry.to_pin('global', '1')


def test_what_cannot_stand_cannot_be_pinned(registry):
    registry.receive(released(1, 1), 0.0)
    for text, words in (('1', 'not valued yet'), ('7', 'rounds that are kept, 1'), ('', '1')):
        with pytest.raises(SupervisionError, match=words):
            registry.to_pin('global', text)
    version = registry.pending(NOTHING)
    version.refusal = 'no space left'
    with pytest.raises(SupervisionError, match='no space left'):
        registry.to_pin('global', '1')
    with pytest.raises(
        SupervisionError, match="no policy 'hospital_1': expected one of the policies global"
    ):
        registry.to_pin('hospital_1', '1')


def test_vetoed_policy_is_no_candidate_until_it_is_allowed(registry):
    registry.receive(released(1, 1), 0.0)
    registry.receive(own(2, 'hospital_2'), 0.0)
    pass_all(registry)
    vetoed = Supervision(vetoed=frozenset({'global'}))
    assert [each.name for each in registry.candidates(vetoed)] == ['hospital_2', 'hold']
    assert ('global', 1, 'vetoed') in statuses(registry, vetoed)


def test_pins_that_cannot_be_kept_are_said(registry):
    version = registry.receive(released(1, 1), 0.0)
    pinned = NOTHING.with_pin('global', version.digest)
    registry.check_pins(pinned)
    with pytest.raises(PolicyError, match='not here'):
        registry.check_pins(NOTHING.with_pin('hospital_1', version.digest))
    registry.add_report(version, report_on(version.policy, finite=False))
    with pytest.raises(PolicyError, match='refused'):
        registry.check_pins(pinned)


# Whose a policy is.


def of_hospital(hospital='hospital_2') -> PolicyRegistry:
    return PolicyRegistry(ROSTER, SHAPE, kept=2, hospital=hospital)


def test_the_own_hospital_s_policy_is_home_and_each_candidate_knows_whose_it_is():
    registry = of_hospital()
    for message in (own(3, 'hospital_1'), own(2, 'hospital_2'), released(1, 1)):
        registry.receive(message, 0.0)
    pass_all(registry)
    assert [(each.name, each.owner) for each in registry.versions] == [
        ('global', 'federation'),
        ('home', 'hospital_2'),
        ('hospital_1', 'hospital_1'),
    ]
    assert {each.name: each.owner for each in registry.candidates(NOTHING)} == {
        'global': 'federation',
        'home': 'hospital_2',
        'hospital_1': 'hospital_1',
        'hold': '',
    }
    assert 'home' in registry.names and 'hospital_2' not in registry.names
    assert registry.to_pin('home', '1').owner == 'hospital_2'


def test_on_a_robot_of_no_hospital_nothing_is_home(registry):
    assert registry.receive(own(2, 'hospital_2'), 0.0).name == 'hospital_2'
    assert 'home' not in registry.names


def test_a_hospital_s_later_policy_of_a_round_counts_and_its_earlier_one_is_refused():
    registry, store = of_hospital(), Store()
    channel = Channel(IDENTITIES['hospital_2'], ROSTER, store)
    first, second = (sign_own(channel, 4, weights(seed)) for seed in (2, 3))
    assert registry.receive(first, 0.0).round == 4
    pass_all(registry)
    assert registry.receive(second, 1.0).digest == second.digest.hex()
    pass_all(registry)
    assert statuses(registry) == [('home', 4, 'candidate'), ('home', 4, 'replaced')]
    with pytest.raises(RoundError, match='round 4 is known'):
        registry.receive(first, 2.0)
    assert registry.receive(second, 2.0) is None


def test_two_policies_of_one_round_of_the_key_authority_are_refused_whatever_the_order():
    registry, store = of_hospital(), Store()
    channel = Channel(IDENTITIES['key_authority'], ROSTER, store)
    first, second = (sign_global(channel, 4, weights(seed)) for seed in (2, 3))
    assert first.envelope.counter < second.envelope.counter
    registry.receive(first, 0.0)
    with pytest.raises(RoundError, match='round 4 is known'):
        registry.receive(second, 1.0)
