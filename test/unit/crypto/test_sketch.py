# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Projections are exact, linear modulo t, and take no more memory than a few ciphertexts."""

import tracemalloc

from fdrl_ros.crypto.masking.masks import mask
from fdrl_ros.crypto.masking.sketch import read_values, Sketch, write_values
from fdrl_ros.federation.protocol.update_codec import UpdateCodec
import numpy as np
import pytest

NONCE, SETUP = bytes(range(32)), bytes(32)
KEYS = [bytes([number]) * 32 for number in range(3)]


def codec_of(n_parameters, bits=16, members=3):
    return UpdateCodec.agree(n_parameters, members, bits, 1.0, norm=1.0, projections=8)


def slow(sketch, number, slots):
    """Project one row in whole numbers."""
    rows = sketch.rows(number).astype(int).astype(object)
    return [int(each) % sketch.bound.scheme.plain_modulus for each in rows @ slots.astype(object)]


@pytest.mark.parametrize(('bits', 'members'), [(4, 3), (16, 3), (32, 10)])
def test_projections_are_those_of_whole_numbers(bits, members):
    codec = codec_of(100, bits, members)
    t, slots = codec.scheme.plain_modulus, codec.scheme.slots
    assert (t.bit_length() > 38) == (bits == 32)  # then there are two limbs
    sketch = Sketch(NONCE, SETUP, codec.bound)
    rows = np.random.default_rng(0).integers(0, t, (3, slots))
    rows[0] = t - 1
    found = sketch.of_slots(0, rows).tolist()
    assert found == [slow(sketch, 0, row) for row in rows]
    assert sketch.of_slots(0, rows[1]).tolist() == found[1]
    assert set(np.unique(sketch.rows(0))) == {-1.0, 0.0, 1.0}


def test_masks_are_projected_as_they_are_drawn_and_come_off_an_update():
    codec = codec_of(9000)
    scheme, sketch = codec.scheme, Sketch(NONCE, SETUP, codec.bound)
    t, count = scheme.plain_modulus, codec.slots
    whole = [mask(key, count, t).reshape(-1, scheme.slots) for key in KEYS]
    projected = [
        sum(np.array(slow(sketch, number, row), dtype=object) for number, row in enumerate(each))
        for each in whole
    ]
    found = sketch.of_masks(KEYS)
    assert found == [[int(x) % t for x in row] for row in projected]
    assert list(read_values(write_values(found), 8)) == found
    weights = np.random.default_rng(1).uniform(-0.05, 0.05, 9000).astype(np.float32)
    rows = np.stack([*codec.encode(weights, np.zeros_like(weights), 1.0, np.full(9000, 0.5))])
    masked = (rows + sum(whole)) % t
    seen = sum(sketch.of_slots(number, row) for number, row in enumerate(masked)).tolist()
    left = sketch.unmasked(seen, [sum(column) for column in zip(*found, strict=True)])
    centred = 2 * scheme.unpack(rows, count=1) - scheme.levels
    at = scheme.integers_per_ciphertext
    parts = [centred[start : start + at] for start in range(0, 9000, at)]
    pairs = [(sketch.rows(number)[:, : part.size], part) for number, part in enumerate(parts)]
    assert left == sum(each @ part for each, part in pairs).astype(int).tolist()
    assert codec.bound.holds(left)
    masked[0, 0] += t // 3
    seen = sum(sketch.of_slots(number, row % t) for number, row in enumerate(masked)).tolist()
    assert not codec.bound.holds(
        sketch.unmasked(seen, [sum(column) for column in zip(*found, strict=True)])
    )


def test_masks_are_projected_without_holding_them():
    codec = codec_of(300_000)
    sketch = Sketch(NONCE, SETUP, codec.bound)
    sketch.of_masks(KEYS[:1])
    tracemalloc.start()
    try:
        sketch.of_masks(KEYS)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2**20 < codec.slots * 8 * len(KEYS) / 4
