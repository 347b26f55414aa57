# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Noise is reproducible, cryptographic, Gaussian, and its key is nobody else's."""

import hashlib
import hmac
import math
import struct

from cryptography.hazmat.primitives.ciphers import algorithms, Cipher, modes
from fdrl_ros.privacy.noise import NoiseSource, to_unit
from hypothesis import given, strategies
import numpy as np
import pytest
from scipy import stats

NAMES = strategies.tuples(
    strategies.text(max_size=8),
    strategies.integers(0, 2**32),
    strategies.integers(0, 2**32),
    strategies.integers(1, 9),
)


def slow_words(key, kind, purpose, round, step, words):
    """HKDF-Expand (RFC 5869) by HMAC and AES by single blocks, written out."""
    info = b'fdrl_ros noise 2 stream'
    for name in (kind, purpose):
        info += struct.pack('<I', len(name.encode())) + name.encode()
    info += struct.pack('<Q', round)
    stream_key = hmac.new(key, info + b'\x01', hashlib.sha256).digest()
    block = Cipher(algorithms.AES(stream_key), modes.ECB()).encryptor()
    counters = ((step << 64) + i for i in range((words + 1) // 2))
    stream = b''.join(block.update(each.to_bytes(16, 'big')) for each in counters)
    return struct.unpack(f'<{words}Q', stream[: 8 * words])


KEY = bytes(range(32))


def test_the_keystream_is_aes_256_in_counter_mode_under_a_key_of_its_own():
    source = NoiseSource(KEY, private=False)
    for round, step in ((3, 4), (3, 5), (2, 4)):  # with kept keys too
        words = source.uniform_words('inclusion', round, step, 7)
        assert tuple(words) == slow_words(KEY, 'uniform', 'inclusion', round, step, 7)


def test_each_draw_is_a_box_muller_gaussian_of_64_bit_uniforms():
    source, key = NoiseSource(KEY, private=False), KEY
    words = slow_words(key, 'gaussian', 'gradient', 1, 2, 6)
    draws = source.gaussian('gradient', 1, 2, 5)
    for i in range(5):
        turn, pair = divmod(i, 3)
        radius = math.sqrt(-2.0 * math.log((words[pair] + 0.5) / 2.0**64))
        signed = words[3 + pair] - (2**64 if words[3 + pair] >= 2**63 else 0)
        angle = 2.0 * math.pi * signed / 2.0**64
        assert draws[i] == pytest.approx(
            radius * (math.sin(angle) if turn else math.cos(angle)), abs=1e-12
        )


def test_the_extreme_words_give_finite_draws():
    class Words(NoiseSource):
        """A source of chosen words."""

        def _keystream(self, *name):
            return np.array([0, 2**64 - 1, 1, 2**63, 2**63 - 1, 0], np.uint64)

    draws = Words(bytes(32), private=False).gaussian('gradient', 0, 0, 6)
    assert np.isfinite(draws).all()
    assert math.hypot(draws[0], draws[3]) == pytest.approx(9.49, abs=0.01)
    assert draws[1] == 0.0


@given(NAMES)
def test_the_same_name_draws_the_same_noise(name):
    first, second = NoiseSource.seeded(1), NoiseSource.seeded(1)
    first.gaussian('something else', 0, 0, 3)
    assert np.array_equal(first.gaussian(*name), second.gaussian(*name))
    assert np.array_equal(first.uniform(*name), second.uniform(*name))


@given(NAMES, NAMES)
def test_different_names_never_share_a_word_of_keystream(one, other):
    source = NoiseSource.seeded(1)
    words = source.uniform_words(*one)
    np.testing.assert_array_equal(to_unit(words), source.uniform(*one))
    if one[:3] != other[:3]:
        assert not set(words) & set(source.uniform_words(*other))


def test_another_seed_or_key_draws_other_noise_and_only_a_secret_key_is_private(tmp_path):
    sources = [NoiseSource.seeded(1), NoiseSource.seeded(2)]
    sources += [NoiseSource.secure(tmp_path / name) for name in 'ab']
    assert len({source.fingerprint for source in sources}) == 4
    assert len({tuple(source.gaussian('gradient', 0, 0, 3)) for source in sources}) == 4
    assert [source.private for source in sources] == [False, False, True, True]


def test_uniforms_stay_inside_the_open_interval_for_every_word():
    unit = to_unit(np.array([0, 1, 2**63, 2**64 - 1], np.uint64))
    assert unit[0] == 2.0**-65
    assert unit[1] == 1.5 * 2.0**-64
    assert unit[2] == 0.5
    assert 0.0 < unit.min() and unit.max() < 1.0


def test_draws_are_standard_normal_and_uniforms_uniform():
    # 200 000 draws of a fixed seed. Each of the limits below would raise a false alarm with
    # probability 1e-6 under another seed (normal approximations for the moments).
    draws = NoiseSource.seeded(7).gaussian('gradient', 0, 0, 200_001)
    n = draws.size
    limit = stats.norm.isf(0.5e-6)
    assert stats.kstest(draws, 'norm').pvalue > 1e-6
    assert abs(draws.mean()) < limit / math.sqrt(n)
    assert abs((draws**2).mean() - 1.0) < limit * math.sqrt(2.0 / n)
    assert abs((draws**4).mean() - 3.0) < limit * math.sqrt(96.0 / n)
    beyond = int((np.abs(draws) > 4.0).sum())
    expected = stats.binom(n, 2.0 * stats.norm.sf(4.0))
    assert expected.cdf(beyond) > 0.5e-6 and expected.sf(beyond - 1) > 0.5e-6
    uniforms = NoiseSource.seeded(9).uniform('rounding', 0, 0, 100_000)
    assert stats.kstest(uniforms, 'uniform').pvalue > 1e-6


def test_the_two_draws_from_the_same_pairs_are_independent():
    # False alarm: 1e-6 for each of the two correlations.
    draws = NoiseSource.seeded(8).gaussian('gradient', 0, 0, 200_000)
    cosines, sines = draws[:100_000], draws[100_000:]
    limit = stats.norm.isf(0.5e-6) / math.sqrt(100_000)
    assert abs(np.corrcoef(cosines, sines)[0, 1]) < limit
    assert abs(np.corrcoef(cosines**2, sines**2)[0, 1]) < limit
