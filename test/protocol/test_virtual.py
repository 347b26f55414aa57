# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""A whole federation from learners alone, as a researcher has it."""

import hashlib

from fdrl_ros.crypto.he.schemes import EncryptionSettings
from fdrl_ros.errors import (
    BudgetExceededError,
    FdrlError,
    PolicyError,
    RoundError,
    SettingError,
    StoreError,
)
from fdrl_ros.federation.key_authority.robust import RULES
from fdrl_ros.federation.key_authority.server_optimizer import ServerOptimizerSettings
from fdrl_ros.federation.key_authority.server_step import fed_avg, RoundSum, ServerStep, Stepped
from fdrl_ros.federation.key_authority.state import Validation
from fdrl_ros.federation.plain import PlainFederation
from fdrl_ros.federation.virtual import PlainLearner, VirtualFederation
from fdrl_ros.policy import NetworkShape
import numpy as np
import pytest

SHAPE = NetworkShape(states=4, actions=3, hidden=(5,))
START = np.zeros(SHAPE.n_parameters)
SIZES = {'hospital_a': 10, 'hospital_b': 30, 'hospital_c': 20, 'hospital_d': 40}


def delta(name: str, round: int) -> np.ndarray:
    """Return what a hospital learns in a round."""
    rng = np.random.default_rng([ord(name[-1]), round])
    return rng.uniform(-0.04, 0.04, SHAPE.n_parameters).astype(np.float32)


def federation(**more) -> VirtualFederation:
    learners = {
        name: PlainLearner(lambda w, r, name=name: w + delta(name, r), n_units=size)
        for name, size in SIZES.items()
    }
    return VirtualFederation(learners, START, SHAPE.layout, **more)


def average(round: int, names=tuple(SIZES)) -> np.ndarray:
    """Return FedAvg of what hospitals learn (FDRL Eq. 2)."""
    sizes = np.array([SIZES[name] for name in names])
    return sizes @ np.stack([delta(name, round) for name in names]) / sizes.sum()


@pytest.mark.parametrize('on_disk', [False, True])
def test_rounds_end_with_fedavg_also_without_a_hospital_and_when_it_is_back(on_disk, tmp_path):
    made = federation(directory=tmp_path if on_disk else None)
    expected = average(1) + average(2)
    np.testing.assert_allclose(made.play(2), expected, rtol=0, atol=1e-4)
    made.leave('hospital_b')
    others = tuple(name for name in SIZES if name != 'hospital_b')
    expected = expected + average(3, others)
    np.testing.assert_allclose(made.play(), expected, rtol=0, atol=1e-4)
    assert made.policy.contributors == others
    made.join('hospital_b')
    np.testing.assert_allclose(made.play(), expected + average(4), rtol=0, atol=2e-4)
    assert made.round == 4 and not made.driver.refused


def test_parties_of_a_process_share_the_tables_of_encryption_and_a_new_key_has_its_own():
    def contexts(made):
        return {made.parties[name].terms.public for name in SIZES}

    made, other = federation(), federation()
    made.play()
    [public] = contexts(made)
    other.play()
    assert contexts(other).isdisjoint({public}) and contexts(made) == {public}
    np.testing.assert_allclose(made.play(), average(1) + average(2), rtol=0, atol=1e-4)


def test_too_few_hospitals_are_told_and_the_round_goes_on_when_one_is_back():
    made = federation()
    made.play()
    for name in ('hospital_a', 'hospital_b'):
        made.leave(name)
    with pytest.raises(FdrlError, match='round 2 does not end'):
        made.play()
    made.join('hospital_a')
    made.play()
    assert made.round == 2 and len(made.policy.contributors) == 3


def test_spent_budgets_are_told_as_the_reason(monkeypatch):
    made = federation()
    made.play()

    def refuse(round):
        raise BudgetExceededError(7.0, 9.0, 8.0)

    for name in ('hospital_a', 'hospital_b'):
        monkeypatch.setattr(made.learners[name], 'check_affordable', refuse)
    with pytest.raises(FdrlError, match='does not pay for round 2: hospital_a: epsilon 7'):
        made.play()


def test_what_cannot_be_is_told(tmp_path):
    made = federation(directory=tmp_path / 'new')
    made.play()
    with pytest.raises(StoreError, match='cannot begin'):
        federation(directory=tmp_path / 'new')
    with pytest.raises(SettingError, match='1 or more'):
        made.play(0)
    for name in ('nobody', 'aggregator'):
        with pytest.raises(RoundError, match='no hospital'):
            made.leave(name)
    with pytest.raises(SettingError, match='start'):
        VirtualFederation(made.learners, np.zeros(3), SHAPE.layout)
    two = dict(list(made.learners.items())[:2])
    with pytest.raises(SettingError, match='three'):
        VirtualFederation(two, made.start, SHAPE.layout)
    learner = PlainLearner(lambda weights, _: weights[:3], n_units=1)
    with pytest.raises(PolicyError, match=r'\(3,\)'):
        learner.train(made.start, 1, report=print, stopped=lambda: False)


def test_the_step_of_the_server_is_anybodys():
    def half(given: RoundSum) -> Stepped:
        weights = given.weights.copy()
        weights[given.shared] += 0.5 * given.average
        return Stepped(weights)

    made = federation(step=half)
    np.testing.assert_allclose(made.play(), 0.5 * average(1), rtol=0, atol=1e-4)


def counting(given: RoundSum) -> Stepped:
    """Add 1 to personal weights in each round, and count the rounds in the state."""
    number = int(given.state or b'0') + 1
    assert given.round == number
    weights = fed_avg(given).weights
    personal = np.setdiff1d(np.arange(weights.size), given.shared)
    assert personal.size and np.all(weights[personal] == number - 1)
    weights[personal] += 1
    return Stepped(weights, str(number).encode())


def test_the_step_moves_its_own_personal_weights_and_keeps_a_state(tmp_path):
    made = federation(step=counting, personal=('value',), directory=tmp_path)
    made.play(2)
    made.driver.leave('key_authority')
    made.join('key_authority')
    personal = np.setdiff1d(np.arange(SHAPE.n_parameters), SHAPE.layout.shared(('value',)))
    assert np.all(made.play()[personal] == 3)
    assert made.parties['key_authority'].state.step_state == b'3'


def test_a_policy_that_fails_its_test_leaves_no_state_of_the_step():
    tests = iter([True, False, True])
    seen = []

    def step(given: RoundSum) -> Stepped:
        seen.append(given.state)
        return Stepped(fed_avg(given).weights, b'after %d' % given.round)

    made = federation(step=step, validate=lambda weights: Validation(next(tests), ''))
    made.play(3)
    assert seen == [b'', b'after 1', b'after 1']


@pytest.mark.parametrize('wrong', [np.zeros(3, np.float32), np.full(SHAPE.n_parameters, np.nan)])
def test_a_step_that_makes_no_policy_ends_the_round_with_the_older_weights(wrong):
    made = federation(step=lambda given: Stepped(wrong, b'lost'))
    assert not made.play().any()
    assert made.policy.rolled_back and 'the server step made no policy' in made.policy.reason
    assert made.parties['key_authority'].state.step_state == b''


@pytest.mark.parametrize('limit', [1.0, 0.03])
def test_sums_without_masks_and_encryption_make_the_very_same_policies(limit):
    """A limit of 0.03 clips some numbers and scales updates down, as in the field."""
    settings = {'encryption': EncryptionSettings(limit=limit), 'step': momentum()}
    made = federation(**settings)
    plain = PlainFederation(made.learners, made.start, SHAPE.layout, **settings)
    for _ in range(3):
        np.testing.assert_array_equal(plain.play(), made.play())
    assert plain.round == 3 and np.abs(plain.weights).max() > 0.01


@pytest.mark.parametrize('combine', RULES)
@pytest.mark.parametrize('tested', [False, True])
def test_buckets_without_masks_and_encryption_make_the_very_same_policies(combine, tested):
    learners = {
        f'hospital_{name}': PlainLearner(
            lambda w, r, name=name: w + delta(name, r), n_units=ord(name)
        )
        for name in 'abcdefghijkl'
    }
    tried = {}

    def validate(weights):
        """Let about half of all policies pass, the same ones each time."""
        data = weights.tobytes()
        tried[data] = hashlib.sha256(data).digest()[0] % 2 > 0
        return Validation(tried[data], '')

    rule = {'combine': combine, 'step': momentum()}
    rule |= {'validate': validate, 'test_buckets': True} if tested else {}
    made = VirtualFederation(learners, START, SHAPE.layout, buckets=4, **rule)
    deal = made.roster.buckets_of
    plain = PlainFederation(learners, made.start, SHAPE.layout, deal=deal, **rule)
    for _ in range(4):
        np.testing.assert_array_equal(plain.play(), made.play())
    assert not tried or len(set(tried.values())) == 2


def momentum() -> ServerStep:
    return ServerOptimizerSettings(optimizer='fedavgm', rate=0.5).step()
