# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Long weights in pieces, for readers on other hosts: a few at a time, so that nothing waits long.

All pieces of the newest weights stay with their sender until others take their place, so who
comes late, or was cut off, still gets every one.
"""

from collections.abc import Iterator
from typing import Any, Final

import fdrl_ros.msg as ros

PIECE: Final = 61440
"""
Bytes of a full piece: with its header it fits into one datagram.

Pieces of 256 KB, which the middleware cuts, carry 20 MB in two thirds of the time, but a small
message then waits for up to two seconds where it waits for 8 ms now (benchmark/transport.py).
"""

BURST: Final = 4
"""Pieces published in one go."""

PERIOD: Final = 0.004
"""Time between two bursts, second: with it a stream of 60 MB/s, half of a gigabit network."""


def cut(data: bytes, digest: bytes) -> Iterator[ros.Piece]:
    """Cut bytes into messages, one at a time."""
    whole = memoryview(data)
    for number, start in enumerate(range(0, len(data), PIECE)):
        piece = ros.Piece(piece=number)
        piece.digest.frombytes(digest)
        piece.data.frombytes(whole[start : start + PIECE])
        yield piece


class Stream:
    """What is still to be published of the newest weights."""

    def __init__(self, publisher: Any) -> None:
        """Have nothing to publish."""
        self._publisher = publisher
        self._rest: Iterator[ros.Piece] | None = None

    def begin(self, data: bytes, digest: bytes) -> None:
        """Take other weights; what was left of earlier ones is of no use any more."""
        self._rest = cut(data, digest)

    @property
    def is_due(self) -> bool:
        """Whether there is something to publish, and somebody who wants it."""
        return self._rest is not None and self._publisher.get_subscription_count() > 0

    def burst(self) -> bool:
        """
        Publish a few pieces.

        :returns: whether more are due.
        """
        for _ in range(BURST):
            piece = None if self._rest is None else next(self._rest, None)
            if piece is None:
                self._rest = None
                return False
            self._publisher.publish(piece)
        return self.is_due


class Assembly:
    """
    Pieces put together again, of weights of one size: no sender can make it hold more.

    The newest two weights are kept apart: pieces may come before the message that announces them.
    """

    def __init__(self, size: int) -> None:
        """
        Begin with nothing.

        :param size: bytes of the weights.
        """
        self._size = size
        self._parts: dict[bytes, tuple[bytearray, set[int]]] = {}

    def take(self, piece: ros.Piece) -> bytes | None:
        """
        Put a piece in its place; one that cannot be is left out.

        :returns: the digest, if with it all pieces are there.
        """
        digest, start = bytes(piece.digest), piece.piece * PIECE
        if start >= self._size or len(piece.data) != min(PIECE, self._size - start):
            return None
        if digest not in self._parts:
            while len(self._parts) > 1:
                del self._parts[next(iter(self._parts))]
            self._parts[digest] = bytearray(self._size), set()
        buffer, places = self._parts[digest]
        buffer[start : start + PIECE] = memoryview(piece.data)
        places.add(piece.piece)
        return digest if self._is_whole(digest) else None

    def pop(self, digest: bytes) -> bytearray | None:
        """Hand out weights all of whose pieces are there."""
        return self._parts.pop(digest)[0] if self._is_whole(digest) else None

    def _is_whole(self, digest: bytes) -> bool:
        places = self._parts[digest][1] if digest in self._parts else ()
        return len(places) == -(-self._size // PIECE)
