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
from typing import Self

from fdrl_ros.privacy.accountant import Charge


@dataclass(frozen=True)
class Owner:
    """Whose ledger it is and what it promises; its hash begins the chain."""

    hospital: str
    unit: str
    delta: float
    budget: float

    @property
    def digest(self) -> bytes:
        """Return the SHA-256 that the first entry builds on."""
        names = [each.encode() for each in (self.hospital, self.unit)]
        text = b''.join(struct.pack('<I', len(name)) + name for name in names)
        text += struct.pack('<dd', self.delta, self.budget)
        return hashlib.sha256(b'fdrl_ros ledger 2 ' + text).digest()


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
