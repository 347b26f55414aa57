# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The closed form of the clipped gradients is the slope of a loss written out slowly."""

from dataclasses import replace

from fdrl_ros.errors import PolicyError, SettingError
from fdrl_ros.learner.gradient import DuelingGradients
from fdrl_ros.learner.settings import LearnerSettings
from fdrl_ros.learner.tabular_dqn import dqn_for, TabularDqn
from fdrl_ros.policy import NetworkShape
from hypothesis import given, settings, strategies
import numpy as np
import pytest
from support.batches import batch_of, part
from support.sample_size import sampled

pytestmark = pytest.mark.usefixtures('arithmetic')

UNCLIPPED = 1e9
SMALL = strategies.integers(0, 2**20)


def two_weights(seed, shape):
    rng = np.random.default_rng(seed)
    return [shape.draw(rng) for _ in range(2)]


def slow_q_values(weights, shape, state):
    """Run the network for one state in float64, as the papers write it."""
    *shared, value, advantage = shape.split(weights)
    hidden = state.astype(float)
    for matrix, bias in shared:
        hidden = np.tanh(matrix @ hidden + bias)
    (v,), a = (matrix @ hidden + bias for matrix, bias in (value, advantage))
    return v + a - a.mean()


def slow_value(weights, shape, state):
    """Run the network's value alone."""
    *shared, (matrix, bias), _ = shape.split(weights)
    hidden = state.astype(float)
    for layer, offset in shared:
        hidden = np.tanh(layer @ hidden + offset)
    return (matrix @ hidden + bias)[0]


def slow_penalty(error, learner):
    size = abs(error)
    return 0.5 * size**2 if size < 1.0 or learner.loss == 'squared' else size - 0.5


def slow_loss(weights, target_weights, acting, shape, batch, unit, learner):
    """Mean loss of one unit; targets come from the weights `acting`, which stand still."""
    losses, alpha = [], learner.conservative
    for i in range(batch.actions.shape[1]):
        best = slow_q_values(acting, shape, batch.next_states[unit, i]).argmax()
        value = slow_q_values(target_weights, shape, batch.next_states[unit, i])[best]
        values = slow_q_values(weights, shape, batch.states[unit, i])
        chosen, reward = values[batch.actions[unit, i]], batch.rewards[unit, i]
        surprise = np.log(np.exp(values).sum()) - chosen
        if learner.algorithm == 'behaviour_cloning':
            total = surprise
        elif learner.algorithm == 'advantage_weighted':  # the value is the head's, not a mean
            expected, now = (
                slow_value(each, shape, batch.states[unit, i])
                for each in (target_weights, weights)
            )
            weight = np.exp((float(reward) - expected) / learner.temperature)
            total = min(weight, learner.most_weight) * surprise
            total += learner.value_weight * slow_penalty(now - reward, learner)
        else:
            error = chosen - reward - batch.discounts[unit, i] * value
            total = slow_penalty(error, learner) + alpha * surprise
        losses.append(total if batch.weights is None else batch.weights[unit, i] * total)
    return sum(losses) / len(losses)


CLONING = {'algorithm': 'behaviour_cloning'}
WEIGHTED = {'algorithm': 'advantage_weighted', 'temperature': 1.5, 'most_weight': 2.0}
LOSSES = [
    {},
    {'loss': 'squared'},
    {'conservative': 0.7},
    CLONING,
    WEIGHTED,
    WEIGHTED | {'loss': 'squared', 'value_weight': 0.3},
]


@pytest.mark.parametrize('changes', LOSSES, ids=str)
@settings(max_examples=3, deadline=None)
@given(
    SMALL,
    strategies.integers(1, 3),
    strategies.sampled_from([(3,), (4, 3), (2, 3, 2)]),
    strategies.booleans(),
)
def test_closed_form_is_the_slope_of_each_unit_s_loss(
    changes, seed, transitions, hidden, weighted
):
    shape, learner = NetworkShape(3, 2, hidden), LearnerSettings(**changes)
    weights, target = two_weights(seed, shape)
    batch = batch_of(np.random.default_rng(seed), shape, 2, transitions, weighted=weighted)
    dqn = DuelingGradients(shape, learner)
    wide, frozen, step = weights.astype(float), target.astype(float), 1e-5
    for unit in range(2):
        found = dqn.clipped_sum(weights, target, part(batch, [unit]), UNCLIPPED)
        for index in range(shape.n_parameters):
            ahead, behind = wide.copy(), wide.copy()
            ahead[index] += step
            behind[index] -= step
            losses = [
                slow_loss(each, frozen, wide, shape, batch, unit, learner)
                for each in (ahead, behind)
            ]
            assert abs((losses[0] - losses[1]) / (2 * step) - found[index]) < 5e-5


@settings(max_examples=sampled(40, 13), deadline=None)
@given(
    SMALL,
    strategies.integers(1, 6),
    strategies.sampled_from([1, 2, 3, 40]),  # by norms of rows, by products, by matrices
    strategies.sampled_from([(5,), (12, 9)]),
    strategies.floats(1e-3, 10.0),
    strategies.sampled_from(
        ['', 'shared.0', 'shared.0.weight,value', 'advantage', 'shared.0.bias']
    ),
)
def test_clipped_sum_is_the_slow_sum_of_each_unit_clipped(
    seed, units, transitions, hidden, clip_norm, frozen
):
    shape = NetworkShape(6, 4, hidden)
    weights, target = two_weights(seed, shape)
    batch = batch_of(np.random.default_rng(seed), shape, units, transitions, weighted=seed % 2)
    dqn = DuelingGradients(shape, LearnerSettings(frozen=frozen))
    expected = np.zeros(dqn.size)
    for unit in range(units):
        gradient = dqn.clipped_sum(weights, target, part(batch, [unit]), UNCLIPPED)
        expected += gradient / max(1.0, np.linalg.norm(gradient) / (clip_norm * (1 - 2.0**-10)))
    found = dqn.clipped_sum(weights, target, batch, clip_norm)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6 * max(1.0, clip_norm))


@settings(max_examples=sampled(40, 13), deadline=None)
@given(
    SMALL,
    strategies.sampled_from([1, 2, 4, 8, 40]),
    strategies.sampled_from([1e-4, 1e-2, 0.4, 10.0]),
    strategies.sampled_from([1.0, 1e3, 1e5]),
    strategies.sampled_from([(), (12, 9)]),
    strategies.booleans(),
)
def test_one_unit_moves_the_sum_by_the_clip_norm_at_most(
    seed, transitions, clip_norm, scale, hidden, cancelling
):
    """Also where its rows nearly cancel, which a norm out of products of rows does not see."""
    shape = NetworkShape(6, 4, hidden)
    weights, target = two_weights(seed, shape)
    rng = np.random.default_rng(seed)
    batch = batch_of(rng, shape, 9, transitions)
    if cancelling:
        batch.states[4] = batch.states[4, :1] + 1e-4 * batch.states[4]
        batch.actions[4] = 1
        batch.rewards[4] = 1e3 * (-1.0) ** np.arange(transitions)
    else:
        batch.rewards[4] *= 1e6
    batch.states[4] *= scale
    dqn = DuelingGradients(shape, LearnerSettings(loss='squared' if seed % 2 else 'huber'))
    everyone = dqn.clipped_sum(weights, target, batch, clip_norm)
    others = part(batch, [0, 1, 2, 3, 5, 6, 7, 8])
    without = dqn.clipped_sum(weights, target, others, clip_norm)
    assert np.linalg.norm(everyone - without) <= clip_norm


@pytest.mark.parametrize('changes', [CLONING, WEIGHTED], ids=str)
def test_errors_of_cloning_are_its_losses(changes):
    shape, learner = NetworkShape(3, 2, (4,)), LearnerSettings(**changes)
    weights, target = two_weights(3, shape)
    batch = batch_of(np.random.default_rng(3), shape, 5, 1)
    found = DuelingGradients(shape, learner).errors(weights, target, batch)
    wide = weights.astype(float)
    expected = [
        slow_loss(wide, target.astype(float), wide, shape, batch, unit, learner)
        for unit in range(5)
    ]
    np.testing.assert_allclose(found[:, 0], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize('changes', [CLONING, WEIGHTED], ids=str)
def test_cloning_asks_neither_next_states_nor_what_follows(changes):
    shape = NetworkShape(3, 2, (4,))
    weights, target = two_weights(4, shape)
    batch = batch_of(np.random.default_rng(4), shape, 5, 3)
    dqn = DuelingGradients(shape, LearnerSettings(**changes))
    before = dqn.clipped_sum(weights, target, batch, 1.0)
    batch.next_states[...] = np.nan
    batch.discounts[...] = np.nan
    np.testing.assert_array_equal(dqn.clipped_sum(weights, target, batch, 1.0), before)
    batch.rewards[...] += 1.0
    after = dqn.clipped_sum(weights, target, batch, 1.0)
    assert np.array_equal(after, before) == (changes is CLONING)


def test_unknown_algorithms_are_refused_with_the_list():
    for name, words in (('implicit_q', "kind 'torch'"), ('behavior_cloning', 'mean behaviour_')):
        with pytest.raises(SettingError, match=words):
            DuelingGradients(NetworkShape(3, 2, ()), LearnerSettings(algorithm=name))


def test_mean_is_the_mean_over_all_transitions_unclipped():
    shape = NetworkShape(6, 4, (7,))
    weights, target = two_weights(8, shape)
    batch, dqn = batch_of(np.random.default_rng(8), shape, 6, 1), DuelingGradients(shape)
    expected = dqn.clipped_sum(weights, target, batch, UNCLIPPED) / 6
    np.testing.assert_allclose(dqn.mean(weights, target, batch), expected, atol=1e-6)


FROZEN = [
    'shared.0',
    'shared',
    'shared.0.weight, shared.1, value, advantage',  # what is left is one bias
    'shared.0.bias, shared.1, value, advantage',
    'shared.1, value.weight',
    'shared, value.weight, advantage.bias',
    'value',
]


@pytest.mark.parametrize('frozen', FROZEN)
@pytest.mark.parametrize('transitions', [1, 4])
def test_frozen_tensors_have_no_gradient_and_the_others_the_same(frozen, transitions):
    shape, learner = NetworkShape(6, 4, (7, 5)), LearnerSettings(frozen=frozen)
    weights, target = two_weights(2, shape)
    batch = batch_of(np.random.default_rng(2), shape, 5, transitions)
    dqn, whole = DuelingGradients(shape, learner), DuelingGradients(shape)
    trained = shape.layout.trained(learner.frozen_tensors)
    assert 0 < dqn.size == len(trained) < shape.n_parameters
    np.testing.assert_array_equal(np.arange(shape.n_parameters)[dqn.index], trained)
    for clip_norm in (UNCLIPPED, 0.3):
        clipped = np.zeros(dqn.size)
        for unit in range(5):  # clipped by the norm of what is trained alone
            own = part(batch, [unit])
            gradient = whole.clipped_sum(weights, target, own, UNCLIPPED)[trained]
            most = clip_norm * (1.0 - 2.0**-10)
            clipped += gradient * min(1.0, most / np.linalg.norm(gradient))
        found = dqn.clipped_sum(weights, target, batch, clip_norm)
        np.testing.assert_allclose(found, clipped, rtol=1e-5, atol=1e-6)
    mean = whole.mean(weights, target, batch)[trained]
    np.testing.assert_allclose(dqn.mean(weights, target, batch), mean, rtol=1e-5, atol=1e-6)


def test_names_that_freeze_nothing_or_everything_are_refused():
    for frozen, words in (('shred', 'no tensor'), ('shared,value,advantage', 'left to train')):
        with pytest.raises(PolicyError, match=words):
            DuelingGradients(NetworkShape(6, 4, (7,)), LearnerSettings(frozen=frozen))


@pytest.mark.parametrize('transitions', [1, 3])
def test_a_unit_counts_if_what_is_trained_of_its_gradient_is_finite(transitions):
    """The matrix of the first layer is not: its inputs are beyond float32, squared."""
    shape = NetworkShape(6, 4, (7,))
    weights, target = two_weights(2, shape)
    weights[: 6 * 7] = 0.0
    batch = batch_of(np.random.default_rng(2), shape, 3, transitions)
    batch.states[1] = 3e38
    learner = LearnerSettings(frozen='shared.0.weight')
    found = DuelingGradients(shape, learner).clipped_sum(weights, target, batch, UNCLIPPED)
    without = DuelingGradients(shape, learner).clipped_sum(
        weights, target, part(batch, [0, 2]), UNCLIPPED
    )
    assert np.isfinite(found).all() and np.abs(found - without).max() > 1e-3


@pytest.mark.parametrize('transitions', [1, 4])
@pytest.mark.parametrize('bad', [np.nan, np.inf, 3e38])
def test_a_unit_that_is_not_finite_adds_nothing_and_stops_nobody(transitions, bad):
    """To stop because of it would tell, uncharged, that it is there."""
    shape = NetworkShape(6, 4, (7,))
    weights, target = two_weights(2, shape)
    batch = batch_of(np.random.default_rng(2), shape, 5, transitions)
    dqn = DuelingGradients(shape, LearnerSettings(loss='squared'))
    without = dqn.clipped_sum(weights, target, part(batch, [0, 1, 2, 4]), 1.0)
    batch.states[3, 0, 2] = batch.rewards[3, 0] = bad
    found = dqn.clipped_sum(weights, target, batch, 1.0)
    np.testing.assert_allclose(found, without, rtol=1e-9, atol=1e-12)


ONE_HOT = NetworkShape(6, 3, ())


@settings(max_examples=sampled(40, 13), deadline=None)
@given(
    seed=strategies.integers(0, 2**31),
    changes=strategies.sampled_from(LOSSES),
    clip_norm=strategies.floats(0.01, 10.0),
    weighted=strategies.booleans(),
)
def test_a_table_has_the_gradients_of_its_network(seed, changes, clip_norm, weighted):
    rng = np.random.default_rng(seed)
    inputs = np.diag(rng.uniform(0.5, 3.0, 6)).astype(np.float32)
    learner = LearnerSettings(**changes)
    table = dqn_for(ONE_HOT, learner, inputs)
    network = DuelingGradients(ONE_HOT, learner)
    assert isinstance(table, TabularDqn)
    now, apart = (rng.normal(size=ONE_HOT.n_parameters).astype(np.float32) for _ in range(2))
    numbers = rng.integers(6, size=(2, 7, 4))
    same = batch_of(rng, ONE_HOT, 7, 4, weighted=weighted)
    same = replace(same, states=inputs[numbers[0]], next_states=inputs[numbers[1]])
    states, following = numbers[..., None].astype(np.float32)
    rows = replace(same, states=states, next_states=following)
    for found, expected in (
        (
            table.clipped_sum(now, apart, rows, clip_norm),
            network.clipped_sum(now, apart, same, clip_norm),
        ),
        (table.mean(now, apart, rows), network.mean(now, apart, same)),
        (table.errors(now, apart, rows), network.errors(now, apart, same)),
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize('hidden, inputs', [((), np.ones((6, 6))), ((), None), ((4,), np.eye(6))])
def test_other_inputs_or_hidden_layers_are_no_table(hidden, inputs):
    shape = NetworkShape(6, 3, hidden)
    assert not isinstance(dqn_for(shape, LearnerSettings(), inputs), TabularDqn)
