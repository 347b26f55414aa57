# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The ledger's chain: each entry's hash covers the entry and the hash before it.

Whoever can write the file can also rebuild the chain from its start; only a head that somebody
else remembers shows that. The chain makes one remembered head vouch for every entry before it.
"""

from dataclasses import dataclass
import hashlib
import struct
from typing import NamedTuple, Self

from fdrl_ros.errors import PrivacyError
from fdrl_ros.privacy.accountant import Charge


class Head(NamedTuple):
    """The ledger in short: how many entries, and the hash of the last."""

    entries: int
    digest: bytes

    def __str__(self) -> str:
        """Return the form that people compare and :meth:`parse` reads, as 12:9f86d0..."""
        return f'{self.entries}:{self.digest.hex()}'

    @classmethod
    def parse(cls, text: str) -> Self:
        """
        Read what :meth:`__str__` wrote.

        :raises PrivacyError: if it is none.
        """
        entries, _, digest = text.strip().partition(':')
        if entries.isascii() and entries.isdecimal() and len(digest) == 64:
            try:
                return cls(int(entries), bytes.fromhex(digest))
            except ValueError:
                pass
        raise PrivacyError(f'head {text!r}: expected entries:hash, the hash in 64 hex digits')


@dataclass(frozen=True)
class Owner:
    """Whose ledger it is and what it promises; its hash begins the chain."""

    hospital: str
    unit: str
    delta: float
    budget: float
    model: str

    @property
    def digest(self) -> bytes:
        """Return the SHA-256 that the first entry builds on."""
        names = [each.encode() for each in (self.hospital, self.unit, self.model)]
        text = b''.join(struct.pack('<I', len(name)) + name for name in names)
        text += struct.pack('<dd', self.delta, self.budget)
        return hashlib.sha256(b'fdrl_ros ledger 2 ' + text).digest()

    def unlike(self, other: 'Owner') -> str:
        """Say where this differs from another; nothing where they are the same."""
        for name in ('hospital', 'unit', 'delta', 'budget', 'model'):
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs:
                return f'was begun for {name} {mine!r}, not {theirs!r}'
        return ''


@dataclass(frozen=True)
class Entry:
    """One row: a block of steps, the digest of its inputs, and the hash of all up to here."""

    number: int
    round: int
    block: int
    charge: Charge
    inputs: bytes
    digest: bytes

    @classmethod
    def after(
        cls, last: bytes, number: int, round: int, block: int, charge: Charge, inputs: bytes
    ) -> Self:
        """Make the entry that follows the one with digest `last`."""
        digest = hashlib.sha256(inputs).digest()
        return cls(
            number,
            round,
            block,
            charge,
            digest,
            _chain(last, number, round, block, charge, digest),
        )

    def fits(self, last: bytes) -> bool:
        """Tell whether this row is unchanged and follows the one with digest `last`."""
        try:
            expected = _chain(last, self.number, self.round, self.block, self.charge, self.inputs)
        except (struct.error, TypeError):
            return False
        return self.digest == expected


def _chain(
    last: bytes, number: int, round: int, block: int, charge: Charge, inputs: bytes
) -> bytes:
    numbers = struct.pack('<qqqddqq', number, round, block, *charge)
    return hashlib.sha256(last + numbers + inputs).digest()
