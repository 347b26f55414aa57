# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Both servers and t - 1 hospitals, given all that they hold, learn the honest sum and nothing else.

Two worlds have the same sum over the honest survivors, and other updates. Besides the masked
slots, what the coalition sees does not depend on the updates at all. The masked slots it sees in
one world are those of the other world under other pair masks, one to one; so they are equally
likely where pair masks are uniform. That they look so rests on X25519, HKDF and AES, as that
sealed shares between honest hospitals tell nothing rests on ChaCha20-Poly1305; shares rest on
nothing. Distinguishers, which win once the coalition has one share more, find no advantage.

Rounds are drawn from fixed seeds. `test/nightly/test_coalition_in_full.py` has ten times as many.
"""

from dataclasses import fields

from fdrl_ros.crypto.masking.masks import mask, MaskContext, pair_key
from fdrl_ros.crypto.masking.sharing import positions, PRIME, share
from fdrl_ros.federation.protocol.message import (
    DecryptRequest,
    GlobalPolicy,
    LedgerHeads,
    MaskedUpdate,
    Relay,
    Settle,
)
import numpy as np
import pytest
from support.coalition import MASK, SELF
from support.worlds import count_wins, DISTINGUISHERS, draw_worlds, LOST, run_world, SAFE

ROUNDS = 14
# A fair coin is right 13 times of 14 or more, or as often wrong, once in 546.
MOST = 12


def without(message, *names):
    """Return all that a message says, less its signature and some fields."""
    envelope = message.envelope
    place = (envelope.federation, envelope.round, envelope.attempt, envelope.sender)
    said = [
        getattr(message, f.name)
        for f in fields(message)
        if f.name != 'envelope' and f.name not in names
    ]
    return type(message), *place, envelope.counter, *said


def said_without_ciphertexts(messages):
    """Return what is left of messages, nested ones too, without ciphertexts and their hashes."""
    hidden = ('ciphertext', 'update_hash', 'update_hashes', 'updates_root', 'sum_hash')
    hidden += ('keys', 'updates', 'settles', 'reveals', 'request_digest')
    left = []
    for message in messages:
        path = ('path',) if isinstance(message, LedgerHeads) else ()
        left.append(without(message, *hidden, *path))
        if isinstance(message, Relay):
            left += said_without_ciphertexts(message.updates)
        if isinstance(message, DecryptRequest):
            nested = (message.keys, message.settles, message.reveals)
            left += [each for some in nested for each in said_without_ciphertexts(some)]
    return left


@pytest.mark.parametrize('name', SAFE)
def test_nothing_but_ciphertexts_depends_on_the_updates(name):
    worlds = draw_worlds(SAFE[name], np.random.default_rng(1))
    one, other = (run_world(SAFE[name], updates, 1) for updates in worlds)
    assert said_without_ciphertexts(one.messages) == said_without_ciphertexts(other.messages)
    assert {type(each) for each in one.messages} > {MaskedUpdate, Settle, GlobalPolicy}
    assert any(
        isinstance(each, MaskedUpdate) and each.ciphertext != again.ciphertext
        for each, again in zip(one.messages, other.messages, strict=True)
    )


def mask_of(view, unknown, chunk):
    """Return an unknown mask, which the test alone can know."""
    scheme = view.bench.scheme
    if unknown[0] == SELF:
        _, name, (round, attempt) = unknown
        key = view.bench.seeds[name].of(round).attempt(attempt).self_seed
    else:
        _, (low, high), (round, attempt), setup = unknown
        listed, members = view.coalition.setups[setup]
        key = pair_key(
            MaskContext('test', round, attempt, members, setup),
            view.bench.seeds[low].of(round).attempt(attempt).mask(high),
            listed.mask_key(high, low),
            mine=low,
            theirs=high,
        )
    whole = mask(key, scheme.slots * (chunk + 1), scheme.plain_modulus)
    return whole[scheme.slots * chunk : scheme.slots * (chunk + 1) - scheme.checks]


@pytest.mark.parametrize('name', SAFE)
def test_every_view_is_that_of_the_other_world_under_other_pair_masks(name):
    """For each choice of unknown masks there is another: a shift, so one to one."""
    worlds = draw_worlds(SAFE[name], np.random.default_rng(2))
    view, moved = run_world(SAFE[name], worlds[0], 2), SAFE[name].moved
    modulus = view.bench.scheme.plain_modulus
    for chunk, rows in enumerate(view.rows):
        masks = {u: mask_of(view, u, chunk) for row in rows for u in row.unknown}

        def seen(updates, masks, chunk=chunk, rows=rows):
            hidden = [sum(sign * masks[u] for u, sign in row.unknown.items()) for row in rows]
            shown = [view.slots(updates, row.sender)[chunk] for row in rows]
            return [(x + each) % modulus for x, each in zip(shown, hidden, strict=True)]

        real = [row.slots for row in rows]
        np.testing.assert_array_equal(seen(worlds[0], masks), real)
        (between,) = [u for u in masks if u[0] == MASK and set(u[1]) == set(moved)]
        row = next(row for row in rows if row.sender == moved[0])
        step = view.slots(worlds[0], moved[0])[chunk] - view.slots(worlds[1], moved[0])[chunk]
        other = {**masks, between: (masks[between] + row.unknown[between] * step) % modulus}
        assert (other[between] != masks[between]).any()
        np.testing.assert_array_equal(seen(worlds[1], other), real)


@pytest.mark.parametrize('name', SAFE)
def test_shares_that_are_held_explain_every_secret_equally(name):
    """Through t - 1 shares and any secret at 0 there is one polynomial, as many as any other."""
    view = run_world(SAFE[name], draw_worlds(SAFE[name], np.random.default_rng(3))[0], 3)
    coalition, rng = view.coalition, np.random.default_rng(3)
    threshold, checked = view.bench.roster.threshold, set()
    for (owner, of, digest, kind), held in coalition.shares.items():
        if owner in coalition.seeds or coalition.restored(owner, of, kind):
            continue
        listed, places = coalition.lists[digest], positions(coalition.lists[digest].members)
        assert set(held) == set(coalition.seeds) and len(held) == threshold - 1
        secrets = view.bench.seeds[owner].of(of[0]).attempt(of[1])
        true = secrets.mask_secret if kind == MASK else secrets.self_seed
        for secret in (true, bytes(32), rng.bytes(32), rng.bytes(32)):
            points = {0: int.from_bytes(secret, 'big')}
            points |= {places[name]: int.from_bytes(held[name], 'big') for name in held}
            coefficients = polynomial_through(points)
            dealt = share(secret, threshold, listed.members, coefficients[1:])
            assert {name: dealt[name] for name in held} == held
            if secret == true:
                real = secrets.mask_polynomial if kind == MASK else secrets.self_polynomial
                assert coefficients[1:] == real(threshold, digest)
        checked.add((owner, kind))
    # The mask secrets of survivors, and the self seeds of who dropped out.
    lost = {owner for owner, stage in SAFE[name].schedule.items() if stage <= stage.WHILE_SENDING}
    dealt = {owner for owner, *_ in coalition.shares} - set(coalition.seeds)
    assert checked == {(each, SELF if each in lost else MASK) for each in dealt}


def polynomial_through(points):
    """Return the coefficients, from the constant up, by Newton's divided differences."""
    places, table = list(points), list(points.values())
    for order in range(1, len(places)):
        for at in range(len(places) - 1, order - 1, -1):
            step = pow(places[at] - places[at - order], -1, PRIME)
            table[at] = (table[at] - table[at - 1]) * step % PRIME
    coefficients = [0]
    for at in range(len(places) - 1, -1, -1):
        shifted = [0, *coefficients]
        scaled = [-places[at] * each % PRIME for each in coefficients] + [0]
        coefficients = [(one + two) % PRIME for one, two in zip(shifted, scaled, strict=True)]
        coefficients[0] = (coefficients[0] + table[at]) % PRIME
    return coefficients[: len(places)]


@pytest.mark.parametrize('name', ['five', 'seven, one lost while sending'])
def test_no_distinguisher_has_an_advantage_over_a_coin(name):
    wins = count_wins(SAFE[name], ROUNDS, seed=5)
    assert all(ROUNDS - MOST <= each <= MOST for each in wins.values()), wins


@pytest.mark.parametrize('name', LOST)
def test_with_one_share_more_every_distinguisher_is_always_right(name):
    wins = count_wins(LOST[name], 4, seed=6)
    assert wins == dict.fromkeys((each.__name__ for each in DISTINGUISHERS), 4)
