# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Projections of updates: exact, above every honest one, and below what a liar would need."""

from dataclasses import dataclass, replace
from itertools import product
import math
import tracemalloc

from fdrl_ros.crypto.he.parameters import pack_bits, unpack_bits
from fdrl_ros.crypto.he.quantisation import Quantisation
from fdrl_ros.crypto.he.schemes import choose_scheme
from fdrl_ros.crypto.masking.masks import mask, sum_of_masks
from fdrl_ros.crypto.masking.sketch import (
    ERROR_BITS,
    MOST_ROWS,
    NONCE_BYTES,
    NormBound,
    read_values,
    Sketch,
    values_bytes,
    write_values,
)
from fdrl_ros.errors import CryptoError
from fdrl_ros.federation.protocol.update_codec import UpdateCodec
from hypothesis import given, settings, strategies
import numpy as np
import pytest
from scipy.stats import chi2
from scipy.stats import norm as gaussian

SETUP = bytes(32)
LARGEST = 2**60 - 93
"""A modulus as large as schemes have."""


@dataclass(frozen=True)
class SmallScheme:
    """The numbers of a scheme that projections depend on, without its encryption."""

    n_parameters: int
    slots: int
    checks: int
    ciphertexts: int
    plain_modulus: int
    levels: int = 3

    @property
    def integers_per_ciphertext(self):
        return self.slots - self.checks


def nonce_of(number):
    return number.to_bytes(NONCE_BYTES, 'big')


def bound_of(scheme, rows, *, norm=1.0, limit=1.0, bits=2, members=3):
    return NormBound(norm, rows, Quantisation(limit, bits, members), scheme)


def agreed(n_parameters=3000, *, members=5, bits=16, limit=0.5, norm=0.25, projections=64):
    return UpdateCodec.agree(
        n_parameters, members, bits, limit, norm=norm, projections=projections
    )


def matrix(sketch):
    """Return all of R as Python integers, one list for each row."""
    scheme = sketch.bound.scheme
    parts = [sketch.rows(number) for number in range(scheme.ciphertexts)]
    return [[int(each) for each in row] for row in np.concatenate(parts, axis=1)]


def times(rows, numbers):
    return [sum(r * x for r, x in zip(row, numbers, strict=True)) for row in rows]


@strategies.composite
def sketches(draw):
    slots = draw(strategies.sampled_from([8, 32, 128]))
    checks = draw(strategies.integers(1, 4))
    ciphertexts = draw(strategies.integers(1, 3))
    modulus = draw(strategies.sampled_from([65537, 2**31 - 1, 2**41 - 21, 2**59 - 55, LARGEST]))
    most = ciphertexts * (slots - checks)
    n_parameters = draw(strategies.integers(most - (slots - checks) + 1, most))
    scheme = SmallScheme(n_parameters, slots, checks, ciphertexts, modulus)
    rows = draw(strategies.integers(1, 9))
    return Sketch(nonce_of(draw(strategies.integers(0, 999))), SETUP, bound_of(scheme, rows))


# R x is exact.


@settings(max_examples=40, deadline=None)
@given(sketches(), strategies.integers(0, 2**32), strategies.booleans())
def test_slots_are_projected_exactly(sketch, seed, largest):
    scheme, rng = sketch.bound.scheme, np.random.default_rng(seed)
    t, shape = scheme.plain_modulus, (2, scheme.ciphertexts, scheme.slots)
    slots = np.full(shape, t - 1) if largest else rng.integers(0, t, shape)
    found = sum(sketch.of_slots(number, slots[:, number]) for number in range(shape[1]))
    for each, update in zip(found, slots, strict=True):
        exact = times(matrix(sketch), update.ravel().tolist())
        assert [int(x) % t for x in each] == [x % t for x in exact]


@settings(max_examples=40, deadline=None)
@given(sketches(), strategies.integers(1, 4))
def test_masks_are_projected_exactly(sketch, count):
    scheme = sketch.bound.scheme
    t, slots = scheme.plain_modulus, scheme.ciphertexts * scheme.slots
    keys = [bytes([number]) * 32 for number in range(count)]
    expected = [
        [each % t for each in times(matrix(sketch), mask(key, slots, t).tolist())] for key in keys
    ]
    assert sketch.of_masks(keys) == expected


def test_many_keys_and_ciphertexts_are_projected_as_each_alone():
    """More of each than are drawn at once."""
    scheme = SmallScheme(5 * 4095, 4096, 1, 5, LARGEST)
    keys = [number.to_bytes(32, 'big') for number in range(150)]
    sketch = Sketch(nonce_of(1), SETUP, bound_of(scheme, 2))
    together = sketch.of_masks(keys)
    for number in (0, 63, 64, 149):
        slots = mask(keys[number], 5 * 4096, LARGEST).reshape(5, 4096)
        alone = sum(sketch.of_slots(place, row) for place, row in enumerate(slots)) % LARGEST
        assert together[number] == [int(each) for each in alone]


def test_many_masks_take_no_more_memory_than_some():
    """Survivors times hospitals that dropped out may be hundreds of thousands."""
    scheme = SmallScheme(4 * 4095, 4096, 1, 4, LARGEST)
    sketch = Sketch(nonce_of(1), SETUP, bound_of(scheme, 1))
    peaks = []
    for count in (100, 400):
        keys = [number.to_bytes(32, 'big') for number in range(count)]
        tracemalloc.start()
        sketch.of_masks(keys)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0]


@settings(max_examples=40, deadline=None)
@given(sketches(), strategies.integers(0, 2**32))
def test_what_is_left_without_the_masks_is_the_projected_update(sketch, seed):
    scheme, rng = sketch.bound.scheme, np.random.default_rng(seed)
    t, shape = scheme.plain_modulus, (scheme.ciphertexts, scheme.slots)
    integers = rng.integers(0, scheme.levels + 1, scheme.n_parameters)
    held = np.zeros(shape, dtype=np.int64)
    held[:, : scheme.slots - scheme.checks].flat[: scheme.n_parameters] = integers
    terms = [(rng.bytes(32), added) for added in (True, True, False)]
    masked = (held + sum_of_masks(terms, held.size, t).reshape(shape)) % t
    masked[:, scheme.slots - scheme.checks :] = rng.integers(0, t, (shape[0], scheme.checks))
    projected = sum(sketch.of_slots(number, row) for number, row in enumerate(masked))
    one, two, less = sketch.of_masks([key for key, _ in terms])
    masks = [a + b - c for a, b, c in zip(one, two, less, strict=True)]
    flat = np.zeros(shape, dtype=np.int64)
    numbers = 2 * integers - scheme.levels
    flat[:, : scheme.slots - scheme.checks].flat[: scheme.n_parameters] = numbers
    expected = times(matrix(sketch), flat.ravel().tolist())
    if max(map(abs, expected)) <= t // 2:
        assert sketch.unmasked([int(x) for x in projected], masks) == expected


def test_values_are_read_as_they_were_written():
    for modulus, size in ((LARGEST, 45), (2**29 + 11, 23), (2**33 - 9, 25)):
        values = [[0, 1, modulus - 1], [modulus // 2, 7, 3]]
        data = write_values(values, modulus)
        assert len(data) == size == values_bytes(6, modulus)
        assert list(read_values(data, 3, modulus)) == values


@given(strategies.integers(1, 64), strategies.data())
def test_integers_of_any_bits_are_joined_without_gaps(bits, data):
    numbers = data.draw(strategies.lists(strategies.integers(0, 2**bits - 1), max_size=30))
    joined = pack_bits(numbers, bits)
    whole = sum(number << bits * place for place, number in enumerate(numbers))
    assert joined == whole.to_bytes(-(-bits * len(numbers) // 8), 'little')
    assert unpack_bits(joined, bits)[: len(numbers)].tolist() == numbers


def test_bits_beyond_the_last_integer_are_refused():
    assert unpack_bits(b'\xff\x03', 10).tolist() == [1023]
    with pytest.raises(CryptoError, match='beyond the last'):
        unpack_bits(b'\xff\x07', 10)


# R itself.


def test_entries_have_the_frequencies_of_the_theorem():
    codec = agreed()
    scheme, found = codec.scheme, []
    for number in range(20):
        found.append(Sketch(nonce_of(number), SETUP, codec.bound).rows(0))
    held = np.stack(found)[:, :, : scheme.slots - scheme.checks].ravel()
    for value, chance in ((-1, 0.25), (0, 0.5), (1, 0.25)):
        deviation = np.count_nonzero(held == value) - chance * held.size
        assert abs(deviation) < 5 * math.sqrt(chance * (1 - chance) * held.size)
    # No two places go together.
    rows = np.concatenate(found)[:, :200]
    pairs = np.corrcoef(rows, rowvar=False)[np.triu_indices(200, 1)]
    assert abs(pairs).max() < 6 / math.sqrt(len(rows))


def test_check_slots_have_no_weight():
    codec = agreed(6000)
    sketch = Sketch(nonce_of(0), SETUP, codec.bound)
    for number in range(codec.scheme.ciphertexts):
        assert not sketch.rows(number)[:, -codec.scheme.checks :].any()
        assert sketch.rows(number)[:, : -codec.scheme.checks].any(axis=0).all()


def test_every_nonce_set_up_and_ciphertext_has_a_matrix_of_its_own():
    codec = agreed(6000)
    places = [(nonce_of(0), SETUP), (nonce_of(1), SETUP), (nonce_of(0), bytes([1]) * 32)]
    made = [Sketch(*each, codec.bound) for each in places]
    drawn = [sketch.rows(number) for sketch in made for number in (0, 1)]
    for place, one in enumerate(drawn):
        for other in drawn[:place]:
            assert np.mean(one == other) == pytest.approx(0.375, abs=0.02)
    again = Sketch(*places[0], codec.bound)
    np.testing.assert_array_equal(again.rows(1), drawn[1])
    np.testing.assert_array_equal(again.rows(0), drawn[0])


@pytest.mark.parametrize('nonce', [b'', bytes(31), bytes(33)])
def test_a_nonce_of_another_size_is_refused(nonce):
    with pytest.raises(CryptoError, match='nonce'):
        Sketch(nonce, SETUP, agreed().bound)


# How far honest updates reach.


SETTINGS = [(16, 4), (300, 16), (3000, 64), (6000, 64), (20_000, 256), (50_000, 1024)]
CHANCE = 2.0 ** -(ERROR_BITS + 1)


@pytest.mark.parametrize(('n_parameters', 'rows'), SETTINGS)
def test_bounds_are_a_little_above_the_quantiles_of_a_gaussian(n_parameters, rows):
    bound = agreed(n_parameters, projections=rows).bound
    deviation = bound.length / math.sqrt(2)
    one = deviation * gaussian.isf(CHANCE / (2 * rows))
    assert one < bound.highest < 1.1 * one
    all_together = deviation * math.sqrt(chi2.isf(CHANCE, rows))
    assert all_together < bound.longest < 1.1 * all_together


@pytest.mark.parametrize(('n_parameters', 'rows'), SETTINGS)
def test_bounds_are_those_of_the_theorem(n_parameters, rows):
    bound = agreed(n_parameters, projections=rows).bound
    step = bound.quantisation.step
    assert bound.length == pytest.approx(2 * (0.25 / step + math.sqrt(n_parameters)))
    tail = 2 * rows * math.exp(-((bound.highest / bound.length) ** 2))
    assert tail == pytest.approx(CHANCE)
    over = bound.longest**2 / (rows / 2 * bound.length**2) - 1
    assert math.exp(-rows / 2 * (over - math.log1p(over))) == pytest.approx(CHANCE)


@pytest.mark.parametrize(('n_parameters', 'rows'), SETTINGS)
def test_slack_is_where_a_gaussian_passes_seldom_enough(n_parameters, rows):
    bound = agreed(n_parameters, projections=rows).bound
    deviation = bound.slack * bound.length / math.sqrt(2)
    chance = chi2.cdf((bound.longest / deviation) ** 2, rows)
    assert chance < 2.0**-ERROR_BITS
    # A Chernoff bound is off by a factor that grows with the rows as their root.
    assert chance > 2.0**-ERROR_BITS / (10 * rows)


def test_bounds_grow_with_the_norm_and_the_rows_and_slack_shrinks():
    bounds = [agreed(norm=norm).bound for norm in (0.01, 0.1, 0.25, 0.5)]
    for less, more in zip(bounds, bounds[1:], strict=False):
        assert less.length < more.length
        assert less.highest < more.highest and less.longest < more.longest
        assert less.slack == pytest.approx(more.slack)
    bounds = [agreed(projections=rows).bound for rows in (1, 4, 16, 64, 256, MOST_ROWS)]
    for fewer, more in zip(bounds, bounds[1:], strict=False):
        assert fewer.highest < more.highest and fewer.longest < more.longest
        assert fewer.slack > more.slack


@pytest.mark.parametrize(
    ('norm', 'rows'),
    [(0.0, 64), (-1.0, 64), (math.inf, 64), (math.nan, 64), (1.0, 0), (1.0, -1)]
    + [(1.0, MOST_ROWS + 1)],
)
def test_numbers_that_bound_nothing_are_refused(norm, rows):
    bound = agreed().bound
    with pytest.raises(CryptoError, match='projections of an update'):
        replace(bound, norm=norm, rows=rows)


def test_a_modulus_without_room_is_refused():
    bound = agreed().bound
    room = bound.scheme.plain_modulus / 8 / bound.highest
    replace(bound, norm=0.9 * room * bound.norm)
    with pytest.raises(CryptoError, match='no room'):
        replace(bound, norm=1.1 * room * bound.norm)
    with pytest.raises(CryptoError, match='no room'):
        replace(bound, scheme=choose_scheme(3000, 5, 16))


def longest_updates(codec):
    """Yield updates of the largest honest norm, as floats before they are quantised."""
    rng, size, norm = np.random.default_rng(5), codec.n_parameters, codec.bound.norm
    dense = rng.standard_normal(size)
    sparse = dense * (rng.random(size) < 0.01)
    one = np.zeros(size)
    one[size // 2] = 1.0
    for kind, update in {
        'dense': dense,
        'sparse': sparse,
        'one number': one,
        'all alike': np.ones(size),
        'all at some height': rng.choice([-1.0, 1.0], size),
    }.items():
        yield kind, update * norm / np.linalg.norm(update)
    at_limit = np.zeros(size)
    at_limit[: int((norm / codec.quantisation.limit) ** 2)] = codec.quantisation.limit
    yield 'at the limit', at_limit * rng.choice([-1.0, 1.0], size)


@pytest.mark.parametrize('norm', [0.25, 0.5, 4.0])
def test_honest_updates_of_the_largest_norm_never_fail(norm):
    codec = agreed(norm=norm)
    bound, scheme, rng = codec.bound, codec.scheme, np.random.default_rng(1)
    held = scheme.integers_per_ciphertext
    assert scheme.ciphertexts == 1
    for kind, update in longest_updates(codec):
        if kind == 'one number' and norm > codec.quantisation.limit:
            continue  # it would be clipped
        heights, squares = [], []
        for draw in range(150):
            integers = codec.quantisation.quantise(update, rng.random(update.size))
            numbers = np.zeros(held)
            numbers[: update.size] = 2 * integers - scheme.levels
            assert np.linalg.norm(numbers) <= bound.length
            projected = Sketch(nonce_of(draw), SETUP, bound).rows(0)[:, :held] @ numbers
            assert bound.holds([int(each) for each in projected])
            heights.append(abs(projected).max())
            squares.append(np.sum(projected**2) / (bound.rows / 2))
            length = np.linalg.norm(numbers)
        # As large as they are on average, and no larger.
        assert np.mean(squares) == pytest.approx(length**2, rel=0.1)
        assert max(heights) < bound.highest and max(squares) < bound.longest**2 / bound.rows * 2
        if kind == 'dense':
            assert max(heights) > 0.3 * bound.highest


def test_the_end_of_each_bound_is_inside():
    bound = agreed().bound
    highest = math.floor(bound.highest)
    none = [0] * (bound.rows - 1)
    assert bound.holds([highest, *none]) and bound.holds([-highest, *none])
    assert not bound.holds([highest + 1, *none]) and not bound.holds([-highest - 1, *none])
    each = math.floor(bound.longest / math.sqrt(bound.rows))
    assert each < highest
    assert bound.holds([each] * bound.rows)
    assert not bound.holds([each + 1] * bound.rows)


# Who passes.


@pytest.mark.parametrize('modulus', [17, 40, 41, 97])
def test_a_number_further_than_twice_the_bound_passes_a_row_with_a_chance_of_a_half(modulus):
    """All four outcomes, for every number and every sum of the others, modulo t > 8 T."""

    def around(value):
        value %= modulus
        return value if value <= modulus // 2 else value - modulus

    tight = False
    for height in range((modulus - 1) // 8 + 1):
        assert modulus > 8 * height
        for number, others in product(range(modulus), repeat=2):
            passed = sum(abs(around(others + entry * number)) <= height for entry in (-1, 0, 0, 1))
            if abs(around(number)) > 2 * height:
                assert passed <= 2
                tight |= passed == 2
            elif not others and abs(around(number)) <= height:
                assert passed == 4
    assert tight


def test_the_chance_is_larger_within_twice_the_bound():
    """The two of the theorem cannot be left out."""
    height, number, others = 10, 20, 10
    passed = sum(abs(others + entry * number) <= height for entry in (-1, 0, 0, 1))
    assert passed == 3


def projections_of(update, codec, draws):
    """Yield R x modulo t, around 0, for many R."""
    t, held = codec.scheme.plain_modulus, codec.scheme.integers_per_ciphertext
    for draw in range(draws):
        sketch = Sketch(nonce_of(draw), SETUP, codec.bound)
        numbers = np.zeros(codec.scheme.slots, dtype=np.int64)
        numbers[:held][: update.size] = update % t
        for each in [sketch.of_slots(0, numbers)]:
            yield [int(x) if 2 * x <= t else int(x) - t for x in each % t]


def test_one_huge_number_never_passes_however_the_others_are():
    codec = agreed()
    rng, t = np.random.default_rng(3), codec.scheme.plain_modulus
    for huge in (int(2 * codec.bound.highest) + 2, t // 3, t // 2):
        for others in (0, codec.bound.length / math.sqrt(3000), t / 4):
            update = rng.uniform(-1, 1, 3000) * others
            update[17] = huge
            passed = map(codec.bound.holds, projections_of(update.astype(np.int64), codec, 60))
            assert not any(passed)


@pytest.mark.parametrize('rows', [4, 16, 64])
def test_a_spread_update_beyond_the_slack_never_passes(rows):
    codec = agreed(projections=rows, norm=0.02)
    rng = np.random.default_rng(4)
    for shape in (rng.standard_normal(3000), rng.choice([-1.0, 1.0], 3000), np.ones(3000)):
        length = codec.bound.slack * codec.bound.length
        update = np.rint(shape * length / np.linalg.norm(shape)).astype(np.int64)
        assert not any(map(codec.bound.holds, projections_of(update, codec, 100)))


def test_an_update_that_wraps_around_never_passes():
    codec = agreed()
    t, rng = codec.scheme.plain_modulus, np.random.default_rng(6)
    for update in (
        rng.integers(0, t, 3000),
        np.full(3000, t // 2),
        np.full(3000, t // 3),
        np.full(3000, t // 4),
        rng.choice([t // 2, -(t // 2), 0], 3000),
        rng.choice([t // 4, t // 2, 0], 3000),
    ):
        assert not any(map(codec.bound.holds, projections_of(update, codec, 100)))


def test_an_update_of_the_largest_norm_passes():
    codec = agreed()
    update = np.zeros(3000, dtype=np.int64)
    update[7] = int(codec.bound.length)
    assert all(map(codec.bound.holds, projections_of(update, codec, 100)))


# Who lies together.


def test_who_shifts_projections_to_each_other_stays_within_twice_the_bound():
    """Whatever the shift is, also none that is the projection of anything."""
    codec = agreed()
    bound, rng = codec.bound, np.random.default_rng(8)
    hidden = int(2 * (2 * bound.highest) + 2)  # twice what one alone could hide
    huge, small = np.zeros(3000, dtype=np.int64), np.zeros(3000, dtype=np.int64)
    huge[17] = hidden
    for projected, other in zip(
        projections_of(huge, codec, 60), projections_of(small, codec, 60), strict=True
    ):
        one, two = np.array(projected), np.array(other)
        most = int(bound.longest / math.sqrt(bound.rows))
        for shift in (
            one // 2,
            one - np.clip(one, -most, most),
            one,
            one + rng.integers(-most, most + 1, bound.rows),
        ):
            assert not (bound.holds((one - shift).tolist()) and bound.holds(two + shift))


def test_a_shift_hides_what_both_may_add_and_no_more():
    bound = agreed().bound
    most = int(bound.longest / math.sqrt(bound.rows))
    rows = np.full(bound.rows, 2 * most)
    assert not bound.holds(rows)
    assert bound.holds(rows - most) and bound.holds(np.zeros(bound.rows) + most)
    rng = np.random.default_rng(9)
    for _ in range(200):
        shift = rng.normal(size=bound.rows) * most * rng.choice([0.1, 1.0, 3.0])
        passed = [rng.normal(size=bound.rows) * most * 0.5 + shift for shift in (shift, -shift)]
        if all(map(bound.holds, passed)):
            total = sum(passed)
            assert abs(total).max() <= 2 * bound.highest
            assert np.linalg.norm(total) <= 2 * bound.longest


# What honest hospitals send.


def decoded(codec, rows):
    return codec.average(np.stack(list(rows)), [1], 1)


@pytest.mark.parametrize('share', [1.0, 0.3])
def test_an_update_that_is_too_long_is_scaled_down_to_the_norm(share):
    codec = agreed(norm=0.25)
    rng = np.random.default_rng(2)
    base = rng.standard_normal(3000).astype(np.float32)
    update = rng.standard_normal(3000)
    update *= 2.0 / share / np.linalg.norm(update)
    weights = (base + update).astype(np.float32)
    found = decoded(codec, codec.encode(weights, base, share, rng.random(3000)))
    error = codec.quantisation.step * math.sqrt(3000)
    assert np.linalg.norm(found) == pytest.approx(0.25, abs=error)
    delta = weights.astype(np.float64) - base
    wanted = delta * 0.25 / np.linalg.norm(delta)
    assert abs(found - wanted).max() <= codec.quantisation.step * 1.001
    assert 2 * np.linalg.norm(found) / codec.quantisation.step <= codec.bound.length


def test_an_update_within_the_norm_is_left_as_it_is():
    codec, free = agreed(norm=0.25), agreed(projections=0)
    assert free.bound is None
    rng = np.random.default_rng(2)
    base, uniforms = rng.standard_normal(3000).astype(np.float32), rng.random(3000)
    update = rng.standard_normal(3000)
    update *= 0.249 / np.linalg.norm(update)
    weights = (base + update).astype(np.float32)
    found, same = (
        decoded(each, each.encode(weights, base, 1.0, uniforms)) for each in (codec, free)
    )
    np.testing.assert_array_equal(found, same)


def test_without_a_norm_all_numbers_may_be_at_their_limit():
    codec = agreed(norm=0.0)
    base = np.zeros(3000, dtype=np.float32)
    weights = np.where(np.arange(3000) % 2, 0.5, -0.5).astype(np.float32)
    found = decoded(codec, codec.encode(weights, base, 1.0, np.full(3000, 0.5)))
    np.testing.assert_allclose(found, weights, atol=codec.quantisation.step)
    assert codec.bound.norm == pytest.approx(0.5 * math.sqrt(3000))


def test_an_update_that_is_not_finite_is_still_refused():
    codec = agreed()
    weights = np.zeros(3000, dtype=np.float32)
    weights[5] = np.nan
    base = np.zeros_like(weights)
    with pytest.raises(CryptoError, match='not finite'):
        list(codec.encode(weights, base, 1.0, np.full(3000, 0.5)))
    weights[5] = np.inf
    with pytest.raises(CryptoError, match='not finite'), np.errstate(invalid='ignore'):
        list(codec.encode(weights, base, 1.0, np.full(3000, 0.5)))


def test_masks_are_projected_without_holding_them():
    codec = agreed(300_000, members=3, norm=1.0, limit=1.0, projections=8)
    sketch = Sketch(bytes(range(32)), bytes(32), codec.bound)
    sketch.of_masks([bytes(32)])
    tracemalloc.start()
    try:
        sketch.of_masks([bytes([each]) * 32 for each in range(3)])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2**20 < codec.slots * 8 * 3 / 4
