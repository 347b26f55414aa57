# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Hash trees: every leaf is shown to be below its root, at its place, and nothing else is."""

import hashlib

from fdrl_ros.crypto.masking.merkle import path_bytes, root_and_paths, root_of
from fdrl_ros.errors import CryptoError
from hypothesis import given, settings, strategies
import pytest

COUNTS = [*range(1, 18), 31, 32, 33, 100]

# The leaves of the known answers that come with Certificate Transparency (RFC 6962).
PUBLISHED = [
    bytes.fromhex(text)
    for text in (
        '',
        '00',
        '10',
        '2021',
        '3031',
        '40414243',
        '5051525354555657',
        '606162636465666768696a6b6c6d6e6f',
    )
]
ROOTS = {
    1: '6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d',
    2: 'fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125',
    4: 'd37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7',
    8: '5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328',
}


def digest(data):
    return hashlib.sha256(data).digest()


def height_of(count):
    """Return the levels above so many leaves, counted out."""
    height = 0
    while 2**height < count:
        height += 1
    return height


def node(leaves, level, place):
    """Return a node of the tree, from the top down."""
    if place * 2**level >= len(leaves):
        return bytes(32)
    if level == 0:
        return digest(b'\x00' + leaves[place])
    left, right = (node(leaves, level - 1, 2 * place + side) for side in (0, 1))
    return digest(b'\x01' + left + right)


def slow_path(leaves, place):
    path = b''
    for level in range(height_of(len(leaves))):
        path += node(leaves, level, place + 1 if place % 2 == 0 else place - 1)
        place //= 2
    return path


def numbered(count):
    return [b'leaf %d' % number for number in range(count)]


@strategies.composite
def trees(draw, *, least=1):
    """Draw the leaves of a tree."""
    count = draw(strategies.sampled_from([each for each in COUNTS if each >= least]))
    some = strategies.binary(max_size=70)
    return draw(strategies.lists(some, min_size=count, max_size=count))


@pytest.mark.parametrize('count', ROOTS)
def test_full_tree_is_that_of_rfc_6962(count):
    root, _ = root_and_paths(PUBLISHED[:count])
    assert root.hex() == ROOTS[count]


@settings(deadline=None)
@given(trees())
def test_tree_is_what_a_slow_recursion_gives_and_shows_every_leaf(leaves):
    root, paths = root_and_paths(leaves)
    assert root == node(leaves, height_of(len(leaves)), 0) and len(root) == 32
    assert len(paths) == len(leaves)
    for place, leaf in enumerate(leaves):
        assert paths[place] == slow_path(leaves, place)
        assert len(paths[place]) == path_bytes(len(leaves)) == 32 * height_of(len(leaves))
        assert root_of(leaf, place, paths[place]) == root


def test_trees_of_every_number_of_leaves_differ_and_show_their_leaves():
    found = set()
    for count in range(1, 70):
        leaves = numbered(count)
        root, paths = root_and_paths(leaves)
        found.add(root)
        assert root == node(leaves, height_of(count), 0)
        for place, path in enumerate(paths):
            assert root_of(leaves[place], place, path) == root
    assert len(found) == 69


@settings(deadline=None)
@given(trees(), strategies.data())
def test_other_leaf_is_not_shown(leaves, data):
    root, paths = root_and_paths(leaves)
    place = data.draw(strategies.integers(0, len(leaves) - 1))
    leaf = leaves[place]
    other = data.draw(
        strategies.binary(max_size=70)
        | strategies.sampled_from([leaf + b'\0', b'\0' + leaf, leaf[:-1], leaf[1:], *leaves])
    )
    assert (root_of(other, place, paths[place]) == root) == (other == leaf)


@settings(deadline=None)
@given(trees(least=2), strategies.data())
def test_leaf_is_not_shown_at_another_place_unless_the_same_is_there(leaves, data):
    root, paths = root_and_paths(leaves)
    place = data.draw(strategies.integers(0, len(leaves) - 1))
    for other in range(2 ** height_of(len(leaves))):
        same = other < len(leaves) and leaves[other] == leaves[place]
        if not same:
            assert root_of(leaves[place], other, paths[place]) != root
        if other < len(leaves):
            assert (root_of(leaves[place], other, paths[other]) == root) == same


@settings(deadline=None)
@given(trees(least=2), strategies.data())
def test_changed_path_shows_nothing(leaves, data):
    root, paths = root_and_paths(leaves)
    place = data.draw(strategies.integers(0, len(leaves) - 1))
    path = paths[place]
    at = data.draw(strategies.integers(0, len(path) - 1))
    flip = data.draw(strategies.integers(1, 255))
    changed = path[:at] + bytes([path[at] ^ flip]) + path[at + 1 :]
    for wrong in (changed, path[:-1], path[32:], path[:-32], path + b'\0', path + bytes(32)):
        assert root_of(leaves[place], place, wrong) != root


@settings(deadline=None)
@given(trees(), trees())
def test_other_trees_have_other_roots(one, other):
    roots = [root_and_paths(leaves)[0] for leaves in (one, other)]
    assert (roots[0] == roots[1]) == (one == other)


@settings(deadline=None)
@given(trees(least=2))
def test_order_of_leaves_matters(leaves):
    same = leaves == leaves[::-1]
    assert (root_and_paths(leaves)[0] == root_and_paths(leaves[::-1])[0]) == same


@pytest.mark.parametrize('count', [2, 3, 5, 8, 9, 33])
def test_node_does_not_pass_as_a_leaf_nor_a_leaf_as_a_node(count):
    leaves = numbered(count)
    root, paths = root_and_paths(leaves)
    height = height_of(len(leaves))
    for level in range(1, height + 1):
        for place in range(-(-count // 2**level)):
            below = [node(leaves, level - 1, 2 * place + side) for side in (0, 1)]
            path = paths[place * 2**level][32 * level :]
            # What is hashed to this node, with a prefix of its own or without.
            for leaf in (b''.join(below), b'\x01' + b''.join(below), node(leaves, level, place)):
                assert root_of(leaf, place, path) != root
    # A tree over the digests of leaves is not the tree over the leaves.
    digests = [node(leaves, 0, place) for place in range(count)]
    assert root_and_paths(digests)[0] != root
    for leaf in (digests[0] + digests[1], b'\x01' + digests[0] + digests[1]):
        assert digest(b'\x00' + leaf) != node(leaves, 1, 0)


def test_nothing_is_shown_where_leaves_are_missing():
    leaves = numbered(5)
    root, paths = root_and_paths(leaves)
    above = node(leaves, 1, 2), node(leaves, 2, 0)
    for place, path in (
        (5, node(leaves, 0, 4) + above[1] + above[1]),
        (5, node(leaves, 0, 4) + bytes(32) + above[1]),
        (6, bytes(32) + above[0] + above[1]),
        (7, bytes(32) + above[0] + above[1]),
    ):
        for leaf in (b'', bytes(32), bytes(64), b'\x00', *leaves):
            assert root_of(leaf, place, path) != root
    # An empty leaf is one.
    for last in (b'', bytes(32)):
        assert root_and_paths([*leaves, last])[0] != root
    assert root_of(leaves[4], 4, paths[4]) == root and paths[4][:64] == bytes(64)


def test_tree_of_one_leaf_has_no_path():
    assert root_and_paths([b'alone']) == (digest(b'\x00alone'), [b'']) and path_bytes(1) == 0


def test_path_of_every_tree_has_its_size():
    for count in range(1, 1030):
        assert path_bytes(count) == 32 * height_of(count)
    assert path_bytes(10_000) == 32 * 14


def test_tree_without_leaves_is_refused():
    with pytest.raises(CryptoError, match='without leaves'):
        root_and_paths([])
