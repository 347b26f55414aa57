# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Canaries: orthogonal directions that go through the code that clips patients."""

from dataclasses import replace

from fdrl_ros.audit.canary import (
    DenseCanaries,
    orthogonal,
    PlantedDqn,
    PlantedTabularDqn,
    TabularCanaries,
)
from fdrl_ros.audit.canary import planted as planted_dqn
from fdrl_ros.errors import SettingError
from fdrl_ros.learner.gradient import DuelingGradients
from fdrl_ros.learner.records.transitions import Batch
from fdrl_ros.learner.settings import LearnerSettings
from fdrl_ros.policy import NetworkShape
import numpy as np
import pytest

pytestmark = pytest.mark.usefixtures('arithmetic')

SHAPE = NetworkShape(states=4, actions=3, hidden=(6, 5))
WITHIN = 1.0 - 2.0**-10  # what clipping leaves of C


def batch_of(rng, units, transitions):
    size = (units, transitions)
    return Batch(
        rng.normal(size=(*size, 4)).astype(np.float32),
        rng.integers(3, size=size),
        rng.normal(size=size).astype(np.float32),
        rng.normal(size=(*size, 4)).astype(np.float32),
        np.full(size, 0.4, np.float32),
    )


def planted(frozen='', norm=5.0, count=None):
    """Return a learner whose first three units are patients, and the others canaries, members."""
    learner = LearnerSettings(frozen=frozen)
    names, rng = learner.frozen_tensors, np.random.default_rng(1)
    size = sum(
        each.stop - each.start
        for each in SHAPE.layers()
        if not {each.name, f'{each.name}.bias', f'{each.name}.weight'} & {*names}
    )
    canaries = DenseCanaries.draw(SHAPE, names, count or size, norm, rng)
    canaries = replace(canaries, members=np.ones(len(canaries), np.bool_))
    dqn = planted_dqn(SHAPE, learner, None, canaries, 3)
    assert isinstance(dqn, PlantedDqn)
    return dqn, canaries


def sum_of(dqn, units, transitions=2, clip_norm=1.0):
    rng = np.random.default_rng(2)
    weights = SHAPE.draw(rng)
    dqn.units = np.array(units)
    return dqn.clipped_sum(weights, weights, batch_of(rng, len(units), transitions), clip_norm)


@pytest.mark.parametrize('size', [1, 2, 7, 65])
def test_matrix_is_orthogonal_and_ends_in_a_constant(size):
    found = orthogonal(size)
    np.testing.assert_allclose(found @ found.T, np.eye(size), atol=1e-12)
    np.testing.assert_allclose(found[:, -1], size**-0.5, atol=1e-12)


@pytest.mark.parametrize(
    ('frozen', 'transitions'),
    [
        ('', 1),
        ('', 40),
        ('shared.0', 3),
        ('shared.0, shared.1', 3),
        ('shared.1, value', 1),
        ('shared.0.weight, value.bias', 3),  # in layers of which some is trained there are none
    ],
)
def test_canaries_are_an_orthonormal_basis_of_the_trained_weights_times_their_norm(
    frozen, transitions
):
    """One transition, few, and many take three ways through the clipping."""
    dqn, canaries = planted(frozen)
    count = len(canaries)
    assert ('.weight' in frozen) == (count < dqn.size)
    directions = np.array(
        [sum_of(dqn, [3 + each], transitions, clip_norm=100.0) for each in range(count)]
    )
    np.testing.assert_allclose(directions @ directions.T, 25.0 * np.eye(count), atol=2e-4)
    for each in (0, count // 2, count - 1):
        expected = 5.0 * np.eye(count)[each]
        np.testing.assert_allclose(canaries.along(directions[each]), expected, atol=1e-4)
        clipped = sum_of(dqn, [3 + each], transitions)
        assert np.linalg.norm(clipped) == pytest.approx(WITHIN, abs=1e-6)


def test_linear_networks_have_canaries_too():
    shape = NetworkShape(states=4, actions=3, hidden=())
    canaries = DenseCanaries.draw(shape, (), shape.n_parameters, 5.0, np.random.default_rng(1))
    canaries.members[:] = True
    dqn = planted_dqn(shape, LearnerSettings(), None, canaries, 0)
    rng = np.random.default_rng(2)
    weights = shape.draw(rng)
    dqn.units = np.arange(len(canaries))
    total = dqn.clipped_sum(weights, weights, batch_of(rng, len(canaries), 2), 1.0)
    np.testing.assert_allclose(canaries.along(total), WITHIN, atol=1e-5)


def test_others_than_members_add_nothing():
    dqn, canaries = planted()
    canaries.members[:10] = False
    assert not sum_of(dqn, list(range(3, 13))).any()


def test_patients_add_what_they_would_without_canaries():
    dqn, canaries = planted()
    found = sum_of(dqn, [0, 2, 3, 9, 15])
    rng = np.random.default_rng(2)
    plain = DuelingGradients(SHAPE)
    weights = SHAPE.draw(rng)
    whole = batch_of(rng, 5, 2)
    two = Batch(*(each[:2] for each in vars(whole).values() if each is not None))
    alone = plain.clipped_sum(weights, weights, two, 1.0)
    np.testing.assert_allclose(dqn.known, alone, atol=1e-6)
    expected = np.zeros(len(canaries))
    expected[[0, 6, 12]] = WITHIN
    np.testing.assert_allclose(canaries.along(found - dqn.known), expected, atol=1e-5)
    sum_of(dqn, [5, 6])
    assert not dqn.known.any()


TABLE = NetworkShape(states=9, actions=2, hidden=())
SCALES = np.array([1.0, 2.0, 0.5, 1.0, 3.0, 0.0, 1.5, 1.0, 0.7])


def table(transitions, clip_norm, units=None):
    """Return canaries in a table and the clipped sums of each, or of some units together."""
    rng = np.random.default_rng(7)
    canaries = TabularCanaries.draw(TABLE, SCALES, 12, 5.0, rng)
    canaries.members[:] = True
    inputs = np.diag(SCALES).astype(np.float32)
    dqn = planted_dqn(TABLE, LearnerSettings(), inputs, canaries, 2)
    assert isinstance(dqn, PlantedTabularDqn)
    weights = TABLE.draw(rng)
    sums = []
    for joined in [units] if units else [[2 + each] for each in range(12)]:
        size = (len(joined), transitions)
        states = rng.integers(9, size=(*size, 1)).astype(np.float32)
        rewards = rng.normal(size=size).astype(np.float32)
        actions, left = rng.integers(2, size=size), np.full(size, 0.4, np.float32)
        dqn.units = np.array(joined)
        batch = Batch(states, actions, rewards, states[::-1], left)
        sums.append(dqn.clipped_sum(weights, weights, batch, clip_norm))
    return canaries, dqn, np.array(sums)


@pytest.mark.parametrize('transitions', [2, 5])
def test_canaries_of_a_table_are_orthogonal_and_clipped_by_its_own_lines(transitions):
    canaries, _, directions = table(transitions, 100.0)
    np.testing.assert_allclose(directions @ directions.T, 25.0 * np.eye(12), atol=1e-10)
    for each in range(12):
        np.testing.assert_allclose(canaries.along(directions[each]), 5.0 * np.eye(12)[each])
    _, _, clipped = table(transitions, 1.0)
    np.testing.assert_allclose(np.linalg.norm(clipped, axis=1), WITHIN, atol=1e-12)


def test_patients_of_a_table_are_told_from_canaries():
    canaries, dqn, sums = table(4, 1.0, [0, 1, 2, 5, 13])
    assert 0.0 < np.linalg.norm(dqn.known) <= 2.0
    expected = np.zeros(12)
    expected[[0, 3, 11]] = WITHIN
    np.testing.assert_allclose(canaries.along(sums[0] - dqn.known), expected, atol=1e-12)


def test_more_canaries_than_directions_are_refused_and_a_table_needs_two_rows():
    rng = np.random.default_rng(8)
    with pytest.raises(SettingError, match='1 to 12'):
        TabularCanaries.draw(TABLE, SCALES, 13, 5.0, rng)
    with pytest.raises(SettingError, match='two'):
        table(1, 1.0)
    for count in (0, SHAPE.n_parameters + 1):
        with pytest.raises(SettingError):
            DenseCanaries.draw(SHAPE, (), count, 1.0, rng)
    frozen = [f'{each.name}.bias' for each in SHAPE.layers()]
    with pytest.raises(SettingError, match='1 to 0'):
        DenseCanaries.draw(SHAPE, frozen, 1, 1.0, rng)
