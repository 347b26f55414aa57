# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The mechanism: sensitivity is C, inclusion is independent, noise has the stated size."""

import math

from fdrl_ros.errors import PrivacyError
from fdrl_ros.privacy.mechanism import (
    clip_factors,
    grid_of,
    independent_sample,
    mean_noise_std,
    noisy_mean,
    poisson_sample,
)
from fdrl_ros.privacy.noise import NoiseSource
from hypothesis import given, strategies
from hypothesis.extra import numpy as arrays
import numpy as np
import pytest
from scipy import stats

CLIP_NORMS = strategies.floats(1e-3, 1e3)


@given(arrays.arrays(np.float64, 5, elements=strategies.floats(0.0, 1e6)), CLIP_NORMS)
def test_factors_are_those_of_algorithm_1_with_room_for_arithmetic(norms, clip_norm):
    within = clip_norm * (1.0 - 2.0**-10)
    expected = [1.0 / max(1.0, norm / within) for norm in norms]
    np.testing.assert_allclose(clip_factors(norms, clip_norm), expected, rtol=1e-12)


def test_a_unit_whose_norm_is_not_finite_adds_nothing():
    norms = [0.5, math.nan, math.inf, 4.0]
    assert clip_factors(norms, 1.0) == pytest.approx([1.0, 0.0, 0.0, 0.25], rel=1e-3)


def test_inclusion_is_an_independent_coin_for_each_unit():
    # 2000 steps of 100 units, fixed seed. False alarm of each limit under another seed: 1e-6.
    source, q, n, steps = NoiseSource.seeded(3), 0.128, 100, 2000
    masks = np.zeros((steps, n), bool)
    for step in range(steps):
        masks[step, poisson_sample(n, q, source, 1, step)] = True
    limit = stats.norm.isf(0.5e-6)
    spread = math.sqrt(q * (1.0 - q))
    assert abs(masks.mean() - q) < limit * spread / math.sqrt(n * steps)
    # The number that joins must vary as a binomial does, not stay near L.
    variance = masks.sum(axis=1).var(ddof=1) / (n * spread**2)
    assert abs(variance - 1.0) < limit * math.sqrt(2.0 / (steps - 1))
    # No pair of units joins together more or less often than chance (4950 pairs).
    correlation = np.corrcoef(masks, rowvar=False)[np.triu_indices(n, 1)]
    assert np.abs(correlation).max() < stats.norm.isf(0.5e-6 / 4950) / math.sqrt(steps)


def test_nobody_or_everyone_can_join_a_step():
    source = NoiseSource.seeded(3)
    assert any(not len(poisson_sample(5, 0.1, source, 0, step)) for step in range(10))
    assert not len(poisson_sample(10, 1e-300, source, 0, 0))  # gaps beyond a double's integers
    assert np.array_equal(poisson_sample(1000, 1.0, source, 0, 0), np.arange(1000))


def test_sampling_by_gaps_is_coin_by_coin_sampling():
    """The slow, obvious version: walk over the units, and count down the drawn gap."""
    source, n, q = NoiseSource.seeded(9), 500, 0.064
    for step in range(20):
        uniforms = iter(source.uniform('inclusion 0', 2, step, 500))
        expected, wait = [], math.floor(math.log(next(uniforms)) / math.log1p(-q))
        for unit in range(n):
            if wait == 0:
                expected.append(unit)
                wait = math.floor(math.log(next(uniforms)) / math.log1p(-q))
            else:
                wait -= 1
        assert poisson_sample(n, q, source, 2, step).tolist() == expected


def test_sampling_goes_on_when_the_first_draws_do_not_reach_the_end():
    class Low(NoiseSource):
        """A source whose first draws let everybody join."""

        def uniform_words(self, purpose, round, step, size):
            coin = 0.999 if purpose == 'inclusion 0' else 0.5**11
            return np.full(size, int(coin * 2.0**64), np.uint64)

    found = poisson_sample(100, 0.01, Low(bytes(32), private=False), 0, 0)
    first = math.ceil(1.0 + 6.0) + 8
    gap = math.floor(math.log(0.5**11) / math.log1p(-0.01)) + 1
    assert gap > 100
    assert found.tolist() == list(range(first))


def test_each_unit_joins_with_a_probability_of_its_own():
    source, steps = NoiseSource.seeded(3), 4000
    wanted = np.array([0.0, 0.01, 0.3, 0.9, 1.0])
    joins = np.zeros(5)
    for step in range(steps):
        joins[independent_sample(wanted, source, 0, step)] += 1
    limit = stats.norm.isf(0.5e-6) * np.sqrt(wanted * (1.0 - wanted) / steps)
    assert (np.abs(joins / steps - wanted) <= limit).all()


@pytest.mark.parametrize('q', [0.0, -0.1, 1.0000001, math.nan])
def test_a_sampling_probability_that_is_none_is_refused(q):
    with pytest.raises(PrivacyError, match='sampling probability'):
        poisson_sample(3, q, NoiseSource.seeded(3), 0, 0)


NUMBERS = {'noise_multiplier': 2.0, 'clip_norm': 0.5, 'expected_batch': 4.0}


def test_the_mean_divides_by_the_expected_batch_size():
    mean = noisy_mean(np.array([3.0, -6.0]), noise=np.array([1.0, 2.0]), **NUMBERS)
    assert mean == pytest.approx([(3.0 + 1.0) / 4.0, (-6.0 + 2.0) / 4.0], abs=2.0**-22)
    exact = noisy_mean(np.ones(1) / 3.0, noise=np.zeros(1), **NUMBERS | {'noise_multiplier': 0.0})
    assert exact[0] == (1.0 / 3.0) / 4.0


@given(
    strategies.floats(0.1, 100.0),
    strategies.floats(1e-3, 1e3),
    strategies.integers(0, 2**32),
    strategies.integers(1, 3000),
)
def test_what_is_released_lies_on_a_public_grid_and_one_unit_moves_it_by_c_at_most(
    multiplier, clip_norm, seed, size
):
    rng = np.random.default_rng(seed)
    others = rng.normal(size=size) * clip_norm
    unit = rng.normal(size=size)
    unit *= clip_norm * (1.0 - 2.0**-10) / np.linalg.norm(unit)
    noise = NoiseSource.seeded(seed).gaussian('gradient', 0, 0, size)
    numbers = {'noise_multiplier': multiplier, 'clip_norm': clip_norm, 'expected_batch': 1.0}
    grid = grid_of(multiplier, clip_norm, size)
    assert math.frexp(grid)[0] == 0.5 and grid <= multiplier * clip_norm * 2.0**-24
    without, joined = (
        noisy_mean(each, noise=noise, **numbers) / grid for each in (others, others + unit)
    )
    assert np.array_equal(without, np.rint(without))
    assert np.linalg.norm(joined - without) * grid <= clip_norm


def test_the_noise_on_the_mean_has_the_papers_std():
    # 100 000 draws, fixed seed; false alarm under another seed: 1e-6.
    numbers = {'noise_multiplier': 1.5, 'clip_norm': 0.8, 'expected_batch': 64.0}
    noise = NoiseSource.seeded(4).gaussian('gradient', 0, 0, 100_000)
    mean = noisy_mean(np.zeros(100_000), noise=noise, **numbers)
    ratio = mean.std() / mean_noise_std(**numbers)
    assert mean_noise_std(**numbers) == pytest.approx(1.5 * 0.8 / 64.0)
    assert abs(ratio - 1.0) < stats.norm.isf(0.5e-6) / math.sqrt(2.0 * 100_000)


def test_numbers_that_void_the_mechanism_are_refused():
    wrong = {
        'noise_multiplier': [-1.0, math.nan],
        'clip_norm': [0.0, math.inf],
        'expected_batch': [0.0],
        # Not finite, or one draw for several parameters:
        'noise': [np.array([math.nan, 0.0]), np.array(1.0), np.ones(1), np.ones((2, 1))],
    }
    for name, values in wrong.items():
        for value in values:
            with pytest.raises(PrivacyError):
                noisy_mean(np.zeros(2), **({'noise': np.zeros(2)} | NUMBERS | {name: value}))
