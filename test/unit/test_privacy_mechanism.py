# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The mechanism: sensitivity is C, inclusion is independent, noise has the stated size."""

import math

from fdrl_ros.errors import PrivacyError
from fdrl_ros.privacy.mechanism import (
    clip_factors,
    clip_per_unit,
    mean_noise_std,
    noisy_mean,
    poisson_inclusion,
)
from fdrl_ros.privacy.noise import NoiseSource
from hypothesis import given, strategies
from hypothesis.extra import numpy as arrays
import numpy as np
import pytest
from scipy import stats

GRADIENTS = arrays.arrays(
    np.float64,
    arrays.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=6),
    elements=strategies.floats(-1e6, 1e6),
)
CLIP_NORMS = strategies.floats(1e-3, 1e3)


def slow_clip(gradients, clip_norm):
    """DP-DQN Alg. 1 as it is meant to be read: g / max(1, ||g|| / C), summed."""
    total = np.zeros(gradients.shape[1])
    for gradient in gradients:
        norm = math.sqrt(math.fsum(value * value for value in gradient.tolist()))
        total += gradient / max(1.0, norm / clip_norm)
    return total


@given(GRADIENTS, CLIP_NORMS)
def test_clipping_is_algorithm_1(gradients, clip_norm):
    clipped = clip_per_unit(gradients, clip_norm)
    assert clipped == pytest.approx(slow_clip(gradients, clip_norm), rel=1e-9, abs=1e-9)


@given(GRADIENTS, CLIP_NORMS)
def test_no_unit_contributes_more_than_the_clip_norm(gradients, clip_norm):
    for gradient in gradients:
        contribution = clip_per_unit(gradient[np.newaxis], clip_norm)
        assert math.sqrt(math.fsum(contribution**2)) <= clip_norm


@given(GRADIENTS, CLIP_NORMS)
def test_one_unit_more_or_less_moves_the_sum_by_the_clip_norm_at_most(gradients, clip_norm):
    moved = clip_per_unit(gradients, clip_norm) - clip_per_unit(gradients[:-1], clip_norm)
    assert np.linalg.norm(moved) <= clip_norm * (1.0 + 1e-9)


def test_gradients_within_the_clip_norm_pass_unchanged():
    gradients = np.array([[0.3, 0.4], [0.0, 0.0], [-0.6, 0.0]], np.float32)
    assert np.array_equal(clip_per_unit(gradients, 1.0), gradients.astype(np.float64).sum(axis=0))


def test_float32_gradients_are_clipped_in_float64():
    huge = np.full((1, 3), 3e38, np.float32)  # whose square overflows float32
    assert np.linalg.norm(clip_per_unit(huge, 2.0)) == pytest.approx(2.0, rel=1e-9)


def test_an_empty_batch_sums_to_zero():
    assert np.array_equal(clip_per_unit(np.empty((0, 3), np.float32), 1.0), np.zeros(3))


@pytest.mark.parametrize('bad', [math.nan, math.inf, -math.inf])
def test_a_gradient_that_is_not_finite_is_refused(bad):
    gradients = np.zeros((3, 4), np.float32)
    gradients[1, 2] = bad
    with pytest.raises(PrivacyError, match='not finite') as refused:
        clip_per_unit(gradients, 1.0)
    assert not any(each.isdigit() for each in str(refused.value)), 'logs may tell it to anyone'


def test_refusing_a_shape_does_not_tell_how_many_joined():
    with pytest.raises(PrivacyError) as refused:
        clip_per_unit(np.zeros((137, 2, 2)), 1.0)
    assert '137' not in str(refused.value)


@pytest.mark.parametrize('clip_norm', [0.0, -1.0, math.nan, math.inf])
def test_a_clip_norm_that_bounds_nothing_is_refused(clip_norm):
    with pytest.raises(PrivacyError, match='clip_norm'):
        clip_factors(np.ones(2), clip_norm)


def test_inclusion_is_an_independent_coin_for_each_unit():
    # 2000 steps of 100 units, fixed seed. False alarm of each limit under another seed: 1e-6.
    source, q, n, steps = NoiseSource.seeded(3), 0.128, 100, 2000
    masks = np.array([poisson_inclusion(n, q, source, 1, step) for step in range(steps)])
    limit = stats.norm.isf(0.5e-6)
    spread = math.sqrt(q * (1.0 - q))
    assert abs(masks.mean() - q) < limit * spread / math.sqrt(n * steps)
    # The number that joins must vary as a binomial does, not stay near L.
    variance = masks.sum(axis=1).var(ddof=1) / (n * spread**2)
    assert abs(variance - 1.0) < limit * math.sqrt(2.0 / (steps - 1))
    # No pair of units joins together more or less often than chance (4950 pairs).
    correlation = np.corrcoef(masks, rowvar=False)[np.triu_indices(n, 1)]
    assert np.abs(correlation).max() < stats.norm.isf(0.5e-6 / 4950) / math.sqrt(steps)


def test_a_step_that_nobody_joins_can_happen():
    source = NoiseSource.seeded(3)
    assert any(not poisson_inclusion(5, 0.1, source, 0, step).any() for step in range(10))


def test_everyone_joins_at_q_1():
    assert poisson_inclusion(1000, 1.0, NoiseSource.seeded(3), 0, 0).all()


def test_a_unit_never_joins_with_more_than_q():
    class Words(NoiseSource):
        """A source of chosen words."""

        def words(self, purpose, round, step, size):
            return np.array([0, 2**62 - 1, 2**62], np.uint64)

    words = Words(bytes(32), private=False)
    assert poisson_inclusion(3, 0.25, words, 0, 0).tolist() == [True, True, False]
    assert poisson_inclusion(3, 2.0**-70, words, 0, 0).tolist() == [False, False, False]


@pytest.mark.parametrize('q', [0.0, -0.1, 1.0000001, math.nan])
def test_a_sampling_probability_that_is_none_is_refused(q):
    with pytest.raises(PrivacyError, match='sampling probability'):
        poisson_inclusion(3, q, NoiseSource.seeded(3), 0, 0)


def test_the_mean_divides_by_the_expected_batch_size():
    mean = noisy_mean(
        np.array([3.0, -6.0]),
        noise_multiplier=2.0,
        clip_norm=0.5,
        expected_batch=4.0,
        noise=np.array([1.0, 2.0]),
    )
    assert mean.tolist() == [(3.0 + 1.0) / 4.0, (-6.0 + 2.0) / 4.0]


def test_the_noise_on_the_mean_has_the_papers_std():
    # 100 000 draws, fixed seed; false alarm under another seed: 1e-6.
    numbers = {'noise_multiplier': 1.5, 'clip_norm': 0.8, 'expected_batch': 64.0}
    noise = NoiseSource.seeded(4).gaussian('gradient', 0, 0, 100_000)
    mean = noisy_mean(np.zeros(100_000), noise=noise, **numbers)
    ratio = mean.std() / mean_noise_std(**numbers)
    assert mean_noise_std(**numbers) == pytest.approx(1.5 * 0.8 / 64.0)
    assert abs(ratio - 1.0) < stats.norm.isf(0.5e-6) / math.sqrt(2.0 * 100_000)


def test_one_draw_for_all_parameters_is_refused():
    for noise in (np.array(1.0), np.ones(1), np.ones((3, 1))):
        with pytest.raises(PrivacyError, match='one draw for each parameter'):
            noisy_mean(
                np.zeros(3), noise_multiplier=1.0, clip_norm=1.0, expected_batch=1.0, noise=noise
            )


@pytest.mark.parametrize(
    'change',
    [
        {'noise_multiplier': -1.0},
        {'noise_multiplier': math.nan},
        {'clip_norm': 0.0},
        {'expected_batch': 0.0},
        {'noise': np.array([math.nan, 0.0])},
    ],
)
def test_numbers_that_void_the_mechanism_are_refused(change):
    good = {
        'noise_multiplier': 1.0,
        'clip_norm': 1.0,
        'expected_batch': 1.0,
        'noise': np.zeros(2),
    }
    with pytest.raises(PrivacyError):
        noisy_mean(np.zeros(2), **(good | change))
