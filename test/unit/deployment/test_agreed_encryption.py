# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""All parties of a federation derive the same limit, and refuse another one."""

from contextlib import closing
from dataclasses import replace
import math

from fdrl_ros.crypto.he.schemes import EncryptionSettings, STATED_LIMIT
from fdrl_ros.crypto.keys.rotation import RosterChanges
from fdrl_ros.crypto.masking.neighbourhoods import (
    default_neighbours,
    fewest_neighbours,
    Neighbourhoods,
    share_threshold,
)
from fdrl_ros.deployment.agreed_encryption import agreed_encryption, bound_of_round, loads_world
from fdrl_ros.deployment.parties.hospital import open_hospital, open_records, open_training
from fdrl_ros.deployment.parties.key_authority import open_key_authority
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.deployment.policy_file import load_policy, save_policy
from fdrl_ros.deployment.prepare import prepare
from fdrl_ros.errors import CryptoError, MessageError, PrivacyError, SettingError
from fdrl_ros.federation.key_authority.state import Validation
from fdrl_ros.federation.protocol.message import EncryptionKey
from fdrl_ros.federation.protocol.store import Store
from fdrl_ros.learner.offsets import offsets_of
from fdrl_ros.learner.update_bound import adam_steps
import numpy as np
import pytest
from support.small_run import TINY_PLAN

PLAN = Plan().changed(TINY_PLAN)
PLAIN = PLAN.with_all_weights()
NAME = 'hospital_1'
STEPS = 2  # of a round: 8 patients, batches of 4, one epoch


def bound_under(plan, tmp_path, patients=8, start=None):
    """Bound a round from a drawn start."""
    path = tmp_path / 'start.npz'
    weights = plan.network.draw(np.random.default_rng(1)) if start is None else start
    save_policy(path, weights, plan)
    return bound_of_round(plan, patients, path)


def announced(layout, plan):
    """Return the limit that a key authority announces, and its message."""
    with closing(Store(layout.state('key_authority'))) as store:
        authority = open_key_authority(
            layout, plan, store, validate=lambda weights: Validation(True, '')
        )
        (key,) = [
            each for each in authority.start(0.0).messages if isinstance(each, EncryptionKey)
        ]
    return key


def test_nothing_is_derived_of_a_plan_that_names_a_number(tmp_path):
    chosen = PLAN.changed({'encryption': {'limit': 0.25}})
    missing = tmp_path / 'there is no start'
    found = agreed_encryption(chosen, 0, missing)
    assert found == replace(chosen.encryption, projections=found.projections)
    assert found.projections == 4  # one for 16 trained weights, but 4
    assert not loads_world(chosen)
    assert loads_world(PLAN) and not loads_world(PLAIN)


@pytest.mark.parametrize('limit', [-1.0, 1e-7, 1e4, math.nan, math.inf])
def test_limits_that_say_nothing_are_refused(limit):
    with pytest.raises(SettingError, match='limit'):
        EncryptionSettings(limit=limit)
    assert EncryptionSettings(limit=1e-6).limit == 1e-6 and EncryptionSettings().limit == 0.0


def test_hospitals_take_the_limit_that_the_key_authority_derives_and_no_other(tmp_path):
    layout = prepare(tmp_path / 'federation', PLAN)
    key = announced(layout, PLAN)
    start = load_policy(layout.pretrained).weights
    span = offsets_of(PLAN.network, PLAN.learner, PLAN.spec.names).span(start)
    rates = PLAN.learner.learning_rate + PLAN.learner.offset_rate * np.abs(span).sum(axis=1)
    steps = adam_steps(STEPS)  # of which the last alone is averaged
    expected = steps.sum() * rates.max()
    assert expected < key.limit <= 1.021 * expected
    records = open_records(layout, NAME, PLAN)
    for plan, agrees in (
        (PLAN, True),
        (PLAN.changed({'encryption': {'limit': key.limit, 'norm': key.norm}}), True),
        (PLAN.changed({'encryption': {'limit': key.limit}}), False),
        (PLAN.changed({'encryption': {'limit': 1.0}}), False),
        (PLAN.changed({'learner': {'offset_rate': 0.5}}), False),
    ):
        trainer = open_training(layout.party(NAME), NAME, plan, records)
        with closing(trainer.ledger), closing(Store()) as store:
            hospital = open_hospital(layout, NAME, plan, trainer, store)
            if agrees:
                hospital.handle(key, 0.0)
                continue
            with pytest.raises(MessageError, match=f'{key.limit}'):
                hospital.handle(key, 0.0)


def test_a_prepared_federation_keeps_the_setting_and_not_the_number(tmp_path):
    layout = prepare(tmp_path / 'federation', PLAN)
    assert Plan.load(layout.plan).encryption.limit == 0.0
    before = announced(layout, PLAN).limit
    RosterChanges(layout.keys).admit('hospital_4', 40)
    assert announced(layout, PLAN).limit > before  # more patients, more steps


def test_a_limit_follows_from_the_largest_hospital(tmp_path):
    found = [bound_under(PLAIN, tmp_path, patients) for patients in (8, 9, 12, 13, 400)]
    assert found[0] == bound_under(PLAIN, tmp_path, 7)  # as many steps
    assert all(a.per_weight <= b.per_weight for a, b in zip(found, found[1:], strict=False))
    rate = PLAIN.learner.learning_rate
    assert found[0].per_weight == pytest.approx(rate * adam_steps(STEPS).sum())
    with pytest.raises(PrivacyError, match='batch'):
        bound_under(PLAIN, tmp_path, 3)


def test_frozen_and_personal_layers_are_no_part_of_the_norm(tmp_path):
    layout = PLAIN.network.layout
    whole = bound_under(PLAIN, tmp_path)

    def share(changes):
        return (bound_under(PLAIN.changed(changes), tmp_path).norm / whole.norm) ** 2

    for changes in (
        {'learner': {'frozen': 'shared.0, value'}},
        {'federation': {'personal': 'shared.0, value'}},
        {'learner': {'frozen': 'shared.0'}, 'federation': {'personal': 'value'}},
    ):
        left = len(layout.shared(('shared.0', 'value')))
        assert share(changes) == pytest.approx(left / layout.n_parameters)
    nothing = {
        'learner': {'frozen': 'shared'},
        'federation': {'personal': 'value, advantage'},
    }
    assert share(nothing) == 0.0


def test_offsets_that_stay_at_home_add_nothing(tmp_path):
    kept = PLAN.changed({'federation': {'personal': 'shared.0.bias'}})
    start = PLAN.network.draw(np.random.default_rng(2))
    assert bound_under(kept, tmp_path, start=start).norm == 0.0
    wide = start.copy()
    PLAN.network.layout.split(wide)['shared.0.weight'][:] *= 2.0
    found = [bound_under(PLAN, tmp_path, start=each).norm for each in (start, wide)]
    assert 1.9 < found[1] / found[0] < 2.0


def test_transitions_of_a_patient_count_up_to_their_public_limit(tmp_path):
    changes = {'clipped': 'transition', 'most_transitions': 50, 'batch': 100}
    bound = bound_under(PLAIN.changed({'privacy': changes}), tmp_path)
    # Four steps, of which the last two are averaged.
    expected = PLAIN.learner.learning_rate * (adam_steps(3).sum() + adam_steps(4)[-1] / 2)
    assert bound.per_weight == pytest.approx(expected)


def test_where_the_number_of_steps_is_no_part_of_the_terms_the_limit_is_stated(tmp_path):
    plan = PLAIN.changed({'privacy': {'unit': 'transition'}})
    assert bound_under(plan, tmp_path) is None
    layout = prepare(tmp_path / 'federation', PLAIN)
    assert (
        agreed_encryption(plan, layout.roster().n_max, layout.pretrained).limit
        == STATED_LIMIT
        == 1.0
    )


def test_a_learner_that_is_beyond_all_numbers_is_refused_when_its_federation_is_made(tmp_path):
    changes = {'optimizer': 'sgd', 'learning_rate': 1000.0, 'proximal': 100.0, 'epochs': 100}
    plan = PLAIN.changed({'learner': changes, 'privacy': {'budget': math.inf}})
    with pytest.raises(SettingError, match=r'learning_rate'):
        prepare(tmp_path / 'federation', plan)
    given = plan.changed({'encryption': {'limit': 1.0}})
    prepare(tmp_path / 'other', given)


@pytest.mark.parametrize('changes', [{'norm': 1e-9}, {'limit': 1000.0, 'bits': 8}])
def test_encryption_that_leaves_nothing_of_an_update_is_refused_before_budget_is_spent(
    tmp_path, changes
):
    with pytest.raises(SettingError, match=r'encryption\.(norm|limit).*steps of'):
        prepare(tmp_path / 'federation', PLAIN.changed({'encryption': changes}))
    assert not [path for path in tmp_path.rglob('*') if path.is_file()]
    plan = PLAIN.changed({'federation': {'hospitals': 5}})
    assert len(prepare(tmp_path / 'federation', plan).roster().hospitals) == 5


@pytest.mark.parametrize('changes', [{'scheme': 'ckks'}, {'projections': 0}])
def test_a_norm_that_nobody_would_look_at_is_refused(tmp_path, changes):
    with pytest.raises(SettingError, match=r'norm.*not bounded'):
        PLAN.changed({'encryption': {'norm': 1.0, **changes}})
    plan = PLAN.changed({'encryption': changes})
    layout = prepare(tmp_path / 'federation', plan)
    found = agreed_encryption(plan, layout.roster().n_max, layout.pretrained)
    assert (found.norm, found.projections) == (0.0, 0)


@pytest.mark.parametrize('name', ['limit', 'norm'])
def test_a_limit_that_cuts_honest_updates_is_warned_of(tmp_path, caplog, name):
    bound = bound_under(PLAIN, tmp_path)
    most = bound.limit if name == 'limit' else bound.norm_limit
    for value, words in (
        (most, ''),
        (0.9 * most, 'cuts honest updates'),
        (200.0 * most, 'lets a liar move a sum that far'),
    ):
        caplog.clear()
        prepare(tmp_path / f'{value}', PLAIN.changed({'encryption': {name: value}}))
        told = [each for each in caplog.messages if each.startswith(f'encryption.{name} ')]
        assert len(told) == bool(words) and all(words in each for each in told)


def test_bits_that_leave_no_room_for_projections_are_refused_when_a_federation_is_made(tmp_path):
    encryption = {'bits': 32, 'limit': 1.0, 'norm': 8.0}
    with pytest.raises(CryptoError, match=r'fewer encryption\.bits'):
        prepare(tmp_path / 'federation', PLAN.changed({'encryption': encryption}))
    without = PLAN.changed({'encryption': {**encryption, 'norm': 0.0, 'projections': 0}})
    prepare(tmp_path / 'other', without)


BUCKETS = {'federation': {'hospitals': 6, 'buckets': 2}}


def test_buckets_that_defend_against_nothing_are_warned_of():
    changes = {'federation': {'hospitals': 9, 'buckets': 3}}
    words = 'WITHOUT A DEFENCE'
    assert words in PLAN.changed(changes).bucket_words()
    assert words not in PLAN.changed(changes | {'server': {'combine': 'median'}}).bucket_words()
    each = {'validation': {'each_bucket': True}}
    assert words not in PLAN.changed(changes | each).bucket_words()
    median, repeat = {'server': {'combine': 'median'}}, 'to repeat the policies, copy'
    seeded = {'federation': {**changes['federation'], 'noise': 'seeded'}} | median
    assert repeat in PLAN.changed(seeded).bucket_words()
    secure = {'federation': {**changes['federation'], 'noise': 'secure'}} | median
    assert repeat not in PLAN.changed(secure).bucket_words()


def test_nobody_starts_by_a_plan_that_sums_other_hospitals_than_the_roster(tmp_path):
    plan = PLAN.changed(BUCKETS)
    layout = prepare(tmp_path / 'federation', plan)
    assert layout.roster().buckets == 2
    assert announced(layout, plan).limit > 0.0
    other = plan.changed({'federation': {'buckets': 0}})
    with pytest.raises(SettingError, match=r'federation\.buckets.*0.*2, which the roster'):
        announced(layout, other)
    records = open_records(layout, NAME, plan)
    trainer = open_training(layout.party(NAME), NAME, plan, records)
    with (
        closing(trainer.ledger),
        closing(Store()) as store,
        pytest.raises(SettingError, match=r'federation\.buckets'),
    ):
        open_hospital(layout, NAME, other, trainer, store)


@pytest.mark.parametrize(
    ('changes', 'words'),
    [
        ({'federation': {'hospitals': 6, 'buckets': 3}}, 'federation.buckets'),
        ({'federation': {'hospitals': 6, 'buckets': 1}}, 'federation.buckets'),
        ({'federation': {'buckets': -1}}, 'buckets'),
        (BUCKETS | {'encryption': {'scheme': 'ckks'}}, 'federation.buckets.*bfv'),
        ({'server': {'combine': 'median'}}, 'server.combine'),
        (BUCKETS | {'server': {'combine': 'median'}}, 'server.combine'),
        ({'server': {'combine': 'krum'}}, 'combine'),
        ({'validation': {'each_bucket': True}}, 'validation.each_bucket'),
    ],
)
def test_buckets_that_cannot_be_summed_are_refused(changes, words):
    with pytest.raises(SettingError, match=words):
        Plan().changed(changes)


def test_a_plan_has_buckets_and_a_rule():
    dealt = {'federation': {'hospitals': 9, 'buckets': 3}}
    plan = Plan().changed(dealt | {'server': {'combine': 'median'}})
    assert (plan.federation.buckets, plan.server.combine) == (3, 'median')


def test_what_few_neighbours_promise_is_said_of_a_plan_and_of_a_ring():
    few = PLAN.changed({'federation': {'hospitals': 110}}).neighbourhoods()
    assert (
        few.degree == default_neighbours(110)
        and few.threshold == share_threshold(110, few.degree)[0]
    )
    words = 'at most 1/3 of the hospitals collude and 1/10 are away. '
    words += 'This fails with a chance of at most 2^-40.'
    assert words in few.in_words() and f'masks with {few.degree} neighbours' in few.in_words()
    weaker = fewest_neighbours(1000, withstands_lies=False)
    graph = Neighbourhoods(map(str, range(1000)), 667, weaker, bytes(32))
    assert 'one of the two servers is honest' in graph.in_words()
    assert 'honest' not in few.in_words()
    assert PLAN.neighbourhoods().is_complete and not PLAN.neighbourhoods().in_words()
