# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Updates on their way: any bits, any length, masked, and their sum is exact."""

from fdrl_ros.crypto.he.encryption import PublicContext, SecretContext
from fdrl_ros.crypto.he.schemes import choose_scheme, MOST_PARAMETERS
from fdrl_ros.errors import CryptoError, ModelSizeError
from fdrl_ros.federation.protocol.encoding import MOST_BYTES
from fdrl_ros.federation.protocol.update_codec import UpdateCodec
from fdrl_ros.privacy.ledger.chain import DIGEST, MOST_LINKS
from hypothesis import given, settings, strategies
import numpy as np
import pytest
from support.sample_size import sampled

LIMIT = 0.5
SIZES = [7, 3, 5]


def updates_of(n_parameters, rng):
    """Return a base and three hospitals' weights, some of them beyond the limit."""
    base = rng.normal(size=n_parameters).astype(np.float32)
    changes = rng.normal(0.0, 0.3, (3, n_parameters)).astype(np.float32)
    return base, base + changes, rng.uniform(1e-9, 1.0, (3, n_parameters))


def integers_of(codec, weights, base, share, uniforms):
    """Return the integers of an update, computed on the whole of it at once."""
    delta = share * (weights.astype(np.float64) - base.astype(np.float64))
    return codec.quantisation.quantise(delta, uniforms)


@settings(max_examples=sampled(20, 10), deadline=None)
@given(
    strategies.integers(1, 60_000), strategies.integers(2, 32), strategies.integers(0, 2**32 - 1)
)
def test_the_sum_of_masked_updates_is_the_sum_of_their_integers(n_parameters, bits, seed):
    rng = np.random.default_rng(seed)
    codec = UpdateCodec.agree(n_parameters, 3, bits, LIMIT)
    base, weights, uniforms = updates_of(n_parameters, rng)
    t = codec.scheme.plain_modulus
    masks = rng.integers(0, t, (3, codec.slots))
    sums, expected = np.zeros((codec.scheme.ciphertexts, codec.scheme.slots), np.int64), 0
    for number, size in enumerate(SIZES):
        share = size / max(SIZES)
        rows = codec.encode(weights[number], base, share, uniforms[number])
        own = masks[number].reshape(sums.shape)
        masked = [(row + mask) % t for row, mask in zip(rows, own, strict=True)]
        sums = (sums + [codec.scheme.completed(row) for row in masked]) % t
        expected = expected + integers_of(codec, weights[number], base, share, uniforms[number])
    slots = codec.unmask(sums, masks.sum(axis=0) % t)
    assert np.array_equal(codec.scheme.unpack(slots, count=3), expected)
    average = codec.average(slots, SIZES, max(SIZES))
    changes = np.clip((weights - base.astype(np.float64)).T * SIZES / max(SIZES), -LIMIT, LIMIT)
    exact = changes.sum(axis=1) * max(SIZES) / sum(SIZES)
    step = codec.quantisation.step * max(SIZES) / sum(SIZES)
    assert np.abs(average - exact).max() <= 3 * step * (1 + 1e-9)


@settings(deadline=None)
@given(
    count=strategies.integers(1, 10),
    at=strategies.integers(0, 299),
    moved=strategies.floats(-30.0, 30.0),
)
def test_what_one_update_pushes_out_of_range_is_clipped_and_nothing_else(count, at, moved):
    codec = UpdateCodec.agree(300, 10, 16, LIMIT, projections=8)
    scheme, rng = codec.scheme, np.random.default_rng(at)
    integers = rng.integers(0, count * scheme.levels + 1, 300)
    sums = np.zeros((scheme.ciphertexts, scheme.slots), np.int64)
    sums[0, :300] = integers
    honest = codec.average(sums, [1] * count, 1)
    by = int(moved * scheme.levels)
    sums[0, at] += by
    found = codec.average(sums % scheme.plain_modulus, [1] * count, 1)
    expected = honest.copy()
    expected[at] = np.clip(honest[at] + by * codec.quantisation.step / count, -LIMIT, LIMIT)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9)
    sums[0, 300 + at] = by  # no number at all
    found = codec.average(sums % scheme.plain_modulus, [1] * count, 1)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9)
    for place in (at, 300 + at):  # as far from a number as can be
        far = sums.copy()
        far[0, place] += scheme.plain_modulus // 2
        with pytest.raises(CryptoError, match='out of range|padding'):
            codec.average(far % scheme.plain_modulus, [1] * count, 1)


def test_sums_whose_masks_are_left_are_refused_whatever_room_there_is():
    codec, rng = UpdateCodec.agree(300, 10, 16, LIMIT, projections=8), np.random.default_rng(1)
    shape = codec.scheme.ciphertexts, codec.scheme.slots
    for _ in range(20):
        sums = rng.integers(0, codec.scheme.plain_modulus, shape)
        with pytest.raises(CryptoError, match='out of range|padding'):
            codec.average(sums, [1] * 10, 1)


@pytest.mark.parametrize('bits', [2, 8])
def test_few_bits_are_exact_through_the_encryption_too(bits):
    rng = np.random.default_rng(bits)
    codec = UpdateCodec.agree(100_000, 3, bits, LIMIT)
    secret = SecretContext.generate(codec.scheme)
    public = PublicContext.from_bytes(secret.public_bytes())
    base, weights, uniforms = updates_of(100_000, rng)
    masks = rng.integers(0, codec.scheme.plain_modulus, (3, codec.slots))
    sent = [
        list(codec.encrypt(codec.encode(weights[each], base, 1.0, uniforms[each]), mask, public))
        for each, mask in enumerate(masks)
    ]
    size = codec.scheme.ciphertexts * codec.scheme.ciphertext_bytes
    assert {sum(map(len, each)) for each in sent} == {size} and size < 100_000 * (bits + 1) / 1.5
    sums = np.stack([secret.decrypt(public.add(column)) for column in zip(*sent, strict=True)])
    slots = codec.unmask(sums, masks.sum(axis=0) % codec.scheme.plain_modulus)
    expected = sum(
        integers_of(codec, weights[each], base, 1.0, uniforms[each]) for each in range(3)
    )
    assert np.array_equal(codec.scheme.unpack(slots), expected)


def test_an_update_of_another_length_or_with_a_value_that_is_not_finite_is_refused():
    codec = UpdateCodec.agree(20_000, 3, 16, LIMIT)
    base, (weights, *_), (uniforms, *_) = updates_of(20_000, np.random.default_rng(1))
    for wrong in (weights[:-1], weights[:9000]):
        with pytest.raises(CryptoError):
            list(codec.encode(wrong, base[: wrong.size], 1.0, uniforms[: wrong.size]))
    weights[-1] = np.nan
    with pytest.raises(CryptoError, match='not finite'):
        list(codec.encode(weights, base, 1.0, uniforms))


def test_a_model_that_no_message_holds_is_refused_by_name():
    assert 4 * MOST_PARAMETERS + MOST_LINKS * DIGEST + 2**16 < MOST_BYTES
    for kind in ('bfv', 'ckks'):
        assert choose_scheme(MOST_PARAMETERS, 10, 16, kind).n_parameters == MOST_PARAMETERS
        with pytest.raises(ModelSizeError, match=f'a model of {MOST_PARAMETERS + 1} weights'):
            UpdateCodec.agree(MOST_PARAMETERS + 1, 10, 16, LIMIT, kind)
