# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""No round of an honest hospital changes more than its bound, whatever the gradients are."""

from dataclasses import replace
import math

from fdrl_ros.errors import SettingError
from fdrl_ros.learner.offsets import InputOffsets, step_with
from fdrl_ros.learner.optimizer import BETAS, fresh_moments, Optimizer
from fdrl_ros.learner.settings import LearnerSettings, PrivacySettings
from fdrl_ros.learner.trainer import Trainer, TrainingSetup
from fdrl_ros.learner.update_bound import adam_steps, FAILURE, update_bound, UpdateBound
from fdrl_ros.policy import NetworkShape
from fdrl_ros.privacy.noise import NoiseSource
from hypothesis import assume, given, settings, strategies
import numpy as np
import pytest
from support.sample_size import sampled
from support.small_hospital import ledger_of, PRIVACY, records_of, trained

ADAM = LearnerSettings(optimizer='adam', learning_rate=0.1, proximal=0.0)
DESCENT = replace(ADAM, optimizer='sgd')
LOG = math.log(4.0 / FAILURE)
ROUNDING = 1.0 + 1e-9  # of float64 sums
SIZES = strategies.integers(1, 6)
SHARES = strategies.sampled_from([0.0, 0.3, 0.5, 1.0])
# Of all sizes, so that the moments of some weights grow while others stay.
GRADIENTS = strategies.builds(
    lambda sign, power: sign * 10.0**power,
    strategies.sampled_from([-1.0, 0.0, 1.0]),
    strategies.floats(-6.0, 30.0),
)


def changes(learner, gradients, span=None):
    """Return what the round of a real optimizer changes, as the trainer goes through it."""
    steps, size = gradients.shape
    offsets = 0 if span is None else span.shape[1]
    rates = np.full(offsets + size, learner.learning_rate)
    rates[:offsets] = learner.offset_rate
    optimizer = Optimizer(
        learner.optimizer, rates, fresh_moments(learner.optimizer, offsets + size)
    )
    moved, iterates = np.zeros(size), []
    for each in gradients:
        gradient = each + learner.proximal * moved
        made = optimizer.step(gradient) if span is None else step_with(optimizer, gradient, span)
        moved = moved + made
        iterates.append(moved)
    return np.mean(iterates[steps - max(1, learner.averaged_steps(steps)) :], axis=0)


def bound_of(learner, gradients, privacy=PRIVACY, span=None, records=10**6):
    steps, size = gradients.shape
    return update_bound(learner, privacy, weights=size, steps=steps, records=records, span=span)


def assert_within(change: np.ndarray, bound: UpdateBound) -> None:
    assert np.abs(change).max() <= bound.per_weight * ROUNDING
    assert np.linalg.norm(change) <= bound.norm * ROUNDING


# Adam.


@pytest.mark.parametrize('step', [1, 2, 3, 48, 1000])
def test_the_longest_step_of_adam_is_that_of_cauchy_and_schwarz(step):
    first, second = BETAS
    age = np.arange(step)
    a = (1.0 - first) * first**age / (1.0 - first**step)
    b = (1.0 - second) * second**age / (1.0 - second**step)
    assert a.sum() == pytest.approx(1.0) and b.sum() == pytest.approx(1.0)
    assert adam_steps(step)[-1] == pytest.approx(math.sqrt((a**2 / b).sum()), rel=1e-12)


def test_steps_of_adam_grow_from_1_to_their_limit():
    longest = adam_steps(20_000)
    assert longest[0] == pytest.approx(1.0)
    assert (np.diff(longest) > -1e-12).all()
    first, second = BETAS
    limit = (1.0 - first) / math.sqrt((1.0 - second) * (1.0 - first**2 / second))
    assert longest[-1] == pytest.approx(limit, rel=1e-6) and limit == pytest.approx(7.27, abs=0.01)


@pytest.mark.parametrize('averaging', [0.0, 0.5])
def test_growing_gradients_take_adam_all_the_way_to_its_bound(averaging):
    learner = replace(ADAM, averaging=averaging)
    growing = 1e3 * (BETAS[1] / BETAS[0]) ** np.arange(48)
    gradients = growing[:, None] * [1.0, -1.0, 1.0]
    change, bound = changes(learner, gradients), bound_of(learner, gradients)
    np.testing.assert_allclose(change, [-bound.per_weight, bound.per_weight, -bound.per_weight])
    assert np.linalg.norm(change) == pytest.approx(bound.norm)
    assert_within(change, bound)


def test_offsets_reach_their_bound_too():
    learner = replace(ADAM, learning_rate=0.001, offset_rate=0.02)
    span = np.array([[1.0, -2.0], [0.5, 0.25], [0.0, 0.0]])
    growing = 1e3 * (BETAS[1] / BETAS[0]) ** np.arange(20)
    gradients = growing[:, None] * [1.0, 0.0, 0.0]
    bound = bound_of(learner, gradients, span=span)
    farthest = adam_steps(20).sum()
    assert bound.per_weight == pytest.approx(farthest * (0.001 + 0.02 * 3.0))
    assert changes(learner, gradients, span)[0] == pytest.approx(-bound.per_weight)


@settings(max_examples=sampled(200, 40), deadline=None)
@given(strategies.data(), SIZES, strategies.integers(1, 30), SHARES, strategies.integers(0, 3))
def test_no_gradients_take_adam_beyond_its_bound(data, size, steps, averaging, offsets):
    learner = replace(ADAM, averaging=averaging, proximal=0.7, offset_rate=0.3)
    row = strategies.lists(GRADIENTS, min_size=size, max_size=size)
    gradients = np.array(data.draw(strategies.lists(row, min_size=steps, max_size=steps)))
    span = None
    if offsets:
        span = np.random.default_rng(steps).normal(size=(size, offsets))
    assert_within(changes(learner, gradients, span), bound_of(learner, gradients, span=span))


# Plain descent.


def test_the_bound_of_plain_descent_is_its_closed_form():
    privacy = PrivacySettings(batch=20, clip_norm=0.5, noise_multiplier=2.0)
    steps, size = 9, 100
    mean = 20 * steps
    joined = mean + LOG / 3.0 + math.sqrt(LOG**2 / 9.0 + 2.0 * LOG * mean)
    deviation = 0.1 * 2.0 * 0.5 / 20 * math.sqrt(steps)
    bound = bound_of(DESCENT, np.zeros((steps, size)), privacy)
    signal = 0.1 * 0.5 / 20 * joined
    tail = math.sqrt(2.0 * (math.log(size) + LOG))
    assert bound.per_weight == pytest.approx(signal + deviation * tail)
    length = math.sqrt(size + 2.0 * math.sqrt(size * LOG) + 2.0 * LOG)
    assert bound.norm == pytest.approx(signal + deviation * length)
    few = bound_of(DESCENT, np.zeros((steps, size)), privacy, records=20)
    assert few.norm == pytest.approx(bound.norm - signal + 0.1 * 0.5 * steps)
    fixed = bound_of(replace(DESCENT, replay='uniform'), np.zeros((steps, size)), privacy)
    assert fixed == few
    every = replace(DESCENT, replay='prioritised_poisson')
    most = bound_of(every, np.zeros((steps, size)), privacy, records=60)
    assert most.norm == pytest.approx(bound.norm - signal + 3.0 * 0.1 * 0.5 * steps)


@settings(max_examples=sampled(200, 40), deadline=None)
@given(
    strategies.integers(0, 2**32 - 1),
    SIZES,
    strategies.integers(1, 12),
    SHARES,
    strategies.integers(0, 3),
    strategies.sampled_from([0.0, 0.5, 15.0, 60.0]),
)
def test_no_clipped_gradients_take_plain_descent_beyond_its_bound(
    seed, size, steps, averaging, offsets, proximal
):
    """Also where the FedProx term overshoots, and iterates grow from step to step."""
    learner = replace(DESCENT, averaging=averaging, proximal=proximal, offset_rate=0.05)
    privacy, rng = replace(PRIVACY, noise_multiplier=0.0), np.random.default_rng(seed)
    span = rng.normal(size=(size, offsets)) if offsets else None
    # All of 7 records join every step, and all agree; many agree with the step before too.
    toward = rng.normal(size=(steps, size)) * (rng.random((steps, 1)) < 0.3) + rng.normal(
        size=size
    )
    lengths = np.linalg.norm(toward, axis=1, keepdims=True)
    assume(lengths.min() > 0.0)
    signs = rng.choice([-1.0, 1.0], (steps, 1)) if proximal > 1.0 else 1.0
    gradients = signs * toward / lengths * 7 * privacy.clip_norm / privacy.batch
    bound = bound_of(learner, gradients, privacy, span, records=7)
    assert_within(changes(learner, gradients, span), bound)


def test_noise_alone_stays_below_the_bound_of_plain_descent_and_comes_near():
    """The chance of a false alarm is 2^-40 in each of 200 rounds."""
    learner, privacy = replace(DESCENT, averaging=0.5), replace(PRIVACY, batch=100)
    rng, steps, size = np.random.default_rng(1), 20, 2000
    deviation = privacy.noise_multiplier * privacy.clip_norm / privacy.batch
    most, longest = 0.0, 0.0
    # Nobody joins: 0 records.
    bound = bound_of(learner, np.zeros((steps, size)), privacy, records=0)
    for _ in range(200):
        change = changes(learner, deviation * rng.normal(size=(steps, size)))
        assert_within(change, bound)
        most, longest = max(most, np.abs(change).max()), max(longest, np.linalg.norm(change))
    assert most > 0.5 * bound.per_weight and longest > 0.8 * bound.norm


def test_offsets_of_inputs_keep_the_noise_below_the_bound_of_plain_descent():
    """The chance of a false alarm is 2^-40 in each of 200 rounds."""
    learner, rng = replace(DESCENT, proximal=0.3, offset_rate=0.05), np.random.default_rng(2)
    span = rng.normal(size=(50, 3))
    deviation = PRIVACY.noise_multiplier * PRIVACY.clip_norm / PRIVACY.batch
    bound = bound_of(learner, np.zeros((20, 50)), span=span, records=0)
    norms = []
    for _ in range(200):
        change = changes(learner, deviation * rng.normal(size=(20, 50)), span)
        assert_within(change, bound)
        norms.append(np.linalg.norm(change))
    # The tail of three offsets is five times their usual length.
    assert max(norms) > 0.05 * bound.norm


def test_as_many_join_as_the_bound_counts_at_most():
    """The chance of a false alarm is 2^-42 in each of 100,000 rounds."""
    privacy = replace(PRIVACY, noise_multiplier=0.0, clip_norm=1.0, batch=5)
    bound = bound_of(replace(DESCENT, learning_rate=1.0), np.zeros((12, 1)), privacy, records=100)
    joined = np.random.default_rng(3).binomial(1200, 0.05, 100_000)
    assert joined.max() <= 5 * bound.norm <= 3 * 60


def test_descent_whose_fedprox_term_grows_without_end_is_refused():
    bound_of(replace(DESCENT, proximal=19.0), np.zeros((10_000, 3)))
    growing = replace(DESCENT, proximal=100.0)
    assert bound_of(growing, np.zeros((5, 3))).per_weight > 9.0**4
    with pytest.raises(SettingError, match='learning_rate = 0.1: expected less'):
        bound_of(growing, np.zeros((10_000, 3)))
    assert bound_of(replace(ADAM, proximal=100.0), np.zeros((10_000, 3))).per_weight < 7_270.0


# Both.


@pytest.mark.parametrize('optimizer', ['adam', 'sgd'])
@pytest.mark.parametrize('replay', ['poisson', 'prioritised_poisson'])
def test_a_round_of_a_hospital_stays_within_its_bound(tmp_path, optimizer, replay):
    """Noise and coins are those of a seed. The chance of a false alarm is 2^-40."""
    shape, fields = NetworkShape(states=4, actions=3, hidden=(6, 5)), ('x', 'y', 'z', 'force')
    whole = LearnerSettings(
        optimizer=optimizer, replay=replay, epochs=6, learning_rate=0.5, averaging=0.5
    )
    frozen = 'shared.0.weight, shared.1, value, advantage'
    calibrating = replace(whole, frozen=frozen, offsets='y, force', offset_rate=0.5)
    made, start = records_of([8] * 20, (4, 3)), shape.draw(np.random.default_rng(1))
    privacy = replace(PRIVACY, budget=1e6, noise_multiplier=0.5)
    for number, learner in enumerate((whole, calibrating)):
        folder = tmp_path / str(number)
        folder.mkdir()
        ledger = ledger_of(folder, 'hospital_1', privacy)
        noise = NoiseSource.seeded(number)
        setup = TrainingSetup(shape, learner, privacy, ledger, noise, fields=fields)
        trainer = Trainer(setup, made, folder / 'checkpoint')
        result = trained(trainer, start)
        ledger.close()
        index = shape.layout.trained(learner.frozen_tensors)
        span = InputOffsets(shape, learner, fields).span(start) if learner.offsets else None
        steps = learner.epochs * trainer.steps_per_block
        bound = update_bound(
            learner, privacy, weights=len(index), steps=steps, records=20, span=span
        )
        change = result.weights.astype(np.float64) - start
        assert np.count_nonzero(np.delete(change, index)) == 0
        assert 0.01 * bound.per_weight < np.abs(change).max() <= bound.limit
        assert np.linalg.norm(change) <= 1.01 * bound.norm


@pytest.mark.parametrize('learner', [ADAM, DESCENT])
@pytest.mark.parametrize('span', [None, np.ones((40, 2))])
@pytest.mark.parametrize('averaging', [0.0, 0.5])
def test_more_of_anything_never_lowers_a_bound(learner, span, averaging):
    learner = replace(learner, averaging=averaging)

    def found(learner=learner, privacy=PRIVACY, weights=40, steps=10, records=8):
        columns = None if span is None else np.resize(span, (weights, 2))
        bound = update_bound(
            learner, privacy, weights=weights, steps=steps, records=records, span=columns
        )
        return np.array([bound.per_weight, bound.norm])

    usual, descends = found(), learner.optimizer == 'sgd'
    for steps in range(11, 30):
        assert (found(steps=steps) >= found(steps=steps - 1)).all()
    assert (found(learner=replace(learner, learning_rate=0.2)) > usual).all()
    assert (found(learner=replace(learner, proximal=100.0)) > usual).all() == descends
    assert found(weights=41)[1] > usual[1]
    assert (found(records=9) > usual).all() == descends
    assert (found(learner=replace(learner, averaging=averaging + 0.5)) < usual).all()
    for changed in ({'clip_norm': 1.1}, {'noise_multiplier': 2.1}):
        assert (found(privacy=replace(PRIVACY, **changed)) > usual).all() == descends
    if span is not None:
        assert (found(learner=replace(learner, offset_rate=0.1)) > usual).all()


def test_nothing_travels_and_nothing_changes_without_trained_weights():
    for learner in (ADAM, DESCENT):
        bound = update_bound(learner, PRIVACY, weights=0, steps=10, records=8)
        assert bound == UpdateBound(0.0, 0.0) and bound.limit == 1e-6


@given(strategies.floats(1e-5, 1e6))
def test_a_limit_is_a_little_more_than_the_bound_in_three_digits(per_weight):
    limit = UpdateBound(per_weight, 1.0).limit
    assert 1.0099 * per_weight <= limit <= 1.0202 * per_weight
    assert float(f'{limit:.2e}') == limit
