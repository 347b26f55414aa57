# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Hash trees (Merkle 1987): one signature on the root stands for every leaf.

Who gets one leaf with its path needs no other leaf to see that it is the one that was signed.
Leaves and nodes are hashed with SHA-256 under different prefixes, as in RFC 6962, so that no node
passes as a leaf. Missing leaves of a level are zero bytes: all paths of a tree have one length.
"""

from collections.abc import Sequence
import hashlib
from typing import Final

from fdrl_ros.errors import CryptoError

DIGEST: Final = 32
_LEAF, _NODE = b'\x00', b'\x01'
_NONE = bytes(DIGEST)


def path_bytes(leaves: int) -> int:
    """Return the size of a path in a tree of so many leaves, at least 1."""
    return DIGEST * (leaves - 1).bit_length()


def root_and_paths(leaves: Sequence[bytes]) -> tuple[bytes, list[bytes]]:
    """
    Build a tree.

    :param leaves: of any sizes, at least one.
    :returns: the root, 32 bytes, and the path of each leaf from below, 32 bytes a level.
    :raises CryptoError: without leaves.
    """
    if not leaves:
        raise CryptoError('a hash tree without leaves')
    level = [hashlib.sha256(_LEAF + leaf).digest() for leaf in leaves]
    paths = [b''] * len(leaves)
    for height in range((len(leaves) - 1).bit_length()):
        level += [_NONE] * (len(level) % 2)
        paths = [path + level[place >> height ^ 1] for place, path in enumerate(paths)]
        level = [
            hashlib.sha256(_NODE + level[at] + level[at + 1]).digest()
            for at in range(0, len(level), 2)
        ]
    return level[0], paths


def root_of(leaf: bytes, place: int, path: bytes) -> bytes:
    """
    Return the root of the tree that has a leaf at a place, counted from 0.

    :param path: as :func:`root_and_paths` returned it; its length is for the caller to check.
    """
    node = hashlib.sha256(_LEAF + leaf).digest()
    for start in range(0, len(path), DIGEST):
        other = path[start : start + DIGEST]
        pair = other + node if place & 1 else node + other
        node = hashlib.sha256(_NODE + pair).digest()
        place >>= 1
    return node
