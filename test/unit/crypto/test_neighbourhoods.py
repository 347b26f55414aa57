# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Neighbours in a random ring: who they are, and how many keep what is promised, by exact laws."""

from fractions import Fraction
import hashlib
from itertools import combinations
from math import comb, prod
import random

from fdrl_ros.crypto.masking import neighbourhoods
from fdrl_ros.crypto.masking.neighbourhoods import (
    CORRUPT,
    default_neighbours,
    DROPPED,
    FAILURE_BITS,
    fewest_neighbours,
    fewest_witnesses,
    MOST_COMPLETE,
    named,
    Neighbourhoods,
    new_seed,
    share_threshold,
)
from fdrl_ros.errors import CryptoError
from hypothesis import given, settings, strategies
import pytest
from scipy.stats import chi2, hypergeom
from support.sample_size import sampled

SEED = bytes(range(32))
ONE_TAIL = Fraction(1, 2 ** (FAILURE_BITS + 3))


def names_of(count):
    return [f'hospital_{number}' for number in range(1, count + 1)]


def ring_of(names, degree, threshold, seed=SEED):
    """Return neighbourhoods as sparse as no law would allow among so few."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(neighbourhoods, 'share_threshold', lambda *_: (threshold, False))
        return Neighbourhoods(names, len(names), degree, seed)


SIZES = strategies.sampled_from([(7, 2), (8, 4), (11, 4), (12, 6), (20, 10), (30, 28)])
SEEDS = strategies.binary(min_size=32, max_size=32)


def slow_ring(names, seed):
    """Return the hospitals as they stand in the ring."""
    label = b'fdrl_ros ring of hospitals 1\n'
    return [
        name
        for _, name in sorted(
            (hashlib.sha256(label + seed + name.encode()).digest(), name) for name in names
        )
    ]


def slow_peers(names, degree, seed, name):
    """Return who is at most k / 2 places away in the ring, either way round."""
    ring = slow_ring(names, seed)
    places = {each: place for place, each in enumerate(ring)}
    found = []
    for other in names:
        apart = abs(places[other] - places[name])
        if other != name and min(apart, len(ring) - apart) <= degree // 2:
            found.append(other)
    return tuple(sorted(found))


@settings(max_examples=sampled(60, 15), deadline=None)
@given(SIZES, SEEDS, strategies.randoms(use_true_random=False))
def test_neighbours_are_those_of_a_ring_that_only_the_seed_and_the_names_give(size, seed, order):
    count, degree = size
    names = names_of(count)
    shuffled = order.sample(names, count)
    graph = ring_of(shuffled, degree, 2, seed)
    assert graph.hospitals == tuple(sorted(names))
    assert graph.degree == degree and not graph.is_complete
    for name in names:
        peers = graph.peers(name)
        assert peers == slow_peers(names, degree, seed, name)
        assert len(set(peers)) == degree and name not in peers
        assert all(name in graph.peers(peer) for peer in peers)
        # Who holds shares of one is whose shares it holds.
        holders = graph.holders(name)
        assert holders == tuple(sorted({*peers, name}))
        assert all(name in graph.holders(holder) for holder in holders)
        among = set(order.sample(names, count // 2))
        assert graph.holders(name, among) == tuple(each for each in holders if each in among)
        assert graph.holders(name, ()) == () and graph.holders(name) == holders
        for place, peer in enumerate(peers):
            assert graph.place(name, peer) == place
        for stranger in {*names, 'hospital', ''} - {*peers}:
            with pytest.raises(CryptoError, match='are no peers'):
                graph.place(name, stranger)
    for unknown in ('hospital_0', ''):
        for ask in (graph.peers, graph.holders, lambda name: graph.place(name, names[0])):
            with pytest.raises(CryptoError, match='is no hospital of the roster'):
                ask(unknown)


@pytest.mark.parametrize('count', [3, 4, 9, 40])
def test_all_others_are_peers_in_a_complete_graph(count):
    names = names_of(count)
    graph = Neighbourhoods(names[::-1], 3)
    assert graph.is_complete and graph.degree == count - 1 and graph.withstands_lies
    assert graph.threshold == graph.agreeing == 3 and graph.witnesses == frozenset(names)
    for name in names:
        others = sorted(set(names) - {name})
        assert graph.peers(name) == tuple(others)
        assert graph.holders(name) == tuple(sorted(names))
        assert graph.holders(name, names[:2]) == tuple(names[:2])
        assert [graph.place(name, other) for other in others] == list(range(count - 1))
        with pytest.raises(CryptoError, match='are no peers'):
            graph.place(name, name)
    for unknown in ('hospital_0', ''):
        with pytest.raises(CryptoError, match='is no hospital of the roster'):
            graph.peers(unknown)


def test_another_seed_or_other_names_give_another_ring():
    names = names_of(30)
    one = ring_of(names, 4, 2)
    others = [ring_of(names, 4, 2, bytes(31) + bytes([number])) for number in range(20)]
    for other in others:
        assert sum(one.peers(name) != other.peers(name) for name in names) > 20
    # A name more moves nobody else: only who stand next to it have another neighbour.
    more = ring_of([*names, 'hospital_31'], 4, 2)
    changed = {name for name in names if one.peers(name) != more.peers(name)}
    assert changed == set(more.peers('hospital_31'))
    seeds = {new_seed() for _ in range(50)}
    assert len(seeds) == 50 and {len(seed) for seed in seeds} == {32}


def test_every_pair_is_as_likely_to_be_neighbours():
    # Pearson's test over the 66 pairs of 12. Fixed seeds; the chance of a false alarm for fresh
    # ones is about 1e-6. Pairs of one ring depend on each other, which makes the sum smaller.
    names, rings = names_of(12), 600
    found = dict.fromkeys(combinations(sorted(names), 2), 0)
    for number in range(rings):
        graph = ring_of(names, 2, 2, hashlib.sha256(b'%d' % number).digest())
        for pair in found:
            found[pair] += pair[1] in graph.peers(pair[0])
    expected = rings * 12 / len(found)
    assert sum(found.values()) == rings * 12
    assert sum((each - expected) ** 2 / expected for each in found.values()) < chi2.isf(1e-6, 65)


def slow_lacking(graph, names, present):
    found = set()
    for name in names:
        there = [other for other in graph.hospitals if other in present]
        holders = [other for other in there if other == name or name in graph.peers(other)]
        if len(holders) < graph.threshold:
            found.add(name)
    return found


@settings(max_examples=sampled(60, 15), deadline=None)
@given(SIZES, SEEDS, strategies.data())
def test_who_lacks_holders_is_who_a_slow_count_finds(size, seed, data):
    names = names_of(size[0])
    threshold = data.draw(strategies.integers(2, size[1] + 1))
    some = strategies.lists(strategies.sampled_from(names), unique=True)
    asked, present = data.draw(some), data.draw(some)
    for graph in (ring_of(names, size[1], threshold, seed), Neighbourhoods(names, threshold)):
        assert graph.lacking(asked, present) == slow_lacking(graph, asked, present)
        assert graph.lacking(present, present) == slow_lacking(graph, present, present)
        counts = graph.holder_counts(set(present))
        assert counts == {name: len(graph.holders(name, present)) for name in names}


@settings(max_examples=sampled(40, 10), deadline=None)
@given(
    strategies.sampled_from([(7, 2), (8, 4), (10, 4), (10, 6)]),
    SEEDS,
    strategies.data(),
)
def test_connected_part_is_the_largest_of_all_parts_with_enough_holders(size, seed, data):
    names = names_of(size[0])
    threshold = data.draw(strategies.integers(2, size[1]))
    some = data.draw(strategies.lists(strategies.sampled_from(names), unique=True))
    for graph in (ring_of(names, size[1], threshold, seed), Neighbourhoods(names, threshold)):
        fine = [
            set(part)
            for count in range(len(some) + 1)
            for part in combinations(some, count)
            if not slow_lacking(graph, part, part)
        ]
        # Of two such parts the union is one too, so one of them holds all others.
        largest = fine[-1]
        assert all(part <= largest for part in fine)
        found = graph.connected(some)
        assert found == largest and isinstance(found, frozenset)
        assert graph.connected(found) == found


def test_leaving_goes_on_until_nobody_lacks_holders():
    # A gap in a ring with two neighbours, of which each hospital needs both: everybody falls.
    names = names_of(9)
    graph = ring_of(names, 2, 3)
    assert graph.connected(names) == frozenset(names)
    assert graph.connected(names[1:]) == frozenset() == graph.connected([])
    assert graph.lacking(names[1:], names[1:]) == frozenset(graph.peers(names[0]))


def test_who_can_end_a_round_are_connected_and_have_enough_witnesses(monkeypatch):
    monkeypatch.setattr(neighbourhoods, 'fewest_witnesses', lambda *of: (5, 4))
    names = names_of(12)
    graph = ring_of(names, 6, 4)
    witnesses = sorted(graph.witnesses)
    assert len(witnesses) == 5 and graph.agreeing == 4
    assert graph.able(names) == graph.connected(names) == frozenset(names)
    one_away = frozenset(names) - {witnesses[0]}
    assert graph.able(one_away) == one_away
    two_away = one_away - {witnesses[1]}
    assert graph.connected(two_away) == two_away and graph.able(two_away) == frozenset()
    complete = Neighbourhoods(names, 9)
    assert complete.able(names[:9]) == frozenset(names[:9])
    assert complete.able(names[:8]) == frozenset()


# The laws, the slow way round: exact fractions, from the definition.


def tail(others, marked, drawn, number):
    """Return the chance that more than a number of those drawn from some others are marked."""
    ways = sum(
        comb(marked, hits) * comb(others - marked, drawn - hits)
        for hits in range(number + 1, min(marked, drawn) + 1)
        if drawn - hits <= others - marked
    )
    return Fraction(ways, comb(others, drawn))


def most_marked(others, marked, drawn, rings=1):
    """Return the smallest number that is passed in one of some rings with 2^-43 at most."""
    return next(
        number
        for number in range(drawn + 1)
        if rings * tail(others, marked, drawn, number) <= ONE_TAIL
    )


def parts_chance(count, degree):
    """Bound the chance that somewhere k / 2 hospitals in a row are corrupt or away."""
    marked, side = int(count * (CORRUPT + DROPPED)), degree // 2
    return count * prod(
        (Fraction(max(marked - step, 0), count - 1 - step) for step in range(side)),
        start=Fraction(1),
    )


def slow_law(count, degree):
    """Return c, d, and the thresholds that keep a promise: the strict one, and the other."""
    corrupt, dropped = (
        most_marked(count - 1, int(count * share), degree, count) for share in (CORRUPT, DROPPED)
    )
    if parts_chance(count, degree) > ONE_TAIL:
        return corrupt, dropped, [], []
    left = range(1, degree - dropped + 1)
    strict = [each for each in left if 2 * each > degree + 1 + corrupt]
    loose = [each for each in left if each > corrupt + 2]
    return corrupt, dropped, strict, loose


COUNTS = [*range(5, 40, sampled(1, 5)), 64, 99, 101, 150, *sampled(range(200, 700, 77), (371,))]


def test_reference_is_the_hypergeometric_distribution():
    for others, marked, drawn in ((99, 33, 60), (15, 5, 14), (299, 100, 90), (40, 30, 20)):
        for number in range(drawn + 1):
            expected = hypergeom.sf(number, others, marked, drawn)
            assert float(tail(others, marked, drawn, number)) == pytest.approx(expected, 1e-6)


@pytest.mark.parametrize('count', COUNTS)
@pytest.mark.parametrize('strict', [True, False])
def test_fewest_neighbours_keep_what_is_promised_and_fewer_do_not(count, strict):
    degree = fewest_neighbours(count, withstands_lies=strict)
    smaller = range(2, degree or count - 1, 2)
    for each in smaller if len(smaller) < 40 else smaller[-sampled(30, 4) :]:
        assert not slow_law(count, each)[2 if strict else 3]
        if not slow_law(count, each)[3]:
            with pytest.raises(CryptoError, match='too few for|expected an even number'):
                share_threshold(count, each)
    if not degree:
        return
    assert degree % 2 == 0 and 2 <= degree < count - 1
    corrupt, dropped, strictly, loosely = slow_law(count, degree)
    threshold, withstands = share_threshold(count, degree)
    assert withstands == bool(strictly) and withstands >= strict
    assert threshold == min(strictly or loosely)
    # Colluding with c, lying servers miss one share of one of two sets.
    if withstands:
        assert Fraction(threshold) > Fraction(degree + 1 + corrupt, 2)
    # With any servers three honest holders have to reveal, and all can when d are away.
    assert threshold - corrupt >= 3 and threshold <= degree - dropped


@pytest.mark.parametrize('count', COUNTS)
def test_no_hospital_has_more_colluding_or_absent_neighbours_but_with_2_to_the_minus_40(count):
    for strict in (True, False):
        degree = fewest_neighbours(count, withstands_lies=strict)
        if not degree:
            continue
        corrupt, dropped, *_ = slow_law(count, degree)
        numbers = {CORRUPT: corrupt, DROPPED: dropped}
        chances = []
        for share, number in numbers.items():
            marked = int(count * share)
            chances.append(count * tail(count - 1, marked, degree, number))
            # No smaller number would do.
            assert not number or count * tail(count - 1, marked, degree, number - 1) > ONE_TAIL
        assert sum(chances) <= Fraction(1, 2**FAILURE_BITS)
        assert max(*chances, parts_chance(count, degree)) <= ONE_TAIL


@pytest.mark.parametrize('count', COUNTS)
def test_witnesses_agree_on_one_set_and_are_as_few_as_that_takes(count):
    everybody = 2 * count // 3 + 1
    witnesses, agreeing = fewest_witnesses(count, everybody)

    def law(number):
        corrupt, dropped = (
            most_marked(count, int(count * share), number) for share in (CORRUPT, DROPPED)
        )
        return [each for each in range(1, number - dropped + 1) if 2 * each > number + corrupt]

    if witnesses == count:
        assert agreeing == everybody
    else:
        assert agreeing == min(law(witnesses))
        assert 3 <= witnesses < count
    smaller = range(3, witnesses)
    for number in smaller if len(smaller) < 40 else smaller[-sampled(30, 4) :]:
        assert not law(number)
    # Two sets with so many signatures have an honest hospital in common.
    assert 2 * agreeing - witnesses > most_marked(count, int(count * CORRUPT), witnesses)


@pytest.mark.parametrize('count', [150, 200, 371])
def test_ring_fails_in_none_of_its_promises_with_more_than_2_to_the_minus_40(count):
    for strict in (True, False):
        degree = fewest_neighbours(count, withstands_lies=strict)
        witnesses, _ = fewest_witnesses(count, 2 * count // 3 + 1)
        chance = parts_chance(count, degree)
        for share in (CORRUPT, DROPPED):
            marked = int(count * share)
            near, signing = (
                most_marked(count - 1, marked, degree, count),
                most_marked(count, marked, witnesses),
            )
            chance += count * tail(count - 1, marked, degree, near)
            chance += tail(count, marked, witnesses, signing)
        assert chance <= Fraction(1, 2**FAILURE_BITS), float(chance * 2**FAILURE_BITS)


@pytest.mark.parametrize('count', [150, 240])
@pytest.mark.parametrize('strict', [True, False])
def test_real_rings_keep_what_is_promised(count, strict):
    names, generator = names_of(count), random.Random(count)
    degree = fewest_neighbours(count, withstands_lies=strict)
    corrupt, dropped, *_ = slow_law(count, degree)
    witnesses, agreeing = fewest_witnesses(count, 2 * count // 3 + 1)
    for _ in range(5):
        graph = Neighbourhoods(names, 2 * count // 3 + 1, degree, generator.randbytes(32))
        assert (graph.threshold, graph.withstands_lies) == share_threshold(count, degree)
        assert graph.agreeing == agreeing and graph.degree == degree
        ring = slow_ring(names, graph._seed)
        assert graph.witnesses == frozenset(ring[:witnesses])
        lying = set(generator.sample(names, count // 3))
        honest = [name for name in names if name not in lying]
        away = set(generator.sample(honest, count // 10))
        for name in names:
            peers = set(graph.peers(name))
            assert len(peers & lying) <= corrupt and len(peers & away) <= dropped
        # Whoever is away, nobody else lacks holders; all that is left is one part.
        there = [name for name in names if name not in away]
        assert graph.connected(there) == frozenset(there)
        assert reachable(graph, set(there) - lying) == set(there) - lying
        assert len(graph.witnesses - away) >= graph.agreeing


def reachable(graph, names):
    """Return whom one of some hospitals reaches from neighbour to neighbour among them."""
    found = [min(names)]
    for name in found:
        found += [peer for peer in graph.peers(name) if peer in names and peer not in found]
    return set(found)


def test_new_federation_masks_with_all_others_up_to_a_hundred_hospitals():
    assert MOST_COMPLETE == 100
    assert {default_neighbours(count) for count in (3, 10, 50, 99, 100)} == {0}
    for count in (101, 150, 300):
        assert default_neighbours(count) == fewest_neighbours(count) > 0
        assert Neighbourhoods(names_of(count), 2 * count // 3 + 1, default_neighbours(count), SEED)


@pytest.mark.parametrize('degree', [-2, -1, 1, 3, 61, 199, 198.5, 200, 202, 10_000])
def test_impossible_number_of_neighbours_is_refused(degree):
    words = '(?s)expected an even number from 2 to 198, or 0 for all others'
    with pytest.raises(CryptoError, match=words):
        share_threshold(200, degree)
    with pytest.raises(CryptoError, match=words):
        Neighbourhoods(names_of(200), 134, degree, SEED)


@pytest.mark.parametrize(
    ('count', 'degree', 'words'),
    [
        (200, 2, 'take 102, or 0'),
        (200, 70, 'take 102, or 0'),
        (12, 4, 'take 0, which means all others'),
    ],
)
def test_too_few_neighbours_are_refused_with_a_number_that_would_do(count, degree, words):
    with pytest.raises(CryptoError, match=f'too few for {count} hospitals.*{words}'):
        share_threshold(count, degree)
    with pytest.raises(CryptoError, match='too few for'):
        Neighbourhoods(names_of(count), 2 * count // 3 + 1, degree, SEED)


@pytest.mark.parametrize('degree', [0, 100])
@pytest.mark.parametrize('size', [0, 1, 31, 32, 33, 64])
def test_seed_of_another_size_is_refused(degree, size):
    if size == (32 if degree else 0):
        assert Neighbourhoods(names_of(200), 134, degree, bytes(size)).hospitals
        return
    with pytest.raises(CryptoError, match=f'seed of the neighbourhoods: {size} bytes'):
        Neighbourhoods(names_of(200), 134, degree, bytes(size))


@given(strategies.sets(strategies.integers(0, 19)), strategies.integers(3, 20))
def test_bitmaps_mark_the_hospitals_in_the_order_of_their_names(chosen, count):
    names = names_of(count)
    graph = Neighbourhoods(names, count)
    marked = {names[each] for each in chosen if each < count}
    marks = graph.marks(marked)
    assert graph.named(marks) == named(marks, graph.hospitals) == tuple(sorted(marked))
    assert len(marks) == (-(-count // 8) if marked else 0)
    assert marks == graph.marks(sorted(marked, reverse=True))


def test_there_is_one_bitmap_of_a_set_of_hospitals():
    graph = Neighbourhoods(names_of(12), 12)
    assert graph.marks(['hospital_1', 'hospital_2']) == bytes([0b10001, 0])  # 1 10 11 12 2
    assert graph.marks(()) == b'' == graph.marks(['hospital_13'])
    for marks in (b'\x01', b'\x01\x00\x00', b'\x00\x00', b'\x00\x10', b'\x00'):
        with pytest.raises(CryptoError, match='is none of some hospitals'):
            graph.named(marks)
