# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Shamir's shares: any t restore the secret, t - 1 tell nothing, and a lie among them shows."""

from itertools import combinations
from math import prod
from random import Random

from fdrl_ros.crypto.masking import sharing
from fdrl_ros.crypto.masking.sharing import (
    DuplicateShareError,
    InconsistentSharesError,
    MalformedShareError,
    positions,
    PRIME,
    Recovery,
    share,
    SHARE_BYTES,
    ShareError,
    SharePair,
    TooFewSharesError,
)
from fdrl_ros.errors import CryptoError
from hypothesis import given, settings, strategies
import pytest
from support.sample_size import sampled

NAMES = [f'hospital_{number}' for number in range(1, 11)]
NAMES_SORTED = sorted(NAMES)
SECRET = bytes(range(32))
ELEMENTS = strategies.integers(0, PRIME - 1)


def drawn(seed, threshold):
    """Return coefficients from a fixed generator: these are tests."""
    generator = Random(seed)
    return [generator.randrange(PRIME) for _ in range(threshold - 1)]


def recover(shares, threshold, members):
    """Restore one secret from pairs of holder and share."""
    shares = list(shares)
    return Recovery(threshold, members, [holder for holder, _ in shares]).recover(dict(shares))


def dealt(threshold=7, members=NAMES, secret=SECRET, seed=1):
    return share(secret, threshold, members, drawn(seed, threshold))


def interpolated(points):
    """Return the rising coefficients of the one polynomial through the points (Lagrange)."""
    total = [0] * len(points)
    for place, value in points:
        basis, scale = [1], value
        for other, _ in points:
            if other != place:
                down = [-other * each % PRIME for each in basis] + [0]
                basis = [(a + b) % PRIME for a, b in zip(down, [0, *basis], strict=True)]
                scale = scale * pow(place - other, -1, PRIME) % PRIME
        total = [(a + scale * b) % PRIME for a, b in zip(total, basis, strict=True)]
    return total


def test_published_example():
    # Wikipedia, "Shamir's secret sharing": 1234 + 166 x + 94 x^2 at 1 to 6; no value reaches
    # the prime there or here.
    published = [1494, 1942, 2578, 3402, 4414, 5614]
    shares = share((1234).to_bytes(32, 'big'), 3, list('abcdef'), [166, 94])
    assert [int.from_bytes(each, 'big') for each in shares.values()] == published
    for three in combinations(shares.items(), 3):
        assert int.from_bytes(recover(three, 3, 'abcdef'), 'big') == 1234


def test_field_is_that_of_the_smallest_prime_above_every_secret():
    def is_composite(number):
        # Fermat: a base whose power is not 1 proves it; for the prime, bases do not.
        return any(pow(base, number - 1, number) != 1 for base in (2, 3, 5, 7, 11))

    assert not is_composite(PRIME)
    assert all(is_composite(number) for number in range(2**256 + 1, PRIME))


@settings(max_examples=sampled(40, 13), deadline=None)
@given(strategies.data())
def test_any_shares_of_at_least_the_threshold_restore_the_secret(data):
    count = data.draw(strategies.integers(2, 12))
    members = [f'member_{number}' for number in range(count)]
    threshold = data.draw(strategies.integers(2, count))
    secret = data.draw(
        strategies.binary(min_size=32, max_size=32)
        | strategies.sampled_from([b'\0' * 32, b'\xff' * 32])
    )
    coefficients = data.draw(
        strategies.lists(ELEMENTS, min_size=threshold - 1, max_size=threshold - 1)
    )
    shares = share(secret, threshold, members, coefficients)
    assert {len(each) for each in shares.values()} == {SHARE_BYTES}
    holders = data.draw(
        strategies.lists(strategies.sampled_from(members), min_size=threshold, unique=True)
    )
    assert recover([(name, shares[name]) for name in holders], threshold, members) == secret


@settings(max_examples=15, deadline=None)
@given(
    strategies.binary(min_size=32, max_size=32),
    strategies.lists(ELEMENTS, min_size=3, max_size=3),
    strategies.sampled_from(list(combinations(range(5), 3))),
)
def test_fewer_shares_fit_every_secret_equally(other, coefficients, seen):
    # Closed form: t - 1 shares and any secret whatever lie on exactly one polynomial. So each
    # secret explains what t - 1 holders see by one choice of uniform coefficients: as likely.
    members = NAMES[:5]
    shares = share(SECRET, 4, members, coefficients)
    points = [(0, int.from_bytes(other, 'big'))]
    points += [(place + 1, int.from_bytes(shares[members[place]], 'big')) for place in seen]
    explained = interpolated(points)
    assert explained[0] == points[0][1]
    world = share(other, 4, members, explained[1:])
    assert all(world[members[place]] == shares[members[place]] for place in seen)


@settings(max_examples=sampled(60, 20), deadline=None)
@given(strategies.data())
def test_wrong_shares_up_to_the_surplus_are_always_refused(data):
    # Two polynomials of degree t - 1 differ at all but t - 1 places at least: whatever up to
    # n - t liars say, and however they agree on it, is on none.
    threshold = data.draw(strategies.integers(2, 9))
    holders = data.draw(
        strategies.lists(strategies.sampled_from(NAMES), min_size=threshold + 1, unique=True)
    )
    surplus = len(holders) - threshold
    liars = data.draw(strategies.lists(strategies.sampled_from(holders), min_size=1, unique=True))
    shares = {name: dealt(threshold)[name] for name in holders}
    for name in liars[:surplus]:
        value = int.from_bytes(shares[name], 'big') + data.draw(strategies.integers(1, PRIME - 1))
        shares[name] = number(value % PRIME)
    with pytest.raises(InconsistentSharesError, match=f'^{len(holders)} shares do not agree$'):
        recover(shares.items(), threshold, NAMES)


@pytest.mark.parametrize('threshold', [2, 4, 9])
def test_shares_along_a_polynomial_of_any_higher_degree_are_refused(threshold):
    # All lie together so that some of the sums that are zero for honest shares stay zero. Whoever
    # knew the random word of the check could make that very sum zero: each process draws its own.
    for degree in range(threshold, len(NAMES)):
        shares = {
            name: number((int.from_bytes(value, 'big') + positions(NAMES)[name] ** degree) % PRIME)
            for name, value in dealt(threshold).items()
        }
        with pytest.raises(InconsistentSharesError):
            recover(shares.items(), threshold, NAMES)
    words = set()
    for _ in range(9):
        sharing._weights_and_check.cache_clear()
        words.add(tuple(Recovery(threshold, NAMES, NAMES)._check))
    assert len(words) == 9


@pytest.mark.parametrize('threshold', [2, 4, 7, 10])
def test_one_liar_more_than_the_surplus_can_shift_the_secret_and_no_sharing_shows_it(threshold):
    # Closed form: what is added vanishes at the t - 1 honest places. So shares alone prove
    # nothing; commitments and what the owner published do.
    places = positions(NAMES)
    honest = NAMES_SORTED[: threshold - 1]
    shares = {
        name: number(
            (int.from_bytes(value, 'big') + prod(places[name] - places[one] for one in honest))
            % PRIME
        )
        for name, value in dealt(threshold).items()
    }
    assert [name for name in NAMES_SORTED if shares[name] == dealt(threshold)[name]] == honest
    shift = prod(-places[one] for one in honest)
    shifted = (int.from_bytes(SECRET, 'big') + shift).to_bytes(32, 'big')
    assert recover(shares.items(), threshold, NAMES) == shifted != SECRET


def test_weights_are_remembered_for_places_whoever_has_them():
    dealt_to = tuple(NAMES_SORTED)
    for threshold, members, holders in (
        (7, dealt_to, dealt_to),
        (7, dealt_to, dealt_to[:7]),
        (7, dealt_to, dealt_to[3:]),
        (7, dealt_to[:9], dealt_to[:7]),
        (6, dealt_to, dealt_to[:7]),
        (4, dealt_to[2:7], dealt_to[3:7]),
    ):
        for secret in (SECRET, SECRET[::-1]):
            shares = dealt(threshold, members, secret)
            kept = Recovery(threshold, members, holders)
            assert kept.recover({name: shares[name] for name in holders}) == secret
            others = {name: f'other_{name}' for name in members}
            there = Recovery(threshold, [*others.values()], [others[name] for name in holders])
            assert there._weights is kept._weights and there._check is kept._check
            assert there.recover({others[name]: shares[name] for name in holders}) == secret
        # What is remembered still finds a lie, and lacks no holder.
        liar = holders[0]
        with pytest.raises(ShareError):
            kept.recover({name: shares[name] for name in holders[1:]})
        if len(holders) > threshold:
            lie = number((int.from_bytes(shares[liar], 'big') + 1) % PRIME)
            with pytest.raises(InconsistentSharesError):
                kept.recover({**{name: shares[name] for name in holders}, liar: lie})
    with pytest.raises(TooFewSharesError):
        Recovery(7, dealt_to, dealt_to[:6])


def number(value):
    return value.to_bytes(SHARE_BYTES, 'big')


DEALT = list(dealt().items())


@pytest.mark.parametrize(
    ('shares', 'error', 'words'),
    [
        (DEALT[:6], TooFewSharesError, '6 shares: expected at least 7'),
        ([*DEALT[:7], DEALT[0]], DuplicateShareError, None),
        ([*DEALT, ('stranger', bytes(SHARE_BYTES))], ShareError, 'stranger'),
        # 2^256 + 5 is in the field, but not 32 bytes long.
        ([(name, number(2**256 + 5)) for name in NAMES], MalformedShareError, 'no secret'),
        *(
            ([*DEALT[1:], (NAMES[0], value)], MalformedShareError, NAMES[0])
            for value in (b'', bytes(32), bytes(34), bytes(2**20), 5, None, number(PRIME))
        ),
    ],
    ids=range(11),
)
def test_shares_that_restore_no_secret_are_refused(shares, error, words):
    with pytest.raises(error, match=words):
        recover(shares, 7, NAMES)


@pytest.mark.parametrize(
    'change',
    [
        {'secret': bytes(31)},
        {'secret': 'no bytes'},
        *({'threshold': number} for number in (1, 11, 7.0)),
        {'members': []},
        {'members': [*NAMES, NAMES[0]]},
        *({'coefficients': [1] * count} for count in (5, 7)),
        *({'coefficients': [number] * 6} for number in (PRIME, -1, 0.5)),
    ],
    ids=str,
)
def test_impossible_sharing_is_refused(change):
    fine = {'secret': SECRET, 'threshold': 7, 'members': NAMES, 'coefficients': [1] * 6}
    with pytest.raises(CryptoError):
        share(**{**fine, **change})


def test_no_share_is_shown():
    shares = dealt()
    pair = SharePair(shares[NAMES[0]], shares[NAMES[1]])
    texts = [repr(pair), repr(Recovery(7, NAMES, NAMES))]
    for name in NAMES:
        for value in (b'\x01' * 40, b'\x01' * 33, (12345678901).to_bytes(33, 'big')):
            with pytest.raises(ShareError) as caught:
                recover({**shares, name: value}.items(), 7, NAMES)
            texts += [str(caught.value), repr(caught.value), repr(caught.value.args)]
    for value in [*shares.values(), SECRET, b'\x01' * 40, (12345678901).to_bytes(33, 'big')]:
        number = str(int.from_bytes(value, 'big'))
        for text in texts:
            assert value.hex() not in text and number not in text and repr(value)[2:-1] not in text
