# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The shelf takes a policy that is signed, whole and new, and offers it when it is valued."""

from dataclasses import replace

from fdrl_ros.crypto.roster import Member, Roster
from fdrl_ros.crypto.signing import Identity
from fdrl_ros.errors import MessageError, PolicyError, RoundError, SignatureError
from fdrl_ros.federation.channel import Channel
from fdrl_ros.federation.message import GlobalPolicy, HospitalPolicy
from fdrl_ros.federation.store import Store
from fdrl_ros.policy import digest_of, encode_weights, NetworkShape
from fdrl_ros.selector import Experience, fit_value, ValueModel
from fdrl_ros.selector.shelf import PolicyShelf
import numpy as np
import pytest

SHAPE = NetworkShape(18, 15, (4,))
NAMES = ('hospital_1', 'hospital_2', 'hospital_3', 'aggregator', 'key_authority')
IDENTITIES = {name: Identity.generate(name) for name in NAMES}
ROSTER = Roster(
    'test',
    3,
    tuple(
        Member(name, 'hospital', IDENTITIES[name].public, 10)
        if name.startswith('hospital')
        else Member(name, name, IDENTITIES[name].public)
        for name in NAMES
    ),
    True,
)


def weights(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=SHAPE.n_parameters).astype(np.float32)


def released(seed: int, round: int, sender: str = 'key_authority', **changes) -> GlobalPolicy:
    fields = {
        'weights': encode_weights(weights(seed)),
        'digest': digest_of(weights(seed)),
        'contributors': (),
        'update_hashes': b'',
        'rolled_back': False,
        'secure': True,
        'reason': '',
    }
    channel = Channel(IDENTITIES[sender], ROSTER, Store())
    return channel.seal(GlobalPolicy, round, 1, **(fields | changes))


def own(seed: int, sender: str) -> HospitalPolicy:
    return Channel(IDENTITIES[sender], ROSTER, Store()).seal(
        HospitalPolicy,
        1,
        1,
        weights=encode_weights(weights(seed)),
        digest=digest_of(weights(seed)),
        unit='patient',
        epsilon=1.0,
        delta=1e-4,
        secure=True,
    )


def model(policy):
    rng = np.random.default_rng(0)
    states, cases = rng.normal(size=(60, 18)), np.repeat(np.arange(12), 5)
    known = Experience(states, rng.normal(size=60), np.zeros(60), cases)
    return ValueModel(policy.digest.hex(), {'palpation': fit_value(known, rng)})


@pytest.fixture
def shelf():
    return PolicyShelf(ROSTER, SHAPE)


def test_policy_is_a_candidate_once_it_is_valued(shelf):
    assert shelf.take(own(2, 'hospital_2')) == 'hospital_2'
    assert shelf.take(released(1, 1)) == 'global'
    assert shelf.candidates() == ()
    for expected in ('global', 'hospital_2'):
        name, policy = shelf.pending()
        assert name == expected
        shelf.value(name, policy, model(policy))
    assert shelf.pending() is None
    assert [each.name for each in shelf.candidates()] == ['global', 'hospital_2']


def test_newer_policy_waits_behind_the_older_one_until_it_is_valued(shelf):
    shelf.take(released(1, 1))
    name, older = shelf.pending()
    shelf.value(name, older, model(older))
    shelf.take(released(2, 2))
    assert shelf.candidates()[0].digest == older.digest
    name, newer = shelf.pending()
    with pytest.raises(PolicyError, match='value model'):
        shelf.value(name, newer, model(older))
    shelf.value(name, newer, model(newer))
    assert shelf.candidates()[0].digest == newer.digest


def test_same_policy_from_several_trainers_is_taken_once(shelf):
    message = released(1, 1)
    assert shelf.take(message) == 'global'
    assert shelf.take(message) is None
    assert shelf.take(released(1, 2)) is None, 'rolled back to the same weights'


def test_what_is_not_signed_whole_and_new_is_refused(shelf):
    good = released(1, 5)
    shelf.take(good)
    for bad, error in (
        (replace(good, weights=encode_weights(weights(9))), SignatureError),
        (released(2, 6, sender='hospital_1'), SignatureError),
        (released(2, 6, sender='aggregator'), SignatureError),
        (released(2, 4), RoundError),
        (released(2, 5), RoundError),
        (released(2, 6, digest=digest_of(weights(1))), MessageError),
        (released(2, 6, weights=b'\x00' * 8), MessageError),
    ):
        with pytest.raises(error):
            shelf.take(bad)
    name, policy = shelf.pending()
    assert (name, policy.digest) == ('global', good.digest)
